"""Lecture 10, §4.5 and §6.1: cross-validation, wide networks with decay, restarts, and the simplest
that is as good.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import layers, models, train
from ...core import predict, run
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim
from .wide import errors, networks, repeat, sine, stacked, trained

SEEDS = 10
GRID = 10.0 ** np.arange(-1, 4.5, 0.5)  # of the strength of ridge regression


@claim(
    "L10-4.5-tuning",
    title="Cross-validation",
    kind="algorithm",
    of=("train.folds", "train.cross_validate", "models.leave_one_out", "models.ridge"),
    cites="Stone 1974; Allen 1974",
)
def tuning(key):
    r"""The examples are dealt into $K$ parts; each in turn judges what the others trained, and the
    setting of least mean error is chosen. With $K = N$ ridge regression needs no refitting: the
    error of the example left out is $(y_i - \hat y_i) / (1 - H_{ii})$ with the hat matrix $H$. The
    strength that is chosen lies within a step of the best one's on a grid of factors $\sqrt{10}$.
    """
    rng = chance(key)
    parts = {(n, k): train.folds(n, k, key=key) for n, k in ((20, 5), (23, 4), (12, 12))}
    held = [np.sort(np.concatenate([fold.valid for fold in found])) for found in parts.values()]
    apart = [
        np.intersect1d(fold.train, fold.valid).size + abs(len(fold.train) + len(fold.valid) - n)
        for (n, _), found in parts.items()
        for fold in found
    ]
    X = rng.normal(size=(12, 3)) + 1
    y = rng.normal(size=12)
    data = (jnp.asarray(X), jnp.asarray(y))
    mu = 0.7
    each = train.cross_validate(
        lambda data, key: models.ridge(*data, strength=mu),
        data,
        parts[12, 12],
        metric=train.squared_error,
        key=key,
    )
    left = models.leave_one_out(*data, strength=mu)
    order = [int(fold.valid[0]) for fold in parts[12, 12]]
    C = X - X.mean(axis=0)
    H = np.full((12, 12), 1 / 12) + C @ np.linalg.solve(C.T @ C + mu * np.eye(3), C.T)
    hat = (y - H @ y) / (1 - np.diag(H))
    cv, test = _ridges(rng, key)
    chosen = cv.argmin(axis=1)
    best = test.argmin(axis=1)
    return Verdict(
        equal(
            "examples held out, over all folds of 20, 23 and 12",
            np.concatenate(held),
            np.concatenate([np.arange(n) for n, _ in parts]),
        ),
        equal("examples that both train and judge, or neither", apart, np.zeros(len(apart), int)),
        close(
            "the errors of 12 refits, against the hat matrix",
            2 * each.each,
            hat[order] ** 2,
            tolerance=1e-12,
        ),
        close("the library's leave_one_out, against it", left, hat, tolerance=1e-12),
        refuted(close("without 1 − H", y - H @ y, hat, tolerance=1e-3)),
        at_least(
            "of 10 problems, those where the choice is a step from the best or less",
            int((np.abs(chosen - best) <= 1).sum()),
            8,
        ),
        refuted(at_least("where the weakest of the grid is", int((best <= 1).sum()), 8)),
        refuted(at_least("where the strongest is", int((best >= len(GRID) - 2).sum()), 8)),
        figure=Chart(
            Panel(
                "strength of ridge",
                "mean squared error",
                log="x",
                lines={"cross-validation": (GRID, cv[0]), "test": (GRID, test[0])},
                vertical_lines={"chosen": float(GRID[chosen[0]]) * 1.05},
            ),
        ),
    )


def _ridges(rng: np.random.Generator, key) -> tuple[np.ndarray, np.ndarray]:
    """Ten noisy regressions of 40 features on 100 examples: the error in 10 folds and the true one,
    by the strength.
    """
    X = rng.normal(size=(SEEDS, 100, 40))
    w = rng.normal(size=(SEEDS, 40)) / np.sqrt(40)
    y = np.einsum("snd,sd->sn", X, w) + rng.normal(size=(SEEDS, 100))
    found = train.folds(100, 10, key=key)
    rows = np.stack([fold.train for fold in found])
    held = np.stack([fold.valid for fold in found])

    def error(xs, ys, strength, rows, held):
        model = models.ridge(xs[rows], ys[rows], strength=strength)
        return jnp.square(predict(model, xs[held])[:, 0] - ys[held]).mean()

    def risk(xs, ys, w, strength):
        model = models.ridge(xs, ys, strength=strength)
        return jnp.square(model.W[0] - w).sum() + jnp.square(model(jnp.zeros_like(w))[0]) + 1.0

    over = lambda f, axes: jax.vmap(f, in_axes=axes)
    folded = over(
        over(over(error, (None, None, None, 0, 0)), (None, None, 0, None, None)),
        (0, 0, None, None, None),
    )
    whole = over(over(risk, (None, None, None, 0)), (0, 0, 0, None))
    X, y, w, grid = (jnp.asarray(a) for a in (X, y, w, GRID))
    return np.asarray(jax.jit(folded)(X, y, grid, rows, held).mean(axis=2)), np.asarray(
        jax.jit(whole)(X, y, w, grid)
    )


FOLDS = 3
DECAYS = np.array([1e-3, 1e-2, 1e-1])
WIDTHS = np.arange(1, 21)


@claim(
    "L10-4.5-wide-regularised",
    title="Rather wide and decayed than narrow",
    kind="experiment",
    of=("models.MLP", "train.weight_decay", "train.folds"),
    cites="Hastie, Tibshirani & Friedman 2009, §11.5.4",
)
def wide(key):
    r"""On a noisy sine, a network of 200 units whose decay was chosen by cross-validation predicts
    no worse than the best of the networks of 1 to 20 units without decay, even when that one is
    chosen by its test error.
    """
    rng = chance(key)
    data, test = (sine(rng, SEEDS, n, noise=0.5, waves=2.0) for n in (30, 401))
    cv, true = _wide(rng, key, data, test)
    chosen = cv.argmin(axis=1)
    ours = true[np.arange(SEEDS), chosen]
    narrow = _narrow(rng, data, test)
    best = narrow.mean(axis=0).argmin()
    gap = ours - narrow[:, best]
    error = gap.std(ddof=1) / np.sqrt(SEEDS)
    return Verdict(
        at_most("test error of the wide ones, less that of the best width", gap.mean(), error),
        at_least("test error of the best width, over the noise", narrow.mean(axis=0).min(), 0.25),
        figure=Chart(
            Panel(
                "hidden units",
                "test error, mean of 10",
                lines={"no decay": (WIDTHS, narrow.mean(axis=0))},
                bounds={"200, decayed": (WIDTHS, np.full(20, ours.mean()))},
            ),
            Panel(
                "decay",
                "error of 200 units, mean of 10",
                log="x",
                lines={
                    "cross-validation": (DECAYS, cv.mean(axis=0)),
                    "test": (DECAYS, true.mean(axis=0)),
                },
            ),
        ),
    )


def _wide(rng, key, data, test) -> tuple[np.ndarray, np.ndarray]:
    """200 units: the error over the folds, and on the test set when trained on all, by seed and
    decay.

    The 20 examples of a fold count three times and all 30 twice, so that both are 60 and one
    program trains them.
    """
    parts = train.folds(30, FOLDS, key=key)
    rows = np.stack([*(np.tile(fold.train, 3) for fold in parts), np.tile(np.arange(30), 2)])
    start = networks(rng, SEEDS, 200, steepness=3.0, scale=0.3)
    xs, ys = (
        np.asarray(a)[:, rows].repeat(len(DECAYS), axis=0) for a in data
    )  # (seed, decay), fold, example
    each = lambda a: jnp.asarray(a.reshape(-1, *a.shape[2:]))
    strengths = np.repeat(np.tile(DECAYS, SEEDS), FOLDS + 1)
    nets = trained(
        repeat(start, len(strengths) // SEEDS), (each(xs), each(ys)), strengths, steps=500
    )
    judges = [np.stack([np.asarray(a)[:, fold.valid] for fold in parts], axis=1) for a in data]
    apart = lambda keep: jax.tree.map(
        lambda a: a.reshape(-1, FOLDS + 1, *a.shape[1:])[:, keep], nets
    )
    flat = lambda tree: jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)
    folded = errors(
        flat(apart(slice(FOLDS))), flat(tuple(a.repeat(len(DECAYS), axis=0) for a in judges))
    )
    whole = errors(apart(FOLDS), repeat(test, len(DECAYS)))
    shape = SEEDS, len(DECAYS), -1
    return np.asarray(folded).reshape(shape).mean(axis=2), np.asarray(whole).reshape(shape)[..., 0]


def _narrow(rng, data, test) -> np.ndarray:
    """Test errors of 1 to 20 units without decay: of 20 units all but the first few are 0, and stay
    so.
    """
    first, _, last = networks(rng, SEEDS, 20, steepness=3.0, scale=0.3).body.layers
    on = np.arange(20)[None] < WIDTHS[:, None]  # width, unit
    W = np.asarray(first.W)[:, None] * on[None, :, :, None]
    b = np.asarray(first.b)[:, None] * on[None]
    beta = np.asarray(last.W)[:, None] * (on * np.sqrt(20 / WIDTHS)[:, None])[None, :, None]
    nets = stacked(*(a.reshape(-1, *a.shape[2:]) for a in (W, b, beta)))
    found = trained(nets, repeat(data, 20), np.zeros(20 * SEEDS), steps=1500)
    return np.asarray(errors(found, repeat(test, 20))).reshape(SEEDS, 20)


@claim(
    "L10-4.5-restarts",
    title="Averaging over restarts",
    kind="theorem",
    of=("layers.Ensemble", "train.restarts"),
    cites="Krogh & Vedelsby 1995",
)
def restarts(key):
    r"""For the average $\bar f$ of the predictions of networks trained from different starts,
    $(\bar f - y)^2 = \frac1S \sum_s (f_s - y)^2 - \frac1S \sum_s (f_s - \bar f)^2$: it is better
    than its members are on average, by as much as they disagree.
    """
    rng = chance(key)
    make = lambda: (jnp.asarray(rng.uniform(-3, 3, size=(40, 1))), rng.normal(size=40))
    (xs, noise), (at, more) = make(), make()
    data, test = ((x, jnp.sin(2 * x[:, 0]) + e) for x, e in ((xs, noise), (at, more)))
    nets = layers.Ensemble.init(
        partial(
            models.MLP.init, 1, 20, 1, activation=layers.tanh, initialiser=layers.gaussian(1.0)
        ),
        8,
        key=key,
    )
    found = _ensemble(nets, *data)
    own = np.asarray(jax.vmap(lambda net: predict(net, at)[:, 0])(found.members))
    pooled = np.asarray(predict(found, at)[:, 0])
    y = np.asarray(test[1])
    members = np.mean((own - y) ** 2, axis=0)
    spread = np.mean((own - own.mean(axis=0)) ** 2, axis=0)
    each = 2 * np.asarray(jax.vmap(lambda net: train.squared_error(net, test))(found.members))
    whole = 2 * float(train.squared_error(found, test))
    return Verdict(
        close(
            "(f̄ − y)² at 40 places, against the identity",
            (pooled - y) ** 2,
            members - spread,
            tolerance=1e-12,
        ),
        refuted(
            close(
                "with the disagreement added", (pooled - y) ** 2, members + spread, tolerance=1e-3
            )
        ),
        at_most("test error of the average, over that of a member on average", whole, each.mean()),
        close(
            "what it gains, against the disagreement",
            each.mean() - whole,
            spread.mean(),
            tolerance=1e-12,
        ),
        assumptions=[at_least("mean disagreement of the 8 networks", spread.mean(), 1e-3)],
        figure=Chart(
            Panel(
                "network",
                "test error",
                points={"members, in order": (np.arange(1, 9), np.sort(each))},
                bounds={"their mean": (np.arange(1, 9), np.full(8, each.mean()))},
                lines={"the average": (np.arange(1, 9), np.full(8, whole))},
            ),
        ),
    )


@jax.jit
def _ensemble(nets, xs, ys):
    step = train.restarts(
        train.descend(lambda m, batch, key: train.squared_error(m, (xs, ys)), optax.adam(2e-2))
    )
    return run(step, nets, jnp.zeros(300), key=jr.key(0))[0].model


@claim(
    "L10-6.1-occam",
    title="The simplest that is as good",
    kind="algorithm",
    of=("train.choose_simplest",),
    cites="Breiman, Friedman, Olshen & Stone 1984, §3.4.3",
)
def occam(key):
    r"""Of candidates in the order of their complexity, take the first whose mean error over $K$
    folds is at most $\bar e_{c^*} + s_{c^*}$, the least mean error and its standard error
    $s = \hat\sigma / \sqrt K$.
    """
    rng = chance(key)
    found = []
    expected = []
    least = []
    for _ in range(200):
        depth = rng.uniform(0, 0.1) * (np.arange(9) - rng.integers(2, 7)) ** 2 + 1.0
        scores = depth[:, None] + rng.uniform(0.05, 0.5) * rng.normal(size=(9, 5))
        found.append(train.choose_simplest(scores).chosen)
        means = [sum(row) / 5 for row in scores]
        best = means.index(min(means))
        error = (sum((e - means[best]) ** 2 for e in scores[best]) / 4) ** 0.5 / 5**0.5
        expected.append(next(c for c, mean in enumerate(means) if mean <= means[best] + error))
        least.append(best)
    known = (
        np.array([[2.0], [1.11], [1.09], [1.0], [1.05]])
        + np.array([[-0.2, 0.0, 0.2, 0.0]]) * 1.2247448713915890
    )
    shown = train.choose_simplest(scores)
    c = np.arange(1, 10)
    return Verdict(
        equal(
            "of five curves with least mean 1 and error 0.1, the third",
            train.choose_simplest(known).chosen,
            2,
        ),
        close("that error", train.choose_simplest(known).error[3], 0.1, tolerance=1e-12),
        equal("choices for 200 curves, against a loop", np.array(found), np.array(expected)),
        refuted(equal("against the least of each", np.array(found), np.array(least))),
        at_most(
            "complexity chosen, never more than the best one's", np.array(found), np.array(least)
        ),
        figure=Chart(
            Panel(
                "complexity",
                "error over the folds",
                points={"mean": (c, shown.mean)},
                bands={
                    "one standard error": (c, shown.mean - shown.error, shown.mean + shown.error)
                },
                bounds={"the least, and one error": (c, np.full(9, shown.limit))},
                vertical_lines={"chosen": float(shown.chosen + 1), "least": float(shown.best + 1)},
            ),
        ),
    )
