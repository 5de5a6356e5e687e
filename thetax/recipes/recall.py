"""`thetax train recall`: the first symbol of a sequence, recalled at its end."""

from functools import partial

import jax.random as jr

from .. import data
from ..models import SequenceClassifier
from ..train import cross_entropy, error_rate
from .engine.job import Job, recipe
from .engine.outcome import Outcome
from .shared.memory import TESTED, first, judged, race


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
    """Which symbol came first, asked after a hundred others: what Elman cells forget, gates and
    LRUs do not.

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
        Initial learning rate of Adam for cells with gates; the others take a part of it. It falls
        to zero.
    epochs
        Passes over the training set.
    batch
        Sequences in a batch.
    """
    key_train, key_test, key = jr.split(job.key, 3)
    train = data.recall(examples, length=length, symbols=symbols, key=key_train)
    test = data.recall(TESTED, length=length, symbols=symbols, key=key_test)
    draw = partial(SequenceClassifier.init, width, symbols, vocab_size=2 * symbols + 1, width=16)
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
    )
    percent = lambda net, batch, key=None: 100 * error_rate(net, batch)
    table = {"one of them": {"test error %": 100 * (1 - 1 / symbols)}}
    table |= {
        name: judged(one.model, test, "test error %", percent, length)
        for name, one in found.items()
    }
    last = list(found.values())[-1]
    names = tuple(str(symbol) for symbol in range(symbols))
    tokens = (*names, *(f"({symbol})" for symbol in range(symbols)), "?")
    return Outcome(
        first(last.model),
        train,
        test,
        cross_entropy,
        last.history,
        names,
        table,
        last.reason,
        last.seconds,
        tokens=tokens,
        start=first(last.start),
    )
