r"""What a cell remembers (§5, §5.1): two problems whose answer lies a hundred steps back.

An Elman cell with $\sigma_1(U) = s < 1$ and $|\varphi'| \le 1$ brings any two states together, $\|z_T - z_T'\| \le
s^{T}\|z_0 - z_0'\|$, whatever it reads after them; so it provably forgets. Gates and linear recurrences need not.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from .. import data
from ..core import Batch, Model, Objective
from ..layers import Elman, Ensemble
from ..models import SequenceClassifier
from ..train import Fit, cross_entropy, descend, error_rate, fit, restarts, squared_error
from . import cells
from .job import Job, positive, recipe
from .outcome import Outcome

TESTED = 2000  # sequences
SHRINKS = 0.9  # the largest singular value that one of the Elman cells may have
CLIP = 1.0  # the longest gradient


class Entrant(NamedTuple):
    """A cell, how fast it learns beside the others, and the largest singular value its U may have."""

    draw: Callable[..., Any]
    pace: float = 1.0
    limit: float | None = None


ENTRANTS = {
    f"Elman, σ₁(U) ≤ {SHRINKS}": Entrant(cells.elman, 0.3, SHRINKS),
    "Elman": Entrant(cells.elman, 0.3),
    "GRU": Entrant(cells.gru),
    "LSTM": Entrant(cells.lstm),
    "LRU": Entrant(cells.lru, 0.2),
}


def contract(limit: float) -> optax.GradientTransformation:
    r"""Comes last in a chain: after the step no singular value of an Elman cell's $U$ is more than `limit`."""

    def update(updates, state, params=None):
        def one(step, cell):
            if not isinstance(cell, Elman):
                return step
            left, s, right = jnp.linalg.svd(cell.U + step.U)
            return Elman((left * jnp.minimum(s, limit)[None]) @ right - cell.U, step.V, step.b, cell.activation)

        return jax.tree.map(one, updates, params, is_leaf=lambda node: isinstance(node, Elman)), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def race(
    job: Job,
    draw: Callable[..., Model],
    train: Batch,
    *,
    objective: Objective,
    times: int,
    members: int,
    rate: float,
    epochs: int,
    batch: int,
    key: PRNGKeyArray,
    entrants: dict[str, Entrant] = ENTRANTS,
) -> dict[str, Fit]:
    """Fits `members` networks of each cell at once, by Adam with clipped gradients, the rate falling to zero."""
    positive(times=times, members=members, rate=rate, epochs=epochs, batch=batch)
    found, steps = {}, max(1, epochs * (len(train[1]) // batch))
    for place, (name, entrant) in enumerate(entrants.items()):
        job.say(name)
        key_init, key_fit = jr.split(jr.fold_in(key, place))
        nets = Ensemble.init(partial(draw, cell=partial(entrant.draw, times=times)), members, key=key_init)
        optimiser = optax.chain(
            optax.clip_by_global_norm(CLIP),
            optax.adam(optax.cosine_decay_schedule(entrant.pace * rate, steps)),
            *([] if entrant.limit is None else [contract(entrant.limit)]),
        )
        found[name] = fit(
            restarts(descend(objective, optimiser)),
            nets,
            train,
            epochs=epochs,
            batch=batch,
            key=key_fit,
            run=job.part(f"cell-{place}"),
            progress=job.progress,
        )
    return found


def judged(nets: Ensemble, test: Batch, name: str, metric: Objective, times: int) -> dict[str, float]:
    """The metric, its mean over the networks and the worst; for Elman cells the bound on what is left of a state."""
    each = jax.jit(jax.vmap(lambda net: metric(net, test)))(nets.members)
    row = {name: float(each.mean()), "the worst": float(each.max())}
    if isinstance(nets.members.cell, Elman):
        s = float(jnp.linalg.norm(nets.members.cell.U, ord=2, axis=(1, 2)).mean())
        row |= {"σ₁(U)": s, f"σ₁(U)^{times}": s**times}
    return row


def first(nets: Ensemble) -> Any:
    """One network of several: the first, which is no better than another."""
    return jax.tree.map(lambda leaf: leaf[0], nets.members)


@recipe
def adding(
    job: Job,
    *,
    length: int = 100,
    width: int = 32,
    members: int = 3,
    examples: int = 10_000,
    rate: float = 1e-2,
    epochs: int = 6,
    batch: int = 50,
) -> Outcome:
    """The sum of two marked numbers among a hundred, by recurrent cells: gates and linear recurrences remember.

    Beside them, as many networks of each, stand Elman cells: one that provably forgets, and one left free.

    Parameters
    ----------
    length
        Numbers in a sequence; two of them are marked, one in each half.
    width
        Size of the state.
    members
        Networks of each kind, trained at once.
    examples
        Sequences to train on.
    rate
        Initial learning rate of Adam for cells with gates; the others take a part of it. It falls to zero.
    epochs
        Passes over the training set.
    batch
        Sequences in a batch.
    """
    key_train, key_test, key = jr.split(job.key, 3)
    train = data.adding(examples, length=length, key=key_train)
    test = data.adding(TESTED, length=length, key=key_test)
    draw = partial(SequenceClassifier.init, width, 1, width=2)
    found = race(
        job, draw, train, objective=squared_error, times=length, members=members, rate=rate, epochs=epochs,
        batch=batch, key=key,
    )  # fmt: skip
    twice = lambda net, batch, key=None: 2 * squared_error(net, batch)
    table = {"always 1": {"mean square error": float(jnp.mean((test[1] - 1) ** 2))}}
    table |= {name: judged(one.model, test, "mean square error", twice, length) for name, one in found.items()}
    last = list(found.values())[-1]
    return Outcome(
        first(last.model), train, test, squared_error, last.history, (), table, last.reason, last.seconds,
        start=first(last.start),
    )  # fmt: skip


@recipe
def recall(
    job: Job,
    *,
    length: int = 100,
    symbols: int = 8,
    width: int = 32,
    members: int = 3,
    examples: int = 10_000,
    rate: float = 1e-2,
    epochs: int = 4,
    batch: int = 50,
) -> Outcome:
    """Which symbol came first, asked after a hundred others: what Elman cells forget, gates and LRUs do not.

    Parameters
    ----------
    length
        Symbols that distract, between the one to remember and the question.
    symbols
        How many there are to remember; as many distract.
    width
        Size of the state.
    members
        Networks of each kind, trained at once.
    examples
        Sequences to train on.
    rate
        Initial learning rate of Adam for cells with gates; the others take a part of it. It falls to zero.
    epochs
        Passes over the training set.
    batch
        Sequences in a batch.
    """
    key_train, key_test, key = jr.split(job.key, 3)
    train = data.recall(examples, length=length, symbols=symbols, key=key_train)
    test = data.recall(TESTED, length=length, symbols=symbols, key=key_test)
    draw = partial(SequenceClassifier.init, width, symbols, tokens=2 * symbols + 1, width=16)
    found = race(
        job, draw, train, objective=cross_entropy, times=length, members=members, rate=rate, epochs=epochs,
        batch=batch, key=key,
    )  # fmt: skip
    percent = lambda net, batch, key=None: 100 * error_rate(net, batch)
    table = {"one of them": {"test error %": 100 * (1 - 1 / symbols)}}
    table |= {name: judged(one.model, test, "test error %", percent, length) for name, one in found.items()}
    last, names = list(found.values())[-1], tuple(str(symbol) for symbol in range(symbols))
    tokens = (*names, *(f"({symbol})" for symbol in range(symbols)), "?")
    return Outcome(
        first(last.model), train, test, cross_entropy, last.history, names, table, last.reason, last.seconds,
        tokens=tokens, start=first(last.start),
    )  # fmt: skip
