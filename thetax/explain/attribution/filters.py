r"""Filters (kernels) and feature maps of a convolutional network (§4.2).

A filter of the first convolution is a pattern of pixels; feature map $l$ is the response to filter
$W_l$ at each position.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core import Model
from ...layers import Convolution, Ensemble, has_batch_norm
from ..modules import module_names, named_modules
from ..signal.activation_statistics import layer_output_shapes, layer_outputs


@dataclass(frozen=True)
class Filters:
    """The kernels of one convolution, one for each output channel."""

    kernels: Float[np.ndarray, "m c *k"]
    layer: str


@dataclass(frozen=True)
class FeatureMaps:
    """Feature maps of each convolution on one example, in the order of computation."""

    maps: tuple[Float[np.ndarray, "_ ..."], ...]  # m *s each
    layers: tuple[str, ...]
    x: Float[np.ndarray, "c *s"]


def has_convolution(model: Any) -> bool:
    """Whether the model has a `Convolution` outside of an `Ensemble`."""
    ends = lambda node: isinstance(node, Convolution | Ensemble)
    return any(isinstance(node, Convolution) for node in jax.tree.leaves(model, is_leaf=ends))


def filters(model: Any) -> Filters:
    r"""Filters of the first convolution (§4.2), oriented as in cross-correlation: $W_l[j]$
    multiplies $x[i + j]$.

    >>> from thetax.layers import Chain
    >>> edge = Convolution(jnp.array([[[-1.0, 0.0, 1.0]]]))
    >>> result = filters(Chain(edge, jnp.tanh))
    >>> result.layer, result.kernels.tolist()
    ('Convolution 1', [[[-1.0, 0.0, 1.0]]])
    """
    for path, module in named_modules(model):
        if isinstance(module, Convolution):
            W = np.asarray(module.W)
            kernels = np.flip(W, axis=tuple(range(2, W.ndim))) if module.flip else W
            return Filters(kernels, module_names(model)[path])
    raise ValueError(
        "filters: the model has no Convolution; this lens is for convolutional networks."
    )


def feature_maps(model: Model, x: Float[Array | np.ndarray, "c *s"]) -> FeatureMaps:
    r"""Feature maps $W_l \star h + b_l$ of all convolutions, for each output channel $l$, on one
    example (§4.2).

    >>> from thetax.layers import Chain
    >>> edge = Convolution(jnp.array([[[-1.0, 0.0, 1.0]]]))
    >>> feature_maps(Chain(edge, jax.nn.relu), jnp.array([[0.0, 0.0, 1.0, 1.0]])).maps[0].tolist()
    [[0.0, 1.0, 1.0, -1.0]]
    """
    if has_batch_norm(model):
        raise ValueError(
            "feature_maps: the model has batch norms, which depend on the batch; fold the model "
            "first."
        )
    kinds = dict(named_modules(model))
    name = module_names(model)
    xs = jnp.asarray(x)[None]
    paths = layer_output_shapes(model, xs)[0]
    convolved = [i for i, path in enumerate(paths) if isinstance(kinds[path], Convolution)]
    if not convolved:
        raise ValueError(
            "feature_maps: the model has no Convolution; this lens is for convolutional networks."
        )
    outputs = jax.jit(lambda model, xs: layer_outputs(model, xs)[1])(model, xs)
    maps = tuple(np.asarray(outputs[i][0]) for i in convolved)
    return FeatureMaps(maps, tuple(name[paths[i]] for i in convolved), np.asarray(x))
