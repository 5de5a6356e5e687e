"""`thetax train adding`: the adding problem, a test of long memory."""

from functools import partial

import jax.numpy as jnp
import jax.random as jr

from .. import data
from ..models import SequenceClassifier
from ..train import squared_error
from .engine.job import Job, recipe
from .engine.outcome import Outcome
from .shared.memory import TESTED, first, judged, race


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
    """The sum of two marked numbers among a hundred, by recurrent cells: gates and linear
    recurrences remember.

    Beside them, as many networks of each, stand Elman cells: one that provably forgets, and one
    left free.

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
        Initial learning rate of Adam for cells with gates; the others take a part of it. It falls
        to zero.
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
        job,
        draw,
        train,
        objective=squared_error,
        times=length,
        members=members,
        rate=rate,
        epochs=epochs,
        batch=batch,
        key=key,
    )
    twice = lambda net, batch, key=None: 2 * squared_error(net, batch)
    table = {"always 1": {"mean square error": float(jnp.mean((test[1] - 1) ** 2))}}
    table |= {
        name: judged(one.model, test, "mean square error", twice, length)
        for name, one in found.items()
    }
    last = list(found.values())[-1]
    return Outcome(
        first(last.model),
        train,
        test,
        squared_error,
        last.history,
        (),
        table,
        last.reason,
        last.seconds,
        start=first(last.start),
    )
