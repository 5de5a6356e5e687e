"""§3.2: smoothness, by gradients and by the Hessian, and the expansion it bounds."""

import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import brentq

from ... import explain
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, between, close, refuted
from ..engine.claim import Verdict, claim, erratum
from .problems import descent, hills, least_squares, logistic


def smooth_problems(rng):
    """Three smooth functions, the last not convex."""
    return {"least squares": least_squares(rng), "logistic": logistic(rng), "log(1 + θ²)": hills()}


@claim("3.2-smooth", title="Smoothness", kind="definition", of=("explain.lipschitz",))
def smooth(key):
    r"""$h$ is $L$-smooth if
    $\|\nabla h(\theta_1) - \nabla h(\theta_2)\| \le L \|\theta_1 - \theta_2\|$. The least $L$ is
    $\lambda_{\max}(X^\top X)$ for least squares, $\lambda_{\max}(X^\top X)/4n$ for logistic
    regression, and 2 for $\log(1 + \theta^2)$.
    """
    rng = chance(key)
    checks = []
    for name, problem in smooth_problems(rng).items():
        a, b = rng.normal(size=(2, 10_001, problem.d)) * 3
        a[-1], b[-1] = 1e-3 * problem.worst, -1e-3 * problem.worst
        found = explain.lipschitz(problem.objective, jnp.asarray(a), jnp.asarray(b), None)
        apart = np.linalg.norm(a - b, axis=1)
        by_numpy = np.linalg.norm(problem.gradient(a) - problem.gradient(b), axis=1) / apart
        checks += [
            at_most(
                f"{name}: largest ratio of 10,001 pairs", found.constant, problem.L, slack=1e-12
            ),
            close(f"{name}: the ratios by numpy", found.seen, by_numpy, tolerance=1e-10),
            at_least(
                f"{name}: the last, along the worst direction", found.seen[-1], 0.95 * problem.L
            ),
        ]
    return Verdict(*checks)


@claim(
    "3.2-smooth-hessian",
    title="Smoothness and the Hessian",
    kind="theorem",
    of=("explain.smoothness", "explain.lipschitz"),
)
def smooth_hessian(key):
    r"""For $h$ twice continuously differentiable on a convex set, $h$ is $L$-smooth exactly if
    $\|\nabla^2 h(\theta)\|_2 \le L$ everywhere. Without second derivatives only the first makes
    sense: $\frac12 (\theta)_+^2$ is 1-smooth and has none at 0.
    """
    rng = chance(key)
    checks = []
    side = np.linspace(-2, 2, 21)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for name, problem in {
        "least squares": least_squares(rng, d=2),
        "logistic": logistic(rng, d=2),
        "log(1 + θ²)": hills(2),
    }.items():
        bends = explain.smoothness(problem.objective, jnp.asarray(grid), None, steps=2, key=key)
        near = grid + 1e-4 * problem.worst
        pairs = explain.lipschitz(problem.objective, jnp.asarray(grid), jnp.asarray(near), None)
        checks += [
            close(
                f"{name}: sup of the Hessian's norm",
                bends.constant,
                problem.L,
                tolerance=0.02,
                relative=True,
            ),
            close(
                f"{name}: best Lipschitz constant",
                pairs.constant,
                bends.constant,
                tolerance=0.02,
                relative=True,
                method="brute force",
            ),
        ]
    half = lambda theta, batch=None, key=None: jnp.square(jnp.maximum(theta, 0)).sum() / 2
    a, b = rng.normal(size=(2, 10_000, 1))
    kink = explain.lipschitz(half, jnp.asarray(a), jnp.asarray(b), None)
    value = lambda theta: np.maximum(theta, 0) ** 2 / 2
    e = 1e-4
    second = [(value(s + e) - 2 * value(s) + value(s - e)) / e**2 for s in (-2 * e, 2 * e)]
    return Verdict(
        *checks,
        between("½(θ)₊²: largest ratio", kink.constant, 0.999, 1 + 1e-12, method="brute force"),
        close(
            "½(θ)₊²: second derivative just left and just right of 0",
            second,
            np.array([0.0, 1.0]),
            tolerance=1e-6,
            method="finite differences",
        ),
    )


