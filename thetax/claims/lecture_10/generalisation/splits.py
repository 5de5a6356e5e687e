"""Repeated random splits of a data table, and many small networks trained on all splits at once."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from sklearn.linear_model import LogisticRegression

from .... import data, layers, models, train
from ....core import predict
from ....plot import DotColumn

UNITS, MEMBERS, BATCH, EPOCHS, RATE = 10, 5, 100, 20, 0.01
CORE = 0.8  # share of the training rows; early stopping monitors the others


class Splits(NamedTuple):
    """A table of standardised features, several random splits of its rows, and the sizes of the
    parts.
    """

    xs: Any
    ys: Any
    rows: np.ndarray  # splits n: training rows, the last of them for early stopping, then test rows
    core: int
    cut: int

    def batches(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Row indices, `splits epochs steps batch`, from the first `size` rows of each split in
        random order.
        """
        steps = self.cut // BATCH

        def epoch(rows):
            return np.resize(rng.permutation(rows[:size]), (steps, BATCH))

        return np.array([[epoch(rows) for _ in range(EPOCHS)] for rows in self.rows])

    @property
    def held_out(self) -> np.ndarray:
        """The rows after the core: those for early stopping and the test rows."""
        return self.rows[:, self.core :]

    def mistakes(self, logits: Any) -> np.ndarray:
        """Percentage of misclassified test rows, by split; the logits are those of the held-out
        rows.
        """
        labels = np.asarray(self.ys)[self.rows[:, self.cut :]]
        guess = np.asarray(logits)[..., self.cut - self.core :] > 0
        return 100 * (guess != labels.reshape(len(labels), *[1] * (guess.ndim - 2), -1)).mean(
            axis=-1
        )


def split(name: str, *, train_rows: int, count: int, key) -> Splits:
    """A dataset, split `count` times, stratified by class."""
    xs, ys = data.load(name).train
    xs = np.log(xs.astype(float) + 0.1) if name == "spambase" else xs.astype(float)
    share = train_rows / len(ys)
    parts = [
        data.split((np.arange(len(ys)),), share, key=k, stratify=ys) for k in jr.split(key, count)
    ]
    rows = np.stack([np.concatenate([first, rest]) for (first,), (rest,) in parts])
    scale = data.Standardise.fit(
        xs
    )  # of all inputs, without labels, so that the splits share one table
    return Splits(
        jnp.asarray(scale(xs)), jnp.asarray(ys), rows, round(CORE * train_rows), train_rows
    )


@partial(jax.jit, static_argnames="way")
def _learn(way, nets, strengths, batches, held_out, table, keys):
    xs, ys = table

    def one(net, strength, batches, held_out, key):
        iteration = way(strength)

        def step(state, item):
            number, rows = item
            return iteration.step(state, (xs[rows], ys[rows]), key=jr.fold_in(key, number))[0], None

        def epoch(state, items):
            state, _ = jax.lax.scan(step, state, items)
            return state, predict(state.model, xs[held_out])[:, 0]

        numbers = jnp.arange(batches.shape[0] * batches.shape[1]).reshape(batches.shape[:2])
        state, logits = jax.lax.scan(epoch, iteration.init(net), (numbers, batches))
        return state.model, logits

    return jax.vmap(one)(nets, strengths, batches, held_out, keys)


def learn(way, nets, splits: Splits, batches, *, key, strengths=((0.0, 0.0),)):
    """The stacked networks trained by `way(strength)`, all at once, one for each split and
    strength, and their logits on the held-out rows after each epoch; the axes of both start with
    splits, strengths.
    """
    count = len(splits.rows)
    each = len(strengths)
    repeat = lambda a: (
        jnp.repeat(jnp.asarray(a), each, axis=0) if len(a) == count else jnp.asarray(a)
    )
    result = _learn(
        way,
        nets,
        jnp.tile(jnp.asarray(strengths), (count, 1)),
        repeat(batches),
        repeat(splits.held_out),
        (splits.xs, splits.ys),
        jr.split(key, count * each),
    )
    return jax.tree.map(lambda a: a.reshape(count, each, *a.shape[1:]), result)


def init_networks(count: int, d: int, key):
    """Stacked networks of one hidden layer."""
    return layers.Ensemble.init(partial(models.MLP.init, d, UNITS, 1), count, key=key).members


def with_dropout(nets, d: int, rate: float):
    """The same weights in networks with dropout on the hidden units."""
    like = jax.eval_shape(partial(models.MLP.init, d, UNITS, 1, dropout=rate), key=jr.key(0))
    return jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(nets))


