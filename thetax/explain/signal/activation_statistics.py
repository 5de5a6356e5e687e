r"""How signals travel through depth: the weights, the activations $h_\ell$, and the gradients that
come back.

A network whose $\|\partial L / \partial h_\ell\|$ falls or grows geometrically in $\ell$ trains
slowly or not at all (§2.4, §8.1); a unit that is 0 on every example learns nothing. A layer here is
any module that holds no other, and the output of any `Residual` or `Concat`. Models with batch
norms are seen as they are on the batch. A part that a model maps or scans by itself is heard only
if it is a module that does so and says `heard_whole`.
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

from ...core import BATCH, Batch, Model, Objective, apply
from ..modules import labels, listen, owners

BINS = 60


@dataclass(frozen=True)
class Weights:
    """Statistics of the parameters that each layer holds."""

    layers: tuple[str, ...]
    size: tuple[int, ...]
    mean: Float[np.ndarray, " l"]
    std: Float[np.ndarray, " l"]
    largest: Float[np.ndarray, " l"]  # in absolute value
    norm: Float[np.ndarray, " l"]
    edges: Float[np.ndarray, "l _"]  # of the bins, one more than there are bins
    density: Float[np.ndarray, "l bins"]  # histogram of unit area


def weights(model: Any, *, bins: int = BINS) -> Weights:
    """Mean, spread, size and histogram of each layer's parameters.

    >>> from thetax.layers import Linear
    >>> found = weights(Linear(jnp.array([[3.0, -4.0]]), jnp.zeros(1)))
    >>> found.layers, found.norm.tolist(), found.largest.tolist()
    (('Linear 1',), [5.0], [4.0])
    """
    held: dict[str, list[np.ndarray]] = {}
    for owner, leaf in zip(owners(model), jax.tree.leaves(model)):
        held.setdefault(owner, []).append(np.asarray(leaf, np.float64).ravel())
    if not held:
        raise ValueError(
            "weights: the model has no parameters; give a model with at least one array."
        )
    name = labels(model)
    theta = [np.concatenate(parts) for parts in held.values()]
    histograms = [np.histogram(w, bins=bins, density=True) for w in theta]
    return Weights(
        layers=tuple(name.get(owner, owner) for owner in held),
        size=tuple(w.size for w in theta),
        mean=np.array([w.mean() for w in theta]),
        std=np.array([w.std() for w in theta]),
        largest=np.array([np.abs(w).max() for w in theta]),
        norm=np.array([np.linalg.norm(w) for w in theta]),
        edges=np.array([edges for _, edges in histograms]),
        density=np.array([density for density, _ in histograms]),
    )


def _is_signal(h: Any) -> bool:
    return isinstance(h, jax.Array) and jnp.issubdtype(h.dtype, jnp.inexact)


def _ear() -> Any:
    """A function that tells whether an output is a signal, and not one inside a map or scan begun
    since.
    """
    here = get_opaque_trace_state(convention="flax")
    return lambda h: _is_signal(h) and get_opaque_trace_state(convention="flax") == here


def heard(model: Any, xs: Batch) -> tuple[tuple[str, ...], list[Any]]:
    """The paths of the layers in the order in which they compute, and their outputs `n ...`."""
    paths: list[str] = []

    def forward(x):
        paths.clear()
        outputs = []
        audible = _ear()

        def hear(path, h):
            if audible(h):
                paths.append(path)
                outputs.append(h)
            return h

        apply(listen(model, hear), x)
        return outputs

    outputs = jax.vmap(forward, axis_name=BATCH)(xs)
    return tuple(paths), outputs


def heard_paths(model: Any, xs: Batch) -> tuple[tuple[str, ...], list[Any]]:
    """As `heard`, with shapes in place of arrays: nothing is computed."""
    paths: list[tuple[str, ...]] = []

    def trace(model, xs):
        names, outputs = heard(model, xs)
        paths.append(names)
        return outputs

    outputs = jax.eval_shape(trace, model, xs)
    return paths[-1], outputs


@dataclass(frozen=True)
class Activations:
    """Statistics of each layer's output over a batch, in the order in which the layers compute."""

    layers: tuple[str, ...]
    mean: Float[np.ndarray, " l"]
    std: Float[np.ndarray, " l"]
    zeros: Float[np.ndarray, " l"]  # the share of outputs that are exactly 0
    dead: Float[
        np.ndarray, " l"
    ]  # the share of units that are 0 on every example; of maps, of channels that are 0 everywhere


