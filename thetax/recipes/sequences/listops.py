"""ListOps by recurrent cells (§5): nested brackets without a stack."""

from functools import partial

import jax.random as jr
import numpy as np

from ... import data
from ...models import SequenceClassifier
from ...train import cross_entropy, error_rate
from ..engine.job import Job, recipe
from ..engine.outcome import Outcome
from ..shared import cells
from ..shared.memory_tasks import CellSpec, cell_row, first_member, train_cells

N_TEST = 2000  # expressions
CELL_SPECS = {
    "Elman": CellSpec(cells.elman, 0.3),
    "LSTM": CellSpec(cells.lstm),
    "GRU": CellSpec(cells.gru),
    "LRU, two blocks": CellSpec(cells.residual_blocks("lru", 2), 0.5),
}


@recipe
def listops(
    job: Job,
    *,
    max_length: int = 40,
    max_depth: int = 3,
    max_arguments: int = 4,
    width: int = 64,
    n_seeds: int = 1,
    n_train: int = 20_000,
    learning_rate: float = 5e-3,
    epochs: int = 8,
    batch_size: int = 100,
) -> Outcome:
    """ListOps by recurrent cells: the value of nested lists of MAX, MIN, MED and sum.

    Parameters
    ----------
    max_length
        Maximum length of an expression in tokens.
    max_depth
        Maximum nesting depth of lists.
    max_arguments
        Maximum number of arguments of a list.
    width
        Hidden state size, and embedding dimension of the tokens.
    learning_rate
        Initial learning rate of Adam for gated cells, scaled down for the others; it decays to zero
        along a cosine.
    """
    key_data, key = jr.split(job.key)
    job.note("sampling expressions")
    train, test = _distinct(
        n_train, length=max_length, max_depth=max_depth, max_arguments=max_arguments, key=key_data
    )
    init = partial(SequenceClassifier.init, width, 10, vocab_size=len(data.LISTOPS), width=width)
    fits = train_cells(
        job,
        init,
        train,
        objective=cross_entropy,
        timescale=max_length,
        n_seeds=n_seeds,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key,
        cell_specs=CELL_SPECS,
    )
    percent = lambda net, batch, key=None: 100 * error_rate(net, batch)
    majority = np.bincount(train[1], minlength=10).argmax()
    table = {"majority class": {"test error %": 100 * float(np.mean(test[1] != majority))}}
    table |= {
        name: cell_row(result.model, test, "test error %", percent, max_length)
        for name, result in fits.items()
    }
    last = list(fits.values())[-1]
    return Outcome.of_fit(
        last,
        model=first_member(last.model),
        train=train,
        test=test,
        objective=cross_entropy,
        classes=tuple("0123456789"),
        table=table,
        tokens=data.LISTOPS,
        start=first_member(last.start),
    )


def _distinct(n_train: int, **options) -> tuple[tuple, tuple]:
    """Training expressions, and test expressions none of which is a training expression."""
    xs, ys = data.listops(n_train + 2 * N_TEST, **options)
    train_rows = {row.tobytes() for row in xs[:n_train]}
    new = [row for row in range(n_train, len(xs)) if xs[row].tobytes() not in train_rows][:N_TEST]
    return (xs[:n_train], ys[:n_train]), (xs[new], ys[new])
