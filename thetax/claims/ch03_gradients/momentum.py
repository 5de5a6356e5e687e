"""§3.3: Nesterov's acceleration and the heavy ball."""

import jax.numpy as jnp
import numpy as np
import optax

from ... import explain, train
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .problems import Problem, descent, quadratic, spectrum


@claim(
    "3.3-nesterov",
    title="Nesterov's acceleration",
    kind="algorithm",
    of=("train.nesterov",),
    cites="Nesterov 1983",
)
def nesterov(rng):
    r"""$\chi^{t+1} = \theta^t + \beta (\theta^t - \theta^{t-1})$, then
    $\theta^{t+1} = \chi^{t+1} - \eta \nabla h(\chi^{t+1})$, from $\theta^{-1} = \theta^0$. On a
    quadratic, along an eigenvector of eigenvalue $\lambda$, the pair $(\theta^{t+1}, \theta^t)$ is
    multiplied by a 2 by 2 matrix at each step; $\beta = 0$ is gradient descent.
    """
    values = np.array([0.05, 0.4, 1.0, 2.0])
    eta = 0.45
    beta = 0.8
    bowl = quadratic(spectrum(rng, values))
    start = rng.normal(size=4)
    T = 80
    iterates = descent(bowl.objective, train.nesterov(eta, momentum=beta), start, T)
    values, Q = np.linalg.eigh(np.asarray(bowl.gradient(np.eye(4))))
    powers = np.stack(
        [
            _companion((1 - eta * v) * (1 + beta), -(1 - eta * v) * beta, c, T)
            for v, c in zip(values, Q.T @ start)
        ]
    )
    ball = np.stack(
        [_companion(1 - eta * v + beta, -beta, c, T) for v, c in zip(values, Q.T @ start)]
    )
    model = lambda state: state.model
    look_ahead = descent(bowl.objective, train.nesterov(eta, momentum=beta), start, T, record=model)
    by_optax = descent(
        bowl.objective, optax.sgd(eta, momentum=beta, nesterov=True), start, T, record=model
    )
    gd_path = descent(bowl.objective, optax.sgd(eta), start, T)
    return Verdict(
        close(
            "iterates, against powers of the companion matrices",
            iterates,
            (Q @ powers).T,
            tolerance=1e-10,
        ),
        refuted(
            close("against the heavy ball's matrices", iterates, (Q @ ball).T, tolerance=1e-10)
        ),
        close(
            "β = 0 is gradient descent",
            descent(bowl.objective, train.nesterov(eta, momentum=0.0), start, T),
            gd_path,
            tolerance=1e-15,
        ),
        close("the look-ahead χ, against Optax's iterates", look_ahead, by_optax, tolerance=1e-13),
        figure=_trajectories(),
    )


def _companion(a: float, b: float, start: float, steps: int) -> np.ndarray:
    r"""$\theta^0, \dots, \theta^T$ of $\theta^{t+1} = a\theta^t + b\theta^{t-1}$ from
    $\theta^{-1} = \theta^0$, by powers.
    """
    M = np.array([[a, b], [1.0, 0.0]])
    return np.array([(np.linalg.matrix_power(M, t) @ [start, start])[0] for t in range(steps + 1)])


def _trajectories() -> Chart:
    """The three methods on one narrow valley, with equal learning rate and momentum."""
    bowl = quadratic(np.diag([0.04, 1.0]))
    start = np.array([2.0, 1.0])
    q = 0.2
    optimisers = {
        "descent": optax.sgd(0.6),
        "heavy ball": train.heavy_ball(0.6, momentum=(1 - q) / (1 + q)),
        "Nesterov": train.nesterov(0.6, momentum=(1 - q) / (1 + q)),
    }
    paths = {
        name: descent(bowl.objective, optimiser, start, 60)
        for name, optimiser in optimisers.items()
    }
    angle = np.linspace(0, 2 * np.pi, 200)
    ring = 1.2 * np.cos(angle), 0.24 * np.sin(angle)
    return Chart(
        Panel(
            "along the valley",
            "across the valley",
            bounds={"a level of h": ring},
            lines={name: tuple(path[:40].T) for name, path in paths.items()},
        ),
        Panel(
            "step",
            "h",
            lines={name: (np.arange(61), bowl.value(path)) for name, path in paths.items()},
            log="y",
        ),
    )


