r"""Hyper-parameters by evidence: $\max_\theta \log p(y \mid X, \theta)$, which weighs fit against
complexity by itself.

The evidence is smooth in the logarithms of lengths, variances and noise but has several peaks, so
that L-BFGS climbs from where it is told to begin and, with `restarts`, from other places around
(Rasmussen & Williams 2006, §5.4). Whatever has a method `log_evidence(xs, ys)` and hyper-parameters
for leaves can be fitted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray

from ... import tree
from ...core import Batch
from ...progress import counted
from .float64 import Scalar, cast, double, dtype_of

T = TypeVar("T")


class EvidenceFit(NamedTuple):
    """What the fit found: the model first, then how it came about."""

    model: Any
    evidence: float  # log p(y | X), or its bound, of that model
    path: Float[
        np.ndarray, " steps"
    ]  # the log evidence at the beginning and after each step of the best climb
    slope: float  # the largest derivative of the log evidence there
    converged: bool  # whether that is below the tolerance
    peaks: Float[np.ndarray, " starts"]  # what each climb reached


@double
def evidence_gradient(model: T, xs: Batch, ys: Any) -> tuple[Scalar, T]:
    r"""$\log p(y \mid X)$ and its derivatives in all hyper-parameters, in the form of the model.

    >>> from thetax.bayes import RBF, GaussianProcess
    >>> process = GaussianProcess.init(RBF.init(), noise=1.0)
    >>> value, slope = evidence_gradient(process, jnp.zeros((1, 1)), jnp.zeros(1))
    >>> round(slope.log_noise.item(), 4)
    -0.25
    """
    free, rest = eqx.partition(cast(model, dtype_of(model)), eqx.is_inexact_array)
    return _value_and_slope(free, rest, xs, ys)


@eqx.filter_jit
def _value_and_slope(free: Any, rest: Any, xs: Any, ys: Any) -> tuple[Scalar, Any]:
    return jax.value_and_grad(lambda free: eqx.combine(free, rest).log_evidence(xs, ys))(free)


@double
def fit_evidence(
    model: T,
    xs: Batch,
    ys: Any,
    *,
    fixed: Callable[[T], Any] = lambda model: (),
    steps: int = 200,
    restarts: int = 0,
    spread: float = 1.0,
    tolerance: float = 1e-5,
    key: PRNGKeyArray | None = None,
) -> EvidenceFit:
    r"""The hyper-parameters of most evidence, by L-BFGS from the model's own and from `restarts`
    other places.

    A restart begins at $\theta + \sigma\varepsilon$, $\varepsilon \sim N(0, I)$ drawn with the key
    and $\sigma$ the `spread`. `fixed` names what is to stay as it is, as in
    `fixed=lambda process: process.log_noise`; a variance of 0 stays 0. A climb ends when no
    derivative of the log evidence is above the tolerance, when a step no longer changes it, or
    after `steps`.

    >>> from thetax.bayes import RBF, GaussianProcess
    >>> xs = np.linspace(0.0, 6.0, 12)
    >>> found = fit_evidence(GaussianProcess.init(RBF.init(), noise=0.1), xs, np.sin(xs), steps=30)
    >>> bool(found.evidence > found.path[0])
    True
    """
    if restarts > 0 and key is None:
        raise ValueError(
            f"fit_evidence: {restarts} restarts are drawn at random; give a key, e.g. "
            "key=jax.random.key(0)."
        )
    if steps < 1 or restarts < 0 or not spread > 0 or not tolerance > 0:
        raise ValueError(
            "fit_evidence: steps, spread and tolerance must be positive and restarts not negative; "
            f"got {steps}, {spread}, {tolerance} and {restarts}."
        )
    model = cast(model, dtype_of(model))
    begun = float(model.log_evidence(xs, ys))  # type: ignore[attr-defined]  refuses bad data
    free, rest = eqx.partition(model, _free(model, fixed))
    starts = [
        free,
        *(_elsewhere(free, spread, jr.fold_in(key, i)) for i in range(restarts) if key is not None),
    ]
    climbs = []
    for number, start in enumerate(starts):
        with counted(f"steps of climb {number + 1} of {len(starts)}", steps) as tell:
            climbs.append(_climb(start, rest, xs, ys, steps, tolerance, tell))
    best = max(climbs, key=lambda climb: climb[1][-1])
    top, path, slope = best
    found = eqx.combine(top, rest)
    evidence = float(found.log_evidence(xs, ys))  # tells of a jitter
    path[0] = begun if best is climbs[0] else path[0]
    peaks = np.array([climb[1][-1] for climb in climbs])
    return EvidenceFit(found, evidence, np.array(path), slope, slope <= tolerance, peaks)


def _free(model: Any, fixed: Callable[[Any], Any]) -> Any:
    """Which leaves are to be fitted: the finite floats that are not fixed."""
    kept, there = ({id(leaf) for leaf in jax.tree.leaves(part)} for part in (fixed(model), model))
    if not kept <= there:
        raise ValueError(
            "fit_evidence: fixed must give parts of the model, as in lambda process: "
            "process.log_noise."
        )
    movable = lambda leaf: (
        eqx.is_inexact_array(leaf) and id(leaf) not in kept and bool(jnp.isfinite(leaf).all())
    )
    mask = jax.tree.map(movable, model)
    if not any(jax.tree.leaves(mask)):
        raise ValueError(
            "fit_evidence: nothing to fit; every hyper-parameter is fixed, or there is none."
        )
    return mask


@eqx.filter_jit
def _elsewhere(free: Any, spread: Any, key: PRNGKeyArray) -> Any:
    return tree.axpy(spread, tree.normal_like(key, free), free)


def _climb(
    free: Any,
    rest: Any,
    xs: Any,
    ys: Any,
    steps: int,
    tolerance: float,
    tell: Callable[[int], None],
) -> tuple[Any, list[float], float]:
    """The top, the evidence on the way, and the largest derivative at the top."""
    state = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, leaf.dtype), optax.lbfgs().init(free)
    )  # as a step leaves it
    path = []
    slope = np.inf
    for done in range(steps + 1):
        tell(done)
        after, state, value, slope = _step(free, state, rest, xs, ys)
        path.append(-float(value))
        still = len(path) > 1 and abs(path[-1] - path[-2]) <= 1e-13 * max(1.0, abs(path[-1]))
        if not float(slope) > tolerance or still or len(path) > steps:
            break
        free = after
    return free, path, float(slope)


@eqx.filter_jit
def _step(free: Any, state: Any, rest: Any, xs: Any, ys: Any) -> tuple[Any, Any, Scalar, Scalar]:
    """Where the next step leads, with the value and the largest derivative where it began."""

    def loss(free):
        value = -eqx.combine(free, rest).log_evidence(xs, ys)
        return jnp.where(
            jnp.isfinite(value), value, jnp.finfo(value.dtype).max ** 0.5
        )  # too far: the search turns back

    value, slope = optax.value_and_grad_from_state(loss)(free, state=state)
    slope = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), slope)
    largest = jnp.stack([jnp.abs(leaf).max() for leaf in jax.tree.leaves(slope)]).max()
    updates, state = optax.lbfgs().update(
        slope, state, free, value=value, grad=slope, value_fn=loss
    )
    return optax.apply_updates(free, updates), state, jnp.asarray(value), largest
