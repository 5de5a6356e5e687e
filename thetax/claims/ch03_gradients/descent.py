"""§3.2: gradient descent, the flow it follows, and what one step gains."""

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
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, refuted
from ..engine.claim import Verdict, claim, erratum
from .problems import descent, hills, logistic, quadratic, ripples, spectrum


@claim(
    "3.2-gd", title="Gradient descent", kind="algorithm", of=("train.descend",), cites="Cauchy 1847"
)
def gd(key):
    r"""$\theta^{t+1} = \theta^t - \eta \nabla h(\theta^t)$. On the quadratic
    $h = \frac12 \theta^\top H \theta$ this is $\theta^t = (I - \eta H)^t \theta^0$.
    """
    rng = chance(key)
    H = spectrum(rng, [0.1, 0.5, 1.0, 2.0])
    eta = 0.4
    start = rng.normal(size=4)
    found = descent(quadratic(H).objective, optax.sgd(eta), start, 60)
    powers = np.stack([np.linalg.matrix_power(np.eye(4) - eta * H, t) @ start for t in range(61)])
    uphill = np.stack([np.linalg.matrix_power(np.eye(4) + eta * H, t) @ start for t in range(61)])
    values, Q = np.linalg.eigh(H)
    along = np.abs(found @ Q)
    t = np.arange(61)
    return Verdict(
        close("the iterates, to t = 60", found, powers, tolerance=1e-10),
        refuted(close("with the other sign", found, uphill, tolerance=1e-10)),
        figure=Chart(
            Panel(
                "step",
                "distance along an eigenvector",
                lines={f"λ = {v:.2g}": (t, along[:, i]) for i, v in enumerate(values)},
                log="y",
            )
        ),
    )


@claim(
    "3.2-gradient-flow",
    title="Gradient flow",
    kind="definition",
    of=("train.gradient_flow", "train.descend"),
    cites="Kidger 2021 (Diffrax)",
)
def flow(key):
    r"""$\dot\theta = -\nabla h(\theta)$, along which $\dot h = -\|\nabla h\|^2$. Gradient descent
    is its Euler method with step $\eta$: at a fixed time the two differ by $O(\eta)$. For a
    quadratic the flow is $e^{-Ht}\theta_0$.
    """
    rng = chance(key)
    H = spectrum(rng, [0.5, 1.0, 2.0])
    start = rng.normal(size=3)
    times = np.linspace(0.01, 3, 300)
    bowl = quadratic(H)
    rough = hills(3)
    begin = 2 * rng.normal(size=3)
    both = lambda theta, batch: batch[0] * bowl.objective(theta) + batch[1] * rough.objective(theta)
    flow = lambda start, *parts: train.gradient_flow(
        both, jnp.asarray(start), jnp.array(parts), times=times, tolerance=1e-10
    )
    found = flow(start, 1.0, 0.0)
    way = flow(begin, 0.0, 1.0)
    exact = np.stack([expm(-H * t) @ start for t in times])
    ode = {"rtol": 1e-11, "atol": 1e-12, "method": "DOP853"}
    other = solve_ivp(lambda t, th: -bowl.gradient(th), (0, 3), start, t_eval=times, **ode).y.T
    etas = np.array([0.1, 0.05, 0.025, 0.01])
    at_one = expm(-H) @ start
    walk = lambda eta: descent(bowl.objective, optax.sgd(eta), start, round(1 / eta))
    error = [np.linalg.norm(walk(eta)[-1] - at_one) for eta in etas]
    h = np.asarray(way.losses)
    slope = (h[2:] - h[:-2]) / (times[2:] - times[:-2])
    sizes = np.linalg.norm(rough.gradient(np.asarray(way.models)), axis=1)
    squares = sizes[1:-1] ** 2
    power = lambda eta, t: np.linalg.matrix_power(np.eye(3) - eta * H, t)
    coarse = lambda eta: np.stack([power(eta, t) @ start for t in range(round(3 / eta) + 1)])
    return Verdict(
        close("against exp(−Ht) θ₀", found.models, exact, tolerance=1e-8),
        close("against scipy's solve_ivp", found.models, other, tolerance=1e-8),
        close(
            "error of descent at t = 1, each over the next",
            np.divide(error[:2], error[1:3]),
            2.0,
            tolerance=0.1,
            method="trend",
        ),
        at_most("the loss rises by", np.diff(h), 0.0, slack=1e-10),
        close(
            "dh/dt, against −‖∇h‖²",
            slope,
            -squares,
            tolerance=2e-3,
            relative=True,
            method="finite differences",
        ),
        refuted(
            close("dh/dt, against −‖∇h‖", slope, -np.sqrt(squares), tolerance=2e-3, relative=True)
        ),
        close("‖∇h‖ as reported along the flow", way.gradients, sizes, tolerance=1e-12),
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
                "rate η",
                "error at t = 1",
                points={"measured": (etas, error)},
                bounds={"slope 1": (etas, error[0] * etas / etas[0])},
                log="xy",
            ),
        ),
    )


