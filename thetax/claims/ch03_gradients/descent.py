"""§3.2: gradient descent, gradient flow, and the decrease of the loss in one step."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from ... import explain, layers, models, train
from ...core import run
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, close_derivative, refuted
from ..engine.claim import Verdict, claim, erratum
from .problems import descent, hills, logistic, quadratic, ripples, spectrum


@claim(
    "3.2-gd", title="Gradient descent", kind="algorithm", of=("train.descend",), cites="Cauchy 1847"
)
def gd(rng):
    r"""$\theta^{t+1} = \theta^t - \eta \nabla h(\theta^t)$. On the quadratic
    $h = \frac12 \theta^\top H \theta$ this is $\theta^t = (I - \eta H)^t \theta^0$.
    """
    H = spectrum(rng, [0.1, 0.5, 1.0, 2.0])
    eta = 0.4
    start = rng.normal(size=4)
    iterates = descent(quadratic(H).objective, optax.sgd(eta), start, 60)
    powers = np.stack([np.linalg.matrix_power(np.eye(4) - eta * H, t) @ start for t in range(61)])
    uphill = np.stack([np.linalg.matrix_power(np.eye(4) + eta * H, t) @ start for t in range(61)])
    values, Q = np.linalg.eigh(H)
    components = np.abs(iterates @ Q)
    t = np.arange(61)
    return Verdict(
        close("the iterates, to t = 60", iterates, powers, tolerance=1e-10),
        refuted(close("with the opposite sign", iterates, uphill, tolerance=1e-10)),
        figure=Panel(
            "step",
            "distance along an eigenvector",
            lines={f"λ = {v:.2g}": (t, components[:, i]) for i, v in enumerate(values)},
            log="y",
        ),
    )


@claim(
    "3.2-gradient-flow",
    title="Gradient flow",
    kind="definition",
    of=("train.gradient_flow", "train.descend"),
    cites="Kidger 2021 (Diffrax)",
)
def flow(rng):
    r"""$\dot\theta = -\nabla h(\theta)$, along which $\dot h = -\|\nabla h\|^2$. Gradient descent
    is its Euler method with step $\eta$: at a fixed time the two differ by $O(\eta)$. For a
    quadratic the flow is $e^{-Ht}\theta_0$.
    """
    H = spectrum(rng, [0.5, 1.0, 2.0])
    start = rng.normal(size=3)
    times = np.linspace(0.01, 3, 300)
    bowl = quadratic(H)
    hills_problem = hills(3)
    hills_start = 2 * rng.normal(size=3)
    weighted = lambda theta, batch: (
        batch[0] * bowl.objective(theta) + batch[1] * hills_problem.objective(theta)
    )
    flow = lambda start, *parts: train.gradient_flow(
        weighted, jnp.asarray(start), jnp.array(parts), times=times, tolerance=1e-10
    )
    bowl_flow = flow(start, 1.0, 0.0)
    hills_flow = flow(hills_start, 0.0, 1.0)
    exact = np.stack([expm(-H * t) @ start for t in times])
    ode = {"rtol": 1e-11, "atol": 1e-12, "method": "DOP853"}
    by_scipy = solve_ivp(lambda t, th: -bowl.gradient(th), (0, 3), start, t_eval=times, **ode).y.T
    etas = np.array([0.1, 0.05, 0.025, 0.01])
    at_one = expm(-H) @ start
    run_descent = lambda eta: descent(bowl.objective, optax.sgd(eta), start, round(1 / eta))
    error = [np.linalg.norm(run_descent(eta)[-1] - at_one) for eta in etas]
    h = np.asarray(hills_flow.losses)
    slope = (h[2:] - h[:-2]) / (times[2:] - times[:-2])
    sizes = np.linalg.norm(hills_problem.gradient(np.asarray(hills_flow.models)), axis=1)
    squares = sizes[1:-1] ** 2
    power = lambda eta, t: np.linalg.matrix_power(np.eye(3) - eta * H, t)
    coarse = lambda eta: np.stack([power(eta, t) @ start for t in range(round(3 / eta) + 1)])
    return Verdict(
        close("against exp(−Ht) θ₀", bowl_flow.models, exact, tolerance=1e-8),
        close("against scipy's solve_ivp", bowl_flow.models, by_scipy, tolerance=1e-8),
        close(
            "error of gradient descent at t = 1: ratio when η is halved",
            np.divide(error[:2], error[1:3]),
            2.0,
            tolerance=0.1,
            method="trend",
        ),
        at_most("increase of the loss along the flow", np.diff(h), 0.0, slack=1e-10),
        close_derivative("dh/dt, against −‖∇h‖²", slope, -squares, tolerance=2e-3, relative=True),
        refuted(
            close("dh/dt, against −‖∇h‖", slope, -np.sqrt(squares), tolerance=2e-3, relative=True)
        ),
        close("gradient norms reported along the flow", hills_flow.gradient_norms, sizes),
        figure=Chart(
            Panel(
                "time",
                "first coordinate",
                lines={"flow": (times, exact[:, 0])}
                | {
                    f"η = {eta:g}": (eta * np.arange(round(3 / eta) + 1), coarse(eta)[:, 0])
                    for eta in (0.75, 0.3)
                },
            ),
            Panel(
                "learning rate η",
                "error at t = 1",
                points={"measured": (etas, error)},
                bounds={"slope 1": (etas, error[0] * etas / etas[0])},
                log="xy",
            ),
        ),
    )


@claim(
    "3.2-init-dependence",
    title="The limit of gradient descent depends on the start",
    kind="experiment",
    of=("train.descend", "train.per_member"),
)
def beginnings(key):
    r"""From different $\theta_0$ descent reaches different stationary points, $\nabla h = 0$. For
    $h = \frac14 (\theta^2 - 1)^2$ the sign of $\theta_0$ decides between $\pm 1$, and 0 is
    stationary; a small network converges to different losses.
    """
    starts = np.array([-2.0, -1.2, -0.5, -0.01, 0.0, 0.01, 0.7, 1.0, 1.9])[:, None]
    double = lambda theta, batch=None, key=None: jnp.square(jnp.square(theta) - 1).sum() / 4
    path = descent(double, optax.sgd(0.1), starts, 400)[:, :, 0]
    slope = path[-1] ** 3 - path[-1]
    nets = layers.Ensemble.init(partial(models.MLP.init, 1, 2, 1), 20, key=key)
    xs = jnp.linspace(-1, 1, 21)[:, None]
    data = xs, jnp.abs(xs[:, 0])
    iteration = train.per_member(
        train.descend(lambda model, batch, key: train.squared_error(model, data), optax.sgd(0.1))
    )
    info = jax.jit(lambda nets: run(iteration, nets, jnp.zeros(30_000), key=key)[1][1])(nets)
    loss = np.asarray(info.loss)
    length = np.asarray(info.gradient)
    best = (
        np.argmin(length, axis=0),
        np.arange(20),
    )  # the step with the smallest gradient of each network
    shown_steps = np.unique(np.geomspace(1, 30_000, 300).astype(int))
    order = np.argsort(loss[best])
    n_losses = 1 + int((np.diff(np.sort(loss[best])) > 0.01).sum())
    return Verdict(
        close("limits", path[-1], np.sign(starts[:, 0]), tolerance=1e-8),
        at_most("‖∇h‖ at the limits", np.abs(slope), 1e-8),
        at_least("number of distinct final losses of 20 networks, 0.01 apart", n_losses, 2),
        at_most("norms of their gradients", length[best], 0.001),
        figure=Chart(
            Panel(
                "step",
                "θ",
                lines={
                    f"from {s:g}": (np.arange(61), path[:61, i])
                    for i, s in enumerate(starts[:, 0])
                    if i in (3, 5, 8)
                },
            ),
            Panel(
                "step",
                "loss of two ReLU units on |x|",
                log="xy",
                lines={
                    f"start {i}": (shown_steps, np.maximum(loss[shown_steps - 1, i], 1e-6))
                    for i in order[[0, 10, 19]]
                },
            ),
        ),
    )


def one_step(problem, theta, etas):
    r"""$h(\theta - \eta\nabla h(\theta)) - h(\theta)$ for many $\theta$ and learning rates, by one
    step of `train.descend` each, and the gradient norms.
    """

    def once(theta, eta):
        iteration = train.descend(problem.objective, optax.sgd(eta))
        state, info = iteration.step(iteration.init(theta), jnp.zeros(()), key=jr.key(0))
        return state.model, info.gradient

    ends, sizes = jax.jit(jax.vmap(once))(jnp.asarray(theta), jnp.asarray(etas))
    return problem.value(np.asarray(ends)) - problem.value(theta), np.asarray(sizes)


@claim(
    "3.2-descent-step",
    title="The decrease in one step of gradient descent",
    kind="theorem",
    of=("train.descend",),
)
def descent_step(rng):
    r"""A step of descent on an $L$-smooth $h$ changes it by
    $h(\theta_2) - h(\theta_1) \le -\eta \big(1 - \frac{L\eta}{2}\big) \|\nabla h(\theta_1)\|^2$,
    with equality for a quadratic along the eigenvector of the largest eigenvalue.
    """
    checks = []
    points = {}
    for name, problem in {
        "logistic": logistic(rng),
        "log(1 + θ²)": hills(),
        "θ² + 3 sin²θ": ripples(),
    }.items():
        theta = rng.normal(size=(10_000, problem.d)) * 2
        etas = rng.uniform(0, 2 / problem.L, size=10_000)
        change, _ = one_step(problem, theta, etas)
        square = np.sum(problem.gradient(theta) ** 2, axis=1)
        bound = -etas * (1 - problem.L * etas / 2) * square
        checks.append(at_most(f"{name}: change of h in 10,000 steps", change, bound, slack=1e-12))
        points[name] = (etas[:150] * problem.L, (change / square)[:150] * problem.L)
    bowl = quadratic(spectrum(rng, [0.3, 1.0, 2.5]))
    etas = np.linspace(0.01, 2, 50) / bowl.L
    theta = np.tile(1.7 * bowl.sharpest, (50, 1))
    change, size = one_step(bowl, theta, etas)
    bound = -etas * (1 - bowl.L * etas / 2) * size**2
    eta = np.linspace(0, 2, 101)
    return Verdict(
        *checks,
        close("quadratic along the top eigenvector: equality", change, bound),
        figure=Panel(
            "learning rate × L",
            "change of h × L, over ‖∇h‖²",
            points=points,
            bounds={"the bound": (eta, -eta * (1 - eta / 2))},
        ),
    )


@erratum(
    "3.2-descent-step",
    title="The norm is that of the gradient, not of the function",
    printed=r"h(\theta_2) - h(\theta_1) \le -\eta \|\nabla h(\theta_1)\|^2 + \frac{L\eta^2}{2} "
    r"\|h(\theta_1)\|^2",
    corrected=r"h(\theta_2) - h(\theta_1) \le -\eta \|\nabla h(\theta_1)\|^2 "
    r"+ \frac{L\eta^2}{2} \|\nabla h(\theta_1)\|^2",
    of=("train.descend",),
    slip=True,
)
def descent_step_printed(rng):
    r"""One line of the derivation has $\|h(\theta_1)\|^2$ for $\|\nabla h(\theta_1)\|^2$, with the
    index outside the bracket; the next line is right. A quadratic, shifted by a constant so that
    $h(\theta_1) = 0$, would then have to decrease by $\eta\|\nabla h\|^2$; it decreases by less."""
    bowl = quadratic(spectrum(rng, [0.5, 1.0, 2.0]))
    start = rng.normal(size=3)
    etas = rng.uniform(0.1, 2, size=200) / bowl.L
    offset = bowl.value(start)
    lowered = bowl._replace(
        objective=lambda theta, batch=None, key=None: bowl.objective(theta, batch) - offset,
        value=lambda theta: bowl.value(theta) - offset,
    )
    theta = np.tile(start, (200, 1))
    change, size = one_step(lowered, theta, etas)
    start_value = lowered.value(theta)
    bound = lambda last: -etas * size**2 + bowl.L * etas**2 / 2 * last**2
    return Verdict(
        close("value at the start", start_value, 0.0),
        at_most("change of h in 200 steps", change, bound(size), slack=1e-12),
        printed=[at_most("change of h in 200 steps", change, bound(start_value), slack=1e-12)],
    )


@claim(
    "3.2-step-2-over-L",
    title="The largest learning rate that decreases the loss",
    kind="theorem",
    of=("train.descend", "explain.smoothness"),
)
def two_over_l(key, rng):
    r"""If $0 < \eta < 2/L$ and $\nabla h \ne 0$, a step strictly decreases $h$; beyond $2/L$ it
    need not. On a quadratic, along the eigenvector of the largest eigenvalue, $\eta = 2/L$
    oscillates at constant $h$.
    """
    bowl = quadratic(spectrum(rng, [0.2, 1.0, 3.0]))
    smoothness = explain.smoothness(bowl.objective, jnp.asarray(bowl.sharpest)[None], None, key=key)
    path = {
        f: bowl.value(
            descent(bowl.objective, optax.sgd(f * smoothness.max_learning_rate), bowl.sharpest, 40)
        )
        for f in (0.995, 1, 1.005)
    }
    t = np.arange(41)
    return Verdict(
        close(
            "2 / L from Hessian-vector products",
            smoothness.max_learning_rate,
            2 / bowl.L,
            tolerance=1e-9,
        ),
        at_most("η = 1.99/L: h decreases", np.diff(path[0.995]), -1e-6),
        close("η = 2/L: h is constant", path[1], path[1][0], tolerance=1e-10),
        at_least("η = 2.01/L: h increases", np.diff(path[1.005]), 1e-6),
        figure=Panel("step", "h", lines={f"η = {2 * f:g}/L": (t, h) for f, h in path.items()}),
    )


@claim(
    "3.2-sufficient-decrease", title="Sufficient decrease", kind="theorem", of=("train.descend",)
)
def sufficient(rng):
    r"""With $\eta = 1/L$, which minimises the bound on a step,
    $h(\theta_{t+1}) \le h(\theta_t) - \frac{1}{2L} \|\nabla h(\theta_t)\|^2$ at every step, whether
    $h$ is convex or not.
    """
    checks = []
    for name, problem in {"logistic": logistic(rng), "log(1 + θ²), not convex": hills()}.items():
        path = descent(
            problem.objective, optax.sgd(1 / problem.L), rng.normal(size=(20, problem.d)) * 4, 100
        )
        h = problem.value(path)
        square = np.sum(problem.gradient(path) ** 2, axis=-1)
        slack = h[:-1] - square[:-1] / (2 * problem.L) - h[1:]
        checks.append(at_least(f"{name}: slack over 20 runs of 100 steps", slack, 0.0, slack=1e-12))
        stricter = h[:-1] - 1.2 * square[:-1] / (2 * problem.L) - h[1:]
        if "not" in name:
            checks.append(
                refuted(
                    at_least(f"{name}: with 1.2 times the decrease", stricter, 0.0, slack=1e-12)
                )
            )
    rates = np.linspace(0.01, 1.99, 199)  # in units of 1/L
    worst = np.maximum(
        *(
            _worst_change(problem, rng, rates)
            for problem in (quadratic(spectrum(rng, [0.3, 1, 2.5])), hills())
        )
    )
    t = np.arange(100)
    return Verdict(
        *checks,
        close(
            "learning rate with the best worst case over the starts, × L",
            rates[np.argmin(worst)],
            1.0,
            tolerance=0.005,
        ),
        close(
            "worst-case change at that rate, × 2L / ‖∇h‖²", 2 * worst.min(), -1.0, tolerance=1e-6
        ),
        figure=Panel(
            "step",
            "decrease of log(1 + θ²)",
            log="y",
            lines={"measured": (t[:30], np.maximum(h[:30, 0] - h[1:31, 0], 1e-12))},
            bounds={"guaranteed": (t[:30], np.maximum(square[:30, 0] / (2 * problem.L), 1e-12))},
        ),
    )


def _worst_change(problem, rng, rates):
    r"""The worst case of one step over 50 starts, including the sharpest direction: the largest
    change of $h$ over $\|\nabla h\|^2$, in units of $1/L$, for each rate in the same units.
    """
    starts = np.concatenate([1e-3 * problem.sharpest[None], rng.normal(size=(49, problem.d)) * 2])
    theta = np.tile(starts, (len(rates), 1))
    etas = np.repeat(rates, 50) / problem.L
    change, _ = one_step(problem, theta, etas)
    return (
        (change * problem.L / np.sum(problem.gradient(theta) ** 2, axis=1))
        .reshape(-1, 50)
        .max(axis=1)
    )