def activations(model: Model, xs: Batch) -> Activations:
    """What each layer puts out on the examples `xs`, and how much of it is exactly zero.

    >>> from thetax.layers import Chain, Linear
    >>> net = Chain(Linear(jnp.array([[1.0], [-1.0]]), jnp.zeros(2)), jax.nn.relu)
    >>> found = activations(net, jnp.array([[1.0], [3.0]]))
    >>> found.layers, found.mean.tolist(), found.dead.tolist()
    (('Linear 1', 'relu 1'), [0.0, 1.0], [0.0, 0.5])
    """
    name = labels(model)
    moments = np.asarray(_moments(model, xs), np.float64).reshape(-1, 4)
    return Activations(tuple(name[path] for path in heard_paths(model, xs)[0]), *moments.T)


@jax.jit
def _moments(model: Any, xs: Batch) -> list[Any]:
    def of(h):
        h = h.astype(jnp.promote_types(h.dtype, jnp.float32))
        over = (0, 2, 3) if h.ndim == 4 else 0  # of maps c h w, a unit is a channel
        return jnp.array([h.mean(), h.std(), (h == 0).mean(), (h == 0).all(axis=over).mean()])

    return [of(h) for h in heard(model, xs)[1]]


@dataclass(frozen=True)
class Gradients:
    r"""The sizes of $\partial L / \partial h_\ell$ and $\partial L / \partial \theta_\ell$, layer
    by layer.
    """

    layers: tuple[str, ...]
    outputs: Float[np.ndarray, " l"]
    holders: tuple[str, ...]
    weights: Float[np.ndarray, " m"]  # one for each layer that holds parameters


class _Probed(eqx.Module):
    """$f$ with a probe added to each layer's output: an example is the pair of $x$ and its
    probes.
    """

    model: Any

    def __call__(self, pair: tuple[Any, list[Any]], *, key: PRNGKeyArray | None = None) -> Any:
        x, probes = pair
        left = iter(probes)
        audible = _ear()
        hear = lambda path, h: h + next(left).astype(h.dtype) if audible(h) else h
        return apply(listen(self.model, hear), x, key=key)


def gradients(objective: Objective, model: Model, batch: Batch) -> Gradients:
    r"""The gradient signal through depth, in one backward pass (§2.4).

    With $L = \frac1n \sum_i l_i$ over the batch `(xs, ys)`, the outputs of layer $\ell$ count by
    the root mean square over examples
    $\sqrt{\frac1n \sum_i \|n\, \partial L / \partial h_{\ell,i}\|^2}$, where
    $n\, \partial L / \partial h_{\ell, i}$ is $\partial l_i / \partial h_{\ell, i}$ if examples do
    not meet; the parameters by $\|\partial L / \partial \theta_\ell\|$. Zero probes $\delta$ are
    added, $h_\ell + \delta_\ell$, and $L$ is differentiated in them.

    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> found = gradients(
    ...     squared_error,
    ...     Linear(jnp.zeros((1, 1)), jnp.zeros(1)),
    ...     (jnp.ones((2, 1)), -3 * jnp.ones(2)),
    ... )
    >>> found.outputs.tolist(), found.weights.round(3).tolist()
    ([3.0], [4.243])
    """
    (xs, _), name = batch, labels(model)
    paths, shapes = heard_paths(model, xs)
    holders = list(dict.fromkeys(owners(model)))
    through, onto = _backward(objective, model, batch, tuple((s.shape, s.dtype) for s in shapes))
    squares = dict.fromkeys(holders, 0.0)
    for owner, square in zip(owners(model), onto):
        squares[owner] += float(square)
    return Gradients(
        layers=tuple(name[path] for path in paths),
        outputs=np.asarray(through, np.float64).reshape(-1),
        holders=tuple(name.get(path, path) for path in holders),
        weights=np.sqrt(np.array(list(squares.values()), np.float64)),
    )


@partial(jax.jit, static_argnames=("objective", "shapes"))
def _backward(objective: Objective, model: Any, batch: Batch, shapes: tuple[Any, ...]) -> Any:
    xs, *rest = batch
    probes = [jnp.zeros(shape, dtype) for shape, dtype in shapes]
    loss = lambda probed, probes: objective(probed, ((xs, probes), *rest))
    onto, through = jax.grad(loss, argnums=(0, 1))(_Probed(model), probes)
    n = len(jax.tree.leaves(xs)[0])
    square = lambda g: jnp.square(g.astype(jnp.promote_types(g.dtype, jnp.float32))).sum()
    return [jnp.sqrt(n * square(g)) for g in through], [square(g) for g in jax.tree.leaves(onto)]
