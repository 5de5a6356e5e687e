r"""Hyperparameters by maximum marginal likelihood (type II maximum likelihood, evidence):
$\max_\theta \log p(y \mid X, \theta)$ trades fit against complexity without a validation set.

The log marginal likelihood is smooth in the logarithms of length scales, variances and noise, but
has several local maxima: L-BFGS starts at the given values and, with `restarts`, at random ones
around them (Rasmussen & Williams 2006, §5.4). It fits any model with a method
`log_marginal_likelihood(xs, ys)` whose leaves are the hyperparameters.
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
from ...check import expect_count
from ...core import Batch
from ...progress import count_progress
from .float64 import Scalar, cast, dtype_of, in_float64

T = TypeVar("T")


class HyperparameterFit(NamedTuple):
    """The fitted model, its log marginal likelihood, and the course of the optimisation."""

    model: Any
    log_marginal_likelihood: float  # log p(y | X) of the model, or its lower bound
    history: Float[
        np.ndarray, " steps"
    ]  # its value at the start and after each step of the best run
    max_gradient: float  # largest absolute derivative at the end
    converged: bool  # whether max_gradient is at most the tolerance
    optima: Float[np.ndarray, " starts"]  # the value that each start reached


@in_float64
def marginal_likelihood_gradient(model: T, xs: Batch, ys: Any) -> tuple[Scalar, T]:
    r"""Log marginal likelihood $\log p(y \mid X)$ and its gradient in all hyperparameters; the
    gradient has the structure of the model.

    >>> from thetax.bayes import RBF, GaussianProcess
    >>> process = GaussianProcess.init(RBF.init(), noise=1.0)
    >>> value, gradient = marginal_likelihood_gradient(process, jnp.zeros((1, 1)), jnp.zeros(1))
    >>> round(gradient.log_noise.item(), 4)
    -0.25
    """
    free, rest = eqx.partition(cast(model, dtype_of(model)), eqx.is_inexact_array)
    return _value_and_gradient(free, rest, xs, ys)


@eqx.filter_jit
def _value_and_gradient(free: Any, rest: Any, xs: Any, ys: Any) -> tuple[Scalar, Any]:
    value = lambda free: eqx.combine(free, rest).log_marginal_likelihood(xs, ys)
    return jax.value_and_grad(value)(free)


@in_float64
def fit_hyperparameters(
    model: T,
    xs: Batch,
    ys: Any,
    *,
    fixed: Callable[[T], Any] = lambda model: (),
    max_steps: int = 200,
    restarts: int = 0,
    spread: float = 1.0,
    tolerance: float = 1e-5,
    key: PRNGKeyArray | None = None,
) -> HyperparameterFit:
    r"""Fits hyperparameters by maximising the log marginal likelihood with L-BFGS, from the model's
    own values and from `restarts` random ones; returns the best.

    A restart begins at $\theta + \sigma\varepsilon$, $\varepsilon \sim N(0, I)$, $\sigma$ the
    `spread`. `fixed` selects leaves that are not fitted, as in
    `fixed=lambda process: process.log_noise`; a variance of 0 stays 0. A run stops when every
    derivative is at most `tolerance`, when a step no longer changes the value, or after
    `max_steps`.

    >>> from thetax.bayes import RBF, GaussianProcess
    >>> xs = np.linspace(0.0, 6.0, 12)
    >>> process = GaussianProcess.init(RBF.init(), noise=0.1)
    >>> fitted = fit_hyperparameters(process, xs, np.sin(xs), max_steps=30)
    >>> bool(fitted.log_marginal_likelihood > fitted.history[0])
    True
    """
    if restarts > 0 and key is None:
        raise ValueError(
            f"fit_hyperparameters: {restarts} restarts need random starting points. Pass a "
            "key, e.g. key=jax.random.key(0)."
        )
    expect_count("fit_hyperparameters", max_steps=max_steps)
    if restarts < 0 or not spread > 0 or not tolerance > 0:
        raise ValueError(
            "fit_hyperparameters: spread and tolerance must be positive and restarts not negative; "
            f"got {spread}, {tolerance} and {restarts}."
        )
    model = cast(model, dtype_of(model))
    # Checks the data too, before any compute is spent.
    initial_value = float(model.log_marginal_likelihood(xs, ys))  # type: ignore[attr-defined]
    free, rest = eqx.partition(model, _free_leaves(model, fixed))
    starts = [free]
    if key is not None:
        starts += [_random_start(free, spread, jr.fold_in(key, i)) for i in range(restarts)]
    runs = []
    for number, start in enumerate(starts):
        label = f"L-BFGS steps, start {number + 1} of {len(starts)}"
        with count_progress(label, max_steps) as report:
            runs.append(_maximise(start, rest, xs, ys, max_steps, tolerance, report))
    best = max(runs, key=lambda run: run[1][-1])
    leaves, history, max_gradient = best
    fitted = eqx.combine(leaves, rest)
    value = float(fitted.log_marginal_likelihood(xs, ys))  # warns if jitter was needed
    if best is runs[0]:
        history[0] = initial_value
    optima = np.array([run[1][-1] for run in runs])
    converged = max_gradient <= tolerance
    return HyperparameterFit(fitted, value, np.array(history), max_gradient, converged, optima)


def _free_leaves(model: Any, fixed: Callable[[Any], Any]) -> Any:
    """Mask of the leaves to fit: float arrays that are finite and not fixed."""
    fixed_ids = {id(leaf) for leaf in jax.tree.leaves(fixed(model))}
    model_ids = {id(leaf) for leaf in jax.tree.leaves(model)}
    if not fixed_ids <= model_ids:
        raise ValueError(
            "fit_hyperparameters: fixed must return parts of the model, as in "
            "fixed=lambda process: process.log_noise."
        )
    is_free = lambda leaf: (
        eqx.is_inexact_array(leaf) and id(leaf) not in fixed_ids and bool(jnp.isfinite(leaf).all())
    )
    mask = jax.tree.map(is_free, model)
    if not any(jax.tree.leaves(mask)):
        raise ValueError(
            "fit_hyperparameters: nothing to fit; the model has no hyperparameter that is not "
            "fixed."
        )
    return mask


@eqx.filter_jit
def _random_start(free: Any, spread: Any, key: PRNGKeyArray) -> Any:
    return tree.axpy(spread, tree.normal_like(key, free), free)


def _maximise(
    free: Any,
    rest: Any,
    xs: Any,
    ys: Any,
    max_steps: int,
    tolerance: float,
    report: Callable[[int], None],
) -> tuple[Any, list[float], float]:
    """Runs L-BFGS: the maximiser, the values along the way, and the largest derivative at the
    end.
    """
    # Same leaf types as after a step, so that `_step` is compiled once.
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), optax.lbfgs().init(free))
    history = []
    max_gradient = np.inf
    for step in range(max_steps + 1):
        report(step)
        next_free, state, value, max_gradient = _step(free, state, rest, xs, ys)
        history.append(-float(value))
        stalled = len(history) > 1 and (
            abs(history[-1] - history[-2]) <= 1e-13 * max(1.0, abs(history[-1]))
        )
        if not float(max_gradient) > tolerance or stalled or len(history) > max_steps:
            break
        free = next_free
    return free, history, float(max_gradient)


@eqx.filter_jit
def _step(free: Any, state: Any, rest: Any, xs: Any, ys: Any) -> tuple[Any, Any, Scalar, Scalar]:
    """One L-BFGS step: the new point, and the loss and largest derivative at the old one."""

    def loss(free):
        value = -eqx.combine(free, rest).log_marginal_likelihood(xs, ys)
        # A huge finite loss makes the line search step back from extreme hyperparameters.
        return jnp.where(jnp.isfinite(value), value, jnp.finfo(value.dtype).max ** 0.5)

    value, gradient = optax.value_and_grad_from_state(loss)(free, state=state)
    gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), gradient)
    largest = jnp.stack([jnp.abs(leaf).max() for leaf in jax.tree.leaves(gradient)]).max()
    updates, state = optax.lbfgs().update(
        gradient, state, free, value=value, grad=gradient, value_fn=loss
    )
    return optax.apply_updates(free, updates), state, jnp.asarray(value), largest
