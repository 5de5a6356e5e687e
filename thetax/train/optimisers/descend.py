r"""From an objective and an optimiser to an Iteration, and functions from Iterations to Iterations.

`descend` makes one of any Optax optimiser; `ema` and `swa` average its weights; `restarts` runs
several at once. In each the answer is `state.model`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Int

from ... import tree
from ...core import Iteration, Objective, Scalar
from ...layers import Ensemble


class Descent(NamedTuple):
    """Weights, and what the optimiser remembers of the way."""

    model: Any
    memory: Any


class Step(NamedTuple):
    """What one step saw: the objective on its batch, and the length of the gradient."""

    loss: Scalar
    gradient: Scalar


def descend(
    objective: Objective, optimiser: optax.GradientTransformation, *, accumulate: int = 1
) -> Iteration:
    r"""$\theta \leftarrow \theta + u(\nabla_\theta\, \ell(f[\theta], B))$ on a batch $B$, where $u$
    is Optax's (§3.2).

    Any Optax transformation serves: schedules, clipping
    (`optax.chain(optax.clip_by_global_norm(1.0), ...)`) and line searches (`optax.lbfgs()`)
    included. With `accumulate=a` the batch is worked off in `a` equal parts and their gradients
    averaged: the same step in less memory (but for chance and batch norms).

    >>> from thetax.core import run
    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> xs = jr.normal(jr.key(0), (100, 8, 3))
    >>> batches = xs, xs @ jnp.array([1.0, 2.0, 3.0])
    >>> origin = Linear(jnp.zeros((1, 3)), jnp.zeros(1))
    >>> state, _ = run(descend(squared_error, optax.sgd(0.1)), origin, batches, key=jr.key(1))
    >>> state.model.W.round(2).tolist()
    [[1.0, 2.0, 3.0]]
    """
    if not callable(objective) or not hasattr(optimiser, "update"):
        raise ValueError("descend: expected an objective and an Optax optimiser, in this order.")
    if accumulate < 1:
        raise ValueError(f"descend: accumulate must be at least 1; got {accumulate}.")
    optimiser = optax.with_extra_args_support(optimiser)

    def init(model):
        strong = lambda a: (
            jnp.asarray(a, a.dtype) if getattr(a, "weak_type", False) else a
        )  # as it is after a step
        return Descent(model, jax.tree.map(strong, optimiser.init(model)))

    def step(state, batch, *, key):
        value = lambda model: objective(model, batch, key=key)
        if accumulate == 1:
            loss, grad = jax.value_and_grad(value)(state.model)
        else:
            loss, grad = _accumulated(objective, state.model, batch, accumulate, key)
        update, memory = optimiser.update(
            grad, state.memory, state.model, value=loss, grad=grad, value_fn=value
        )
        return Descent(optax.apply_updates(state.model, update), memory), Step(
            loss, tree.norm(grad)
        )

    return Iteration(init, step)


def _accumulated(objective, model, batch, parts, key):
    size = len(jax.tree.leaves(batch)[0])
    if size % parts:
        raise ValueError(
            f"descend: a batch of {size} does not split into accumulate={parts} equal parts."
        )

    def add(total, item):
        index, part = item
        found = jax.value_and_grad(objective)(model, part, key=jr.fold_in(key, index))
        return tree.axpy(1 / parts, found, total), None

    pieces = jax.tree.map(lambda a: a.reshape(parts, size // parts, *a.shape[1:]), batch)
    start = jnp.zeros(()), tree.zeros_like(model)
    return jax.lax.scan(add, start, (jnp.arange(parts), pieces))[0]


class Averaged(NamedTuple):
    """The running average of the weights, and the iteration that goes on beneath it."""

    model: Any
    inner: Any
    steps: Int[Array, ""]


def ema(iteration: Iteration, *, decay: float) -> Iteration:
    r"""Answers with the moving average
    $\bar\theta_t = \beta_t \bar\theta_{t-1} + (1 - \beta_t)\theta_t$.

    The decay warms up, $\beta_t = \min(\beta, \frac{t}{t + 9})$, so that the start is forgotten.
    Polyak & Juditsky 1992.

    >>> from thetax.train import squared_error
    >>> ema(descend(squared_error, optax.sgd(0.1)), decay=0.99).init(jnp.zeros(2)).steps.item()
    0
    """
    if not 0 <= decay < 1:
        raise ValueError(f"ema: decay must lie in [0, 1); got {decay}.")

    def weight(steps):
        return 1 - jnp.minimum(decay, steps / (steps + 9))

    return _averaged(iteration, weight)


def swa(iteration: Iteration, *, start: int) -> Iteration:
    r"""Answers with the mean of the weights from step `start` on, and before it with the last.

    Stochastic weight averaging (Izmailov et al. 2018), every step counting alike.
    """

    if start < 0:
        raise ValueError(f"swa: start counts steps and must not be negative; got {start}.")

    def weight(steps):
        return 1 / jnp.maximum(1, steps - start + 1)

    return _averaged(iteration, weight)


def _averaged(iteration, weight):
    def init(model):
        return Averaged(model, iteration.init(model), jnp.zeros((), jnp.int32))

    def step(state, batch, *, key):
        inner, info = iteration.step(state.inner, batch, key=key)
        steps = state.steps + 1
        share = weight(steps.astype(jnp.float32))
        mix = lambda mean, new: mean + share.astype(new.dtype) * (new - mean)
        return Averaged(jax.tree.map(mix, state.model, inner.model), inner, steps), info

    return Iteration(init, step)


class Restarts(NamedTuple):
    """The states of all members, stacked, and their pooled model."""

    model: Any
    inner: Any


def restarts(iteration: Iteration) -> Iteration:
    """Trains every member of an `Ensemble` by itself, all at once; the answer pools their
    predictions.

    Each member sees the same batches with chance of its own, and begins where it was drawn.

    >>> from functools import partial
    >>> from thetax.core import run
    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> net = Ensemble.init(partial(Linear.init, 3, 1), 4, key=jr.key(0))
    >>> batches = jr.normal(jr.key(1), (5, 8, 3)), jnp.zeros((5, 8))
    >>> state, (_, info) = run(
    ...     restarts(descend(squared_error, optax.sgd(0.1))), net, batches, key=jr.key(2)
    ... )
    >>> info.loss.shape, state.model(jnp.ones(3)).shape
    ((5, 4), (1,))
    """

    def init(ensemble):
        if not isinstance(ensemble, Ensemble):
            raise ValueError(
                f"restarts: expected an Ensemble, got {type(ensemble).__name__}; see Ensemble.init."
            )
        return Restarts(ensemble, jax.vmap(iteration.init)(ensemble.members))

    def step(state, batch, *, key):
        keys = jr.split(key, len(jax.tree.leaves(state.inner)[0]))
        inner, info = jax.vmap(lambda s, key: iteration.step(s, batch, key=key))(state.inner, keys)
        return Restarts(Ensemble(inner.model, state.model.pool), inner), info

    return Iteration(init, step)
