r"""Small test functions for the theorems of the chapter, each in JAX for the library and in NumPy
as a reference.

- `quadratic`: $h(\theta) = \frac12 \theta^\top H \theta$, $L = \lambda_{\max}(H)$, $\mu =
\lambda_{\min}(H)$ - `least_squares`: $h(\theta) = \frac12 \|X\theta - y\|^2$, $L =
\lambda_{\max}(X^\top X)$, $\mu$ the smallest non-zero eigenvalue of $X^\top X$ - `logistic`:
$h(\theta) = \frac1n \sum_i \log(1 + e^{-y_i x_i^\top \theta})$, $L = \lambda_{\max}(X^\top X) / 4n$
- `hills`: $h(\theta) = \sum_i \log(1 + \theta_i^2)$, $L = 2$ - `ripples`: $h(\theta) = \theta^2 + 3
\sin^2 \theta$, $L = 8$, $\mu = 1/32$
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import train
from ...core import Objective, iterate


class Problem(NamedTuple):
    r"""A function of $\theta \in \mathbb{R}^d$ in JAX; in NumPy, with its gradient, over any
    leading axes; its constants.
    """

    objective: Objective
    value: Callable[[np.ndarray], np.ndarray]
    gradient: Callable[[np.ndarray], np.ndarray]
    d: int
    L: float
    mu: float = 0.0
    min_value: float = 0.0
    sharpest: np.ndarray = np.zeros(0)  # the direction of largest curvature at the origin


def quadratic(H: np.ndarray) -> Problem:
    r"""$\frac12 \theta^\top H \theta$."""
    values, vectors = np.linalg.eigh(H)
    A = jnp.asarray(H)
    return Problem(
        lambda theta, batch=None, key=None: theta @ A @ theta / 2,
        lambda theta: np.einsum("...i,ij,...j->...", theta, H, theta) / 2,
        lambda theta: theta @ H,
        len(H),
        values[-1],
        values[0],
        0.0,
        vectors[:, -1],
    )


def spectrum(rng: np.random.Generator, values: Any) -> np.ndarray:
    """A symmetric matrix with the given eigenvalues, in a random basis."""
    Q, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    return Q * np.asarray(values, float) @ Q.T


def least_squares(
    rng: np.random.Generator, n: int = 12, d: int = 4, rank: int | None = None
) -> Problem:
    r"""$\frac12 \|X\theta - y\|^2$ of random data, of the given rank (full by default)."""
    X = rng.normal(size=(n, d))
    y = rng.normal(size=n)
    X = X if rank is None else X @ (Q := np.linalg.qr(rng.normal(size=(d, rank)))[0]) @ Q.T
    values, vectors = np.linalg.eigh(X.T @ X)
    A = jnp.asarray(X)
    b = jnp.asarray(y)
    best = np.linalg.lstsq(X, y, rcond=1e-10)[0]
    return Problem(
        lambda theta, batch=None, key=None: jnp.square(A @ theta - b).sum() / 2,
        lambda theta: np.square(theta @ X.T - y).sum(axis=-1) / 2,
        lambda theta: (theta @ X.T - y) @ X,
        d,
        values[-1],
        values[values > 1e-8][0],
        float(np.square(X @ best - y).sum() / 2),
        vectors[:, -1],
    )


def logistic(rng: np.random.Generator, n: int = 20, d: int = 3) -> Problem:
    r"""$\frac1n \sum_i \log(1 + e^{-y_i x_i^\top \theta})$ of random data."""
    X = rng.normal(size=(n, d)) * rng.choice([-1, 1], size=(n, 1))  # the rows are y x
    values, vectors = np.linalg.eigh(X.T @ X / (4 * n))
    A = jnp.asarray(X)
    return Problem(
        lambda theta, batch=None, key=None: jax.nn.softplus(-A @ theta).mean(),
        lambda theta: np.logaddexp(0, -theta @ X.T).mean(axis=-1),
        lambda theta: -(1 / (1 + np.exp(theta @ X.T))) @ X / n,
        d,
        values[-1],
        sharpest=vectors[:, -1],
    )


def hills(d: int = 3) -> Problem:
    r"""$\sum_i \log(1 + \theta_i^2)$, smooth and not convex."""
    return Problem(
        lambda theta, batch=None, key=None: jnp.log1p(jnp.square(theta)).sum(),
        lambda theta: np.log1p(theta**2).sum(axis=-1),
        lambda theta: 2 * theta / (1 + theta**2),
        d,
        2.0,
        sharpest=np.eye(d)[0],
    )


def ripples() -> Problem:
    r"""$\theta^2 + 3 \sin^2 \theta$, not convex, but a PL function."""
    return Problem(
        lambda theta, batch=None, key=None: (
            jnp.square(theta) + 3 * jnp.square(jnp.sin(theta))
        ).sum(),
        lambda theta: (theta**2 + 3 * np.sin(theta) ** 2).sum(axis=-1),
        lambda theta: 2 * theta + 3 * np.sin(2 * theta),
        1,
        8.0,
        1 / 32,
        sharpest=np.ones(1),
    )


def descent(
    objective: Objective, optimiser: Any, start: Any, steps: int, *, record: Any = None
) -> np.ndarray:
    r"""$\theta_0, \dots, \theta_T$ of `train.descend` from one start, or from each of several."""
    iteration = train.descend(objective, optimiser)
    record = record or train.nesterov_iterate

    def run_one(start):
        return iterate(iteration, start, steps, record=record)[1][0]

    start = jnp.asarray(start, float)
    path = run_one(start) if start.ndim == 1 else jax.vmap(run_one, out_axes=1)(start)
    return np.concatenate([np.asarray(start)[None], np.asarray(path)])
