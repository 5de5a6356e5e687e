"""Continuous batching of iterative attacks: when an example is finished, its slot in the batch goes
to the next example.

An iterative attack is a state, a step, and a stopping rule. Under plain `vmap` every example of a
batch would take as many steps as the slowest one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..core import BATCH_AXIS, Model
from .base import Attack

# The compiled loop returns to the host to refill slots once 1/8 of the slots are free.
REFILL_FRACTION = 8


class AttackLoop(NamedTuple):
    """An attack on one example as a loop: initial state, condition, step, and the result of a
    state.
    """

    init: Callable[[], Any]
    unfinished: Callable[[Any], Any]
    step: Callable[[Any], Any]
    result: Callable[[Any], Any]

    def run(self) -> Any:
        """The result after the last step.

        >>> AttackLoop(lambda: 1, lambda n: n < 100, lambda n: 2 * n, lambda n: n).run().item()
        128
        """
        return self.result(jax.lax.while_loop(self.unfinished, self.step, self.init()))


@runtime_checkable
class IterativeAttack(Attack, Protocol):
    """An attack that also exposes its steps, as an `AttackLoop`."""

    def loop(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> AttackLoop: ...


def run_batched(
    attack: IterativeAttack,
    model: Model,
    xs: Array,
    ys: Array,
    keys: Any,
    *,
    slots: int,
    on_progress: Callable[[int], Any],
) -> Float[np.ndarray, "n *s"]:
    """The attack's output for every example, computed `slots` at a time; `on_progress` is called
    with the number of finished examples.
    """
    n = len(xs)
    results = np.empty(xs.shape, xs.dtype)
    inputs, labels = np.asarray(xs), np.asarray(ys)  # gathering a few rows is faster in NumPy
    index = np.arange(slots) % n  # which example each slot works on
    live = np.arange(slots) < n  # slots that hold an unfinished example
    next_index = min(slots, n)  # the first example that still waits
    fresh = np.ones(slots, bool)  # slots whose example has just been assigned
    state = None
    while live.any():
        batch = inputs[index], labels[index], None if keys is None else keys[index]
        if state is None:
            state = _empty_state(attack, model, *batch)
        n_wanted = min(-(-slots // REFILL_FRACTION), int(live.sum()))
        state, finished, outputs = _advance(attack, model, *batch, state, fresh, live, n_wanted)
        fresh = np.asarray(finished)
        results[index[fresh]] = np.asarray(outputs)[fresh]
        free = np.flatnonzero(fresh)
        n_refilled = min(len(free), n - next_index)
        index[free[:n_refilled]] = np.arange(next_index, next_index + n_refilled)
        live[free[n_refilled:]] = False
        next_index += n_refilled
        on_progress(next_index - int(live.sum()))
    return results


@eqx.filter_jit
def _advance(attack, model, xs, ys, keys, state, fresh, live, n_wanted):
    """Initialises the fresh slots, then steps all slots until `n_wanted` live ones are finished."""
    init, unfinished, attack_step, result = _batched_loop(attack, model, xs, ys, keys)
    finished = lambda state: live & ~unfinished(state)

    def step(carry):
        state, stopped = carry
        # finished and empty slots keep their state while the others go on
        state = _where(stopped | ~live, state, attack_step(state))
        return state, finished(state)

    state = _where(fresh, init(), state)
    state, stopped = jax.lax.while_loop(
        lambda carry: carry[1].sum() < n_wanted, step, (state, finished(state))
    )
    return state, stopped, result(state)


def _empty_state(attack, model, xs, ys, keys):
    """A zero state for every slot, of the right shapes."""
    init = lambda attack, model, *batch: _batched_loop(attack, model, *batch).init()
    shapes = eqx.filter_eval_shape(init, attack, model, xs, ys, keys)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _batched_loop(
    attack: IterativeAttack, model: Model, xs: Array, ys: Array, keys: Any
) -> AttackLoop:
    """The loops of all examples as one, on states that are stacked along the first axis."""

    def vectorise(method):
        def one(x, y, key, *state):
            return getattr(attack.loop(model, x, y, key=key), method)(*state)

        axes = (0, 0, None if keys is None else 0)
        return lambda *state: jax.vmap(
            one, in_axes=(*axes, *(0 for _ in state)), axis_name=BATCH_AXIS
        )(xs, ys, keys, *state)

    return AttackLoop(*map(vectorise, AttackLoop._fields))


def _where(condition: Bool[Array, " n"], a: Any, b: Any) -> Any:
    """For each slot the state a where the condition holds, else b."""
    expand = lambda leaf: condition.reshape(-1, *(1,) * (leaf.ndim - 1))
    return jax.tree.map(lambda a, b: jnp.where(expand(a), a, b), a, b)
