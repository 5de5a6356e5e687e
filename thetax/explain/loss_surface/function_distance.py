r"""How far two functions are apart on a box, and how near a finite-dimensional space comes to one
(§2.5).

$d_K(f, g) = \sup_{x \in K} |f(x) - g(x)|$ and $d_K(f, G) = \inf_{g \in G} d_K(f, g)$. The supremum
is taken on a grid and told with the most it can miss; the infimum over a span is a linear
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

Function = Callable[..., Any]  # of one point, shaped as the corners of the box
Corner = float | Float[np.ndarray, " d"] | Float[jax.Array, " d"]


@dataclass(frozen=True)
class Distance:
    """The largest difference on the grid: the supremum lies between it and it plus the margin."""

    value: float
    margin: float
    at: Float[np.ndarray, "*d"]  # where it was found
    lipschitz: float


def distance(
    f: Function,
    g: Function,
    *,
    low: Corner,
    high: Corner,
    points: int = 1001,
    lipschitz: float | None = None,
) -> Distance:
    r"""$d_K(f, g)$ on the box $K = [a, b]$, with `points` grid points along each axis (§2.5).

    If $f - g$ has the Lipschitz constant $L$ and a cell of the grid the diagonal $2\rho$, the
    supremum is at most $L\rho$ above the maximum on the grid. Without $L$ the steepest slope on the
    grid stands in for it, and the margin is an estimate. The functions map one point, a number
    where the corners are numbers; a model is such a function.

    >>> found = distance(jnp.sin, jnp.cos, low=0.0, high=2 * np.pi, lipschitz=2.0)
    >>> abs(found.value - 2**0.5) <= found.margin < 0.01
    True
    """
    grid, half_diagonal = _grid("distance", low, high, points)
    gap = lambda x: jnp.abs(jnp.ravel(f(x)) - jnp.ravel(g(x))).max()
    gaps = np.asarray(jax.vmap(gap)(grid), np.float64)
    if lipschitz is None:
        slopes = jax.vmap(jax.jacobian(lambda x: jnp.ravel(f(x)) - jnp.ravel(g(x))))(grid)
        lipschitz = float(jnp.linalg.norm(slopes.reshape(*slopes.shape[:2], -1), axis=2).max())
    worst = int(np.nanargmax(gaps)) if not np.isnan(gaps).any() else int(np.isnan(gaps).argmax())
    return Distance(
        float(gaps[worst]), lipschitz * half_diagonal, np.asarray(grid[worst]), lipschitz
    )


@dataclass(frozen=True)
class Minimax:
    r"""The best uniform approximation from a span: its distance, its coefficients, and the two
    curves on the grid.
    """

    value: float
    coefficients: Float[np.ndarray, " k"]
    grid: Float[np.ndarray, "n *d"]
    target: Float[np.ndarray, " n"]
    approximation: Float[np.ndarray, " n"]


def minimax(
    f: Function, basis: Function, *, low: Corner, high: Corner, points: int = 401
) -> Minimax:
    r"""$d_K(f, G)$ for $G = \{\sum_j c_j \varphi_j\}$: the best approximation in the uniform norm
    (§2.5).

    $\min_{c, t} t$ such that $-t \le f(x_i) - \sum_j c_j \varphi_j(x_i) \le t$ on a grid, by linear
    programming. The value is at most $d_K(f, G)$, and reaches it as the grid grows fine. `basis`
    maps a point to $(\varphi_1, \dots, \varphi_k)$.

    >>> found = minimax(
    ...     lambda x: x**2, lambda x: jnp.stack([jnp.ones_like(x), x]), low=-1.0, high=1.0
    ... )
    >>> # Chebyshev: x² − ½ on [−1, 1]
    >>> round(found.value, 6), found.coefficients[:1].round(6).tolist()
    (0.5, [0.5])
    """
    grid, _ = _grid("minimax", low, high, points)
    y = np.asarray(jax.vmap(lambda x: jnp.ravel(f(x)))(grid), np.float64)
    Phi = np.asarray(jax.vmap(basis)(grid), np.float64)
    if y.shape[1:] != (1,) or Phi.ndim != 2:
        raise ValueError(
            f"minimax: f must map a point to a number and basis to a vector; got {y.shape[1:]} "
            f"and {Phi.shape[1:]}."
        )
    y, slack = y[:, 0], -np.ones((len(y), 1))
    A = np.block([[Phi, slack], [-Phi, slack]])
    cost = np.append(np.zeros(Phi.shape[1]), 1.0)
    bounds = [(None, None)] * Phi.shape[1] + [(0, None)]
    found = linprog(cost, A_ub=A, b_ub=np.concatenate([y, -y]), bounds=bounds, method="highs")
    if found.status != 0:
        raise ValueError(
            f"minimax: the linear programme was not solved ({found.message}); try fewer functions."
        )
    c = found.x[:-1]
    return Minimax(float(found.x[-1]), c, np.asarray(grid, np.float64), y, Phi @ c)


def _grid(name: str, low: Corner, high: Corner, points: int) -> tuple[jax.Array, float]:
    """The grid points as rows (numbers on an interval), and half the diagonal of a cell."""
    a = np.asarray(low, np.float64)
    b = np.asarray(high, np.float64)
    if a.shape != b.shape or a.ndim > 1 or not (a < b).all() or points < 2:
        raise ValueError(
            f"{name}: expected corners of one shape with low < high and at least 2 points; "
            f"got low={a.tolist()}, high={b.tolist()}, points={points}."
        )
    if a.size * points**a.size > 2e7:
        raise ValueError(
            f"{name}: a grid of {points}^{a.size} points is too large; take fewer points."
        )
    axes = [np.linspace(x, y, points) for x, y in zip(a.reshape(-1), b.reshape(-1))]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    half_diagonal = float(np.linalg.norm((b - a) / (points - 1)) / 2)
    return jnp.asarray(grid.reshape(-1, *a.shape), jnp.zeros(()).dtype), half_diagonal
