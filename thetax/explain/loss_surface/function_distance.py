r"""Uniform distance of two functions on a box, and best uniform approximation from a
finite-dimensional space (§2.5).

$d_K(f, g) = \sup_{x \in K} |f(x) - g(x)|$ and $d_K(f, G) = \inf_{g \in G} d_K(f, g)$. The supremum
is computed on a grid, with a bound on the error of that; the infimum over a span is a linear
programme.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

Function = Callable[..., Any]  # of one point, of the shape of the corners of the box
Corner = float | Float[np.ndarray, " d"] | Float[jax.Array, " d"]


@dataclass(frozen=True)
class UniformDistance:
    """The largest difference on the grid; the supremum is between `value` and `value + margin`."""

    value: float
    margin: float
    point: Float[np.ndarray, "*d"]  # the grid point of the largest difference
    lipschitz: float


def uniform_distance(
    f: Function,
    g: Function,
    *,
    low: Corner,
    high: Corner,
    n_points: int = 1001,
    lipschitz: float | None = None,
) -> UniformDistance:
    r"""$d_K(f, g)$ on the box $K = [a, b]$, with `n_points` grid points along each axis (§2.5).

    If $f - g$ has the Lipschitz constant $L$ and a grid cell has the diagonal $2\rho$, the supremum
    exceeds the maximum on the grid by at most $L\rho$. Without `lipschitz`, the largest slope on
    the grid is used for $L$, and the margin is an estimate. The functions map one point, a scalar
    if the corners are scalars; a model is such a function.

    >>> result = uniform_distance(jnp.sin, jnp.cos, low=0.0, high=2 * np.pi, lipschitz=2.0)
    >>> abs(result.value - 2**0.5) <= result.margin < 0.01
    True
    """
    grid, half_diagonal = _grid("uniform_distance", low, high, n_points)
    difference = lambda x: jnp.ravel(f(x)) - jnp.ravel(g(x))
    gaps = np.asarray(jax.vmap(lambda x: jnp.abs(difference(x)).max())(grid), np.float64)
    if lipschitz is None:
        slopes = jax.vmap(jax.jacobian(difference))(grid)
        lipschitz = float(jnp.linalg.norm(slopes.reshape(*slopes.shape[:2], -1), axis=2).max())
    worst = int(np.nanargmax(gaps)) if not np.isnan(gaps).any() else int(np.isnan(gaps).argmax())
    return UniformDistance(
        float(gaps[worst]), lipschitz * half_diagonal, np.asarray(grid[worst]), lipschitz
    )


@dataclass(frozen=True)
class MinimaxApproximation:
    r"""The best uniform approximation from a span: its distance and coefficients, and the target
    and the approximation on the grid.
    """

    value: float
    coefficients: Float[np.ndarray, " k"]
    grid: Float[np.ndarray, "n *d"]
    target: Float[np.ndarray, " n"]
    approximation: Float[np.ndarray, " n"]


def minimax_approximation(
    f: Function, basis: Function, *, low: Corner, high: Corner, n_points: int = 401
) -> MinimaxApproximation:
    r"""The best approximation in the uniform norm from $G = \{\sum_j c_j \varphi_j\}$, at distance
    $d_K(f, G)$ (§2.5).

    Linear programming: $\min_{c, t} t$ such that $-t \le f(x_i) - \sum_j c_j \varphi_j(x_i) \le t$
    on a grid. The value is at most $d_K(f, G)$, and converges to it as the grid is refined. `basis`
    maps a point to $(\varphi_1, \dots, \varphi_k)$.

    >>> result = minimax_approximation(
    ...     lambda x: x**2, lambda x: jnp.stack([jnp.ones_like(x), x]), low=-1.0, high=1.0
    ... )
    >>> # Chebyshev: x² − ½ on [−1, 1]
    >>> round(result.value, 6), result.coefficients[:1].round(6).tolist()
    (0.5, [0.5])
    """
    grid, _ = _grid("minimax_approximation", low, high, n_points)
    y = np.asarray(jax.vmap(lambda x: jnp.ravel(f(x)))(grid), np.float64)
    Phi = np.asarray(jax.vmap(basis)(grid), np.float64)
    if y.shape[1:] != (1,) or Phi.ndim != 2:
        raise ValueError(
            "minimax_approximation: f must map a point to a scalar and basis to a vector; got "
            f"shapes {y.shape[1:]} and {Phi.shape[1:]}."
        )
    y, slack = y[:, 0], -np.ones((len(y), 1))
    A = np.block([[Phi, slack], [-Phi, slack]])
    cost = np.append(np.zeros(Phi.shape[1]), 1.0)
    bounds = [(None, None)] * Phi.shape[1] + [(0, None)]
    solution = linprog(cost, A_ub=A, b_ub=np.concatenate([y, -y]), bounds=bounds, method="highs")
    if solution.status != 0:
        raise ValueError(
            "minimax_approximation: the linear programme was not solved; use fewer basis "
            f"functions. Its message: {solution.message}"
        )
    c = solution.x[:-1]
    return MinimaxApproximation(float(solution.x[-1]), c, np.asarray(grid, np.float64), y, Phi @ c)


def _grid(name: str, low: Corner, high: Corner, n_points: int) -> tuple[jax.Array, float]:
    """The grid points as rows (as scalars on an interval), and half the diagonal of a cell."""
    a = np.asarray(low, np.float64)
    b = np.asarray(high, np.float64)
    if a.shape != b.shape or a.ndim > 1 or not (a < b).all() or n_points < 2:
        raise ValueError(
            f"{name}: low and high must have the same shape, with low < high, and n_points must be "
            f">= 2; got low={a.tolist()}, high={b.tolist()}, n_points={n_points}."
        )
    if a.size * n_points**a.size > 2e7:
        raise ValueError(
            f"{name}: a grid of {n_points}^{a.size} points is too large; use a smaller n_points."
        )
    axes = [np.linspace(x, y, n_points) for x, y in zip(a.reshape(-1), b.reshape(-1))]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    half_diagonal = float(np.linalg.norm((b - a) / (n_points - 1)) / 2)
    return jnp.asarray(grid.reshape(-1, *a.shape), jnp.zeros(()).dtype), half_diagonal
