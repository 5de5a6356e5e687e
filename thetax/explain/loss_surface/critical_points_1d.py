r"""Critical points of a function of one variable: minima, maxima and stationary inflection points.

$\theta$ is a local minimum if $h(\theta) \le h(\theta')$ for all $\theta'$ near it, and a global
minimum if for all $\theta'$ (§3 of the fundamentals). By this definition a point inside an interval
on which $h$ is constant is a local minimum, whatever $h$ does outside.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

Kind = Literal["global minimum", "local minimum", "maximum", "inflection"]
BISECTION_STEPS = 60
ZERO_TOLERANCE = 1e-9  # slopes up to this fraction of the largest on the grid count as 0


@dataclass(frozen=True)
class CriticalPoints:
    """The kind of each critical point, its position and the function's value there; and the
    function on the grid that was searched.
    """

    kinds: tuple[Kind, ...]
    points: Float[np.ndarray, " k"]
    values: Float[np.ndarray, " k"]
    grid: Float[np.ndarray, " n"]
    grid_values: Float[np.ndarray, " n"]

    @property
    def minima(self) -> Float[np.ndarray, " k"]:
        """The positions of the minima, local and global."""
        return self.points[[kind.endswith("minimum") for kind in self.kinds]]


def critical_points(
    h: Callable[[Any], Any], *, low: float, high: float, n_points: int = 1001
) -> CriticalPoints:
    r"""The zeros of $h'$ between `low` and `high`, classified by the signs of $h'$ on both sides.

    Zeros are bracketed on a grid of `n_points` and refined by bisection: zeros of $h'$ where it
    changes sign, and zeros of $h''$ where $h'$ touches 0 without changing sign. An interval on
    which $h'$ is 0 counts once, at its midpoint. Two zeros within one grid cell are missed. A
    minimum is global if $h$ is nowhere lower on the grid, including the ends of the interval.

    >>> result = critical_points(lambda t: t**4 / 4 - t**2 / 2 + t / 10, low=-2.0, high=2.0)
    >>> list(zip(result.kinds, result.points.round(2).tolist()))
    [('global minimum', -1.05), ('maximum', 0.1), ('local minimum', 0.95)]
    """
    if not (np.isfinite([low, high]).all() and low < high and n_points >= 3):
        raise ValueError(
            "critical_points: low must be below high, both finite, and n_points >= 3; got "
            f"low={low}, high={high} and n_points={n_points}."
        )
    grid = np.linspace(low, high, n_points)
    derivatives = _function_and_derivatives(h, jnp.asarray(grid))
    grid_values, slopes, curvatures = (np.asarray(a, np.float64) for a in derivatives)
    if not np.isfinite([grid_values, slopes, curvatures]).all():
        raise ValueError(
            "critical_points: the function or a derivative is not finite on the interval; use a "
            "smaller interval."
        )
    max_slope = ZERO_TOLERANCE * np.abs(slopes).max()
    signs = np.where(np.abs(slopes) <= max_slope, 0.0, np.sign(slopes))
    zeros = sorted(
        [
            *_sign_changes(h, grid, signs),
            *_double_zeros(h, grid, signs, curvatures, max_slope),
            *_flat_intervals(grid, signs, grid_values),
        ]
    )
    points = np.array([point for point, _, _ in zeros])
    values = np.zeros(0)
    if zeros:
        values = np.asarray(_function_and_derivatives(h, jnp.asarray(points))[0], np.float64)
    kinds: list[Kind] = [_kind(left, right) for _, left, right in zeros]
    lowest = grid_values.min() + ZERO_TOLERANCE * np.ptp(grid_values)
    is_global = lambda kind, value: kind == "local minimum" and value <= lowest
    kinds = [
        "global minimum" if is_global(kind, value) else kind for kind, value in zip(kinds, values)
    ]
    return CriticalPoints(tuple(kinds), points, values, grid, grid_values)


def _kind(left: float, right: float) -> Kind:
    """The kind of a zero of h', by the signs of h' to its left and right."""
    if left <= 0 <= right:
        return "local minimum"
    return "maximum" if left > 0 > right else "inflection"


@partial(jax.jit, static_argnames="h")
def _function_and_derivatives(h: Callable[[Any], Any], points: Any) -> tuple[Any, Any, Any]:
    """The function and its first two derivatives."""
    return tuple(jax.vmap(f)(points) for f in (h, jax.grad(h), jax.grad(jax.grad(h))))


def _sign_changes(h: Any, grid: np.ndarray, signs: np.ndarray) -> list[tuple[float, float, float]]:
    """Zeros at which h' changes sign: the point, and the signs of h' to its left and right."""
    (cell,) = np.nonzero(signs[:-1] * signs[1:] < 0)
    points = _zeros_in_cells(h, 1, grid, cell)
    return list(zip(points, signs[cell].tolist(), signs[cell + 1].tolist()))


def _double_zeros(
    h: Any, grid: Any, signs: Any, curvatures: Any, max_slope: float
) -> list[tuple[float, float, float]]:
    """Zeros at which h' touches 0 without changing sign."""
    (cell,) = np.nonzero((curvatures[:-1] * curvatures[1:] < 0) & (signs[:-1] * signs[1:] > 0))
    points = _zeros_in_cells(h, 2, grid, cell)
    slopes = np.abs(_function_and_derivatives(h, jnp.asarray(points))[1]) if points else []
    return [
        (point, signs[c], signs[c])
        for point, c, slope in zip(points, cell, slopes)
        if slope <= max_slope
    ]


def _flat_intervals(grid: Any, signs: Any, grid_values: Any) -> list[tuple[float, float, float]]:
    """Midpoints of runs of grid points with slope 0; where h is constant the signs are those of a
    minimum.
    """
    (edges,) = np.nonzero(np.diff(np.concatenate([[1.0], np.abs(signs), [1.0]])))
    neighbours = np.concatenate([[0.0], signs, [0.0]])
    zeros = []
    for a, b in zip(edges[::2], edges[1::2]):
        height = np.ptp(grid_values[a:b])
        constant = b - a >= 3 and height <= np.finfo(float).eps * np.ptp(grid_values)
        left, right = (-1.0, 1.0) if constant else (neighbours[a], neighbours[b + 1])
        zeros.append((float(grid[a:b].mean()), float(left), float(right)))
    return zeros


def _zeros_in_cells(h: Any, order: int, grid: np.ndarray, cell: np.ndarray) -> list[float]:
    """A zero of the derivative of the given order in each of the cells."""
    if not len(cell):
        return []
    low = jnp.asarray(grid[cell])
    high = jnp.asarray(grid[cell + 1])
    return np.asarray(_bisect(h, order, low, high), np.float64).tolist()


@partial(jax.jit, static_argnames=("h", "order"))
def _bisect(h: Any, order: int, low: Any, high: Any) -> Any:
    derivative = jax.vmap(jax.grad(h) if order == 1 else jax.grad(jax.grad(h)))
    increasing = derivative(high) > 0

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        above = (derivative(middle) > 0) == increasing
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    low, high = jax.lax.fori_loop(0, BISECTION_STEPS, halve, (low, high))
    return (low + high) / 2
