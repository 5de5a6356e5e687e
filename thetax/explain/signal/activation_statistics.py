r"""Layer statistics: weights, activations $h_\ell$ and gradients (signal propagation through depth,
vanishing and exploding gradients, dead units).

If $\|\partial L / \partial h_\ell\|$ falls or grows geometrically in $\ell$, the network trains
slowly or not at all (§2.4, §8.1); a unit that is 0 on every example learns nothing. A layer here is
a module without submodules, or a `Residual` or `Concat`. Batch norms use the statistics of the
batch. Layers inside a vmap or scan of the model are recorded only as a whole, if the module that
runs it sets `is_leaf_module`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Float, PRNGKeyArray

from ...core import BATCH_AXIS, Batch, Model, Objective, apply
from ..modules import hook_outputs, module_names, parameter_owners

DEFAULT_BINS = 60


@dataclass(frozen=True)
class WeightStatistics:
    """Statistics of the parameters of each layer."""

    layers: tuple[str, ...]
    size: tuple[int, ...]
    mean: Float[np.ndarray, " l"]
    std: Float[np.ndarray, " l"]
    max_abs: Float[np.ndarray, " l"]  # largest absolute value
    norm: Float[np.ndarray, " l"]
    edges: Float[np.ndarray, "l _"]  # of the bins
    density: Float[np.ndarray, "l bins"]  # histogram of unit area


def weight_statistics(model: Any, *, bins: int = DEFAULT_BINS) -> WeightStatistics:
    """Weight statistics: mean, standard deviation, norm and histogram of each layer's parameters.

    >>> from thetax.layers import Linear
    >>> result = weight_statistics(Linear(jnp.array([[3.0, -4.0]]), jnp.zeros(1)))
    >>> result.layers, result.norm.tolist(), result.max_abs.tolist()
    (('Linear 1',), [5.0], [4.0])
    """
    by_owner: dict[str, list[np.ndarray]] = {}
    for owner, leaf in zip(parameter_owners(model), jax.tree.leaves(model)):
        by_owner.setdefault(owner, []).append(np.asarray(leaf, np.float64).ravel())
    if not by_owner:
        raise ValueError(
            "weight_statistics: the model has no parameters; give a model with at least one array."
        )
    name = module_names(model)
    theta = [np.concatenate(parts) for parts in by_owner.values()]
    histograms = [np.histogram(w, bins=bins, density=True) for w in theta]
    return WeightStatistics(
        layers=tuple(name.get(owner, owner) for owner in by_owner),
        size=tuple(w.size for w in theta),
        mean=np.array([w.mean() for w in theta]),
        std=np.array([w.std() for w in theta]),
        max_abs=np.array([np.abs(w).max() for w in theta]),
        norm=np.array([np.linalg.norm(w) for w in theta]),
        edges=np.array([edges for _, edges in histograms]),
        density=np.array([density for density, _ in histograms]),
    )


def _is_float_array(h: Any) -> bool:
    return isinstance(h, jax.Array) and jnp.issubdtype(h.dtype, jnp.inexact)


def _recordable() -> Any:
    """A predicate: whether an output is a float array of the current trace, not of an inner vmap or
    scan.
    """
    # Tracers of an inner vmap or scan must not leak out of it, so they cannot be recorded.
    state = get_opaque_trace_state(convention="flax")
    return lambda h: _is_float_array(h) and get_opaque_trace_state(convention="flax") == state


def layer_outputs(model: Any, xs: Batch) -> tuple[tuple[str, ...], list[Any]]:
    """The paths of the layers in the order of computation, and their outputs `n ...`."""
    paths: list[str] = []

    def forward(x):
        paths.clear()
        outputs = []
        recordable = _recordable()

        def record(path, h):
            if recordable(h):
                paths.append(path)
                outputs.append(h)
            return h

        apply(hook_outputs(model, record), x)
        return outputs

    outputs = jax.vmap(forward, axis_name=BATCH_AXIS)(xs)
    return tuple(paths), outputs


def layer_output_shapes(model: Any, xs: Batch) -> tuple[tuple[str, ...], list[Any]]:
    """As `layer_outputs`, with shapes and dtypes instead of arrays: nothing is computed."""
    paths: list[tuple[str, ...]] = []

    def trace(model, xs):
        names, outputs = layer_outputs(model, xs)
        paths.append(names)
        return outputs

    outputs = jax.eval_shape(trace, model, xs)
    return paths[-1], outputs


@dataclass(frozen=True)
class ActivationStatistics:
    """Statistics of each layer's output over a batch, in the order of computation."""

    layers: tuple[str, ...]
    mean: Float[np.ndarray, " l"]
    std: Float[np.ndarray, " l"]
    zeros: Float[np.ndarray, " l"]  # fraction of outputs that are exactly 0
    # fraction of units that are 0 on every example; in feature maps, of channels
    dead: Float[np.ndarray, " l"]