@claim(
    "3.2-init-dependence",
    title="Where descent ends depends on where it begins",
    kind="experiment",
    of=("train.descend", "train.restarts"),
)
def beginnings(key):
    r"""From different $\theta_0$ descent reaches different stationary points, $\nabla h = 0$. For
    $h = \frac14 (\theta^2 - 1)^2$ the sign of $\theta_0$ decides between $\pm 1$, and 0 stays where
    it is; a small network comes to rest at different losses.
    """
    starts = np.array([-2.0, -1.2, -0.5, -0.01, 0.0, 0.01, 0.7, 1.0, 1.9])[:, None]
    double = lambda theta, batch=None, key=None: jnp.square(jnp.square(theta) - 1).sum() / 4
    path = descent(double, optax.sgd(0.1), starts, 400)[:, :, 0]
    slope = path[-1] ** 3 - path[-1]
    nets = layers.Ensemble.init(partial(models.MLP.init, 1, 2, 1), 20, key=key)
    xs = jnp.linspace(-1, 1, 21)[:, None]
    data = xs, jnp.abs(xs[:, 0])
    each = train.restarts(
        train.descend(lambda model, batch, key: train.squared_error(model, data), optax.sgd(0.1))
    )
    seen = jax.jit(lambda nets: run(each, nets, jnp.zeros(30_000), key=key)[1][1])(nets)
    loss = np.asarray(seen.loss)
    length = np.asarray(seen.gradient)
    rest = np.argmin(length, axis=0), np.arange(20)  # where each network's gradient is shortest
    shown = np.unique(np.geomspace(1, 30_000, 300).astype(int))
    order = np.argsort(loss[rest])
    ends = 1 + int((np.diff(np.sort(loss[rest])) > 0.01).sum())
    return Verdict(
        close("limits", path[-1], np.sign(starts[:, 0]), tolerance=1e-8),
        at_most("‖∇h‖ there", np.abs(slope), 1e-8),
        at_least("losses at which 20 networks rest, 0.01 apart", ends, 2),
        at_most("length of their gradients there", length[rest], 0.001),
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
                    f"start {i}": (shown, np.maximum(loss[shown - 1, i], 1e-6))
                    for i in order[[0, 10, 19]]
                },
            ),
        ),
    )


def steps(problem, theta, etas):
    r"""$h(\theta - \eta\nabla h(\theta)) - h(\theta)$ for many $\theta$ and rates: one step of the
    library's descent each.
    """

    def once(theta, eta):
        iteration = train.descend(problem.objective, optax.sgd(eta))
        state, info = iteration.step(iteration.init(theta), jnp.zeros(()), key=jr.key(0))
        return state.model, info.gradient

    ends, sizes = jax.jit(jax.vmap(once))(jnp.asarray(theta), jnp.asarray(etas))
    return problem.value(np.asarray(ends)) - problem.value(theta), np.asarray(sizes)


