"""Lecture 10, exercise 4: the interpolant that gradient descent finds."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import minimize

from .... import layers, models, train
from ....core import run
from ....plot import Chart, Panel
from ...engine.check import at_least, at_most, close, close_derivative, refuted
from ...engine.claim import Verdict, claim
from ...engine.differences import jacobian

N, D = 4, 9


class System(NamedTuple):
    """An underdetermined system Ax = b, with its singular values, the projector onto row(A), and
    A⁺b by normal equations.
    """

    A: np.ndarray
    b: np.ndarray
    values: np.ndarray
    P: np.ndarray
    least: np.ndarray


def system(rng: np.random.Generator) -> System:
    """Four random equations in nine unknowns, with singular values from 1 to 2."""
    U, V = (np.linalg.qr(rng.normal(size=(size, N)))[0] for size in (N, D))
    values = np.linspace(2.0, 1.0, N)
    A = U * values @ V.T
    b = rng.normal(size=N)
    gram = np.linalg.inv(A @ A.T)
    return System(A, b, values, A.T @ gram @ A, A.T @ gram @ b)


@jax.jit
def descent(A: Any, b: Any, starts: Any, steps: Any, learning_rate: Any) -> Any:
    r"""The library's gradient descent on $\frac12 \|Ax - b\|^2$ from each start: all iterates,
    including the start.
    """
    risk = lambda model, batch, key: len(b) * train.squared_error(model, (A, b))
    iteration = train.descend(risk, optax.sgd(learning_rate))

    def walk(start):
        model = layers.Linear(start[None])
        iterates = run(
            iteration, model, steps, key=jax.random.key(0), record=lambda s: s.model.W[0]
        )[1][0]
        return jnp.concatenate([start[None], iterates])

    return jax.vmap(walk)(starts)


@claim(
    "L10-ex4a-decomposition",
    title="Row space and null space",
    kind="exercise",
    of=("models.minimum_norm",),
    cites="Penrose 1955",
)
def decomposition(rng):
    r"""Every $x$ is $x_{\mathrm{row}} + x_{\mathrm{null}}$ in a unique way, with
    $x_{\mathrm{row}} = A^+ A x$, the two orthogonal, so that
    $\|x\|^2 = \|x_{\mathrm{row}}\|^2 + \|x_{\mathrm{null}}\|^2$. Of the solutions of $Ax = b$ the
    shortest has no part in the null space.
    """
    A, b, _, P, _ = system(rng)
    xs = rng.normal(size=(200, D))
    part = jax.vmap(lambda x: models.minimum_norm(jnp.asarray(A), jnp.asarray(A) @ x))
    row = np.asarray(part(jnp.asarray(xs)))
    null = xs - row
    shortest = np.asarray(models.minimum_norm(jnp.asarray(A), jnp.asarray(b)))
    others = shortest + xs @ (np.eye(D) - P)
    return Verdict(
        close("x_row, against Aᵀ(AAᵀ)⁻¹A x", row, xs @ P),
        close("A x_null", null @ A.T, 0.0),
        close("x_row · x_null", (row * null).sum(axis=1), 0.0),
        close(
            "‖x_row‖² + ‖x_null‖²",
            (row**2).sum(axis=1) + (null**2).sum(axis=1),
            (xs**2).sum(axis=1),
        ),
        close(
            "the null part of x_row is 0",
            np.asarray(part(jnp.asarray(row))),
            row,
        ),
        close("A x of the shortest solution", A @ shortest, b),
        close("its null-space part", (np.eye(D) - P) @ shortest, 0.0),
        at_least(
            "lengths of 200 other solutions, over its own",
            np.linalg.norm(others, axis=1),
            np.linalg.norm(shortest) + 1e-6,
        ),
        assumptions=[close("A of the other solutions", others @ A.T, np.tile(b, (200, 1)))],
    )


@claim(
    "L10-ex4b-gradient-row",
    "L10-ex4c-iterates",
    title="Gradient descent from 0 stays in the row space",
    kind="exercise",
    of=("train.squared_error", "train.descend"),
)
def rows_only(rng):
    r"""$\nabla \frac12 \|Ax - b\|^2 = A^\top (Ax - b)$ is a combination of the rows of $A$, at
    every $x$. So all iterates from $x^{(0)} = 0$ lie in the row space.
    """
    A, b, values, P, _ = system(rng)
    off = np.eye(D) - P
    risk = lambda x: (
        N * train.squared_error(layers.Linear(x[None]), (jnp.asarray(A), jnp.asarray(b)))
    )
    places = rng.normal(size=(50, D)) * 3
    slopes = np.asarray(jax.vmap(jax.grad(risk))(jnp.asarray(places)))
    differences = np.stack([jacobian(risk, x) for x in places[:3]])
    starts = np.stack([np.zeros(D), rng.normal(size=D)])
    paths = np.asarray(descent(A, b, starts, jnp.zeros(1000), 1 / values[0] ** 2))
    return Verdict(
        close("∇R, against Aᵀ(Ax − b) at 50 points", slopes, (places @ A.T - b) @ A),
        close_derivative("by finite differences at 3 points", slopes[:3], differences),
        close("(I − P) ∇R", slopes @ off, 0.0),
        close("(I − P) x over 1,000 steps from 0", paths[0] @ off, 0.0),
        refuted(close("from another start", paths[1] @ off, 0.0)),
        close(
            "from another start, the invariant part (I − P) x⁽⁰⁾",
            paths[1] @ off,
            np.tile(starts[1] @ off, (1001, 1)),
        ),
    )


@claim(
    "L10-ex4d-min-norm",
    "L10-ex4e-nonzero",
    title="Gradient descent finds the interpolant nearest to its start",
    kind="exercise",
    of=("train.descend", "models.minimum_norm"),
    cites="Gunasekar et al. 2018",
)
def nearest(rng):
    r"""With $0 < \eta < 2 / \sigma_{\max}^2$ descent from 0 tends to
    $x^* = A^\top (A A^\top)^{-1} b = A^+ b$, the shortest solution, by a factor of
    $1 - \eta\sigma_{\min}^2$ per step for $\eta \le 1 / \sigma_{\max}^2$. From $x^{(0)}$ it tends
    to $x^* + (I - A^+ A) x^{(0)}$, the solution nearest to the start.
    """
    A, b, values, P, least = system(rng)
    starts = np.stack([np.zeros(D), *rng.normal(size=(3, D)) * 2])
    learning_rate = 1 / values[0] ** 2
    paths = np.asarray(descent(A, b, starts, jnp.zeros(400), learning_rate))
    fast = np.asarray(descent(A, b, starts, jnp.zeros(400), 1.9 / values[0] ** 2))[:, -1]
    wild = np.asarray(descent(A, b, starts, jnp.zeros(400), 2.1 / values[0] ** 2))[:, -1]
    ends = least + starts @ (np.eye(D) - P)
    A_ = jnp.asarray(A)
    b_ = jnp.asarray(b)
    by_library = np.stack(
        [models.minimum_norm(A_, b_, origin=jnp.asarray(start)) for start in starts]
    )
    bind = {"type": "eq", "fun": lambda x: A @ x - b, "jac": lambda x: A}
    projected = [
        minimize(
            lambda x, s=s: np.sum((x - s) ** 2),
            s,
            jac=lambda x, s=s: 2 * (x - s),
            constraints=bind,
            method="SLSQP",
            options={"ftol": 1e-15},
        ).x
        for s in starts
    ]
    distance = np.linalg.norm(paths - ends[:, None], axis=2)
    t = np.arange(401)
    bound = (1 - learning_rate * values[-1] ** 2) ** t * distance[:, :1]
    return Verdict(
        close(
            "from 0: the limit, against numpy's pinv",
            paths[0, -1],
            np.linalg.pinv(A) @ b,
            tolerance=1e-8,
        ),
        close("against lstsq", paths[0, -1], np.linalg.lstsq(A, b, rcond=None)[0], tolerance=1e-8),
        close("the library's minimum_norm, against Aᵀ(AAᵀ)⁻¹b", by_library[0], least),
        close(
            "from other starts: the limits, against x* + (I − P) x⁽⁰⁾",
            paths[:, -1],
            ends,
            tolerance=1e-10,
        ),
        close("by the library, with the start as origin", by_library, ends),
        close(
            "against the nearest solution by SLSQP",
            paths[:, -1],
            np.stack(projected),
            tolerance=1e-6,
        ),
        at_most(
            "distance to the limit over 60 steps, at most (1 − ησ²)ᵗ of the first",
            distance[:, :60],
            bound[:, :60],
            slack=1e-12,
        ),
        close(
            "ratio of successive distances late on",
            distance[:, 60] / distance[:, 59],
            1 - learning_rate * values[-1] ** 2,
            tolerance=1e-5,
        ),
        close("with η = 1.9/σ²", fast, ends, tolerance=1e-8),
        refuted(close("with η = 2.1/σ²", wild, ends, tolerance=1e-8)),
        figure=Chart(
            Panel(
                "step",
                "distance to the solution",
                log="y",
                lines={
                    f"from {name}": (t[:60], distance[i, :60])
                    for i, name in enumerate(["0", "elsewhere"])
                },
                bounds={"(1 − ησ²)ᵗ": (t[:60], bound[1, :60])},
            ),
            Panel(
                "step",
                "length of x",
                lines={
                    "from 0": (t[:40], np.linalg.norm(paths[0, :40], axis=1)),
                    "from another start": (t[:40], np.linalg.norm(paths[1, :40], axis=1)),
                },
                bounds={"length of A⁺b": (t[:40], np.full(40, np.linalg.norm(least)))},
            ),
        ),
    )
