"""The separating hyperplane of largest margin."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ... import models
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, equal
from ..engine.claim import Verdict, claim
from .points import separable_points


def _by_angles(xs, ys, angles=10_000):
    """The best margin over directions in the plane, each with its best offset."""
    turn = np.linspace(0, 2 * np.pi, angles, endpoint=False)
    along = xs @ np.array([np.cos(turn), np.sin(turn)])
    gap = along[ys > 0].min(axis=0) - along[ys < 0].max(axis=0)
    return turn, gap / 2


def _quadratic_programme(xs, ys):
    d = xs.shape[1]
    rows = {
        "type": "ineq",
        "fun": lambda v: ys * (xs @ v[:d] + v[d]) - 1,
        "jac": lambda v: ys[:, None] * _with_one(xs),
    }
    start = np.append(xs[ys > 0].mean(axis=0) - xs[ys < 0].mean(axis=0), 0.0)
    goal = lambda v: v[:d] @ v[:d] / 2
    return minimize(
        goal,
        start,
        jac=lambda v: np.append(v[:d], 0),
        constraints=[rows],
        method="SLSQP",
        tol=1e-14,
    ).x


def _with_one(xs):
    return np.column_stack([xs, np.ones(len(xs))])


@claim(
    "1.2-max-margin-svm",
    title="The maximum-margin classifier",
    kind="algorithm",
    of=("models.max_margin",),
    cites="Boser, Guyon & Vapnik 1992",
)
def max_margin(rng):
    r"""To maximise $\gamma[w, b](S)$ is to minimise $\tfrac12 \|w\|^2$ subject to
    $y_i (w^\top x_i + b) \ge 1$, and the largest margin is $1 / \|w^*\|$. No perceptron has a
    larger one. Multipliers $\alpha_i \ge 0$ on the points at the margin prove it:
    $w^* = \sum_i \alpha_i y_i x_i$ and $\sum_i \alpha_i y_i = 0$.
    """
    xs, ys, _ = separable_points(rng, 10, 20, 2, gap=0.2)
    svms = [models.max_margin(*pair) for pair in zip(xs, ys)]
    angles = [_by_angles(*pair) for pair in zip(xs, ys)]
    programme = np.array([_quadratic_programme(*pair) for pair in zip(xs, ys)])
    best = np.array([svm.margin for svm in svms])
    fit = jax.vmap(models.fit_perceptron)(jnp.asarray(xs), jnp.asarray(ys))
    margins = jax.vmap(models.geometric_margin)(fit.model, jnp.asarray(xs), jnp.asarray(ys))
    turn, gap = angles[0]
    around = (turn - turn[gap.argmax()] + np.pi) % (2 * np.pi) - np.pi
    near = np.argsort(around)[gap[np.argsort(around)] > 0]
    measured = [
        models.geometric_margin(svm.model, jnp.asarray(x), jnp.asarray(y))
        for svm, x, y in zip(svms, xs, ys)
    ]
    widest = [gap.max() for _, gap in angles]
    weights = [svm.model.w for svm in svms]
    sums = np.array(
        [svm.alpha @ (y[:, None] * _with_one(x))[svm.support] for svm, x, y in zip(svms, xs, ys)]
    )
    scores = [y * (_with_one(x) @ np.asarray(svm.model.v)) for svm, x, y in zip(svms, xs, ys)]
    support_scores = np.concatenate([score[svm.support] for svm, score in zip(svms, scores)])
    return Verdict(
        close("largest margin over 10⁴ angles", best, widest, tolerance=1e-3, method="brute force"),
        close(
            "w of SLSQP",
            weights,
            programme[:, :2],
            tolerance=1e-5,
            relative=True,
            method="brute force",
        ),
        close("margin is 1 / ‖w‖", best, measured, tolerance=1e-9),
        close("Σαyx of the multipliers is w", sums[:, :2], weights, tolerance=1e-6, relative=True),
        close("Σαy", sums[:, 2], 0.0, tolerance=1e-6),
        close("Σα is ‖w‖²", [svm.alpha.sum() * svm.margin**2 for svm in svms], 1.0, tolerance=1e-6),
        at_least("the multipliers", np.concatenate([svm.alpha for svm in svms]), 0.0),
        close("scores of the points with α > 0", support_scores, 1.0, tolerance=1e-6),
        equal("the perceptron separates", fit.separated, True),
        at_most("margin of the perceptron", margins, best, slack=1e-12),
        figure=Panel(
            "angle between $w$ and the best direction",
            "margin with the best offset",
            lines={"all directions": (around[near], gap[near])},
            bounds={"the maximum-margin classifier": (around[near][[0, -1]], [best[0]] * 2)},
        ),
    )


def _line(svm, level):
    """The ends of a segment of length 6 of w·x + b = level, centred at its point nearest to 0."""
    w = np.asarray(svm.model.w)
    b = float(svm.model.b)
    foot = w * (level - b) / (w @ w)
    along = np.array([-w[1], w[0]]) / np.linalg.norm(w)
    return tuple(foot[:, None] + np.outer(along, [-3, 3]))


@claim(
    "1.2-fig1.1",
    title="A large margin and a small one",
    kind="figure",
    of=("models.max_margin", "models.find_separator"),
)
def clouds(rng):
    r"""Two clouds of points that a line separates, once with a large and once with a small margin:
    the margin $\gamma$ is the distance from the line to the nearest point on either side.
    """
    panels = []
    checks = []
    for name, gap, tag in (
        ("large margin", 0.5, ""),
        ("small margin", 0.02, "_"),
    ):  # a label that begins with _ is left out of the legend
        xs, ys, _ = separable_points(rng, 60, 2, gap=gap)
        svm = models.max_margin(xs, ys)
        best = _by_angles(xs, ys)[1].max()
        checks += [
            close(f"{name}, by 10⁴ angles", svm.margin, best, tolerance=1e-3, method="brute force"),
            equal(f"{name}: separable", models.find_separator(xs, ys).separable, True),
        ]
        panels.append(
            Panel(
                "$x_1$",
                "$x_2$",
                title=f"{name}, {svm.margin:.2f}",
                equal_aspect=True,
                lines={tag + "boundary": _line(svm, 0)},
                points={
                    tag + "$y = +1$": tuple(xs[ys > 0].T),
                    tag + "$y = -1$": tuple(xs[ys < 0].T),
                },
                bounds={tag + "margin": _line(svm, 1), "_other": _line(svm, -1)},
            )
        )
    return Verdict(*checks, figure=Chart(*panels))
