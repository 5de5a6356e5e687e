r"""Gradient descent as an Iteration, weight averaging (EMA, SWA) and training of ensembles.

`descend` makes an Iteration of an objective and any Optax optimiser; `ema` and `swa` average the
weights of an iteration; `per_member` trains the members of an ensemble in parallel. The result is
always `state.model`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Int

from ... import tree
from ...check import expect_count
from ...core import Iteration, Objective, Scalar
from ...layers import Ensemble


class DescentState(NamedTuple):
    """The model and the state of the Optax optimiser."""

    model: Any
    optimiser_state: Any


class StepInfo(NamedTuple):
    """The loss on the batch of a step, and the L2 norm of its gradient."""

    loss: Scalar
    gradient: Scalar  # the norm


def descend(
    objective: Objective, optimiser: optax.GradientTransformation, *, accumulate: int = 1
) -> Iteration:
    r"""Gradient descent on an objective with an Optax optimiser:
    $\theta \leftarrow \theta + u(\nabla_\theta\, \ell(f[\theta], B))$ on a batch $B$ (§3.2).

    Any Optax transformation can be used, including learning-rate schedules, gradient clipping
    (`optax.chain(optax.clip_by_global_norm(1.0), ...)`) and line searches (`optax.lbfgs()`).
    `accumulate=a` is gradient accumulation: the gradients of `a` equal parts of the batch are
    averaged, which gives the same step in less memory (except for random numbers and batch norms).

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
        raise ValueError(
            "descend: expected an objective and an Optax optimiser, in this order; got "
            f"{type(objective).__name__} and {type(optimiser).__name__}."
        )
    expect_count("descend", accumulate=accumulate)
    optimiser = optax.with_extra_args_support(optimiser)

    def init(model):
        # Weakly typed leaves become strongly typed, as they are after a step.
        strong = lambda a: jnp.asarray(a, a.dtype) if getattr(a, "weak_type", False) else a
        return DescentState(model, jax.tree.map(strong, optimiser.init(model)))

    def step(state, batch, *, key):
        loss_of = lambda model: objective(model, batch, key=key)
        if accumulate == 1:
            loss, grad = jax.value_and_grad(loss_of)(state.model)
        else:
            loss, grad = _accumulate_gradients(objective, state.model, batch, accumulate, key)
        update, optimiser_state = optimiser.update(
            grad, state.optimiser_state, state.model, value=loss, grad=grad, value_fn=loss_of
        )
        model = optax.apply_updates(state.model, update)
        return DescentState(model, optimiser_state), StepInfo(loss, tree.norm(grad))

    return Iteration(init, step)


def _accumulate_gradients(objective, model, batch, parts, key):
    """The mean loss and gradient over equal parts of the batch, computed one after the other."""
    size = len(jax.tree.leaves(batch)[0])
    if size % parts:
        raise ValueError(f"descend: accumulate must divide the batch size of {size}; got {parts}.")

    def add(total, item):
        index, part = item
        loss_and_grad = jax.value_and_grad(objective)(model, part, key=jr.fold_in(key, index))
        return tree.axpy(1 / parts, loss_and_grad, total), None

    pieces = jax.tree.map(lambda a: a.reshape(parts, size // parts, *a.shape[1:]), batch)
    start = jnp.zeros(()), tree.zeros_like(model)
    return jax.lax.scan(add, start, (jnp.arange(parts), pieces))[0]


class AveragedState(NamedTuple):
    """The averaged model, the state of the wrapped iteration and the number of steps."""

    model: Any
    inner: Any
    steps: Int[Array, ""]


def ema(iteration: Iteration, *, decay: float) -> Iteration:
    r"""Exponential moving average of the weights,
    $\bar\theta_t = \beta_t \bar\theta_{t-1} + (1 - \beta_t)\theta_t$.

    The decay warms up, $\beta_t = \min(\beta, \frac{t}{t + 9})$, so that the initial weights are
    forgotten. Polyak & Juditsky 1992.

    >>> from thetax.train import squared_error
    >>> ema(descend(squared_error, optax.sgd(0.1)), decay=0.99).init(jnp.zeros(2)).steps.item()
    0
    """
    if not 0 <= decay < 1:
        raise ValueError(f"ema: decay must be in [0, 1); got {decay}.")

    def weight(steps):
        return 1 - jnp.minimum(decay, steps / (steps + 9))

    return _averaged(iteration, weight)


def swa(iteration: Iteration, *, start: int) -> Iteration:
    r"""Stochastic weight averaging: the mean of the weights from step `start` on (Izmailov et al.
    2018).

    All steps have equal weight. Before step `start` the result is the current model.
    """

    if start < 0:
        raise ValueError(f"swa: start must be a number of steps >= 0; got {start}.")

    def weight(steps):
        return 1 / jnp.maximum(1, steps - start + 1)

    return _averaged(iteration, weight)


def _averaged(iteration, weight):
    def init(model):
        return AveragedState(model, iteration.init(model), jnp.zeros((), jnp.int32))

    def step(state, batch, *, key):
        inner, info = iteration.step(state.inner, batch, key=key)
        steps = state.steps + 1
        new_weight = weight(steps.astype(jnp.float32))
        mix = lambda mean, new: mean + new_weight.astype(new.dtype) * (new - mean)
        return AveragedState(jax.tree.map(mix, state.model, inner.model), inner, steps), info

    return Iteration(init, step)


class EnsembleState(NamedTuple):
    """The ensemble, and the stacked states of its members."""

    model: Any
    inner: Any


def per_member(iteration: Iteration) -> Iteration:
    """Trains the members of an `Ensemble` independently and in parallel (`vmap`).

    The members see the same batches, with a key of their own each. Deep ensembles, or the same
    training from several random initialisations.

    >>> from functools import partial
    >>> from thetax.core import run
    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> net = Ensemble.init(partial(Linear.init, 3, 1), 4, key=jr.key(0))
    >>> batches = jr.normal(jr.key(1), (5, 8, 3)), jnp.zeros((5, 8))
    >>> state, (_, info) = run(
    ...     per_member(descend(squared_error, optax.sgd(0.1))), net, batches, key=jr.key(2)
    ... )
    >>> info.loss.shape, state.model(jnp.ones(3)).shape
    ((5, 4), (1,))
    """

    def init(ensemble):
        if not isinstance(ensemble, Ensemble):
            raise ValueError(
                f"per_member: expected an Ensemble; got {type(ensemble).__name__}. Make one with "
                "Ensemble.init."
            )
        return EnsembleState(ensemble, jax.vmap(iteration.init)(ensemble.members))

    def step(state, batch, *, key):
        keys = jr.split(key, len(jax.tree.leaves(state.inner)[0]))
        inner, info = jax.vmap(lambda s, key: iteration.step(s, batch, key=key))(state.inner, keys)
        return EnsembleState(Ensemble(inner.model, state.model.pool), inner), info

    return Iteration(init, step)
