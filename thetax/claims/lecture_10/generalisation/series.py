"""A real time series (lecture 10, §6.1): tomorrow's trading volume from the last five days."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .... import data, layers, models, train, tree
from ....core import predict, run
from ....plot import Panel
from ...engine.check import at_most, close, equal, refuted
from ...engine.claim import Verdict, claim

LAGS, UNITS, RESTARTS = 5, 12, 3
STEPS, BATCH, RATE, DECAY = 2000, 256, 0.01, 3e-3


def series() -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """The last five days of three series, `n 5 3`, the weekday and the log volume of the next day,
    and the number of training examples.
    """
    full = data.load("nyse")
    assert full.test is not None
    (train_x, train_y), (test_x, test_y) = full.train, full.test
    xs = np.concatenate([train_x, test_x]).astype(float)
    ys = np.concatenate([train_y, test_y]).astype(float)
    windows = np.lib.stride_tricks.sliding_window_view(xs[:, :3], LAGS, axis=0).swapaxes(1, 2)
    return windows, xs[LAGS - 1 :, 3], ys[LAGS - 1 :], len(train_y) - LAGS + 1


def last(states):
    """The state after the last step."""
    return states[-1]


def recurrent(key) -> layers.Chain:
    """A simple recurrent network that reads the days in order and forecasts from its last state."""
    key_cell, key_out = jr.split(key)
    cell = layers.Elman.init(3, UNITS, key=key_cell)
    return layers.Chain(layers.Recurrent(cell), last, layers.Linear.init(UNITS, 1, key=key_out))


@jax.jit
def trained(windows, ys, keys):
    """A network for each key, trained by Adam with a ridge penalty on random batches."""
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, STEPS))
    iteration = train.descend(train.weight_decay(train.squared_error, strength=DECAY), optimiser)

    def one(key):
        key_rows, key_draw, key_run = jr.split(key, 3)
        rows = jr.randint(key_rows, (STEPS, BATCH), 0, len(ys))
        return run(iteration, recurrent(key_draw), (windows[rows], ys[rows]), key=key_run)[0].model

    return jax.vmap(one)(keys)


def by_hand(net: layers.Chain, windows: np.ndarray) -> np.ndarray:
    """The forecasts of a recurrent network, day by day in NumPy."""
    cell = net.layers[0].cell
    out = net.layers[-1]
    U, V, b, W, c = (np.asarray(a) for a in (cell.U, cell.V, cell.b, out.W, out.b))
    z = np.zeros((len(windows), UNITS))
    for day in range(LAGS):
        z = np.tanh(z @ U.T + windows[:, day] @ V.T + b)
    return (z @ W.T + c)[:, 0]


@claim(
    "L10-6.1-nyse",
    title="Forecasting the trading volume",
    kind="experiment",
    of=("models.least_squares", "layers.Elman", "data.load"),
    cites="James, Witten, Hastie & Tibshirani 2021, §10.5.2",
    data=("nyse",),
)
def nyse(key):
    r"""On the New York Stock Exchange, tested after 1979, a linear autoregression on the last five
    days' return, volume and volatility explains $R^2 = 0.413$ of the variance of the log volume,
    whereas yesterday's volume as a forecast explains 0.180, and adding the weekday raises it to
    0.460. A recurrent network of 12 units that reads the same five days comes within 0.03 of the
    autoregression, with 205 parameters instead of 16.
    """
    windows, week, ys, n = series()
    explained = lambda forecast: 1 - np.mean((ys[n:] - forecast) ** 2) / np.var(ys[n:])
    flat = windows.reshape(len(ys), -1)
    weekly = np.concatenate([flat, np.eye(5)[week.astype(int), 1:]], axis=1)
    linear = {}
    for name, rows in {"AR(5)": flat, "AR(5) and weekday": weekly}.items():
        model = models.least_squares(jnp.asarray(rows[:n]), jnp.asarray(ys[:n]))
        linear[name] = np.asarray(predict(model, jnp.asarray(rows[n:])))[:, 0]
    solved = np.linalg.lstsq(np.c_[np.ones(n), flat[:n]], ys[:n], rcond=None)[0]
    scale = data.Standardise.fit(windows[:n].reshape(-1, 3))
    level = ys[:n].mean()
    spread = ys[:n].std()
    zs = scale(windows)
    nets = trained(
        jnp.asarray(zs[:n]), jnp.asarray((ys[:n] - level) / spread), jr.split(key, RESTARTS)
    )
    forecasts_by_library = np.asarray(
        jax.jit(jax.vmap(predict, in_axes=(0, None)))(nets, jnp.asarray(zs[n:]))
    )[..., 0]
    one = jax.tree.map(lambda a: a[0], nets)
    forecasts = level + spread * forecasts_by_library
    fits = [explained(forecast) for forecast in forecasts]
    auto = explained(linear["AR(5)"])
    yesterday = explained(windows[n:, -1, 1])
    days = np.arange(120)
    return Verdict(
        close("R² of AR(5)", auto, 0.4129, tolerance=5e-5),
        close(
            "AR(5) by another solver",
            linear["AR(5)"],
            flat[n:] @ solved[1:] + solved[0],
            tolerance=1e-9,
        ),
        close("R² of yesterday's volume", yesterday, 0.1803, tolerance=5e-5),
        close(
            "R² of AR(5) and the weekday",
            explained(linear["AR(5) and weekday"]),
            0.4596,
            tolerance=5e-5,
        ),
        at_most(
            "R² of three recurrent networks, difference from AR(5)",
            np.abs(np.array(fits) - auto),
            0.03,
        ),
        refuted(
            at_most("R² of yesterday's volume, difference from AR(5)", abs(yesterday - auto), 0.03)
        ),
        close(
            "a recurrent network's forecasts, day by day in NumPy",
            forecasts_by_library[0],
            by_hand(one, zs[n:]),
            tolerance=1e-9,
        ),
        equal("number of its parameters, and of AR(5)", [tree.size(one), len(solved)], [205, 16]),
        figure=Panel(
            "trading day of the test years",
            "log volume",
            lines={
                "AR(5)": (days, linear["AR(5)"][:120]),
                "recurrent network": (days, forecasts[0, :120]),
            },
            points={"volume": (days, ys[n:][:120])},
        ),
    )
