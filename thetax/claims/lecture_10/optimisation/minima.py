"""Lecture 10, §3.5 to §3.7: local and global minima, convexity, and gradient descent."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .... import explain, layers, models, train
from ....plot import Panel
from ...ch03_gradients.problems import descent, least_squares, logistic
from ...engine.check import at_most, close, equal, refuted
from ...engine.claim import Verdict, claim


@claim(
    "L10-3.5-minima",
    title="Local and global minima",
    kind="definition",
    of=("explain.critical_points",),
)
def minima(rng):
    r"""$\theta$ is a local minimum if $\hat R(\theta) \le \hat R(\theta')$ for all $\theta'$ in
    some ball around it, and a global one if for all $\theta'$. Where $\hat R$ is constant every
    point is a local minimum.
    """
    roots = np.sort(
        rng.uniform(-0.12, 0.12, size=5) + np.linspace(-1.4, 1.4, 5)
    )  # of the derivative
    slope = np.poly1d(np.poly(roots))
    poly = slope.integ()
    result = explain.critical_points(
        lambda t: jnp.polyval(jnp.asarray(poly.coeffs), t), low=-2.0, high=2.0
    )
    low = poly(roots[slope.deriv()(roots) > 0]).min()
    kinds = [
        "maximum"
        if slope.deriv()(r) < 0
        else "global minimum"
        if poly(r) == low
        else "local minimum"
        for r in roots
    ]
    ledge = lambda t: jnp.where(jnp.abs(t) < 0.5, 0.0, -jnp.sign(t) * (jnp.abs(t) - 0.5) ** 2)
    flat = explain.critical_points(ledge, low=-1.0, high=1.0)
    pause = explain.critical_points(lambda t: t**3, low=-1.0, high=1.0)
    grid = np.linspace(-2, 2, 4001)
    inner = poly(grid)[1:-1]
    by_grid = grid[1:-1][(inner <= poly(grid)[:-2]) & (inner <= poly(grid)[2:])]
    return Verdict(
        close(
            "critical points, against the roots of the derivative",
            result.points,
            roots,
            tolerance=1e-9,
        ),
        equal("kinds, by the second derivative there", list(result.kinds), kinds),
        equal("number of minima, against a grid of 4001 points", len(result.minima), len(by_grid)),
        at_most(
            "distance of each of those to one of the library's",
            np.abs(by_grid[:, None] - result.points).min(axis=1),
            1e-3,
        ),
        equal("a plateau on the way down is a local minimum", list(flat.kinds), ["local minimum"]),
        equal("the inflection point of θ³ is none", list(pause.kinds), ["inflection"]),
        figure=result,
    )


def saddle(theta, batch=None, key=None):
    r"""$\frac14 x^4 - \frac12 x^2 + \frac12 y^2$."""
    x, y = theta
    return x**4 / 4 - x**2 / 2 + y**2 / 2


@claim(
    "L10-3.5-gd-local-min",
    title="Gradient descent avoids saddles",
    kind="theorem",
    of=("train.descend",),
    cites="Lee, Simchowitz, Jordan & Recht 2016",
)
def local_min(rng):
    r"""From a random start, gradient descent almost surely does not converge to a strict saddle. On
    $\frac14 x^4 - \frac12 x^2 + \frac12 y^2$ all of 1000 starts converge to $(\pm 1, 0)$; only from
    $x = 0$ exactly, a set of measure zero, does it converge to the saddle.
    """
    starts = rng.uniform(-1.5, 1.5, size=(1000, 2))
    path = descent(saddle, optax.sgd(0.3), np.r_[starts, [[0.0, 1.2]]], 200)
    ends = path[-1]
    return Verdict(
        close(
            "end points of 1000 starts",
            ends[:-1],
            np.c_[np.sign(starts[:, 0]), np.zeros(1000)],
            tolerance=1e-6,
        ),
        equal("of these, at the saddle", int((np.abs(ends[:-1]).max(axis=1) < 0.5).sum()), 0),
        close("from (0, 1.2)", ends[-1], [0.0, 0.0]),
        figure=Panel(
            "x",
            "y",
            points={"minima": ([-1, 1], [0, 0]), "saddle": ([0], [0])},
            lines={
                f"from ({a:.1f}, {b:.1f})": tuple(path[:, i].T)
                for i in (-1, 0, 1, 2)
                for a, b in [path[0, i]]
            },
        ),
    )


@claim(
    "L10-3.6-convex",
    title="Convexity",
    kind="definition",
    of=("explain.convexity", "explain.perturb_parameters"),
)
def convex(key, rng):
    r"""$\hat R(\lambda\theta + (1 - \lambda)\theta') \le \lambda \hat R(\theta) + (1 - \lambda)
    \hat R(\theta')$ for all $\theta, \theta'$ and $\lambda \in [0, 1]$. Least squares, the logistic
    risk and maxima of affine functions satisfy it on 1000 random chords; the risk of a network with
    a hidden layer and the sine do not.
    """
    A = jnp.asarray(rng.normal(size=(7, 4)))
    b = jnp.asarray(rng.normal(size=7))
    smooth = {
        "least squares": least_squares(rng).objective,
        "logistic": logistic(rng, d=4).objective,
        "maximum of 7 affine forms": lambda w, batch: jnp.max(A @ w + b),
    }
    left, right = jnp.asarray(3 * rng.normal(size=(2, 1000, 4)))
    excess = {name: explain.convexity(f, left, right, None) for name, f in smooth.items()}
    net = models.MLP.init(2, 3, 1, activation=layers.tanh, key=key)
    one, other = (
        explain.perturb_parameters(net, radius=3.0, n_models=1000, key=k) for k in jr.split(key)
    )
    data = jnp.asarray(rng.normal(size=(20, 2))), jnp.asarray(rng.normal(size=20))
    network_excess = explain.convexity(train.squared_error, one, other, data)
    sine = explain.convexity(lambda w, batch: jnp.sin(w).sum(), left, right, None)
    a = np.asarray(left)[0]
    c = np.asarray(right)[0]
    share = excess["least squares"].fractions[1:-1]
    value = lambda w: float(smooth["least squares"](jnp.asarray(w), None))
    first = max(value(s * a + (1 - s) * c) - s * value(a) - (1 - s) * value(c) for s in share)
    keeps = lambda name, result: at_most(
        f"{name}: largest excess over a chord, of 1000", result.excess, 0.0, slack=1e-10
    )
    return Verdict(
        *[keeps(name, result) for name, result in excess.items()],
        close(
            "least squares, the first chord by a loop",
            excess["least squares"].excesses[0],
            first,
            tolerance=1e-10,
        ),
        refuted(keeps("a hidden layer of 3", network_excess)),
        refuted(keeps("the sine", sine)),
        figure=network_excess,
    )


@claim(
    "L10-3.6-local-global",
    title="Every local minimum of a convex function is global",
    kind="theorem",
    of=("train.descend", "train.squared_loss"),
)
def local_global(rng):
    r"""If $\hat R$ is convex and $\theta$ is not optimal, then $\hat R(\theta + t(\theta_g -
    \theta)) \le (1 - t) \hat R(\theta) + t \hat R(\theta_g) < \hat R(\theta)$: towards the optimum
    $\theta_g$ it decreases immediately, so $\theta$ is no local minimum. From any start, gradient
    descent ends at the same value.
    """
    n = 15
    d = 3
    X = rng.normal(size=(100, n, d))
    y = rng.normal(size=(100, n))
    best = np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(X, y)])
    theta = 3 * rng.normal(size=(100, d))
    t = np.linspace(0, 1, 21)
    line = theta[:, None] + t[:, None] * (best - theta)[:, None]
    risk = jax.vmap(
        lambda X, y, w: jax.vmap(lambda w: jax.vmap(train.squared_loss)(X @ w, y).mean())(w)
    )
    values = np.asarray(risk(jnp.asarray(X), jnp.asarray(y), jnp.asarray(line)))
    chord = (1 - t) * values[:, :1] + t * values[:, -1:]
    bowl = least_squares(rng)
    double = lambda w, batch=None, key=None: (jnp.square(w**2 - 1) / 4 - w / 10).sum()
    ends = descent(bowl.objective, optax.sgd(1 / bowl.L), 4 * rng.normal(size=(20, bowl.d)), 3000)[
        -1
    ]
    wells = descent(double, optax.sgd(0.1), np.linspace(-2, 2, 20)[:, None], 500)[-1, :, 0]
    heights = lambda w: (w**2 - 1) ** 2 / 4 - w / 10
    same = lambda name, heights: close(
        f"{name}: from 20 starts", heights, heights.min(), tolerance=1e-8
    )
    return Verdict(
        at_most("100 problems: change along the way to the optimum", np.diff(values, axis=1), 0.0),
        at_most("and the value, against the chord", values - chord, 0.0, slack=1e-12),
        same("least squares", bowl.value(ends)),
        close("which is the minimum", bowl.value(ends).min(), bowl.min_value, tolerance=1e-8),
        refuted(same("a double well", heights(wells))),
        equal("distinct final values there", len(np.unique(heights(wells).round(8))), 2),
        figure=Panel(
            "share of the way to the optimum",
            "risk",
            lines={f"problem {i + 1}": (t, values[i]) for i in range(4)},
        ),
    )


@claim(
    "L10-3.6-gd-rate",
    title="Convergence rate on convex functions",
    kind="theorem",
    of=("train.descend",),
    cites="Nesterov 2004, §2.1.5",
)
def gd_rate(rng):
    r"""For convex, $L$-smooth $\hat R$ with a minimum and $\eta \le 1/L$,
    $\hat R(\theta^k) - \hat R^* \le \frac{\|\theta^0 - \theta^*\|^2}{2 \eta k}$. If it is
    $\mu$-strongly convex,
    $\|\theta^k - \theta^*\|^2 \le (1 - \eta\mu)^k \|\theta^0 - \theta^*\|^2$.
    """
    K = 300
    checks = []
    curves = {}
    for name, problem in {
        "full rank": least_squares(rng),
        "rank 2 of 4": least_squares(rng, rank=2),
        "logistic": logistic(rng),
    }.items():
        starts = 3 * rng.normal(size=(10, problem.d))
        long = descent(
            problem.objective,
            optax.sgd(1 / problem.L),
            starts,
            20_000 if name == "logistic" else 5000,
        )
        limit = long[-1]
        k = np.arange(1, K + 1)[:, None]
        least = problem.min_value if name != "logistic" else problem.value(limit).min()
        gap = problem.value(long[1 : K + 1]) - least
        bound = problem.L * np.sum((starts - limit) ** 2, axis=1) / (2 * k)
        checks.append(
            at_most(
                f"{name}: gap over its bound, 10 starts, k to {K}", gap / bound, 1.0, slack=1e-9
            )
        )
        if name == "full rank":
            near = np.sum((long[: K + 1] - limit) ** 2, axis=2)
            shrink = (1 - problem.mu / problem.L) ** np.arange(K + 1)[:, None] * near[0]
            window = np.arange(5, 60)
            slope = np.polyfit(window, np.log(np.maximum(near[window, 0], 1e-300)), 1)[0]
            checks += [
                at_most(
                    "strongly convex: ‖θ − θ*‖² over its bound",
                    near[:60] / shrink[:60],
                    1.0,
                    slack=1e-9,
                ),
                close(
                    "the slope of its logarithm, over 2 log(1 − μ/L)",
                    slope / (2 * np.log(1 - problem.mu / problem.L)),
                    1.0,
                    tolerance=0.25,
                    method="trend",
                ),
            ]
        curves[name] = k[:, 0], np.maximum(gap[:, 0], 1e-16)
        bounds = {"bound of the last gap": (k[:, 0], bound[:, 0])}
    steep = least_squares(rng)
    climb = steep.value(
        descent(steep.objective, optax.sgd(2.1 / steep.L), 3 * rng.normal(size=(10, steep.d)), K)[
            1:
        ]
    )
    climb = climb - steep.min_value
    return Verdict(
        *checks,
        refuted(
            at_most("η = 2.1/L: the last gap over the first", (climb[-1] / climb[0]).max(), 1.0)
        ),
        figure=Panel(
            "step k", "gap to the minimum of the risk", lines=curves, bounds=bounds, log="xy"
        ),
    )


def tilted(theta, batch=None, key=None):
    r"""$\frac14\theta^4 - \frac12\theta^2 + \frac{1}{10}\theta$."""
    return (theta**4 / 4 - theta**2 / 2 + theta / 10).sum()


height = lambda t: t**4 / 4 - t**2 / 2 + t / 10


@claim(
    "L10-3.7-nonconvex-gd",
    "L10-3.7-fig",
    title="Gradient descent in a double well",
    kind="experiment",
    of=("train.descend", "explain.critical_points"),
)
def double_well(key):
    r"""On $\frac14\theta^4 - \frac12\theta^2 + \frac1{10}\theta$ the start decides: left of the
    maximum between the two wells it reaches the global minimum, right of it the local one, and
    $\hat R$ decreases at every step until convergence.
    """
    left, top, right = np.sort(np.roots([1.0, 0.0, -1.0, 0.1]).real)
    starts = np.r_[np.linspace(-2, 2, 81), top - 1e-3, top + 1e-3]
    path = descent(tilted, optax.sgd(0.1), starts[:, None], 800)[:, :, 0]
    ends = np.where(starts < top, left, right)
    result = explain.critical_points(lambda t: tilted(t), low=-2.0, high=2.0)
    grid = np.linspace(-2, 2, 4001)
    values = height(grid)
    lows = grid[1:-1][(values[1:-1] < values[:-2]) & (values[1:-1] < values[2:])]
    walks = {
        f"from {start:g}": path[:300, np.argmin(np.abs(starts - start))]
        for start in (-2.0, 0.15, 1.8)
    }
    walks = {
        name: walk[: 1 + int(np.argmax(np.abs(np.diff(walk)) < 1e-5))]
        for name, walk in walks.items()
    }
    curves = {name: (walk, height(walk)) for name, walk in walks.items()}
    last = np.array([walk[-1] for walk, _ in curves.values()])
    return Verdict(
        close(
            "end points of 83 starts, two of them 0.001 beside the maximum",
            path[-1],
            ends,
            tolerance=1e-6,
        ),
        close(
            "the maximum between the wells, by the library", result.points[1], top, tolerance=1e-9
        ),
        equal(
            "kinds of the critical points",
            list(result.kinds),
            ["global minimum", "maximum", "local minimum"],
        ),
        at_most("change of R in a step", np.diff(height(path), axis=0), 0.0, slack=1e-15),
        *[
            at_most(f"drawn {name}: change of R", np.diff(y), -1e-12)
            for name, (_, y) in curves.items()
        ],
        at_most(
            "last points drawn: distance to a minimum of the grid",
            np.abs(last[:, None] - lows).min(axis=1),
            1e-3,
        ),
        figure=Panel(
            "θ",
            "R(θ)",
            lines={"R": (grid, values)},
            points=curves,
            vertical_lines={"maximum": top},
        ),
    )
