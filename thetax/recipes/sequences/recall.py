"""Recall of the first symbol of a sequence at its end: `thetax train recall`."""

from functools import partial

import jax.random as jr

from ... import data
from ...models import SequenceClassifier
from ...train import cross_entropy, error_rate
from ..engine.job import Job, recipe
from ..engine.outcome import Outcome
from ..shared.memory_tasks import N_TEST, cell_row, first_member, train_cells


@recipe
def recall(
    job: Job,
    *,
    length: int = 100,
    n_symbols: int = 8,
    width: int = 32,
    n_seeds: int = 3,
    n_train: int = 10_000,
    learning_rate: float = 1e-2,
    epochs: int = 4,
    batch_size: int = 50,
) -> Outcome:
    """Recall of the first symbol of a sequence after a hundred distractors.

    Parameters
    ----------
    length
        Distractors between the symbol to remember and the query.
    n_symbols
        Symbols to remember; there are as many distractors.
    width
        Hidden state size.
    learning_rate
        Initial learning rate of Adam for gated cells, scaled down for the others; it decays to zero
        along a cosine.
    """
    key_train, key_test, key = jr.split(job.key, 3)
    train = data.recall_task(n_train, length=length, n_symbols=n_symbols, key=key_train)
    test = data.recall_task(N_TEST, length=length, n_symbols=n_symbols, key=key_test)
    init = partial(
        SequenceClassifier.init, width, n_symbols, vocab_size=2 * n_symbols + 1, width=16
    )
    fits = train_cells(
        job,
        init,
        train,
        objective=cross_entropy,
        timescale=length,
        n_seeds=n_seeds,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key,
    )
    percent = lambda net, batch, key=None: 100 * error_rate(net, batch)
    table = {"chance": {"test error %": 100 * (1 - 1 / n_symbols)}}
    table |= {
        name: cell_row(result.model, test, "test error %", percent, length)
        for name, result in fits.items()
    }
    last = list(fits.values())[-1]
    names = tuple(str(symbol) for symbol in range(n_symbols))
    tokens = (*names, *(f"({symbol})" for symbol in range(n_symbols)), "?")
    return Outcome.of_fit(
        last,
        model=first_member(last.model),
        train=train,
        test=test,
        objective=cross_entropy,
        classes=names,
        table=table,
        tokens=tokens,
        start=first_member(last.start),
    )
