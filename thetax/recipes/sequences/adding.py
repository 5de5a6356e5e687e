"""The adding problem, a test of long memory: `thetax train adding`."""

from functools import partial

import jax.numpy as jnp
import jax.random as jr

from ... import data
from ...models import SequenceClassifier
from ...train import squared_error
from ..engine.job import Job, recipe
from ..engine.outcome import Outcome
from ..shared.memory_tasks import N_TEST, cell_row, first_member, train_cells
from ..shared.metrics import mean_squared_error


@recipe
def adding(
    job: Job,
    *,
    length: int = 100,
    width: int = 32,
    n_seeds: int = 3,
    n_train: int = 10_000,
    learning_rate: float = 1e-2,
    epochs: int = 6,
    batch_size: int = 50,
) -> Outcome:
    """The adding problem by recurrent cells: the sum of two marked numbers in a sequence.

    An Elman cell whose recurrent matrix is constrained to be a contraction, a free Elman cell, GRU,
    LSTM and LRU are compared, with several networks of each.

    Parameters
    ----------
    length
        Numbers in a sequence; two of them are marked, one in each half.
    width
        Hidden state size.
    learning_rate
        Initial learning rate of Adam for gated cells, scaled down for the others; it decays to zero
        along a cosine.
    """
    key_train, key_test, key = jr.split(job.key, 3)
    train = data.adding_problem(n_train, length=length, key=key_train)
    test = data.adding_problem(N_TEST, length=length, key=key_test)
    init = partial(SequenceClassifier.init, width, 1, width=2)
    fits = train_cells(
        job,
        init,
        train,
        objective=squared_error,
        timescale=length,
        n_seeds=n_seeds,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key,
    )
    table = {"always 1": {"mean squared error": float(jnp.mean((test[1] - 1) ** 2))}}
    table |= {
        name: cell_row(result.model, test, "mean squared error", mean_squared_error, length)
        for name, result in fits.items()
    }
    last = list(fits.values())[-1]
    return Outcome.of_fit(
        last,
        model=first_member(last.model),
        train=train,
        test=test,
        objective=squared_error,
        table=table,
        start=first_member(last.start),
    )
