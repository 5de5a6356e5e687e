"""Tomorrow's trading volume from the last five days (§5; ISL §10.5.2, §10.9.6): autoregression and
recurrent networks.

The settings of a network are those that do best on the last of the training years; the test years
are not asked.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from .. import data, tree
from ..core import Batch, predict
from ..layers import LSTM, Elman, Ensemble
from ..models import SequenceClassifier, least_squares
from ..train import Fit, Run, descend, fit, restarts, squared_error, weight_decay
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome

FIGURES = 3  # of a day: the return of the Dow Jones index, log volume, log volatility
VOLUME = 1  # which of them is forecast
HELD_OUT = 0.2  # of the training years, the last, for validation
PATIENCE = 20
DECAYS = (1e-4, 1e-3, 1e-2)  # strengths of weight decay to choose from
CELLS = {"Elman": Elman.init, "LSTM": LSTM.init}
ISL = {"AR": 41.3, "Elman": 42.0}  # what the book has, for its AR(5) and its recurrent network


def lagged(full: data.Data, lags: int) -> tuple[Batch, Batch]:
    """The figures of the last `lags` days, `n lags 3`, with the next day's log volume: the training
    years, the test.

    The first test days look back into the training years.
    """
    assert full.test is not None
    (train_x, train_y), (test_x, test_y) = full.train, full.test
    if not 1 <= lags <= len(train_y):
        raise ValueError(f"lags: expected from 1 to {len(train_y)} days; got {lags}.")
    xs = np.concatenate([train_x, test_x])[:, :FIGURES]
    ys = np.concatenate([train_y, test_y])[lags - 1 :]
    days = np.lib.stride_tricks.sliding_window_view(xs, lags, axis=0).swapaxes(1, 2)
    n = len(train_y) - lags + 1
    return (days[:n], ys[:n]), (days[n:], ys[n:])


def explained(forecast: Any, ys: Any) -> float:
    r"""$R^2 = 1 - \sum (y - \hat y)^2 / \sum (y - \bar y)^2$.

    >>> explained(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
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
    rate: float = 2e-3,
    epochs: int = 200,
    batch: int = 64,
) -> Outcome:
    """Trading volume on the New York Stock Exchange, tested after 1979: autoregression, Elman and
    LSTM networks.

    Each network is the mean of several. Its weight decay, and when to stop, are chosen on the last
    fifth of the training years, and it is trained again on all of them.

    Parameters
    ----------
    lags
        Days that are looked back.
    width
        Size of the state.
    members
        Networks to average, each from weights of its own.
    rate
        Learning rate of Adam.
    epochs
        Passes over the training years, at most.
    batch
        Days in a batch.
    """
    positive(width=width, members=members, rate=rate, epochs=epochs, batch=batch)
    job.say("loading nyse")
    train, test = lagged(data.load("nyse"), lags)
    table = _linear(train, test)
    train, test = _scaled(train, test)
    for place, (name, cell) in enumerate(CELLS.items()):
        key_init, key_fit = jr.split(jr.fold_in(job.key, place))
        draw = partial(SequenceClassifier.init, width, 1, width=FIGURES, cell=cell)
        nets = Ensemble.init(draw, members, key=key_init)
        found, chosen = _chosen(
            job, name, nets, train, epochs=epochs, rate=rate, batch=batch, key=key_fit
        )
        table[name] = {
            "test R² %": 100 * explained(predict(found.model, jnp.asarray(test[0])), test[1]),
            **({"ISL %": ISL[name]} if name in ISL and lags == 5 else {}),
            **chosen,
            "weights of one": float(tree.size(nets) // members),
        }
    return Outcome(
        found.model,
        train,
        test,
        squared_error,
        found.history,
        (),
        table,
        found.reason,
        found.seconds,
        start=found.start,
    )


def _chosen(
    job: Job, name: str, nets: Ensemble, train: Batch, *, epochs: int, **settings: Any
) -> tuple[Fit, dict[str, float]]:
    """Networks trained on all training years, with the decay and the epochs that were best on the
    last of them.
    """
    early = round((1 - HELD_OUT) * len(train[1]))
    first, last = (tuple(a[cut] for a in train) for cut in (slice(None, early), slice(early, None)))
    errors = {}
    for decay in DECAYS:
        job.say(f"{name}, weight decay {decay:g}")
        run = job.part(f"{name}-{decay:g}".lower())
        tried = _fitted(job, nets, first, last, decay=decay, epochs=epochs, run=run, **settings)
        errors[decay] = tried.history["valid error"]
    decay = min(DECAYS, key=lambda decay: errors[decay].min())
    passes = int(errors[decay].argmin()) + 1
    lowest = float(errors[decay].min())
    job.say(f"{name}, weight decay {decay:g}, {passes} epochs, on all training years")
    run = job.part(f"{name}-all".lower())
    found = _fitted(job, nets, train, None, decay=decay, epochs=passes, run=run, **settings)
    valid = 100 * (1 - lowest / float(np.var(last[1])))
    return found, {"valid R² %": valid, "weight decay": decay, "epochs": float(passes)}


def _linear(train: Batch, test: Batch) -> dict[str, dict[str, float]]:
    """Forecasts that need no descent."""
    (xs, ys), (later, target) = train, test
    lags = xs.shape[1]
    flat = lambda xs: jnp.asarray(xs.reshape(len(xs), -1))
    line = least_squares(flat(xs), jnp.asarray(ys))
    return {
        "the mean of the training years": {
            "test R² %": 100 * explained(np.full(len(target), ys.mean()), target)
        },
        "yesterday's volume": {"test R² %": 100 * explained(later[:, -1, VOLUME], target)},
        f"AR({lags})": {"test R² %": 100 * explained(predict(line, flat(later)), target)}
        | ({"ISL %": ISL["AR"]} if lags == 5 else {})
        | {"weights of one": float(tree.size(line))},
    }


def _scaled(train: Batch, test: Batch) -> tuple[Batch, Batch]:
    """Every figure and the target with mean 0 and variance 1 over the training years."""
    scale = data.Standardise.fit(train[0].reshape(-1, FIGURES))
    level = train[1].mean()
    spread = train[1].std()
    one = lambda part: (
        scale(part[0]).astype(np.float32),
        ((part[1] - level) / spread).astype(np.float32),
    )
    return one(train), one(test)


def _fitted(
    job: Job,
    nets: Ensemble,
    train: Batch,
    valid: Batch | None,
    *,
    decay: float,
    epochs: int,
    rate: float,
    batch: int,
    run: Run | None,
    key: PRNGKeyArray,
) -> Fit:
    return fit(
        restarts(descend(weight_decay(squared_error, strength=decay), optax.adam(rate))),
        nets,
        train,
        epochs=epochs,
        batch_size=batch,
        validation=valid,
        metrics=None if valid is None else {"error": _mean_square},
        patience=None if valid is None else PATIENCE,
        key=key,
        run=run,
        progress=job.progress,
    )


def _mean_square(model: Any, batch: Batch, *, key: Any = None) -> Any:
    return 2 * squared_error(model, batch)
