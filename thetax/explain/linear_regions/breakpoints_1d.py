r"""The pieces of a piecewise linear function of one number (§2.6), in float64 or as exact
fractions.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Shaped

from ...core import Model
from .affine_cells import Split, begin
from .piecewise import follow

# knots nearer to each other, and slopes more alike, beside the largest, are one but for rounding
CLOSE = 1e-12


@dataclass(frozen=True)
class Pieces:
    r"""$x \mapsto a_i x + c_i$ between knots $i - 1$ and $i$; neighbours on one line count as one
    piece.
    """

    count: int
    knots: Shaped[np.ndarray, " k"]  # where the slope changes, ascending
    slopes: Shaped[np.ndarray, "k1 m"]
    offsets: Shaped[np.ndarray, "k1 m"]
    cells: int  # intervals of one activation pattern, of which there may be more


def pieces(
    model: Model, low: float = -math.inf, high: float = math.inf, *, exact: bool = False
) -> Pieces:
    r"""The linear pieces on $(l, h)$ of a network with one input. `exact` computes in fractions,
    with no rounding.

    >>> import jax, jax.numpy as jnp
    >>> from thetax.layers import Chain, Linear
    >>> units = Linear(jnp.array([[2.0], [4.0]]), jnp.array([0.0, -2.0]))
    >>> tent = Chain(units, jax.nn.relu, Linear(jnp.array([[1.0, -1.0]])))
    >>> found = pieces(tent, exact=True)
    >>> found.count, [str(knot) for knot in found.knots]
    (3, ['0', '1/2'])
    """
    if not low < high:
        raise ValueError(f"pieces: low must be below high; got {low} and {high}.")
    number = Fraction if exact else float
    ends = [end if math.isinf(end) else number(end) for end in (low, high)]
    F = np.array([[[number(1)], [number(0)]]], object if exact else np.float64)
    sheet = follow(model, begin(Intervals(tuple(ends)), F), name="pieces")
    a, c = (part.reshape(len(sheet.F), -1) for part in (sheet.F[:, 0], sheet.F[:, 1]))
    bends = np.array(
        [_differ(a[i], a[i + 1], a) or _differ(c[i], c[i + 1], c) for i in range(len(a) - 1)], bool
    )
    kept = np.append(True, bends)
    knots = np.array(sheet.cells.ends[1:-1], F.dtype)[bends]  # type: ignore[attr-defined]
    return Pieces(int(kept.sum()), knots, a[kept], c[kept], len(a))


def _differ(a: np.ndarray, b: np.ndarray, among: np.ndarray) -> bool:
    slack = 0 if among.dtype == object else CLOSE * np.abs(among).max()
    return bool((np.abs(a - b) > slack).any())


@dataclass(frozen=True)
class Intervals:
    """The intervals between consecutive ends; the outer ends may be infinite."""

    ends: tuple[Any, ...]

    def split(self, F: Shaped[np.ndarray, "p 2 m"], kinks: tuple[float, ...]) -> Split:
        """Cuts at every place where a unit equals a kink."""
        ends = [self.ends[0]]
        parent = []
        piece = []
        for i, (low, high) in enumerate(zip(self.ends, self.ends[1:])):
            a, c = F[i]
            cuts = {(_as(kink, c) - c[u]) / a[u] for u in np.flatnonzero(a != 0) for kink in kinks}
            between = _apart(
                sorted(cut for cut in cuts if low < cut < high), low, high, exact=F.dtype == object
            )
            for left, right in zip([low, *between], [*between, high]):
                value = a * _middle(left, right) + c
                piece.append(sum((value > kink).astype(np.int8) for kink in kinks))
                parent.append(i)
                ends.append(right)
        return Split(Intervals(tuple(ends)), np.array(parent), np.array(piece, np.int8))


def _as(kink: float, like: np.ndarray) -> Any:
    return Fraction(kink) if like.dtype == object else kink


def _apart(cuts: list[Any], low: Any, high: Any, *, exact: bool) -> list[Any]:
    """The cuts, of which those that differ by rounding from the one before, or from an end, are
    left out.
    """
    if exact or not cuts:
        return cuts
    near = CLOSE * max(abs(end) for end in (*cuts, low, high) if math.isfinite(end))
    kept = [low]
    for cut in cuts:
        if cut - kept[-1] > near:
            kept.append(cut)
    return [cut for cut in kept[1:] if high - cut > near]


def _middle(low: Any, high: Any) -> Any:
    """A place inside the interval, however long it is."""
    if math.isinf(low):
        return 0 if math.isinf(high) else high - 1
    return low + 1 if math.isinf(high) else (low + high) / 2
