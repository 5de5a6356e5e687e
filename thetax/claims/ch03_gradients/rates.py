"""§3.2: convergence rates of gradient descent, on smooth functions and on PL functions."""

import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import brentq

from ... import explain
from ...plot import Panel
from ..engine.check import at_least, at_most, close, decreasing, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng
from .problems import descent, hills, least_squares, quadratic, ripples, spectrum


def descent_runs(key, steps=400):
    r"""Fifty descents on $\sum_i \log(1 + \theta_i^2)$ with learning rate $1/L$: the
    problem, and $h$ and $\|\nabla h\|$ at every step.
    """
    problem = hills(4)
    path = descent(
        problem.objective,
        optax.sgd(1 / problem.L),
        numpy_rng(key).uniform(-6, 6, size=(50, 4)),
        steps,
    )
    return problem, problem.value(path), np.linalg.norm(problem.gradient(path), axis=-1)


@claim(
    "3.2-lemma3.2",
    title="Gradient descent finds a critical point",
    kind="theorem",
    of=("train.descend",),
    cites="Nesterov 2004, §1.2.3",
)
def critical(key):
    r"""For $L$-smooth $h$ bounded below, descent with rate $1/L$ has
    $\min_{t<T} \|\nabla h(\theta_t)\| \le \sqrt{2L(h(\theta_0) - h^*)/T}$, so it reaches
    $\|\nabla h\| \le \epsilon$ within $\lceil 2L(h(\theta_0) - h^*)/\epsilon^2 \rceil$ steps;
    convexity is not needed.
    """
    problem, h, size = descent_runs(key)
    T = np.arange(1, len(size) + 1)[:, None]
    min_so_far = np.minimum.accumulate(size, axis=0)
    bound = np.sqrt(2 * problem.L * h[0] / T)
    checks = []
    for eps in (0.1, 0.01):
        reached = (min_so_far <= eps).any(axis=0)
        first = np.argmax(min_so_far <= eps, axis=0)
        checks += [
            equal(
                f"number of runs that reach ε = {eps:g}",
                int(reached.sum()),
                50,
                method="brute force",
            ),
            at_most(f"steps to ε = {eps:g}", first, np.ceil(2 * problem.L * h[0] / eps**2)),
        ]
    curvature = lambda theta: 2 * (1 - theta**2) / (1 + theta**2) ** 2
    curvatures = np.abs(curvature(np.linspace(-10, 10, 2001)))
    return Verdict(
        at_most("smallest gradient so far, at every T", min_so_far, bound, slack=1e-12),
        *checks,
        refuted(
            at_most(
                "smallest gradient so far, with 40 T instead of T",
                min_so_far,
                bound / np.sqrt(40),
                slack=1e-12,
            )
        ),
        assumptions=[at_most("the curvature on a grid", curvatures, 2.0), at_least("h", h, 0.0)],
        figure=Panel(
            "steps T",
            "smallest ‖∇h‖ so far",
            lines={f"run {i + 1}": (T[:, 0], np.maximum(min_so_far[:, i], 1e-8)) for i in range(3)},
            bounds={"bound for run 1": (T[:, 0], bound[:, 0])},
            log="xy",
        ),
    )


@erratum(
    "3.2-lemma3.2",
    title="A factor T in the proof of the lemma",
    printed=r"\frac{1}{2L} \sum_{t<T} \|\nabla h(\theta_t)\|^2 \ge \frac{1}{2L} \min_{t<T} "
    r"\|\nabla h(\theta_t)\|^2",
    corrected=r"\frac{1}{2L} \sum_{t<T} \|\nabla h(\theta_t)\|^2 \ge \frac{T}{2L} \min_{t<T} "
    r"\|\nabla h(\theta_t)\|^2",
    of=("train.descend",),
)
def critical_printed(key):
    r"""The printed line is true but too weak: from
    $h(\theta_0) - h^* \ge \frac{1}{2L} \min \|\nabla h\|^2$ follows a bound that does not decrease
    with $T$, but not the next line. With the factor $T$ the next line follows.
    """
    problem, h, size = descent_runs(key)
    times = (10, 100, 400)
    implied_bound = lambda factor: np.sqrt(2 * problem.L * h[0] / factor)  # solved for min ‖∇h‖
    min_gradients = np.stack([size[:T].min(axis=0) for T in times])
    decreases = np.stack([np.sum(size[:T] ** 2, axis=0) for T in times]) / (2 * problem.L)
    falling_bound = lambda factors: decreasing(
        "bound the line implies for run 1, T = 10, 100, 400",
        [implied_bound(factor)[0] for factor in factors],
        method="closed form",
    )
    return Verdict(
        at_most(
            "the sum on the left, at T = 10, 100, 400, against h(θ₀) − h*",
            decreases,
            h[0],
            slack=1e-12,
        ),
        at_most(
            "smallest gradient norm, against the bound the line implies",
            min_gradients,
            np.stack([implied_bound(T) for T in times]),
        ),
        falling_bound(times),
        printed=[falling_bound([1, 1, 1])],
    )