def activation_statistics(model: Model, xs: Batch) -> ActivationStatistics:
    """Activation statistics of each layer on the examples `xs`: mean, standard deviation, fraction
    of zeros and of dead units.

    >>> from thetax.layers import Chain, Linear
    >>> net = Chain(Linear(jnp.array([[1.0], [-1.0]]), jnp.zeros(2)), jax.nn.relu)
    >>> result = activation_statistics(net, jnp.array([[1.0], [3.0]]))
    >>> result.layers, result.mean.tolist(), result.dead.tolist()
    (('Linear 1', 'relu 1'), [0.0, 1.0], [0.0, 0.5])
    """
    name = module_names(model)
    moments = np.asarray(_moments(model, xs), np.float64).reshape(-1, 4)
    return ActivationStatistics(
        tuple(name[path] for path in layer_output_shapes(model, xs)[0]), *moments.T
    )


@jax.jit
def _moments(model: Any, xs: Batch) -> list[Any]:
    def moments(h):
        h = h.astype(jnp.promote_types(h.dtype, jnp.float32))
        axes = (0, 2, 3) if h.ndim == 4 else 0  # in feature maps n c h w a unit is a channel
        return jnp.array([h.mean(), h.std(), (h == 0).mean(), (h == 0).all(axis=axes).mean()])

    return [moments(h) for h in layer_outputs(model, xs)[1]]


@dataclass(frozen=True)
class GradientNorms:
    r"""Norms of $\partial L / \partial h_\ell$ and $\partial L / \partial \theta_\ell$ for each
    layer.
    """

    layers: tuple[str, ...]
    outputs: Float[np.ndarray, " l"]
    parameter_layers: tuple[str, ...]  # the layers with parameters
    weights: Float[np.ndarray, " m"]


class _Probed(eqx.Module):
    """$f$ with a probe added to each layer's output; its input is a pair of $x$ and the probes."""

    model: Any

    def __call__(self, pair: tuple[Any, list[Any]], *, key: PRNGKeyArray | None = None) -> Any:
        x, probes = pair
        remaining = iter(probes)
        recordable = _recordable()
        add = lambda path, h: h + next(remaining).astype(h.dtype) if recordable(h) else h
        return apply(hook_outputs(self.model, add), x, key=key)


def gradient_norms(objective: Objective, model: Model, batch: Batch) -> GradientNorms:
    r"""Gradient norms of each layer's output and parameters, in one backward pass (§2.4): vanishing
    or exploding gradients through depth.

    For $L = \frac1n \sum_i l_i$ over the batch `(xs, ys)`, the norm for the outputs of layer $\ell$
    is the root mean square over examples, $\sqrt{\frac1n \sum_i \|n\, \partial L / \partial
    h_{\ell,i}\|^2}$, where $n\, \partial L / \partial h_{\ell, i}$ is $\partial l_i / \partial
    h_{\ell, i}$ if examples are independent; for parameters it is $\|\partial L / \partial
    \theta_\ell\|$. Zero probes $\delta$ are added, $h_\ell + \delta_\ell$, and $L$ is
    differentiated in them.

    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> model = Linear(jnp.zeros((1, 1)), jnp.zeros(1))
    >>> result = gradient_norms(squared_error, model, (jnp.ones((2, 1)), -3 * jnp.ones(2)))
    >>> result.outputs.tolist(), result.weights.round(3).tolist()
    ([3.0], [4.243])
    """
    (xs, _), name = batch, module_names(model)
    paths, shapes = layer_output_shapes(model, xs)
    owners = list(dict.fromkeys(parameter_owners(model)))
    outputs, leaf_squares = _backward(
        objective, model, batch, tuple((s.shape, s.dtype) for s in shapes)
    )
    squares = dict.fromkeys(owners, 0.0)
    for owner, square in zip(parameter_owners(model), leaf_squares):
        squares[owner] += float(square)
    return GradientNorms(
        layers=tuple(name[path] for path in paths),
        outputs=np.asarray(outputs, np.float64).reshape(-1),
        parameter_layers=tuple(name.get(path, path) for path in owners),
        weights=np.sqrt(np.array(list(squares.values()), np.float64)),
    )


@partial(jax.jit, static_argnames=("objective", "shapes"))
def _backward(objective: Objective, model: Any, batch: Batch, shapes: tuple[Any, ...]) -> Any:
    xs, *rest = batch
    probes = [jnp.zeros(shape, dtype) for shape, dtype in shapes]
    loss = lambda probed, probes: objective(probed, ((xs, probes), *rest))
    parameter_grads, probe_grads = jax.grad(loss, argnums=(0, 1))(_Probed(model), probes)
    n = len(jax.tree.leaves(xs)[0])
    square = lambda g: jnp.square(g.astype(jnp.promote_types(g.dtype, jnp.float32))).sum()
    return (
        [jnp.sqrt(n * square(g)) for g in probe_grads],
        [square(g) for g in jax.tree.leaves(parameter_grads)],
    )