@claim("3.2-taylor", title="The second-order expansion", kind="identity", of=("explain.hvp",))
def taylor(key):
    r"""With $\Delta = \theta_2 - \theta_1$ there is $\xi$ between them with
    $h(\theta_2) = h(\theta_1) + \nabla h(\theta_1)^\top \Delta + \frac12 \Delta^\top \nabla^2
    h(\xi) \Delta$;
    so for an $L$-smooth $h$,
    $h(\theta_2) \le h(\theta_1) + \nabla h(\theta_1)^\top \Delta + \frac L2 \|\Delta\|^2$.
    """
    rng = chance(key)
    checks = []
    for name, problem in smooth_problems(rng).items():
        a, b = rng.normal(size=(2, 10_000, problem.d)) * 3
        line = problem.value(a) + np.sum(problem.gradient(a) * (b - a), axis=1)
        bound = line + problem.L / 2 * np.sum((b - a) ** 2, axis=1)
        checks.append(
            at_most(f"{name}: h(θ₂) of 10,000 pairs", problem.value(b), bound, slack=1e-12)
        )
    start, end, off = fourth(0.05)
    between_them = float(brentq(off, end, start))  # type: ignore[arg-type]
    return Verdict(
        *checks,
        close("θ⁴: the expansion with the Hessian at ξ", off(between_them), 0.0, tolerance=1e-12),
        between("θ⁴: where ξ lies", between_them, end, start),
        refuted(at_most("least squares with L/2 for L", *_half(rng), slack=1e-12)),
        figure=_expansions(end),
    )


def _expansions(end: float) -> Chart:
    theta = np.linspace(0.5, 1.15, 100)
    second = lambda bend: 1 + 4 * (theta - 1) + bend / 2 * (theta - 1) ** 2
    return Chart(
        Panel(
            "θ",
            "value",
            lines={
                "h = θ⁴": (theta, theta**4),
                "with the Hessian at θ₁ = 1": (theta, second(12.0)),
            },
            points={"one step of descent": ([1.0, end], [1.0, end**4])},
            bounds={"L = 15.9 on this range: above h": (theta, second(12 * 1.15**2))},
        ),
    )


def fourth(eta: float):
    r"""One step of descent on $\theta^4$ from 1, and how far the expansion with the Hessian at
    $\xi$ misses it.
    """
    power = lambda theta, batch=None: (theta**4).sum()
    start = np.ones(1)
    end = descent(lambda theta, batch, key: power(theta), optax.sgd(eta), start, 1)[1]
    move = jnp.asarray(end - start)

    def off(xi):
        bend = np.asarray(explain.hvp(power, jnp.array([xi]), None, move)) @ np.asarray(move)
        return float(end[0] ** 4 - 1 - 4 * (end[0] - 1) - bend / 2)

    return float(start[0]), float(end[0]), off


def _half(rng):
    problem = least_squares(rng)
    a = rng.normal(size=(100, problem.d))
    b = a + problem.worst
    bound = problem.value(a) + problem.gradient(a) @ problem.worst + problem.L / 4
    return problem.value(b), bound


@erratum(
    "3.2-taylor",
    title="The expansion is exact only at an intermediate point",
    printed=r"h(\theta_2) - h(\theta_1) = \nabla h(\theta_1)^\top \Delta "
    r"+ \frac12 \Delta^\top \nabla^2 h(\theta_1) \Delta",
    corrected=r"h(\theta_2) - h(\theta_1) = \nabla h(\theta_1)^\top \Delta "
    r"+ \frac12 \Delta^\top \nabla^2 h(\xi) \Delta",
    of=("explain.hvp",),
)
def taylor_printed(key):
    r"""For $h = \theta^4$, one step of descent from 1 with $\eta = 0.05$ changes $h$ by $-0.5904$;
    with the Hessian at $\theta_1$ the printed equality gives $-0.5600$. Some $\xi$ between the two
    makes it exact.
    """
    start, end, off = fourth(0.05)
    change = end**4 - start**4
    gives = lambda xi: change - off(xi)
    return Verdict(
        close(
            "the change, with the Hessian at ξ",
            gives(brentq(off, end, start)),
            change,
            tolerance=1e-12,
        ),
        close("the change itself", change, -0.5904, tolerance=1e-12),
        close("what the Hessian at θ₁ gives", gives(start), -0.56, tolerance=1e-12),
        printed=[
            close("the change, with the Hessian at θ₁", gives(start), change, tolerance=1e-12)
        ],
    )
