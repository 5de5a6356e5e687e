"""A table of real data divided many times, and many small networks trained on every division at
once.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from sklearn.linear_model import LogisticRegression

from ... import data, layers, models, train
from ...core import predict
from ...plot import DotColumn

UNITS, MEMBERS, BATCH, EPOCHS, RATE = 10, 5, 100, 20, 0.01
CORE = 0.8  # of the training rows; early stopping watches the others


class Splits(NamedTuple):
    """A table of features of unit scale, several random divisions of its rows, and where each has
    its parts.
    """

    xs: Any
    ys: Any
    rows: (
        np.ndarray
    )  # splits n: rows to train on, the last of them to stop by, then those to test on
    core: int
    cut: int

    def batches(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Numbers of rows, `splits epochs steps batch`, from the first `size` of each split in a
        new order.
        """
        steps = self.cut // BATCH

        def epoch(rows):
            return np.resize(rng.permutation(rows[:size]), (steps, BATCH))

        return np.array([[epoch(rows) for _ in range(EPOCHS)] for rows in self.rows])

    @property
    def judged(self) -> np.ndarray:
        """The rows after the core: those to stop by and those to test on."""
        return self.rows[:, self.core :]

    def mistakes(self, logits: Any) -> np.ndarray:
        """Percent of the test rows, by split, on the wrong side; the logits are those of the judged
        rows.
        """
        labels = np.asarray(self.ys)[self.rows[:, self.cut :]]
        guess = np.asarray(logits)[..., self.cut - self.core :] > 0
        return 100 * (guess != labels.reshape(len(labels), *[1] * (guess.ndim - 2), -1)).mean(
            axis=-1
        )


def split(name: str, *, train_rows: int, count: int, key) -> Splits:
    """A dataset, divided `count` times, with as many of each class in a part as in the whole."""
    xs, ys = data.load(name).train
    xs = np.log(xs.astype(float) + 0.1) if name == "spambase" else xs.astype(float)
    share = train_rows / len(ys)
    parts = [data.split((np.arange(len(ys)),), share, key=k, by=ys) for k in jr.split(key, count)]
    rows = np.stack([np.concatenate([first, rest]) for (first,), (rest,) in parts])
    scale = data.Standardise.fit(
        xs
    )  # of all inputs, no label among them, so that the splits share one table
    return Splits(
        jnp.asarray(scale(xs)), jnp.asarray(ys), rows, round(CORE * train_rows), train_rows
    )


@partial(jax.jit, static_argnames="way")
def _learn(way, nets, strengths, batches, judged, table, keys):
    xs, ys = table

    def one(net, strength, batches, judged, key):
        iteration = way(strength)

        def step(state, item):
            number, rows = item
            return iteration.step(state, (xs[rows], ys[rows]), key=jr.fold_in(key, number))[0], None

        def epoch(state, items):
            state, _ = jax.lax.scan(step, state, items)
            return state, predict(state.model, xs[judged])[:, 0]

        numbers = jnp.arange(batches.shape[0] * batches.shape[1]).reshape(batches.shape[:2])
        state, logits = jax.lax.scan(epoch, iteration.init(net), (numbers, batches))
        return state.model, logits

    return jax.vmap(one)(nets, strengths, batches, judged, keys)


def learn(way, nets, splits: Splits, batches, *, key, strengths=((0.0, 0.0),)):
    """The stacked networks trained by `way(strength)`, all at once, one for each split and
    strength, and their logits on the judged rows after each epoch; in both the splits come first
    and then the strengths.
    """
    count = len(splits.rows)
    each = len(strengths)
    again = lambda a: (
        jnp.repeat(jnp.asarray(a), each, axis=0) if len(a) == count else jnp.asarray(a)
    )
    found = _learn(
        way,
        nets,
        jnp.tile(jnp.asarray(strengths), (count, 1)),
        again(batches),
        again(splits.judged),
        (splits.xs, splits.ys),
        jr.split(key, count * each),
    )
    return jax.tree.map(lambda a: a.reshape(count, each, *a.shape[1:]), found)


def drawn(count: int, d: int, key):
    """Networks of one hidden layer, stacked."""
    return layers.Ensemble.init(partial(models.MLP.init, d, UNITS, 1), count, key=key).members


def thinned(nets, d: int, rate: float):
    """The same weights in networks that drop hidden units."""
    like = jax.eval_shape(partial(models.MLP.init, d, UNITS, 1, dropout=rate), key=jr.key(0))
    return jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(nets))


def loss(model, batch, *, key=None):
    """The binary cross-entropy."""
    return train.binary_cross_entropy(model, batch, key=key)


def plainly(strength):
    """Descent without any trick."""
    return train.descend(loss, optax.adam(RATE))


def quickly(strength):
    """Descent for a convex problem, at a large rate that falls to zero."""
    return train.descend(loss, optax.adam(optax.cosine_decay_schedule(0.1, 600)))


