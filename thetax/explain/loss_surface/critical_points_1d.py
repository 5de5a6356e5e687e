r"""Where a function of one number stands still: its minima, maxima and the places where it only
pauses.

$\theta$ is a local minimum if $h(\theta) \le h(\theta')$ for all $\theta'$ near it, and a global
one if for all (§3 of the fundamentals). So a point within a stretch on which $h$ is constant is
one, wherever the stretch leads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

Kind = Literal["global minimum", "local minimum", "maximum", "pause"]
HALVINGS = 60
FLAT = 1e-9  # a slope this small, beside the largest on the grid, is none


@dataclass(frozen=True)
class Critical:
    """Each critical point: what it is, where, and how high; and the function on the grid that was
    searched.
    """

    kinds: tuple[Kind, ...]
    places: Float[np.ndarray, " k"]
    values: Float[np.ndarray, " k"]
    grid: Float[np.ndarray, " n"]
    heights: Float[np.ndarray, " n"]

    @property
    def minima(self) -> Float[np.ndarray, " k"]:
        """The places of the minima, local and global."""
        return self.places[[kind.endswith("minimum") for kind in self.kinds]]


def critical_points(
    h: Callable[[Any], Any], *, low: float, high: float, points: int = 1001
) -> Critical:
    r"""The zeros of $h'$ between `low` and `high`, told apart by the signs of $h'$ beside them.

    Zeros are bracketed on a grid, of $h'$ where it changes sign and of $h''$ where $h'$ touches 0
    without, and halved down to rounding. A flat stretch counts once, by its middle. A pair of zeros
    within one cell is not seen. A minimum is global if nothing on the grid is lower, the ends of
    the interval included.

    >>> found = critical_points(lambda t: t**4 / 4 - t**2 / 2 + t / 10, low=-2.0, high=2.0)
    >>> list(zip(found.kinds, found.places.round(2).tolist()))
    [('global minimum', -1.05), ('maximum', 0.1), ('local minimum', 0.95)]
    """
    if not (np.isfinite([low, high]).all() and low < high and points >= 3):
        raise ValueError(
            f"critical_points: needs low < high and 3 points at least; got {low}, {high} and "
            f"{points}."
        )
    grid = np.linspace(low, high, points)
    heights, slopes, bends = (np.asarray(a, np.float64) for a in _jet(h, jnp.asarray(grid)))
    if not np.isfinite([heights, slopes, bends]).all():
        raise ValueError(
            "critical_points: the function or a derivative is not finite on the interval; take a "
            "smaller."
        )
    signs = np.where(np.abs(slopes) <= FLAT * np.abs(slopes).max(), 0.0, np.sign(slopes))
    found = sorted(
        [
            *_crossings(h, grid, signs),
            *_touches(h, grid, signs, bends, slopes),
            *_stretches(grid, signs, heights),
        ]
    )
    places = np.array([place for place, _, _ in found])
    values = np.asarray(_jet(h, jnp.asarray(places))[0], np.float64) if found else np.zeros(0)
    kinds: list[Kind] = [_kind(left, right) for _, left, right in found]
    near = heights.min() + FLAT * np.ptp(heights)
    lowest = lambda kind, v: kind == "local minimum" and v <= near
    named: list[Kind] = [
        "global minimum" if lowest(kind, v) else kind for kind, v in zip(kinds, values)
    ]
    return Critical(tuple(named), places, values, grid, heights)


def _kind(left: float, right: float) -> Kind:
    if left <= 0 <= right:
        return "local minimum"
    return "maximum" if left > 0 > right else "pause"


@partial(jax.jit, static_argnames="h")
def _jet(h: Callable[[Any], Any], at: Any) -> tuple[Any, Any, Any]:
    """The function and its first two derivatives."""
    return tuple(jax.vmap(f)(at) for f in (h, jax.grad(h), jax.grad(jax.grad(h))))


def _crossings(h: Any, grid: np.ndarray, signs: np.ndarray) -> list[tuple[float, float, float]]:
    (cell,) = np.nonzero(signs[:-1] * signs[1:] < 0)
    return list(zip(_halved(h, 1, grid, cell), signs[cell].tolist(), signs[cell + 1].tolist()))


def _touches(
    h: Any, grid: Any, signs: Any, bends: Any, slopes: Any
) -> list[tuple[float, float, float]]:
    (cell,) = np.nonzero((bends[:-1] * bends[1:] < 0) & (signs[:-1] * signs[1:] > 0))
    places = _halved(h, 2, grid, cell)
    slope = np.abs(_jet(h, jnp.asarray(places))[1]) if places else []
    still = FLAT * np.abs(slopes).max()
    return [(at, signs[c], signs[c]) for at, c, s in zip(places, cell, slope) if s <= still]


def _stretches(grid: Any, signs: Any, heights: Any) -> list[tuple[float, float, float]]:
    """Runs of grid points without slope; one of constant height counts as if it were left upwards
    on both sides.
    """
    (edge,) = np.nonzero(np.diff(np.concatenate([[1.0], np.abs(signs), [1.0]])))
    beside = np.concatenate([[0.0], signs, [0.0]])
    found = []
    for a, b in zip(edge[::2], edge[1::2]):
        flat = b - a >= 3 and np.ptp(heights[a:b]) <= np.finfo(float).eps * np.ptp(heights)
        left, right = (-1.0, 1.0) if flat else (beside[a], beside[b + 1])
        found.append((float(grid[a:b].mean()), float(left), float(right)))
    return found


def _halved(h: Any, order: int, grid: np.ndarray, cell: np.ndarray) -> list[float]:
    """A zero of the derivative of this order in each of the cells."""
    if not len(cell):
        return []
    low = jnp.asarray(grid[cell])
    high = jnp.asarray(grid[cell + 1])
    return np.asarray(_bisect(h, order, low, high), np.float64).tolist()


@partial(jax.jit, static_argnames=("h", "order"))
def _bisect(h: Any, order: int, low: Any, high: Any) -> Any:
    slope = jax.vmap(jax.grad(h) if order == 1 else jax.grad(jax.grad(h)))
    rising = slope(high) > 0

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        above = (slope(middle) > 0) == rising
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (low, high))
    return (low + high) / 2