def worst_case(d: int = 100) -> tuple[Problem, np.ndarray]:
    r"""Nesterov's hard function $\frac12 \theta^\top A \theta - \theta_1$ with $A$ tridiagonal
    $(-1, 2, -1)$, $L = 4$.
    """
    A = 2 * np.eye(d) - np.eye(d, k=1) - np.eye(d, k=-1)
    b = np.eye(d)[0]
    minimiser = np.linalg.solve(A, b)
    A_jax = jnp.asarray(A)
    b_jax = jnp.asarray(b)
    value = lambda theta: np.einsum("...i,ij,...j->...", theta, A, theta) / 2 - theta @ b
    objective = lambda theta, batch=None, key=None: theta @ A_jax @ theta / 2 - b_jax @ theta
    return Problem(
        objective, value, lambda theta: theta @ A - b, d, 4.0, 0.0, float(value(minimiser))
    ), minimiser


@claim(
    "3.3-nesterov-rate",
    title="Acceleration: 1/t² instead of 1/t, √κ instead of κ",
    kind="theorem",
    of=("train.nesterov", "explain.convergence_rates", "explain.convergence_bounds"),
    cites="Nesterov 1983; Nesterov 2004, §2.2",
)
def nesterov_rate(rng):
    r"""Let $\eta = 1/L$ and $D = \|\theta_0 - \theta^*\|$. For convex $h$ and
    $\beta_t = \frac{t-1}{t+2}$ Nesterov's method has $h(\theta_t) - h^* \le \frac{2LD^2}{(t+1)^2}$,
    where descent has $\frac{LD^2}{2t}$. For $\mu$-strongly convex $h$ and
    $\beta = \frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}$ it has
    $h(\theta_t) - h^* \le \big(1 - \frac{1}{\sqrt\kappa}\big)^t \big(h_0 - h^* + \frac\mu2
    D^2\big)$,
    where descent contracts by $1 - \frac1\kappa$ per step.
    """
    hard, minimiser = worst_case()
    t = np.arange(101)
    D = float(minimiser @ minimiser)
    schedules = {"(t−1)/(t+2)": lambda t: (t - 1) / (t + 2), "t/(t+3)": lambda t: t / (t + 3)}
    optimisers = {"descent": optax.sgd(0.25)} | {
        n: train.nesterov(0.25, momentum=f) for n, f in schedules.items()
    }
    bounds = explain.convergence_bounds(steps=100, smoothness=4.0, distance=np.sqrt(D))
    convergence = explain.convergence_rates(
        hard.objective,
        jnp.zeros(100),
        None,
        optimisers=optimisers,
        steps=100,
        min_loss=hard.min_value,
        bounds=bounds,
    )
    nesterov_gap = convergence.gaps["(t−1)/(t+2)"]
    descent_gap = convergence.gaps["descent"]
    bowl = quadratic(H := spectrum(rng, np.geomspace(1e-3, 1, 50)))
    start, q = (
        np.linalg.eigh(H)[1] @ rng.choice([-1.0, 1.0], size=50),
        np.sqrt(1e-3),
    )  # 1 along each eigenvector
    strong_optimisers = {
        "descent": optax.sgd(1.0),
        "Nesterov": train.nesterov(1.0, momentum=(1 - q) / (1 + q)),
    }
    strongly_convex = explain.convergence_rates(
        bowl.objective, jnp.asarray(start), None, optimisers=strong_optimisers, steps=300
    )
    T = np.arange(301)
    h0 = bowl.value(start)
    nesterov_bound = (1 - q) ** T * (h0 + 1e-3 / 2 * start @ start)
    descent_bound = (1 - 1e-3) ** T * h0
    strong_bounds = explain.convergence_bounds(
        steps=300,
        smoothness=1.0,
        distance=float(np.linalg.norm(start)),
        gap=float(h0),
        strong_convexity=1e-3,
    )
    fits = {
        name: np.polyfit(np.log(t[1:]), np.log(convergence.gaps[name][1:]), 1)
        for name in optimisers
    }
    return Verdict(
        at_most("descent, t ≤ 100", descent_gap[1:], 4 * D / (2 * t[1:])),
        at_most("Nesterov, t ≤ 100", nesterov_gap, 2 * 4 * D / (t + 1) ** 2),
        close("Nesterov, against a loop", nesterov_gap, _accelerated(hard, 100), tolerance=1e-7),
        close(
            "convergence_bounds for descent",
            bounds["descent 1/t"][1:],
            4 * D / (2 * t[1:]),
            tolerance=1e-10,
        ),
        close(
            "convergence_bounds for Nesterov",
            bounds["Nesterov 1/t²"],
            2 * 4 * D / (t + 1) ** 2,
            tolerance=1e-10,
        ),
        close("descent at t = 100", descent_gap[100], 0.0348, tolerance=5e-5),
        close("Nesterov at t = 100", nesterov_gap[100], 0.00555, tolerance=5e-6),
        close(
            "Nesterov with β = t/(t+3), at t = 100",
            convergence.gaps["t/(t+3)"][100],
            0.00545,
            tolerance=5e-6,
        ),
        refuted(at_most("descent within Nesterov's bound", descent_gap, 2 * 4 * D / (t + 1) ** 2)),
        close(
            "fitted powers of t, against minus the slopes of log-log fits",
            [convergence.rates[name].power for name in fits],
            [-slope for slope, _ in fits.values()],
            tolerance=1e-9,
        ),
        at_least(
            "fitted power of Nesterov minus that of descent",
            convergence.rates["(t−1)/(t+2)"].power - convergence.rates["descent"].power,
            0.5,
        ),
        close(
            "κ = 1000: convergence_bounds for descent",
            strong_bounds["descent geometric"],
            descent_bound,
            tolerance=1e-10,
        ),
        close(
            "κ = 1000: convergence_bounds for Nesterov",
            strong_bounds["Nesterov geometric"],
            nesterov_bound,
            tolerance=1e-10,
        ),
        at_most(
            "κ = 1000: descent, t = 1 to 300",
            strongly_convex.gaps["descent"][1:],
            descent_bound[1:],
            slack=1e-14,
        ),
        at_most(
            "κ = 1000: Nesterov", strongly_convex.gaps["Nesterov"], nesterov_bound, slack=1e-14
        ),
        at_least("κ = 1000: descent at t = 300", strongly_convex.gaps["descent"][-1], 3e-3),
        at_most("κ = 1000: Nesterov at t = 300", strongly_convex.gaps["Nesterov"][-1], 3e-10),
        refuted(
            at_most(
                "descent within Nesterov's bound, κ = 1000",
                strongly_convex.gaps["descent"],
                nesterov_bound,
            )
        ),
        figure=explain.loss_surface.ConvergenceRates(
            *_only(convergence, "descent", "(t−1)/(t+2)"), bounds
        ),
    )


