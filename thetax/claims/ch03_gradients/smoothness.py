"""§3.2: smoothness, by gradients and by the Hessian, and the second-order expansion."""

import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import brentq

from ... import explain
from ...plot import Panel
from ..engine.check import at_least, at_most, between, close, close_derivative, refuted
from ..engine.claim import Verdict, claim, erratum
from .problems import descent, hills, least_squares, logistic


def smooth_problems(rng):
    """Three smooth functions, the last not convex."""
    return {"least squares": least_squares(rng), "logistic": logistic(rng), "log(1 + θ²)": hills()}


@claim("3.2-smooth", title="Smoothness", kind="definition", of=("explain.gradient_lipschitz",))
def smooth(rng):
    r"""$h$ is $L$-smooth if
    $\|\nabla h(\theta_1) - \nabla h(\theta_2)\| \le L \|\theta_1 - \theta_2\|$. The least $L$ is
    $\lambda_{\max}(X^\top X)$ for least squares, $\lambda_{\max}(X^\top X)/4n$ for logistic
    regression, and 2 for $\log(1 + \theta^2)$.
    """
    checks = []
    for name, problem in smooth_problems(rng).items():
        a, b = rng.normal(size=(2, 10_001, problem.d)) * 3
        a[-1], b[-1] = 1e-3 * problem.sharpest, -1e-3 * problem.sharpest
        pairs = explain.gradient_lipschitz(problem.objective, jnp.asarray(a), jnp.asarray(b), None)
        distances = np.linalg.norm(a - b, axis=1)
        by_numpy = np.linalg.norm(problem.gradient(a) - problem.gradient(b), axis=1) / distances
        checks += [
            at_most(
                f"{name}: largest ratio of 10,001 pairs", pairs.constant, problem.L, slack=1e-12
            ),
            close(f"{name}: the ratios by NumPy", pairs.values, by_numpy, tolerance=1e-10),
            at_least(
                f"{name}: the last pair, along the sharpest direction",
                pairs.values[-1],
                0.95 * problem.L,
            ),
        ]
    return Verdict(*checks)


@claim(
    "3.2-smooth-hessian",
    title="Smoothness and the Hessian",
    kind="theorem",
    of=("explain.smoothness", "explain.gradient_lipschitz"),
)
def smooth_hessian(key, rng):
    r"""For $h$ twice continuously differentiable on a convex set, $h$ is $L$-smooth exactly if
    $\|\nabla^2 h(\theta)\|_2 \le L$ everywhere. Without second derivatives only the first condition
    is defined: $\frac12 (\theta)_+^2$ is 1-smooth and has no second derivative at 0.
    """
    checks = []
    side = np.linspace(-2, 2, 21)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for name, problem in {
        "least squares": least_squares(rng, d=2),
        "logistic": logistic(rng, d=2),
        "log(1 + θ²)": hills(2),
    }.items():
        curvature = explain.smoothness(problem.objective, jnp.asarray(grid), None, steps=2, key=key)
        shifted = grid + 1e-4 * problem.sharpest
        pairs = explain.gradient_lipschitz(
            problem.objective, jnp.asarray(grid), jnp.asarray(shifted), None
        )
        checks += [
            close(
                f"{name}: sup of the Hessian's norm",
                curvature.constant,
                problem.L,
                tolerance=0.02,
                relative=True,
            ),
            close(
                f"{name}: best Lipschitz constant",
                pairs.constant,
                curvature.constant,
                tolerance=0.02,
                relative=True,
                method="brute force",
            ),
        ]
    half_square = lambda theta, batch=None, key=None: jnp.square(jnp.maximum(theta, 0)).sum() / 2
    a, b = rng.normal(size=(2, 10_000, 1))
    kink = explain.gradient_lipschitz(half_square, jnp.asarray(a), jnp.asarray(b), None)
    value = lambda theta: np.maximum(theta, 0) ** 2 / 2
    e = 1e-4
    second_derivatives = [
        (value(s + e) - 2 * value(s) + value(s - e)) / e**2 for s in (-2 * e, 2 * e)
    ]
    return Verdict(
        *checks,
        between("½(θ)₊²: largest ratio", kink.constant, 0.999, 1 + 1e-12, method="brute force"),
        close_derivative(
            "½(θ)₊²: second derivative left and right of 0",
            second_derivatives,
            np.array([0.0, 1.0]),
            tolerance=1e-6,
        ),
    )


