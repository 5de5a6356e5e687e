r"""Convex polygons split by lines, all polygons of a plane at once.

Polygons are the rows of one padded array, so one unit splits all of them in a few array operations.
The region of interest is the square $[-1, 1]^2$. A corner closer to a line than `ON_LINE_TOLERANCE`
counts as lying on it: lines through a common point (the units of a layer without biases) keep that
point in common and rounding makes no slivers, but cells that are thinner are lost.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .affine_cells import Split

ON_LINE_TOLERANCE = 1e-10
# an affine unit that is smaller than this, relative to the largest of its layer, is zero up to
# rounding
ZERO_UNIT_TOLERANCE = 1e-14


class TooManyRegions(ValueError):
    """There are more cells than `max_regions`."""


@dataclass(frozen=True)
class Polygons:
    """Padded polygons: the first `n_corners[i]` corners of row $i$, anticlockwise; the others
    repeat the last one.
    """

    corners: Float[np.ndarray, "p k 2"]
    n_corners: Int[np.ndarray, " p"]
    max_regions: int

    def split(self, F: Float[np.ndarray, "p 3 m"], kinks: tuple[float, ...]) -> Split:
        """Splits by one unit after another."""
        scale = np.abs(F).max(initial=0.0)
        polygons = self
        parent = np.arange(len(F))
        piece = np.zeros((len(F), F.shape[2]), np.int8)
        for u in range(F.shape[2]):
            for kink in kinks:
                line = F[parent, :, u]
                line[:, 2] -= kink
                polygons, crossed, above = polygons.cut(line, ZERO_UNIT_TOLERANCE * scale)
                piece = np.concatenate([piece, piece[crossed]])
                piece[:, u] += above
                parent = np.concatenate([parent, parent[crossed]])
                if len(parent) > self.max_regions:
                    raise TooManyRegions(
                        f"enumerate_regions: more than {self.max_regions:,} cells meet the input "
                        "plane; use a smaller section of it or a larger max_regions."
                    )
        return Split(polygons, parent, piece)

    def cut(
        self, line: Float[np.ndarray, "p 3"], noise: float
    ) -> tuple["Polygons", Int[np.ndarray, " c"], np.ndarray]:
        r"""Splits polygon $i$ by the line $\{x : l_{i1} x_1 + l_{i2} x_2 + l_{i3} = 0\}$.

        The part above replaces a polygon that is crossed; the part below is appended at the end.
        Returns the polygons, the indices of those that were crossed, and whether each polygon now
        lies above its line.
        """
        x = self.corners[..., 0]
        y = self.corners[..., 1]
        value = line[:, :1] * x + line[:, 1:2] * y + line[:, 2:]
        tolerance = np.maximum(ON_LINE_TOLERANCE * np.hypot(line[:, 0], line[:, 1]), noise)[:, None]
        value[np.abs(value) <= tolerance] = 0.0
        high = value.max(axis=1)
        low = value.min(axis=1)
        crossed = np.flatnonzero((high > 0) & (low < 0))
        above = np.concatenate([high + low > 0, np.zeros(len(crossed), bool)])
        above[crossed] = True
        if not len(crossed):
            return self, crossed, above
        (upper, n_upper), (lower, n_lower) = _halves(
            self.corners[crossed], self.n_corners[crossed], value[crossed]
        )
        width = max(self.corners.shape[1], upper.shape[1], lower.shape[1])
        corners = (
            _pad_corners(self.corners, width)
            if width > self.corners.shape[1]
            else self.corners.copy()
        )
        corners[crossed] = _pad_corners(upper, width)
        n_corners = np.concatenate([self.n_corners, n_lower])
        n_corners[crossed] = n_upper
        return (
            Polygons(
                np.concatenate([corners, _pad_corners(lower, width)]), n_corners, self.max_regions
            ),
            crossed,
            above,
        )


def square(max_regions: int) -> Polygons:
    """The square $[-1, 1]^2$ as one polygon."""
    return Polygons(
        np.array([[[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]]), np.array([4]), max_regions
    )


Padded = tuple[np.ndarray, np.ndarray]


def _halves(corners: np.ndarray, n_corners: np.ndarray, value: np.ndarray) -> tuple[Padded, Padded]:
    """Both parts of each polygon, by the algorithm of Sutherland & Hodgman (1974)."""
    p, k, _ = corners.shape
    corner = np.arange(k)[None]
    after = np.where(corner + 1 < n_corners[:, None], corner + 1, 0)
    row = np.arange(p)[:, None]
    a = value
    b = value[row, after]
    real = corner < n_corners[:, None]  # not padding
    crosses = (a * b < 0) & real  # the edge from this corner to the next crosses the line
    share = np.divide(a, a - b, out=np.zeros_like(a), where=crosses)[..., None]
    crossing = corners + share * (corners[row, after] - corners)
    walk = np.stack([corners, crossing], axis=2).reshape(p, 2 * k, 2)
    keep = lambda side: np.stack([side & real, crosses], axis=2).reshape(p, 2 * k)
    return _select_corners(walk, keep(a >= 0)), _select_corners(walk, keep(a <= 0))


def _select_corners(walk: np.ndarray, keep: np.ndarray) -> Padded:
    """The selected corners of each polygon, moved to the front of its row and padded."""
    n_corners = keep.sum(axis=1)
    position = np.cumsum(keep, axis=1) - 1
    corners = np.zeros((len(walk), int(n_corners.max()), 2))
    row, column = np.nonzero(keep)
    corners[row, position[row, column]] = walk[row, column]
    last = corners[np.arange(len(walk)), n_corners - 1]
    padding = np.arange(corners.shape[1])[None] >= n_corners[:, None]
    return np.where(padding[..., None], last[:, None], corners), n_corners


def _pad_corners(corners: np.ndarray, width: int) -> np.ndarray:
    return np.concatenate(
        [corners, np.repeat(corners[:, -1:], width - corners.shape[1], axis=1)], axis=1
    )