def _accelerated(problem: Problem, steps: int) -> np.ndarray:
    theta = before = np.zeros(problem.d)
    gaps = [problem.value(theta) - problem.min_value]
    for t in range(steps):
        chi = theta + (t - 1) / (t + 2) * (theta - before)
        theta, before = chi - problem.gradient(chi) / problem.L, theta
        gaps.append(problem.value(theta) - problem.min_value)
    return np.array(gaps)


def _only(rates: explain.loss_surface.ConvergenceRates, *names: str) -> tuple[dict, dict]:
    labels = {"(t−1)/(t+2)": "Nesterov"}
    pick = lambda of: {labels.get(name, name): of[name] for name in names}
    return pick(rates.rates), pick(rates.gaps)


@claim(
    "3.3-heavy-ball",
    title="The heavy ball",
    kind="algorithm",
    of=("train.heavy_ball", "explain.fit_convergence_rate"),
    cites="Polyak 1964",
)
def heavy_ball(rng):
    r"""$\theta^{t+1} = \theta^t - \eta\nabla h(\theta^t) + \beta(\theta^t - \theta^{t-1})$ with
    $\beta \in [0, 1)$. On a quadratic with $\eta = \frac{4}{(\sqrt L + \sqrt\mu)^2}$ and
    $\beta = \big(\frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\big)^2$ the distance to the minimum
    shrinks asymptotically by $\frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}$ per step.
    """
    bowl = quadratic(spectrum(rng, np.geomspace(0.01, 1, 8)))
    start = rng.normal(size=8)
    L = bowl.L
    mu = bowl.mu
    kappa = bowl.L / bowl.mu
    eta = 4 / (np.sqrt(L) + np.sqrt(mu)) ** 2
    rho = (np.sqrt(kappa) - 1) / (np.sqrt(kappa) + 1)
    iterates = descent(bowl.objective, train.heavy_ball(eta, momentum=rho**2), start, 600)
    position_form, velocity_form = _by_loop(bowl, start, eta, rho**2, 600)
    size = np.linalg.norm(iterates, axis=1)
    rate = explain.fit_convergence_rate(size[300:], times=np.arange(300, 601))
    gd_path = descent(bowl.objective, optax.sgd(eta / 4), start, 600)
    gd_rate = explain.fit_convergence_rate(
        np.linalg.norm(gd_path, axis=1)[300:], times=np.arange(300, 601)
    )
    t = np.arange(601)
    return Verdict(
        close("iterates, against the formula by a loop", iterates, position_form, tolerance=1e-11),
        close(
            "iterates, against v ← βv − η∇h, θ ← θ + v", iterates, velocity_form, tolerance=1e-11
        ),
        close(
            "β = 0 is gradient descent",
            descent(bowl.objective, train.heavy_ball(eta / 4, momentum=0.0), start, 600),
            gd_path,
            tolerance=1e-15,
        ),
        close(
            "rate of ‖θ‖ from t = 300 to 600",
            rate.factor,
            rho,
            tolerance=0.02,
            relative=True,
            method="trend",
        ),
        refuted(
            close(
                "descent with η/4, about 1/L",
                gd_rate.factor,
                rho,
                tolerance=0.02,
                relative=True,
                method="trend",
            )
        ),
        figure=Panel(
            "step",
            "distance to the minimum",
            log="y",
            lines={"heavy ball": (t, size), "descent": (t, np.linalg.norm(gd_path, axis=1))},
            bounds={f"{rho:.3f}^t": (t, size[0] * rho**t)},
        ),
    )


