"""Lecture 10, §4.5 and §6.1: cross-validation, wide networks with weight decay, restarts, and the
one-standard-error rule.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .... import layers, models, train
from ....core import predict, run
from ....plot import Chart, Panel
from ...engine.check import at_least, at_most, close, equal, refuted
from ...engine.claim import Verdict, claim
from .wide import errors, networks, repeat, sine, stacked, trained

SEEDS = 10
GRID = 10.0 ** np.arange(-1, 4.5, 0.5)  # strengths of ridge regression


@claim(
    "L10-4.5-tuning",
    title="Cross-validation",
    kind="algorithm",
    of=("train.k_folds", "train.cross_validate", "models.leave_one_out", "models.ridge"),
    cites="Stone 1974; Allen 1974",
)
def tuning(key, rng):
    r"""The examples are split into $K$ parts; each in turn validates the model trained on the
    others, and the setting of smallest mean error is chosen. With $K = N$ ridge regression needs no
    refitting: the error of the example left out is $(y_i - \hat y_i) / (1 - H_{ii})$ with the hat
    matrix $H$. The chosen strength lies within one step of the best one on a grid of factors
    $\sqrt{10}$.
    """
    parts = {(n, k): train.k_folds(n, k, key=key) for n, k in ((20, 5), (23, 4), (12, 12))}
    validation = [
        np.sort(np.concatenate([fold.valid for fold in results])) for results in parts.values()
    ]
    overlaps = [
        np.intersect1d(fold.train, fold.valid).size + abs(len(fold.train) + len(fold.valid) - n)
        for (n, _), results in parts.items()
        for fold in results
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
    by_library = models.leave_one_out(*data, strength=mu)
    order = [int(fold.valid[0]) for fold in parts[12, 12]]
    C = X - X.mean(axis=0)
    H = np.full((12, 12), 1 / 12) + C @ np.linalg.solve(C.T @ C + mu * np.eye(3), C.T)
    hat = (y - H @ y) / (1 - np.diag(H))
    cv, test = _ridges(rng, key)
    chosen = cv.argmin(axis=1)
    best = test.argmin(axis=1)
    return Verdict(
        equal(
            "validation examples, over all folds of 20, 23 and 12",
            np.concatenate(validation),
            np.concatenate([np.arange(n) for n, _ in parts]),
        ),
        equal(
            "examples in both training and validation, or in neither",
            overlaps,
            np.zeros(len(overlaps), int),
        ),
        close(
            "the errors of 12 refits, against the hat matrix", 2 * each.fold_errors, hat[order] ** 2
        ),
        close("the library's `leave_one_out`, against it", by_library, hat),
        refuted(close("without 1 − H", y - H @ y, hat, tolerance=1e-3)),
        at_least(
            "problems of 10 with a choice at most one step from the best",
            int((np.abs(chosen - best) <= 1).sum()),
            8,
        ),
        refuted(
            at_least(
                "problems whose best strength is at the weak end of the grid",
                int((best <= 1).sum()),
                8,
            )
        ),
        refuted(
            at_least(
                "problems whose best strength is at the strong end",
                int((best >= len(GRID) - 2).sum()),
                8,
            )
        ),
        figure=Panel(
            "strength of ridge",
            "mean squared error",
            log="x",
            lines={"cross-validation": (GRID, cv[0]), "test": (GRID, test[0])},
            vertical_lines={"chosen": float(GRID[chosen[0]]) * 1.05},
        ),
    )


def _ridges(rng: np.random.Generator, key) -> tuple[np.ndarray, np.ndarray]:
    """Ten noisy regressions with 40 features and 100 examples: the error over 10 folds and the true
    one, by strength.
    """
    X = rng.normal(size=(SEEDS, 100, 40))
    w = rng.normal(size=(SEEDS, 40)) / np.sqrt(40)
    y = np.einsum("snd,sd->sn", X, w) + rng.normal(size=(SEEDS, 100))
    results = train.k_folds(100, 10, key=key)
    rows = np.stack([fold.train for fold in results])
    validation = np.stack([fold.valid for fold in results])

    def error(xs, ys, strength, rows, validation):
        model = models.ridge(xs[rows], ys[rows], strength=strength)
        return jnp.square(predict(model, xs[validation])[:, 0] - ys[validation]).mean()

    def risk(xs, ys, w, strength):
        model = models.ridge(xs, ys, strength=strength)
        return jnp.square(model.W[0] - w).sum() + jnp.square(model(jnp.zeros_like(w))[0]) + 1.0

    over = lambda f, axes: jax.vmap(f, in_axes=axes)
    folded = over(
        over(over(error, (None, None, None, 0, 0)), (None, None, 0, None, None)),
        (0, 0, None, None, None),
    )
    risks = over(over(risk, (None, None, None, 0)), (0, 0, 0, None))
    X, y, w, grid = (jnp.asarray(a) for a in (X, y, w, GRID))
    return np.asarray(jax.jit(folded)(X, y, grid, rows, validation).mean(axis=2)), np.asarray(
        jax.jit(risks)(X, y, w, grid)
    )


FOLDS = 3
DECAYS = np.array([1e-3, 1e-2, 1e-1])
WIDTHS = np.arange(1, 21)


@claim(
    "L10-4.5-wide-regularised",
    title="Wide with weight decay beats narrow",
    kind="experiment",
    of=("models.MLP", "train.weight_decay", "train.k_folds"),
    cites="Hastie, Tibshirani & Friedman 2009, §11.5.4",
)
def wide(key, rng):
    r"""On a noisy sine, a network of 200 units whose weight decay was chosen by cross-validation
    predicts no worse than the best of the networks of 1 to 20 units without weight decay, even when
    that one is chosen by its test error.
    """
    data, test = (sine(rng, SEEDS, n, noise=0.5, waves=2.0) for n in (30, 401))
    cv, true = _wide(rng, key, data, test)
    chosen = cv.argmin(axis=1)
    ours = true[np.arange(SEEDS), chosen]
    narrow = _narrow(rng, data, test)
    best = narrow.mean(axis=0).argmin()
    gap = ours - narrow[:, best]
    error = gap.std(ddof=1) / np.sqrt(SEEDS)
    return Verdict(
        at_most("test error of the wide ones, minus that of the best width", gap.mean(), error),
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
    """200 units: the error over the folds, and on the test set when trained on all examples, by
    seed and weight decay.

    The 20 examples of a fold are repeated three times and all 30 twice, so that both are 60 and one
    compiled program trains them.
    """
    parts = train.k_folds(30, FOLDS, key=key)
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
    select = lambda keep: jax.tree.map(
        lambda a: a.reshape(-1, FOLDS + 1, *a.shape[1:])[:, keep], nets
    )
    flat = lambda tree: jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)
    folded = errors(
        flat(select(slice(FOLDS))), flat(tuple(a.repeat(len(DECAYS), axis=0) for a in judges))
    )
    test_errors = errors(select(FOLDS), repeat(test, len(DECAYS)))
    shape = SEEDS, len(DECAYS), -1
    return np.asarray(folded).reshape(shape).mean(axis=2), np.asarray(test_errors).reshape(shape)[
        ..., 0
    ]


def _narrow(rng, data, test) -> np.ndarray:
    """Test errors of 1 to 20 units without weight decay: 20 units, of which all but the first few
    are 0 and stay so.
    """
    first, _, last = networks(rng, SEEDS, 20, steepness=3.0, scale=0.3).body.layers
    on = np.arange(20)[None] < WIDTHS[:, None]  # width, unit
    W = np.asarray(first.W)[:, None] * on[None, :, :, None]
    b = np.asarray(first.b)[:, None] * on[None]
    beta = np.asarray(last.W)[:, None] * (on * np.sqrt(20 / WIDTHS)[:, None])[None, :, None]
    nets = stacked(*(a.reshape(-1, *a.shape[2:]) for a in (W, b, beta)))
    result = trained(nets, repeat(data, 20), np.zeros(20 * SEEDS), steps=1500)
    return np.asarray(errors(result, repeat(test, 20))).reshape(SEEDS, 20)


@claim(
    "L10-4.5-restarts",
    title="Averaging over restarts",
    kind="theorem",
    of=("layers.Ensemble", "train.per_member"),
    cites="Krogh & Vedelsby 1995",
)
def restarts(key, rng):
    r"""For the average $\bar f$ of the predictions of networks trained from different starts,
    $(\bar f - y)^2 = \frac1S \sum_s (f_s - y)^2 - \frac1S \sum_s (f_s - \bar f)^2$: it is better
    than its members on average, by the variance among them.
    """
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
    result = _ensemble(nets, *data)
    own = np.asarray(jax.vmap(lambda net: predict(net, at)[:, 0])(result.members))
    pooled = np.asarray(predict(result, at)[:, 0])
    y = np.asarray(test[1])
    members = np.mean((own - y) ** 2, axis=0)
    spread = np.mean((own - own.mean(axis=0)) ** 2, axis=0)
    each = 2 * np.asarray(jax.vmap(lambda net: train.squared_error(net, test))(result.members))
    ensemble_error = 2 * float(train.squared_error(result, test))
    return Verdict(
        close("(f̄ − y)² at 40 points, against the identity", (pooled - y) ** 2, members - spread),
        refuted(
            close(
                "with the disagreement added", (pooled - y) ** 2, members + spread, tolerance=1e-3
            )
        ),
        at_most(
            "test error of the average, over the mean test error of a member",
            ensemble_error,
            each.mean(),
        ),
        close("the gain, against the disagreement", each.mean() - ensemble_error, spread.mean()),
        assumptions=[at_least("mean disagreement of the 8 networks", spread.mean(), 1e-3)],
        figure=Panel(
            "network",
            "test error",
            points={"members, sorted": (np.arange(1, 9), np.sort(each))},
            bounds={"their mean": (np.arange(1, 9), np.full(8, each.mean()))},
            lines={"the average": (np.arange(1, 9), np.full(8, ensemble_error))},
        ),
    )


@jax.jit
def _ensemble(nets, xs, ys):
    step = train.per_member(
        train.descend(lambda m, batch, key: train.squared_error(m, (xs, ys)), optax.adam(2e-2))
    )
    return run(step, nets, jnp.zeros(300), key=jr.key(0))[0].model


@claim(
    "L10-6.1-occam",
    title="The one-standard-error rule",
    kind="algorithm",
    of=("train.one_standard_error_rule",),
    cites="Breiman, Friedman, Olshen & Stone 1984, §3.4.3",
)
def occam(rng):
    r"""Of candidates in the order of their complexity, take the first whose mean error over $K$
    folds is at most $\bar e_{c^*} + s_{c^*}$, the smallest mean error and its standard error
    $s = \hat\sigma / \sqrt K$.
    """
    results = []
    expected = []
    least = []
    for _ in range(200):
        depth = rng.uniform(0, 0.1) * (np.arange(9) - rng.integers(2, 7)) ** 2 + 1.0
        scores = depth[:, None] + rng.uniform(0.05, 0.5) * rng.normal(size=(9, 5))
        results.append(train.one_standard_error_rule(scores).selected)
        means = [sum(row) / 5 for row in scores]
        best = means.index(min(means))
        error = (sum((e - means[best]) ** 2 for e in scores[best]) / 4) ** 0.5 / 5**0.5
        expected.append(next(c for c, mean in enumerate(means) if mean <= means[best] + error))
        least.append(best)
    examples = (
        np.array([[2.0], [1.11], [1.09], [1.0], [1.05]])
        + np.array([[-0.2, 0.0, 0.2, 0.0]]) * 1.2247448713915890
    )
    choice = train.one_standard_error_rule(scores)
    c = np.arange(1, 10)
    return Verdict(
        equal(
            "chosen of five candidates with smallest mean 1 and error 0.1",
            train.one_standard_error_rule(examples).selected,
            2,
        ),
        close("its standard error", train.one_standard_error_rule(examples).standard_error[3], 0.1),
        equal(
            "choices for 200 error curves, against a loop", np.array(results), np.array(expected)
        ),
        refuted(equal("against the minimum of each curve", np.array(results), np.array(least))),
        at_most("chosen complexity minus that of the best", np.array(results), np.array(least)),
        figure=Panel(
            "complexity",
            "error over the folds",
            points={"mean": (c, choice.mean)},
            bands={
                "one standard error": (
                    c,
                    choice.mean - choice.standard_error,
                    choice.mean + choice.standard_error,
                )
            },
            bounds={"minimum plus one standard error": (c, np.full(9, choice.threshold))},
            vertical_lines={
                "chosen": float(choice.selected + 1),
                "least": float(choice.best + 1),
            },
        ),
    )