def loss(model, batch, *, key=None):
    """The binary cross-entropy."""
    return train.binary_cross_entropy(model, batch, key=key)


def train_plain(strength):
    """Training without any trick."""
    return train.descend(loss, optax.adam(RATE))


def train_convex(strength):
    """Training of a convex problem, with a large learning rate that decays to zero."""
    return train.descend(loss, optax.adam(optax.cosine_decay_schedule(0.1, 600)))


def train_penalised(strength):
    """Training with a ridge and a lasso penalty, in this order."""
    ridge, lasso = strength
    return train.descend(
        train.lasso(train.weight_decay(loss, strength=ridge), strength=lasso), optax.adam(RATE)
    )


def train_with_noise(strength):
    """Training with Gaussian noise on the inputs."""
    return train.descend(
        train.with_augmentation(loss, data.augment.noise(scale=0.2)), optax.adam(RATE)
    )


def train_restarts(strength):
    """Training of several restarts at once, with penalties."""
    return train.per_member(train_penalised(strength))


def logistic(splits: Splits, batches, key):
    """The library's logistic regression, and the errors of scikit-learn's on the same rows."""
    origin = models.logistic_regression(splits.xs.shape[1])
    nets = jax.tree.map(lambda a: jnp.zeros((len(splits.rows), *a.shape)), origin)
    _, logits = learn(train_convex, nets, splits, batches, key=key)
    return np.asarray(logits[:, 0, -1]), peer(splits, LogisticRegression(C=1e6, max_iter=500))


def peer(splits: Splits, model) -> np.ndarray:
    """Percentage of the test rows that a scikit-learn model misclassifies, by split."""
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
    nets = init_networks(ways.shape[0] * ways.shape[1], d, keys[0])
    first = jax.tree.map(lambda a: a[:: len(strengths)], nets)
    every = ways.reshape(-1, *ways.shape[2:])
    result, logits = learn(train_penalised, nets, splits, every, key=keys[1], strengths=strengths)
    members = jax.tree.map(lambda a: a[:, :MEMBERS], result)
    pooled = jax.jit(
        jax.vmap(lambda net, rows: predict(layers.Ensemble(net), splits.xs[rows])[:, 0])
    )
    logits, last = np.asarray(logits), lambda way: np.asarray(logits)[:, way, -1]
    _, dropped = learn(train_plain, with_dropout(first, d, dropout), splits, batches, key=keys[2])
    _, noisy = learn(train_with_noise, first, splits, batches, key=keys[3])
    errors = {
        "no trick": splits.mistakes(logits[:, :MEMBERS, -1]).mean(axis=1),
        "early stopping": splits.mistakes(early_stopped(splits, logits[:, MEMBERS])),
        "L2 penalty": splits.mistakes(last(MEMBERS + 1)),
        "L1 penalty": splits.mistakes(last(MEMBERS + 2)),
        "dropout": splits.mistakes(dropped[:, 0, -1]),
        "noise on the inputs": splits.mistakes(noisy[:, 0, -1]),
        "restarts averaged": splits.mistakes(pooled(members, splits.held_out)),
    }
    return Ablation(errors, logits[:, 0, -1], np.asarray(dropped[:, 0, -1]))


def early_stopped(splits: Splits, logits: np.ndarray) -> np.ndarray:
    """The logits of the epoch with the smallest loss on the early-stopping rows; `logits` have the
    shape `splits epochs held_out`.
    """
    rows = splits.rows[:, splits.core : splits.cut]
    z = logits[:, :, : rows.shape[1]]
    y = np.asarray(splits.ys)[rows][:, None]
    best = (np.logaddexp(0, z) - y * z).mean(axis=-1).argmin(axis=1)
    return logits[np.arange(len(logits)), best]


def mean(errors: np.ndarray) -> tuple[float, float]:
    """The mean over the splits, with its standard error."""
    return float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors)))


def column(name: str, errors: dict[str, np.ndarray], null: float) -> DotColumn:
    """The means with their errors; the error of the constant guess is drawn if it is near, and
    otherwise written in the title.
    """
    near = null < 2 * max(error.mean() for error in errors.values())
    title = name if near else f"{name} (null: {null:.1f} %)"
    return DotColumn(
        "test error, %",
        {way: mean(e) for way, e in errors.items()},
        {"null": null} if near else {},
        title,
    )