def pl_problems(rng):
    """Three PL functions: one strongly convex, one convex with flat directions, one not convex."""
    return {
        "strongly convex quadratic": quadratic(spectrum(rng, [0.5, 1.0, 2.0])),
        "least squares of rank 2 in 4": least_squares(rng, n=8, rank=2),
        "θ² + 3 sin²θ": ripples(),
    }


def trial_points(problem, rng, count=100_000):
    r"""A regular grid on $[-10, 10]$ in one dimension, random points in more."""
    if problem.d == 1:
        return np.linspace(-10, 10, count)[:, None]
    return rng.normal(size=(count, problem.d)) * 3


@claim(
    "3.2-pl",
    title="The Polyak–Łojasiewicz inequality",
    kind="definition",
    of=("explain.gradient_dominance",),
    cites="Polyak 1963; Łojasiewicz 1963; Karimi, Nutini & Schmidt 2016",
)
def pl(rng):
    r"""$h$ satisfies the $\mu$-PL inequality if
    $\frac12 \|\nabla h(\theta)\|^2 \ge \mu (h(\theta) - h^*)$ for all $\theta$. It holds for
    strongly convex functions, for least squares of any rank, and for $\theta^2 + 3\sin^2\theta$,
    which is not convex; for $\theta^4$ it holds for no $\mu > 0$.
    """
    checks = []
    for name, problem in pl_problems(rng).items():
        theta = trial_points(problem, rng)
        dominance = explain.gradient_dominance(
            problem.objective, jnp.asarray(theta), None, min_loss=problem.min_value
        )
        gap = problem.value(theta) - problem.min_value
        square = np.sum(problem.gradient(theta) ** 2, axis=1)
        checks += [
            at_least(
                f"{name}: smallest of 100,000 ratios", dominance.constant, problem.mu, slack=1e-9
            ),
            close(
                f"{name}: the ratios by NumPy",
                dominance.values[gap > 1e-6],
                (square / (2 * gap))[gap > 1e-6],
                tolerance=1e-6,
                relative=True,
            ),
        ]
    theta = np.geomspace(1e-4, 1, 200)
    fourth = explain.gradient_dominance(
        lambda t, batch=None: (t**4).sum(), jnp.asarray(theta)[:, None], None
    )
    grid = np.linspace(-10, 10, 2001)[:, None]
    wave = ripples()
    return Verdict(
        *checks,
        close(
            "θ² + 3 sin²θ on [−10, 10]: smallest ratio",
            dominance.constant,
            0.176,
            tolerance=5e-4,
            method="brute force",
        ),
        close("θ⁴: the ratio is 8θ²", fourth.values, 8 * theta**2, tolerance=1e-9),
        refuted(at_least("θ⁴ near 0: smallest ratio", fourth.constant, 1e-6)),
        figure=Panel(
            "θ",
            "½‖∇h‖²",
            log="y",
            lines={"θ² + 3 sin²θ": (grid[:, 0], wave.gradient(grid)[:, 0] ** 2 / 2)},
            bounds={"μ (h − h*), μ = 1/32": (grid[:, 0], wave.value(grid) / 32)},
        ),
    )


@claim(
    "3.2-pl-near-opt",
    title="Under PL a small gradient implies a small suboptimality",
    kind="identity",
    of=("explain.gradient_dominance",),
)
def near_best(rng):
    r"""Under the $\mu$-PL inequality $h(\theta) - h^* \le \|\nabla h(\theta)\|^2 / 2\mu$, so every
    stationary point is a global minimum. $\theta^2 + 3\sin^2\theta$ has many inflection points and
    only one stationary point.
    """
    checks = []
    for name, problem in pl_problems(rng).items():
        theta = trial_points(problem, rng, 20_000)
        largest_mu = explain.gradient_dominance(
            problem.objective, jnp.asarray(theta), None, min_loss=problem.min_value
        ).constant
        gap = problem.value(theta) - problem.min_value
        square = np.sum(problem.gradient(theta) ** 2, axis=1)
        not_minimal = gap > 1e-6
        checks += [
            at_least(
                f"{name}: ‖∇h‖²/2μ, against h − h*", square / (2 * problem.mu), gap, slack=1e-9
            ),
            close(
                f"{name}: equality for the largest μ of the sample",
                (square[not_minimal] / (2 * largest_mu * gap[not_minimal])).min(),
                1.0,
                tolerance=1e-6,
            ),
        ]
    wave = ripples()
    slope = lambda t: float(wave.gradient(np.array([t]))[0])
    grid = np.linspace(-10, 10, 4002)
    signs = np.sign([slope(t) for t in grid])
    roots = [brentq(slope, a, b) for a, b, s, t in zip(grid, grid[1:], signs, signs[1:]) if s != t]
    bends = np.diff(second_derivative_signs(grid)) != 0
    return Verdict(
        *checks,
        close(
            "stationary points of θ² + 3 sin²θ on [−10, 10]",
            np.array(roots),
            np.zeros(1),
            tolerance=1e-9,
            method="brute force",
        ),
        at_least("number of inflection points there", int(bends.sum()), 10),
    )


