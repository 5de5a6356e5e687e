"""Attacks that know when they are done, and a way to run them that spends no step on an example
that is.

An attack in steps is a state, a step from one to the next, and a rule when to stop. Side by side,
all examples of a batch would take as many steps as the slowest of them; so one that is done makes
room for the next that waits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..core import BATCH, Model

SHARE = 8  # when one place in so many is free, examples that wait are let in


class AttackLoop(NamedTuple):
    """An attack on one example: where it begins, whether it goes on, a step, and what it has
    found.
    """

    begin: Callable[[], Any]
    unfinished: Callable[[Any], Any]
    move: Callable[[Any], Any]
    answer: Callable[[Any], Any]

    def run(self) -> Any:
        """The answer, after as many steps as it takes.

        >>> AttackLoop(lambda: 1, lambda n: n < 100, lambda n: 2 * n, lambda n: n).run().item()
        128
        """
        return self.answer(jax.lax.while_loop(self.unfinished, self.move, self.begin()))


@runtime_checkable
class IterativeAttack(Protocol):
    """An attack in steps; it is called as any other."""

    def search(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> AttackLoop: ...


def run_batched(
    attack: IterativeAttack,
    model: Model,
    xs: Array,
    ys: Array,
    keys: Any,
    *,
    places: int,
    done: Callable[[int], Any],
) -> Float[np.ndarray, "n *s"]:
    """What the attack makes of every example, with so many places for them; `done` is told how many
    are done.
    """
    n = len(xs)
    found = np.empty(xs.shape, xs.dtype)
    rows, labels = np.asarray(xs), np.asarray(ys)  # from which a few are picked faster
    at, live, waiting = (
        np.arange(places) % n,
        np.arange(places) < n,
        min(places, n),
    )  # who is where, and the next one
    fresh = np.ones(places, bool)
    state = None
    while live.any():
        here = rows[at], labels[at], None if keys is None else keys[at]
        state = _blank(attack, model, *here) if state is None else state
        wanted = min(-(-places // SHARE), int(live.sum()))
        state, over, answers = _advance(attack, model, *here, state, fresh, live, wanted)
        fresh = np.asarray(over)
        found[at[fresh]] = np.asarray(answers)[fresh]
        free = np.flatnonzero(fresh)
        more = min(len(free), n - waiting)
        at[free[:more]] = np.arange(waiting, waiting + more)
        live[free[more:]] = False
        waiting += more
        done(waiting - int(live.sum()))
    return found


@eqx.filter_jit
def _advance(attack, model, xs, ys, keys, state, fresh, live, wanted):
    """Begins where there is a new example, and goes on until so many are done."""
    begin, unfinished, move, answer = _of_each(attack, model, xs, ys, keys)
    done = lambda state: live & ~unfinished(state)

    def step(now):
        state, over = now
        state = _choose(over | ~live, state, move(state))
        return state, done(state)

    state = _choose(fresh, begin(), state)
    state, over = jax.lax.while_loop(lambda now: now[1].sum() < wanted, step, (state, done(state)))
    return state, over, answer(state)


def _blank(attack, model, xs, ys, keys):
    """A state for every place, of the right shapes."""
    begin = lambda attack, model, *here: _of_each(attack, model, *here).begin()
    shapes = eqx.filter_eval_shape(begin, attack, model, xs, ys, keys)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _of_each(attack: IterativeAttack, model: Model, xs: Array, ys: Array, keys: Any) -> AttackLoop:
    """The searches of all examples side by side as one, of states stacked along the first axis."""

    def every(method):
        def one(x, y, key, *state):
            return getattr(attack.search(model, x, y, key=key), method)(*state)

        axes = (0, 0, None if keys is None else 0)
        return lambda *state: jax.vmap(one, in_axes=(*axes, *(0 for _ in state)), axis_name=BATCH)(
            xs, ys, keys, *state
        )

    return AttackLoop(*map(every, AttackLoop._fields))


def _choose(condition: Bool[Array, " n"], a: Any, b: Any) -> Any:
    """Place by place the one state or the other."""
    over = lambda leaf: condition.reshape(-1, *(1,) * (leaf.ndim - 1))
    return jax.tree.map(lambda a, b: jnp.where(over(a), a, b), a, b)
