"""Forecasts of the trading volume of the NYSE from the last five days (§5; ISL §10.5.2, §10.9.6).

Autoregression and recurrent networks, whose hyper-parameters are selected on the last of the
training years; the test years are used once.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from ... import data, tree
from ...core import Batch, predict
from ...layers import LSTM, Elman, Ensemble
from ...models import SequenceClassifier, least_squares
from ...train import FitResult, Run, descend, fit, per_member, squared_error, weight_decay
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.metrics import mean_squared_error

N_FEATURES = 3  # per day: the return of the Dow Jones index, log volume, log volatility
VOLUME = 1  # index of the feature to forecast
VALID_FRACTION = 0.2  # of the training years: the last ones
PATIENCE = 20
WEIGHT_DECAYS = (1e-4, 1e-3, 1e-2)  # candidates
CELLS = {"Elman": Elman.init, "LSTM": LSTM.init}
ISL = {"AR": 41.3, "Elman": 42.0}  # R² in percent of the book's AR(5) and recurrent network


def lagged_windows(full: data.Data, lags: int) -> tuple[Batch, Batch]:
    """Features of the last `lags` days, `n lags 3`, and the log volume of the next day.

    Returns training and test set; the first test days use features of the training years.
    """
    assert full.test is not None
    (train_x, train_y), (test_x, test_y) = full.train, full.test
    if not 1 <= lags <= len(train_y):
        raise ValueError(f"lags: expected from 1 to {len(train_y)} days; got {lags}.")
    xs = np.concatenate([train_x, test_x])[:, :N_FEATURES]
    ys = np.concatenate([train_y, test_y])[lags - 1 :]
    days = np.lib.stride_tricks.sliding_window_view(xs, lags, axis=0).swapaxes(1, 2)
    n = len(train_y) - lags + 1
    return (days[:n], ys[:n]), (days[n:], ys[n:])


def r_squared(forecast: Any, ys: Any) -> float:
    r"""$R^2 = 1 - \sum (y - \hat y)^2 / \sum (y - \bar y)^2$.

    >>> r_squared(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    0.5
    """
    ys = np.asarray(ys, np.float64)
    return float(1 - np.mean((ys - np.asarray(forecast, np.float64).ravel()) ** 2) / np.var(ys))


@recipe
def nyse(
    job: Job,
    *,
    lags: int = 5,
    width: int = 12,
    members: int = 5,
    learning_rate: float = 2e-3,
    epochs: int = 200,
    batch_size: int = 64,
) -> Outcome:
    """Trading volume on the New York Stock Exchange: autoregression, Elman and LSTM networks.

    The test set begins in 1980. Each network is an ensemble. Its weight decay and number of epochs
    are selected on the last fifth of the training years; then it is trained again on all of them.

    Parameters
    ----------
    lags
        Days of history.
    width
        Hidden state size.
    learning_rate
        Learning rate of Adam.
    epochs
        Maximum passes over the training set; early stopping may end sooner.
    """
    check_positive(
        width=width,
        members=members,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    job.note("loading nyse")
    train, test = lagged_windows(data.load("nyse"), lags)
    table = _baseline_rows(train, test)
    train, test = _standardise(train, test)
    for i, (name, cell) in enumerate(CELLS.items()):
        key_init, key_fit = jr.split(jr.fold_in(job.key, i))
        init = partial(SequenceClassifier.init, width, 1, width=N_FEATURES, cell=cell)
        nets = Ensemble.init(init, members, key=key_init)
        result, selection = _select_and_refit(
            job,
            name,
            nets,
            train,
            epochs=epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            key=key_fit,
        )
        table[name] = {
            "test R² %": 100 * r_squared(predict(result.model, jnp.asarray(test[0])), test[1]),
            **({"ISL %": ISL[name]} if name in ISL and lags == 5 else {}),
            **selection,
            "parameters per network": float(tree.size(nets) // members),
        }
    return Outcome.of_fit(
        result, train=train, test=test, objective=squared_error, table=table, start=result.start
    )


def _select_and_refit(
    job: Job, name: str, nets: Ensemble, train: Batch, *, epochs: int, **settings: Any
) -> tuple[FitResult, dict[str, float]]:
    """Selects weight decay and epochs by the error on the last training years, then fits on all."""
    split = round((1 - VALID_FRACTION) * len(train[1]))
    early = tuple(a[:split] for a in train)
    late = tuple(a[split:] for a in train)
    errors = {}
    for decay in WEIGHT_DECAYS:
        job.note(f"{name}, weight decay {decay:g}")
        run = job.part(f"{name}-{decay:g}".lower())
        result = _fit(job, nets, early, late, strength=decay, epochs=epochs, run=run, **settings)
        errors[decay] = result.history["valid error"]
    decay = min(WEIGHT_DECAYS, key=lambda decay: errors[decay].min())
    best_epochs = int(errors[decay].argmin()) + 1
    lowest = float(errors[decay].min())
    job.note(f"{name}, weight decay {decay:g}, {best_epochs} epochs, on all training years")
    run = job.part(f"{name}-all".lower())
    result = _fit(job, nets, train, None, strength=decay, epochs=best_epochs, run=run, **settings)
    valid = 100 * (1 - lowest / float(np.var(late[1])))
    return result, {"valid R² %": valid, "weight decay": decay, "epochs": float(best_epochs)}


def _baseline_rows(train: Batch, test: Batch) -> dict[str, dict[str, float]]:
    """The rows of the mean, of the previous day and of autoregression."""
    (xs, ys), (test_xs, test_ys) = train, test
    lags = xs.shape[1]
    flat = lambda xs: jnp.asarray(xs.reshape(len(xs), -1))
    line = least_squares(flat(xs), jnp.asarray(ys))
    return {
        "training mean": {"test R² %": 100 * r_squared(np.full(len(test_ys), ys.mean()), test_ys)},
        "previous day": {"test R² %": 100 * r_squared(test_xs[:, -1, VOLUME], test_ys)},
        f"AR({lags})": {"test R² %": 100 * r_squared(predict(line, flat(test_xs)), test_ys)}
        | ({"ISL %": ISL["AR"]} if lags == 5 else {})
        | {"parameters per network": float(tree.size(line))},
    }


def _standardise(train: Batch, test: Batch) -> tuple[Batch, Batch]:
    """Standardises features and target by their mean and variance over the training years."""
    scale = data.Standardise.fit(train[0].reshape(-1, N_FEATURES))
    mean = train[1].mean()
    std = train[1].std()
    standardise = lambda split: (
        scale(split[0]).astype(np.float32),
        ((split[1] - mean) / std).astype(np.float32),
    )
    return standardise(train), standardise(test)


def _fit(
    job: Job,
    nets: Ensemble,
    train: Batch,
    valid: Batch | None,
    *,
    strength: float,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    run: Run | None,
    key: PRNGKeyArray,
) -> FitResult:
    return fit(
        per_member(
            descend(weight_decay(squared_error, strength=strength), optax.adam(learning_rate))
        ),
        nets,
        train,
        epochs=epochs,
        batch_size=batch_size,
        validation=valid,
        metrics=None if valid is None else {"error": mean_squared_error},
        patience=None if valid is None else PATIENCE,
        key=key,
        run=run,
        progress=job.progress,
    )