@claim("3.2-descent-step", title="What one step gains", kind="theorem", of=("train.descend",))
def descent_step(key):
    r"""A step of descent on an $L$-smooth $h$ changes it by
    $h(\theta_2) - h(\theta_1) \le -\eta \big(1 - \frac{L\eta}{2}\big) \|\nabla h(\theta_1)\|^2$,
    with equality for a quadratic along the eigenvector that bends most.
    """
    rng = chance(key)
    checks = []
    points = {}
    for name, problem in {
        "logistic": logistic(rng),
        "log(1 + θ²)": hills(),
        "θ² + 3 sin²θ": ripples(),
    }.items():
        theta = rng.normal(size=(10_000, problem.d)) * 2
        etas = rng.uniform(0, 2 / problem.L, size=10_000)
        change, _ = steps(problem, theta, etas)
        square = np.sum(problem.gradient(theta) ** 2, axis=1)
        bound = -etas * (1 - problem.L * etas / 2) * square
        checks.append(at_most(f"{name}: the change in 10,000 steps", change, bound, slack=1e-12))
        points[name] = (etas[:150] * problem.L, (change / square)[:150] * problem.L)
    bowl = quadratic(spectrum(rng, [0.3, 1.0, 2.5]))
    etas = np.linspace(0.01, 2, 50) / bowl.L
    theta = np.tile(1.7 * bowl.worst, (50, 1))
    change, size = steps(bowl, theta, etas)
    bound = -etas * (1 - bowl.L * etas / 2) * size**2
    eta = np.linspace(0, 2, 101)
    return Verdict(
        *checks,
        close("quadratic along the top eigenvector: equality", change, bound, tolerance=1e-12),
        figure=Chart(
            Panel(
                "rate × L",
                "change of h × L, over ‖∇h‖²",
                points=points,
                bounds={"the bound": (eta, -eta * (1 - eta / 2))},
            ),
        ),
    )


@erratum(
    "3.2-descent-step",
    title="The gradient's norm, not the function's",
    printed=r"h(\theta_2) - h(\theta_1) \le -\eta \|\nabla h(\theta_1)\|^2 + \frac{L\eta^2}{2} "
    r"\|h(\theta_1)\|^2",
    corrected=r"h(\theta_2) - h(\theta_1) \le -\eta \|\nabla h(\theta_1)\|^2 "
    r"+ \frac{L\eta^2}{2} \|\nabla h(\theta_1)\|^2",
    of=("train.descend",),
    slip=True,
)
def descent_step_printed(key):
    r"""One line of the derivation has $\|h(\theta_1)\|^2$ for $\|\nabla h(\theta_1)\|^2$, with the
    index outside the bracket; the next line is right. A quadratic, lowered by a constant so that
    $h(\theta_1) = 0$, would then have to fall by $\eta\|\nabla h\|^2$; it falls by less."""
    rng = chance(key)
    bowl = quadratic(spectrum(rng, [0.5, 1.0, 2.0]))
    start = rng.normal(size=3)
    etas = rng.uniform(0.1, 2, size=200) / bowl.L
    by = bowl.value(start)
    lowered = bowl._replace(
        objective=lambda theta, batch=None, key=None: bowl.objective(theta, batch) - by,
        value=lambda theta: bowl.value(theta) - by,
    )
    theta = np.tile(start, (200, 1))
    change, size = steps(lowered, theta, etas)
    height = lowered.value(theta)
    bound = lambda last: -etas * size**2 + bowl.L * etas**2 / 2 * last**2
    return Verdict(
        close("the height of the start", height, 0.0, tolerance=1e-12),
        at_most("the change in 200 steps", change, bound(size), slack=1e-12),
        printed=[at_most("the change in 200 steps", change, bound(height), slack=1e-12)],
    )