def second_derivative_signs(theta):
    r"""The signs of the second derivative of $\theta^2 + 3 \sin^2 \theta$."""
    return np.sign(2 + 6 * np.cos(2 * theta))


@claim(
    "3.2-lemma3.4",
    title="Under PL gradient descent converges geometrically",
    kind="theorem",
    of=("explain.gradient_dominance", "explain.convergence_rates"),
    cites="Polyak 1963",
)
def geometric(rng):
    r"""For $L$-smooth, $\mu$-PL $h$, descent with rate $1/L$ has
    $h(\theta_T) - h^* \le \big(1 - \frac\mu L\big)^T (h(\theta_0) - h^*)$, and shrinks $h - h^*$ by
    $1 - \frac\mu L$ at each step; $h$ need be neither convex nor have a unique minimum."""
    checks = []
    lines = {}
    bounds = {}
    assumptions = []
    T = np.arange(301)
    for name, problem in pl_problems(rng).items():
        start = rng.normal(size=(1, problem.d)) * 3 if problem.d > 1 else np.array([[-8.0]])
        convergence = explain.convergence_rates(
            problem.objective,
            jnp.asarray(start[0]),
            None,
            steps=300,
            min_loss=problem.min_value,
            optimisers={"descent": optax.sgd(1 / problem.L)},
        )
        gap = convergence.gaps["descent"]
        rate = 1 - problem.mu / problem.L
        by_numpy = _descent_gaps(problem, start[0])
        bound = rate**T * gap[0]
        checks += [
            close(f"{name}: gradient descent, against a loop", gap, by_numpy, tolerance=1e-10),
            at_most(f"{name}: h − h*, every T ≤ 300", gap, bound, slack=1e-11),
            at_most(f"{name}: h − h*, step by step", gap[1:], rate * gap[:-1], slack=1e-11),
        ]
        thetas = jnp.asarray(trial_points(problem, rng, 20_000))
        smallest_ratio = explain.gradient_dominance(
            problem.objective, thetas, None, min_loss=problem.min_value
        ).constant
        assumptions.append(
            at_least(
                f"{name}: smallest of 20,000 PL ratios", smallest_ratio, problem.mu, slack=1e-9
            )
        )
        lines[name] = (T, np.maximum(gap, 1e-13))
        bounds[f"({rate:.3g})^T"] = (T, np.maximum(bound, 1e-13))
    return Verdict(
        *checks,
        assumptions=assumptions,
        figure=Panel("steps T", "h − h*", lines=lines, bounds=bounds, log="y"),
    )


def _descent_gaps(problem, theta, steps=300):
    gaps = [problem.value(theta) - problem.min_value]
    for _ in range(steps):
        theta = theta - problem.gradient(theta) / problem.L
        gaps.append(problem.value(theta) - problem.min_value)
    return np.array(gaps)


@erratum(
    "3.2-lemma3.4",
    title="The left side belongs to the next step",
    printed=r"h(\theta_t) - h(\theta^*) \le \big(1 - \tfrac{\mu}{L}\big) (h(\theta_t) - "
    r"h(\theta^*))",
    corrected=r"h(\theta_{t+1}) - h(\theta^*) \le \big(1 - \tfrac{\mu}{L}\big) (h(\theta_t) - "
    r"h(\theta^*))",
    of=("train.descend",),
    slip=True,
)
def geometric_printed(key):
    r"""The proof's last line has $h(\theta_t)$ on both sides, which only a minimum satisfies; the
    left side should be $h(\theta_{t+1})$, as in the line above it.
    """
    wave = ripples()
    gap = wave.value(descent(wave.objective, optax.sgd(1 / wave.L), np.array([3.0]), 40))
    rate = 1 - wave.mu / wave.L
    return Verdict(
        at_most("gap of the next step", gap[1:], rate * gap[:-1], slack=1e-12),
        printed=[at_most("gap of the same step", gap[:-1], rate * gap[:-1], slack=1e-12)],
    )
