r"""What a convolutional network looks for, and where it finds it (§4.2): its kernels, and its maps
of one example.

A kernel of the first convolution is a pattern of pixels; map $l$ of a convolution tells, place by
place, how much of its pattern $W_l$ there is.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core import Model
from ...layers import Convolution, Ensemble, has_batch_norm
from ..modules import labels, modules
from ..signal.activation_statistics import heard, heard_paths


@dataclass(frozen=True)
class Filters:
    """The kernels of one convolution, an output each."""

    kernels: Float[np.ndarray, "m c *k"]
    layer: str


@dataclass(frozen=True)
class FeatureMaps:
    """What each convolution puts out on one example, in the order in which they compute."""

    maps: tuple[Float[np.ndarray, "_ ..."], ...]  # m *s each
    layers: tuple[str, ...]
    x: Float[np.ndarray, "c *s"]


def has_convolution(model: Any) -> bool:
    """Whether there is a convolution in the model, not counting those side by side in an
    `Ensemble`.
    """
    ends = lambda node: isinstance(node, Convolution | Ensemble)
    return any(isinstance(node, Convolution) for node in jax.tree.leaves(model, is_leaf=ends))


def filters(model: Any) -> Filters:
    r"""The kernels of the first convolution (§4.2), as they are laid on the signal: $W_l[j]$ meets
    $x[i + j]$.

    >>> from thetax.layers import Chain
    >>> edge = Convolution(jnp.array([[[-1.0, 0.0, 1.0]]]))
    >>> found = filters(Chain(edge, jnp.tanh))
    >>> found.layer, found.kernels.tolist()
    ('Convolution 1', [[[-1.0, 0.0, 1.0]]])
    """
    for path, module in modules(model):
        if isinstance(module, Convolution):
            W = np.asarray(module.W)
            met = np.flip(W, axis=tuple(range(2, W.ndim))) if module.flip else W
            return Filters(met, labels(model)[path])
    raise ValueError(
        "filters: the model has no Convolution; this lens is for convolutional networks."
    )


def feature_maps(model: Model, x: Float[Array | np.ndarray, "c *s"]) -> FeatureMaps:
    r"""$W_l \star h + b_l$ for each convolution and each of its outputs $l$, on one example (§4.2).

    >>> from thetax.layers import Chain
    >>> edge = Convolution(jnp.array([[[-1.0, 0.0, 1.0]]]))
    >>> feature_maps(Chain(edge, jax.nn.relu), jnp.array([[0.0, 0.0, 1.0, 1.0]])).maps[0].tolist()
    [[0.0, 1.0, 1.0, -1.0]]
    """
    if has_batch_norm(model):
        raise ValueError(
            "feature_maps: the model has batch norms, which depend on the batch; fold(model, xs) "
            "it first."
        )
    kinds = dict(modules(model))
    name = labels(model)
    xs = jnp.asarray(x)[None]
    paths = heard_paths(model, xs)[0]
    convolved = [i for i, path in enumerate(paths) if isinstance(kinds[path], Convolution)]
    if not convolved:
        raise ValueError(
            "feature_maps: the model has no Convolution; this lens is for convolutional networks."
        )
    outputs = jax.jit(lambda model, xs: heard(model, xs)[1])(model, xs)
    maps = tuple(np.asarray(outputs[i][0]) for i in convolved)
    return FeatureMaps(maps, tuple(name[paths[i]] for i in convolved), np.asarray(x))
