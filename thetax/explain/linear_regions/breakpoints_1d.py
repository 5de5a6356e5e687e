r"""Breakpoints and linear pieces of a piecewise linear network with one input (§2.6), in float64 or
in exact fractions.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Shaped

from ...core import Model
from .affine_cells import Split, start_propagation
from .piecewise import propagate_network

# relative to the largest: breakpoints that are closer, and slopes that differ by less, are equal up
# to rounding
RELATIVE_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Breakpoints1D:
    r"""The piecewise linear function: $x \mapsto a_i x + c_i$ between breakpoints $i - 1$ and $i$.

    Neighbouring cells on which the function is the same line count as one piece.
    """

    n_pieces: int
    breakpoints: Shaped[np.ndarray, " k"]  # where the slope changes, ascending
    slopes: Shaped[np.ndarray, "k1 m"]
    offsets: Shaped[np.ndarray, "k1 m"]
    n_cells: int  # intervals with one activation pattern each; n_pieces or more


def breakpoints_1d(
    model: Model, low: float = -math.inf, high: float = math.inf, *, exact: bool = False
) -> Breakpoints1D:
    r"""All breakpoints and linear pieces on $(l, h)$ of a network with one input.

    `exact=True` computes in fractions, without rounding.

    >>> import jax, jax.numpy as jnp
    >>> from thetax.layers import Chain, Linear
    >>> units = Linear(jnp.array([[2.0], [4.0]]), jnp.array([0.0, -2.0]))
    >>> tent = Chain(units, jax.nn.relu, Linear(jnp.array([[1.0, -1.0]])))
    >>> result = breakpoints_1d(tent, exact=True)
    >>> result.n_pieces, [str(x) for x in result.breakpoints]
    (3, ['0', '1/2'])
    """
    if not low < high:
        raise ValueError(f"breakpoints_1d: low must be below high; got {low} and {high}.")
    number = Fraction if exact else float
    ends = [end if math.isinf(end) else number(end) for end in (low, high)]
    F = np.array([[[number(1)], [number(0)]]], object if exact else np.float64)
    start = start_propagation(Intervals(tuple(ends)), F)
    state = propagate_network(model, start, name="breakpoints_1d")
    a, c = (part.reshape(len(state.F), -1) for part in (state.F[:, 0], state.F[:, 1]))
    changes = np.array(
        [_differ(a[i], a[i + 1], a) or _differ(c[i], c[i + 1], c) for i in range(len(a) - 1)], bool
    )
    first_of_piece = np.append(True, changes)
    inner_ends = np.array(state.geometry.ends[1:-1], F.dtype)  # type: ignore[attr-defined]
    return Breakpoints1D(
        n_pieces=int(first_of_piece.sum()),
        breakpoints=inner_ends[changes],
        slopes=a[first_of_piece],
        offsets=c[first_of_piece],
        n_cells=len(a),
    )


def _differ(a: np.ndarray, b: np.ndarray, among: np.ndarray) -> bool:
    """Whether two rows differ by more than rounding, relative to the largest entry of `among`."""
    tolerance = 0 if among.dtype == object else RELATIVE_TOLERANCE * np.abs(among).max()
    return bool((np.abs(a - b) > tolerance).any())


@dataclass(frozen=True)
class Intervals:
    """The intervals between consecutive ends; the outer ends may be infinite."""

    ends: tuple[Any, ...]

    def split(self, F: Shaped[np.ndarray, "p 2 m"], kinks: tuple[float, ...]) -> Split:
        """Splits the intervals wherever a unit equals a kink."""
        ends = [self.ends[0]]
        parent = []
        piece = []
        for i, (low, high) in enumerate(zip(self.ends, self.ends[1:])):
            a, c = F[i]
            roots = {
                (_like(kink, c) - c[u]) / a[u] for u in np.flatnonzero(a != 0) for kink in kinks
            }
            cuts = _distinct_cuts(
                sorted(x for x in roots if low < x < high), low, high, exact=F.dtype == object
            )
            for left, right in zip([low, *cuts], [*cuts, high]):
                value = a * _inner_point(left, right) + c
                piece.append(sum((value > kink).astype(np.int8) for kink in kinks))
                parent.append(i)
                ends.append(right)
        return Split(Intervals(tuple(ends)), np.array(parent), np.array(piece, np.int8))


def _like(kink: float, array: np.ndarray) -> Any:
    """The kink as a Fraction if the array holds Fractions."""
    return Fraction(kink) if array.dtype == object else kink


def _distinct_cuts(cuts: list[Any], low: Any, high: Any, *, exact: bool) -> list[Any]:
    """The cuts without those that differ only by rounding from the previous one or from an end."""
    if exact or not cuts:
        return cuts
    tolerance = RELATIVE_TOLERANCE * max(
        abs(end) for end in (*cuts, low, high) if math.isfinite(end)
    )
    distinct = [low]
    for cut in cuts:
        if cut - distinct[-1] > tolerance:
            distinct.append(cut)
    return [cut for cut in distinct[1:] if high - cut > tolerance]


def _inner_point(low: Any, high: Any) -> Any:
    """A point inside the interval; either end may be infinite."""
    if math.isinf(low):
        return 0 if math.isinf(high) else high - 1
    return low + 1 if math.isinf(high) else (low + high) / 2
