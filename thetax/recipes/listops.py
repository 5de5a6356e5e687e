"""Nested lists by recurrent cells (§5): how far a memory without a stack comes with brackets."""

from functools import partial

import jax.random as jr
import numpy as np

from .. import data
from ..models import SequenceClassifier
from ..train import cross_entropy, error_rate
from .engine.job import Job, recipe
from .engine.outcome import Outcome
from .shared import recurrent_encoders as cells
from .shared.memory import Entrant, first, judged, race

TESTED = 2000  # expressions
ENTRANTS = {
    "Elman": Entrant(cells.elman, 0.3),
    "LSTM": Entrant(cells.lstm),
    "GRU": Entrant(cells.gru),
    "LRU, two blocks": Entrant(cells.blocks("lru", 2), 0.5),
}


@recipe
def listops(
    job: Job,
    *,
    length: int = 40,
    depth: int = 3,
    arguments: int = 4,
    width: int = 64,
    members: int = 1,
    examples: int = 20_000,
    rate: float = 5e-3,
    epochs: int = 8,
    batch: int = 100,
) -> Outcome:
    """The digit that nested lists of MAX, MIN, MED and sum modulo 10 come to, by four recurrent
    cells.

    Parameters
    ----------
    length
        Tokens of an expression, at most.
    depth
        How deep lists are nested, at most.
    arguments
        Members of a list, at most.
    width
        Size of the state, and of the vectors of the tokens.
    members
        Networks of each kind, trained at once.
    examples
        Expressions to train on.
    rate
        Initial learning rate of Adam for cells with gates; the others take a part of it. It falls
        to zero.
    epochs
        Passes over the training set.
    batch
        Expressions in a batch.
    """
    key_draw, key = jr.split(job.key)
    job.say("drawing expressions")
    train, test = _distinct(examples, length=length, depth=depth, arguments=arguments, key=key_draw)
    draw = partial(SequenceClassifier.init, width, 10, vocab_size=len(data.LISTOPS), width=width)
    found = race(
        job,
        draw,
        train,
        objective=cross_entropy,
        times=length,
        members=members,
        rate=rate,
        epochs=epochs,
        batch=batch,
        key=key,
        entrants=ENTRANTS,
    )
    percent = lambda net, batch, key=None: 100 * error_rate(net, batch)
    common = np.bincount(train[1], minlength=10).argmax()
    table = {f"always {common}": {"test error %": 100 * float(np.mean(test[1] != common))}}
    table |= {
        name: judged(one.model, test, "test error %", percent, length)
        for name, one in found.items()
    }
    last = list(found.values())[-1]
    return Outcome(
        first(last.model),
        train,
        test,
        cross_entropy,
        last.history,
        tuple("0123456789"),
        table,
        last.reason,
        last.seconds,
        tokens=data.LISTOPS,
        start=first(last.start),
    )


def _distinct(examples: int, **how) -> tuple[tuple, tuple]:
    """Expressions to train on, and others to test on, none of which is among the first."""
    xs, ys = data.listops(examples + 2 * TESTED, **how)
    seen = {row.tobytes() for row in xs[:examples]}
    new = [row for row in range(examples, len(xs)) if xs[row].tobytes() not in seen][:TESTED]
    return (xs[:examples], ys[:examples]), (xs[new], ys[new])
