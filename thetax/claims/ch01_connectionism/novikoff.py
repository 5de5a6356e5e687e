"""Novikoff's theorem: a margin bounds the mistakes."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

from ... import models
from ...plot import Panel
from ..engine.check import at_least, at_most, close, decreasing, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .points import separable_points


def _separator(xs, ys):
    """The unit normal of largest margin through the origin, and its margin on the data."""
    w = np.asarray(models.max_margin(xs, ys, bias=False).model.w)
    u = w / np.linalg.norm(w)
    return u, (ys * (xs @ u)).min()


def _with_one(xs):
    return np.concatenate([xs, np.ones((*xs.shape[:-1], 1))], axis=-1)


@claim(
    "1.2-lemma1.1",
    "1.2-lemma1.2",
    title="The weights align with the separator faster than they grow",
    kind="theorem",
    of=("models.perceptron_path", "models.max_margin"),
    cites="Novikoff 1962",
)
def lemmas(rng):
    r"""Without a bias and from $w_0 = 0$, with $\|u\| = 1$, $\gamma = \gamma[u](S) > 0$ and
    $R = \max \|x\|$: after $t$ updates $u^\top w_t \ge t\gamma$ and $\|w_t\| \le R \sqrt{t}$.
    """
    xs, ys, _ = separable_points(rng, 100, 20, 3, gap=0.1)
    limit = 600
    path = jax.jit(
        jax.vmap(lambda x, y: models.perceptron_path(x, y, max_updates=limit, bias=False))
    )(*map(jnp.asarray, (xs, ys)))
    u, gamma = map(np.array, zip(*[_separator(x, y) for x, y in zip(xs, ys)]))
    w = np.asarray(path.model.w)
    index = np.asarray(path.indices)
    t = np.arange(limit + 1)
    is_update = t[None] <= np.asarray(path.n_updates)[:, None]
    projections = np.einsum("ktd,kd->kt", w, u)
    squared_norms = np.square(w).sum(axis=2)
    radius = np.square(xs).sum(axis=2).max(axis=1)
    x = np.take_along_axis(xs, np.maximum(index, 0)[:, :, None], axis=1)
    score = np.take_along_axis(ys, np.maximum(index, 0), axis=1) * np.einsum(
        "ktd,ktd->kt", w[:, :-1], x
    )
    growth = squared_norms[:, :-1] + np.square(x).sum(axis=2) + 2 * score
    k = int(path.n_updates.argmax())
    steps = t[: int(path.n_updates[k]) + 1]
    return Verdict(
        at_least("uᵀw_t - tγ", (projections - t * gamma[:, None])[is_update], 0.0, slack=1e-9),
        at_most(
            "‖w_t‖² / R²t",
            (squared_norms / (radius[:, None] * np.maximum(t, 1)))[is_update],
            1 + 1e-12,
        ),
        close(
            "‖w_{t+1}‖² - ‖w_t‖² - ‖x‖² - 2y w_tᵀx",
            (squared_norms[:, 1:] - growth)[is_update[:, 1:]],
            0.0,
            tolerance=1e-9,
        ),
        assumptions=[
            at_least("γ", gamma, 1e-6, method="exact"),
            equal("separated within the limit", path.separated, True),
        ],
        figure=Panel(
            "update $t$",
            "length of $w_t$, and along $u$",
            lines={
                r"$\|w_t\|$": (steps, np.sqrt(squared_norms[k, : len(steps)])),
                r"$u^\top w_t$": (steps, projections[k, : len(steps)]),
            },
            bounds={
                "R√t above, tγ below": (steps, np.sqrt(radius[k] * steps)),
                "_": (steps, gamma[k] * steps),
            },
        ),
    )


def _basis(n):
    """Updates on the standard basis, all labels +1, and R²/γ² with u = 1/√n."""
    fit = models.fit_perceptron(np.eye(n), np.ones(n), bias=False)
    return int(fit.mistakes), 1.0 / (np.eye(n) @ np.full(n, n**-0.5)).min() ** 2


@claim(
    "1.2-novikoff",
    title="Novikoff's bound",
    kind="theorem",
    of=("models.fit_perceptron", "models.max_margin"),
    cites="Novikoff 1962",
)
def novikoff(rng):
    r"""Without a bias, from $w_0 = 0$, on data in a ball of radius $R$ that some unit vector
    separates with margin $\gamma$, the perceptron makes at most $\lfloor R^2 / \gamma^2 \rfloor$
    updates. On an orthonormal basis it makes exactly that many.
    """
    xs, ys, _ = separable_points(rng, 200, 20, 3, gap=0.05)
    fit = jax.vmap(lambda x, y: models.fit_perceptron(x, y, bias=False, epochs=10_000))(
        *map(jnp.asarray, (xs, ys))
    )
    gamma = np.array([_separator(x, y)[1] for x, y in zip(xs, ys)])
    ratio = np.square(xs).sum(axis=2).max(axis=1) / gamma**2
    updates, bounds = map(np.array, zip(*[_basis(n) for n in range(1, 9)]))
    ends = np.array([ratio.min(), ratio.max()])
    return Verdict(
        equal("separated", fit.separated, True),
        at_most("updates on 200 sets", fit.mistakes, np.floor(ratio * (1 + 1e-9))),
        equal("updates on n basis vectors, n ≤ 8", updates, np.arange(1, 9)),
        close("R²/γ² there", bounds, np.arange(1.0, 9.0)),
        assumptions=[at_least("γ", gamma, 1e-6, method="exact")],
        figure=Panel(
            "$R^2 / \\gamma^2$",
            "updates",
            points={
                "random sets": (ratio, np.asarray(fit.mistakes)),
                "orthonormal bases": (bounds, updates),
            },
            bounds={"Novikoff's bound": (np.append(1, ends), np.append(1, ends))},
            log="xy",
        ),
    )


@erratum(
    "1.2-novikoff",
    title="Novikoff's bound is at most, not less than",
    printed=r"t < \lfloor R^2 / \gamma^2 \rfloor",
    corrected=r"t \le \lfloor R^2 / \gamma^2 \rfloor",
    of=("models.fit_perceptron",),
    cites="Novikoff 1962",
)
def novikoff_erratum(key):
    r"""A single point $x = (2, 0)$ takes one update, and $R^2 / \gamma^2 = 1$; $n$ basis vectors
    take $n$ of at most $n$. What the proof shows is that $t$ mistakes force $t \le R^2 / \gamma^2$.
    """
    single = int(models.fit_perceptron(np.array([[2.0, 0.0]]), np.ones(1), bias=False).mistakes)
    updates, bounds = map(np.array, zip((single, 1.0), *[_basis(n) for n in range(2, 7)]))
    bound = np.floor(bounds * (1 + 1e-9))
    return Verdict(
        at_most("updates", updates, bound),
        equal("the bound is reached", updates, bound),
        printed=[
            at_most("updates are fewer than the bound", updates, bound - 1),
            at_most("single point", single, 0),
        ],
    )


@claim(
    "1.2-novikoff-bias",
    title="Novikoff's bound with a bias",
    kind="theorem",
    of=("models.fit_perceptron", "models.max_margin"),
    cites="Novikoff 1962",
)
def with_bias(rng):
    r"""The algorithm with a bias is the one without on $\tilde x = (x, 1)$, so it makes at most
    $(R^2 + 1) / \tilde\gamma^2$ updates, with $\tilde\gamma$ the margin of the augmented data."""
    xs, ys, _ = separable_points(rng, 200, 15, 2, gap=0.1)
    xs = xs + 0.5 * rng.normal(size=(200, 1, 2))  # the best plane does not go through the origin
    augmented = _with_one(xs)
    data = jnp.asarray(ys)
    fit = jax.vmap(lambda x, y: models.fit_perceptron(x, y, epochs=100_000))(jnp.asarray(xs), data)
    augmented_fit = jax.vmap(lambda x, y: models.fit_perceptron(x, y, epochs=100_000, bias=False))(
        jnp.asarray(augmented), data
    )
    biasless_fit = jax.vmap(lambda x, y: models.fit_perceptron(x, y, epochs=100, bias=False))(
        jnp.asarray(xs), data
    )
    gamma = np.array([_separator(x, y)[1] for x, y in zip(augmented, ys)])
    bound = (np.square(xs).sum(axis=2).max(axis=1) + 1) / gamma**2
    return Verdict(
        equal("separated", fit.separated, True),
        equal("updates with a bias and on (x, 1) without", fit.mistakes, augmented_fit.mistakes),
        equal("(w, b)", fit.model.v, augmented_fit.model.w),
        at_most("updates", fit.mistakes, bound * (1 + 1e-9)),
        refuted(equal("updates on x without a bias", biasless_fit.mistakes, fit.mistakes)),
    )


@claim(
    "1.2-margin-vs-steps",
    title="A larger margin needs fewer updates",
    kind="experiment",
    of=("models.fit_perceptron",),
    cites="Novikoff 1962",
)
def margin_vs_steps(rng):
    r"""On 50 points in the plane the mean number of updates falls as the planted margin $\gamma$
    grows, and stays below $R^2 / \gamma^2$.
    """
    gammas = np.array([0.02, 0.05, 0.1, 0.2, 0.4])
    seed = int(rng.integers(2**31))
    n_sets = 1000
    sets = [
        separable_points(np.random.default_rng(seed), n_sets, 50, 2, gap=gamma) for gamma in gammas
    ]
    xs = np.concatenate([s[0] for s in sets])
    ys = np.concatenate([s[1] for s in sets])
    fit = jax.vmap(lambda x, y: models.fit_perceptron(x, y, bias=False, epochs=10_000))(
        *map(jnp.asarray, (xs, ys))
    )
    updates = np.asarray(fit.mistakes).reshape(5, n_sets)
    bound = np.square(xs).sum(axis=2).max(axis=1).reshape(5, n_sets) / gammas[:, None] ** 2
    mean = updates.mean(axis=1)
    return Verdict(
        equal("separated", fit.separated, True),
        decreasing("mean updates", mean),
        at_most("updates", updates, bound),
        at_most("Spearman's ρ of γ and the mean", spearmanr(gammas, mean)[0], -0.9, method="trend"),
        figure=Panel(
            r"planted margin $\gamma$",
            "updates",
            lines={f"mean of {n_sets:,} sets": (gammas, mean)},
            points={"50 sets per margin": (np.repeat(gammas, 50), updates[:, :50].ravel())},
            bounds={r"$R^2 / \gamma^2$, on average": (gammas, bound.mean(axis=1))},
            log="y",
        ),
    )