def _by_loop(
    bowl: Problem, start: np.ndarray, eta: float, beta: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The two printed forms, step by step in NumPy."""
    theta = start
    before = start
    v = np.zeros_like(start)
    position = start
    first = [start]
    second = [start]
    for _ in range(steps):
        theta, before = theta - eta * bowl.gradient(theta) + beta * (theta - before), theta
        v = beta * v - eta * bowl.gradient(position)
        position = position + v
        first.append(theta)
        second.append(position)
    return np.stack(first), np.stack(second)


def constant_gradient_steps(eta: float, beta: float, steps: int, slope: np.ndarray) -> np.ndarray:
    r"""$\theta^{t+1} - \theta^t$ for $t = 1, \dots$ under the constant gradient of a linear $h$, in
    units of the gradient.
    """
    linear = lambda theta, batch, key: jnp.asarray(slope) @ theta
    return np.diff(
        descent(linear, train.heavy_ball(eta, momentum=beta), np.zeros(len(slope)), steps), axis=0
    )


@claim(
    "3.3-heavy-ball-constant",
    title="Momentum under a constant gradient",
    kind="identity",
    of=("train.heavy_ball",),
)
def constant_gradient(rng):
    r"""If the gradient is always $\delta$ and $\theta^1 = \theta^0$, then
    $\theta^{t+1} - \theta^t = -\eta \sum_{\tau=0}^{t-1} \beta^\tau \delta \to -\frac{\eta}{1 -
    \beta} \delta$:
    momentum multiplies the rate by up to $\frac{1}{1-\beta}$.
    """
    slope = rng.normal(size=3)
    eta = 0.1
    checks = []
    lines = {}
    t = np.arange(1, 101)
    for beta in (0.0, 0.5, 0.9):
        moves = constant_gradient_steps(eta, beta, 100, slope)
        factor = np.array([sum(beta**tau for tau in range(s)) for s in t])
        checks.append(close(f"β = {beta}: t = 1 to 100", moves, -eta * factor[:, None] * slope))
        lines[f"β = {beta}"] = (t, -moves[:, 0] / (eta * slope[0]))
    limit = constant_gradient_steps(eta, 0.9, 400, slope)[-1]
    return Verdict(
        *checks,
        close("the limit, β = 0.9", limit, -eta / (1 - 0.9) * slope),
        figure=Panel(
            "step t",
            "length of the step, over ηδ",
            lines=lines,
            bounds={"1/(1 − β), β = 0.9": (t, 0 * t + 10.0)},
        ),
    )


@erratum(
    "3.3-heavy-ball-constant",
    title="The sum begins at 0",
    printed=r"\theta^{t+1} = \theta^t - \eta \Big(\sum_{\tau=1}^{t-1} \beta^\tau\Big) \delta",
    corrected=r"\theta^{t+1} = \theta^t - \eta \Big(\sum_{\tau=0}^{t-1} \beta^\tau\Big) \delta",
    of=("train.heavy_ball",),
)
def constant_gradient_printed(rng):
    r"""At $t = 1$ the printed sum is empty and the ball would not move; it moves by $-\eta\delta$.
    With $\beta = 1$, which the notes allow, the steps would grow without bound.
    """
    slope = rng.normal(size=3)
    eta = 0.1
    beta = 0.9
    moves = constant_gradient_steps(eta, beta, 50, slope)
    t = np.arange(1, 51)
    factor = lambda first: np.array([sum(beta**tau for tau in range(first, s)) for s in t])
    form = lambda first: -eta * factor(first)[:, None] * slope
    try:
        train.heavy_ball(eta, momentum=1.0)
        rejected = False
    except ValueError:
        rejected = True
    return Verdict(
        close("steps, t = 1 to 50", moves, form(0)),
        close("the first step", moves[0], -eta * slope, tolerance=1e-15),
        equal("β = 1 is rejected", rejected, True),
        printed=[close("steps, t = 1 to 50", moves, form(1))],
    )