@claim("3.2-taylor", title="The second-order expansion", kind="identity", of=("explain.hvp",))
def taylor(rng):
    r"""With $\Delta = \theta_2 - \theta_1$ there is $\xi$ between them with
    $h(\theta_2) = h(\theta_1) + \nabla h(\theta_1)^\top \Delta + \frac12 \Delta^\top \nabla^2
    h(\xi) \Delta$;
    so for an $L$-smooth $h$,
    $h(\theta_2) \le h(\theta_1) + \nabla h(\theta_1)^\top \Delta + \frac L2 \|\Delta\|^2$.
    """
    checks = []
    for name, problem in smooth_problems(rng).items():
        a, b = rng.normal(size=(2, 10_000, problem.d)) * 3
        line = problem.value(a) + np.sum(problem.gradient(a) * (b - a), axis=1)
        bound = line + problem.L / 2 * np.sum((b - a) ** 2, axis=1)
        checks.append(
            at_most(f"{name}: h(θ₂) of 10,000 pairs", problem.value(b), bound, slack=1e-12)
        )
    start, end, defect = fourth_power_step(0.05)
    between_them = float(brentq(defect, end, start))  # type: ignore[arg-type]
    return Verdict(
        *checks,
        close("θ⁴: the expansion with the Hessian at ξ", defect(between_them), 0.0),
        between("θ⁴: position of ξ", between_them, end, start),
        refuted(at_most("least squares with L/2 instead of L", *_with_half_L(rng), slack=1e-12)),
        figure=_expansions(end),
    )


def _expansions(end: float) -> Panel:
    theta = np.linspace(0.5, 1.15, 100)
    second = lambda bend: 1 + 4 * (theta - 1) + bend / 2 * (theta - 1) ** 2
    return Panel(
        "θ",
        "value",
        lines={
            "h = θ⁴": (theta, theta**4),
            "with the Hessian at θ₁ = 1": (theta, second(12.0)),
        },
        points={"one step of descent": ([1.0, end], [1.0, end**4])},
        bounds={"L = 15.9 on this range: above h": (theta, second(12 * 1.15**2))},
    )


def fourth_power_step(eta: float):
    r"""The start 1 and the end of one step of descent on $\theta^4$, and the error of the expansion
    as a function of the point $\xi$ of the Hessian.
    """
    power = lambda theta, batch=None: (theta**4).sum()
    start = np.ones(1)
    end = descent(lambda theta, batch, key: power(theta), optax.sgd(eta), start, 1)[1]
    move = jnp.asarray(end - start)

    def defect(xi):
        bend = np.asarray(explain.hvp(power, jnp.array([xi]), None, move)) @ np.asarray(move)
        return float(end[0] ** 4 - 1 - 4 * (end[0] - 1) - bend / 2)

    return float(start[0]), float(end[0]), defect


def _with_half_L(rng):
    problem = least_squares(rng)
    a = rng.normal(size=(100, problem.d))
    b = a + problem.sharpest
    bound = problem.value(a) + problem.gradient(a) @ problem.sharpest + problem.L / 4
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
    with the Hessian at $\theta_1$ the printed equality gives $-0.5600$. It is exact for some $\xi$
    between the two.
    """
    start, end, defect = fourth_power_step(0.05)
    change = end**4 - start**4
    change_at = lambda xi: change - defect(xi)
    return Verdict(
        close("the change, with the Hessian at ξ", change_at(brentq(defect, end, start)), change),
        close("the change itself", change, -0.5904),
        close("the change that the Hessian at θ₁ gives", change_at(start), -0.56),
        printed=[close("the change, with the Hessian at θ₁", change_at(start), change)],
    )