def penalised(strength):
    """With a ridge and a lasso penalty, in this order."""
    ridge, lasso = strength
    return train.descend(
        train.lasso(train.weight_decay(loss, strength=ridge), strength=lasso), optax.adam(RATE)
    )


def noisily(strength):
    """With Gaussian noise on the inputs."""
    return train.descend(train.augmented(loss, data.augment.noise(scale=0.2)), optax.adam(RATE))


def together(strength):
    """Several starts at once, penalised."""
    return train.restarts(penalised(strength))


def logistic(splits: Splits, batches, key):
    """The library's logistic regression, and the errors of scikit-learn's on the same rows."""
    origin = models.logistic_regression(splits.xs.shape[1])
    nets = jax.tree.map(lambda a: jnp.zeros((len(splits.rows), *a.shape)), origin)
    _, logits = learn(quickly, nets, splits, batches, key=key)
    return np.asarray(logits[:, 0, -1]), peer(splits, LogisticRegression(C=1e6, max_iter=500))


def peer(splits: Splits, model) -> np.ndarray:
    """Percent of the test rows that a model of scikit-learn gets wrong, by split."""
    xs = np.asarray(splits.xs)
    ys = np.asarray(splits.ys)
    parts = [(rows[: splits.cut], rows[splits.cut :]) for rows in splits.rows]
    return np.array([100 * (1 - model.fit(xs[a], ys[a]).score(xs[b], ys[b])) for a, b in parts])


class Ablation(NamedTuple):
    """Test errors in percent, by trick and split, and the logits of the plain network and of the
    one with dropout.
    """

    errors: dict[str, np.ndarray]
    plain: np.ndarray
    dropped: np.ndarray


def ablation(splits: Splits, batches, *, dropout: float, rng, key) -> Ablation:
    """Every trick alone, on the same splits."""
    d = splits.xs.shape[1]
    keys = jr.split(key, 4)
    strengths = [(0.0, 0.0)] * MEMBERS + [(0.0, 0.0), (1e-3, 0.0), (0.0, 3e-4)]
    shorter = splits.batches(rng, splits.core)
    ways = np.stack(
        [shorter if way == MEMBERS else batches for way in range(len(strengths))], axis=1
    )
    nets = drawn(ways.shape[0] * ways.shape[1], d, keys[0])
    first = jax.tree.map(lambda a: a[:: len(strengths)], nets)
    every = ways.reshape(-1, *ways.shape[2:])
    found, logits = learn(penalised, nets, splits, every, key=keys[1], strengths=strengths)
    members = jax.tree.map(lambda a: a[:, :MEMBERS], found)
    pooled = jax.jit(
        jax.vmap(lambda net, rows: predict(layers.Ensemble(net), splits.xs[rows])[:, 0])
    )
    logits, last = np.asarray(logits), lambda way: np.asarray(logits)[:, way, -1]
    _, dropped = learn(plainly, thinned(first, d, dropout), splits, batches, key=keys[2])
    _, noisy = learn(noisily, first, splits, batches, key=keys[3])
    errors = {
        "no trick": splits.mistakes(logits[:, :MEMBERS, -1]).mean(axis=1),
        "early stopping": splits.mistakes(stopped(splits, logits[:, MEMBERS])),
        "L2 penalty": splits.mistakes(last(MEMBERS + 1)),
        "L1 penalty": splits.mistakes(last(MEMBERS + 2)),
        "dropout": splits.mistakes(dropped[:, 0, -1]),
        "noise on the inputs": splits.mistakes(noisy[:, 0, -1]),
        "restarts averaged": splits.mistakes(pooled(members, splits.judged)),
    }
    return Ablation(errors, logits[:, 0, -1], np.asarray(dropped[:, 0, -1]))


def stopped(splits: Splits, logits: np.ndarray) -> np.ndarray:
    """The logits of the epoch whose loss is least on the rows to stop by; `logits` are
    `splits epochs judged`.
    """
    held = splits.rows[:, splits.core : splits.cut]
    z = logits[:, :, : held.shape[1]]
    y = np.asarray(splits.ys)[held][:, None]
    best = (np.logaddexp(0, z) - y * z).mean(axis=-1).argmin(axis=1)
    return logits[np.arange(len(logits)), best]


def mean(errors: np.ndarray) -> tuple[float, float]:
    """Over the splits, with its standard error."""
    return float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors)))


def column(name: str, errors: dict[str, np.ndarray], null: float) -> DotColumn:
    """The means with their errors; the constant guess is drawn where it is near, and said where it
    is far.
    """
    near = null < 2 * max(error.mean() for error in errors.values())
    title = name if near else f"{name} (null: {null:.1f} %)"
    return DotColumn(
        "test error, %",
        {way: mean(e) for way, e in errors.items()},
        {"null": null} if near else {},
        title,
    )