@claim(
    "3.2-step-2-over-L",
    title="The largest rate",
    kind="theorem",
    of=("train.descend", "explain.smoothness"),
)
def two_over_l(key):
    r"""If $0 < \eta < 2/L$ and $\nabla h \ne 0$, a step strictly decreases $h$; beyond $2/L$ it
    need not. On a quadratic, along the eigenvector that bends most, $\eta = 2/L$ jumps to and fro
    at the same height.
    """
    bowl = quadratic(spectrum(chance(key), [0.2, 1.0, 3.0]))
    seen = explain.smoothness(bowl.objective, jnp.asarray(bowl.worst)[None], None, key=key)
    path = {
        f: bowl.value(descent(bowl.objective, optax.sgd(f * seen.rate), bowl.worst, 40))
        for f in (0.995, 1, 1.005)
    }
    t = np.arange(41)
    return Verdict(
        close("2 / L from Hessian-vector products", seen.rate, 2 / bowl.L, tolerance=1e-9),
        at_most("η = 1.99/L: h falls", np.diff(path[0.995]), -1e-6),
        close("η = 2/L: h stays", path[1], path[1][0], tolerance=1e-10),
        at_least("η = 2.01/L: h rises", np.diff(path[1.005]), 1e-6),
        figure=Chart(
            Panel("step", "h", lines={f"η = {2 * f:g}/L": (t, h) for f, h in path.items()})
        ),
    )


@claim(
    "3.2-sufficient-decrease", title="Sufficient decrease", kind="theorem", of=("train.descend",)
)
def sufficient(key):
    r"""With $\eta = 1/L$, which makes the bound on a step as small as it can be,
    $h(\theta_{t+1}) \le h(\theta_t) - \frac{1}{2L} \|\nabla h(\theta_t)\|^2$ at every step, convex
    or not.
    """
    rng = chance(key)
    checks = []
    for name, problem in {"logistic": logistic(rng), "log(1 + θ²), not convex": hills()}.items():
        path = descent(
            problem.objective, optax.sgd(1 / problem.L), rng.normal(size=(20, problem.d)) * 4, 100
        )
        h = problem.value(path)
        square = np.sum(problem.gradient(path) ** 2, axis=-1)
        slack = h[:-1] - square[:-1] / (2 * problem.L) - h[1:]
        checks.append(at_least(f"{name}: slack over 20 runs of 100 steps", slack, 0.0, slack=1e-12))
        more = h[:-1] - 1.2 * square[:-1] / (2 * problem.L) - h[1:]
        if "not" in name:
            checks.append(
                refuted(at_least(f"{name}: with 1.2 times the decrease", more, 0.0, slack=1e-12))
            )
    rates = np.linspace(0.01, 1.99, 199)  # in units of 1/L
    worst = np.maximum(
        *(
            _worst(problem, rng, rates)
            for problem in (quadratic(spectrum(rng, [0.3, 1, 2.5])), hills())
        )
    )
    t = np.arange(100)
    return Verdict(
        *checks,
        close(
            "the rate whose worst step of all starts is best, × L",
            rates[np.argmin(worst)],
            1.0,
            tolerance=0.005,
        ),
        close("what that step gains, × 2L / ‖∇h‖²", 2 * worst.min(), -1.0, tolerance=1e-6),
        figure=Chart(
            Panel(
                "step",
                "decrease of log(1 + θ²)",
                log="y",
                lines={"measured": (t[:30], np.maximum(h[:30, 0] - h[1:31, 0], 1e-12))},
                bounds={
                    "guaranteed": (t[:30], np.maximum(square[:30, 0] / (2 * problem.L), 1e-12))
                },
            ),
        ),
    )


def _worst(problem, rng, rates):
    r"""The least that a step gains from 50 starts, the worst direction among them: the largest
    change of $h$ over $\|\nabla h\|^2$, in units of $1/L$, by the rate in the same units.
    """
    starts = np.concatenate([1e-3 * problem.worst[None], rng.normal(size=(49, problem.d)) * 2])
    theta = np.tile(starts, (len(rates), 1))
    etas = np.repeat(rates, 50) / problem.L
    change, _ = steps(problem, theta, etas)
    return (
        (change * problem.L / np.sum(problem.gradient(theta) ** 2, axis=1))
        .reshape(-1, 50)
        .max(axis=1)
    )
