r"""Convex polygons cut by lines, all polygons of a plane at once.

Polygons are the rows of one padded array, so that a unit cuts all of them in a few array
operations. The window is the square $[-1, 1]^2$. A corner nearer to a line than `NEAR` counts as
lying on it: lines that meet in a point (the units of a layer without biases do) then meet in one,
rounding makes no slivers, and a cell that is thinner is lost.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .affine_cells import Split

NEAR = 1e-10
# an affine unit that is smaller than this, beside the largest of its layer, is zero but for
# rounding
NOISE = 1e-14


class TooMany(ValueError):
    """There are more cells than were asked for."""


@dataclass(frozen=True)
class Polygons:
    """Polygon $i$ has its first `sides[i]` corners, anticlockwise; the others repeat the last
    one.
    """

    corners: Float[np.ndarray, "p k 2"]
    sides: Int[np.ndarray, " p"]
    most: int

    def split(self, F: Float[np.ndarray, "p 3 m"], kinks: tuple[float, ...]) -> Split:
        """Cuts by one unit after another."""
        scale = np.abs(F).max(initial=0.0)
        now = self
        parent = np.arange(len(F))
        piece = np.zeros((len(F), F.shape[2]), np.int8)
        for u in range(F.shape[2]):
            for kink in kinks:
                line = F[parent, :, u]
                line[:, 2] -= kink
                now, crossed, above = now.cut(line, NOISE * scale)
                piece = np.concatenate([piece, piece[crossed]])
                piece[:, u] += above
                parent = np.concatenate([parent, parent[crossed]])
                if len(parent) > self.most:
                    raise TooMany(
                        f"regions: the window meets more than {self.most:,} cells; look at a "
                        "smaller window, or let `most` be larger."
                    )
        return Split(now, parent, piece)

    def cut(
        self, line: Float[np.ndarray, "p 3"], noise: float
    ) -> tuple["Polygons", Int[np.ndarray, " c"], np.ndarray]:
        r"""Cuts polygon $i$ by $\{x : l_{i1} x_1 + l_{i2} x_2 + l_{i3} = 0\}$.

        Of a polygon that is crossed the part above takes its place, and the part below is put at
        the end. Returns the polygons, those that were crossed, and whether each now lies above.
        """
        x = self.corners[..., 0]
        y = self.corners[..., 1]
        value = line[:, :1] * x + line[:, 1:2] * y + line[:, 2:]
        near = np.maximum(NEAR * np.hypot(line[:, 0], line[:, 1]), noise)[:, None]
        value[np.abs(value) <= near] = 0.0
        high = value.max(axis=1)
        low = value.min(axis=1)
        crossed = np.flatnonzero((high > 0) & (low < 0))
        above = np.concatenate([high + low > 0, np.zeros(len(crossed), bool)])
        above[crossed] = True
        if not len(crossed):
            return self, crossed, above
        upper, lower = _halves(self.corners[crossed], self.sides[crossed], value[crossed])
        width = max(self.corners.shape[1], upper[0].shape[1], lower[0].shape[1])
        corners = (
            _padded(self.corners, width) if width > self.corners.shape[1] else self.corners.copy()
        )
        corners[crossed] = _padded(upper[0], width)
        sides = np.concatenate([self.sides, lower[1]])
        sides[crossed] = upper[1]
        return (
            Polygons(np.concatenate([corners, _padded(lower[0], width)]), sides, self.most),
            crossed,
            above,
        )


def square(most: int) -> Polygons:
    """The window, as one polygon."""
    return Polygons(
        np.array([[[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]]), np.array([4]), most
    )


Padded = tuple[np.ndarray, np.ndarray]


def _halves(corners: np.ndarray, sides: np.ndarray, value: np.ndarray) -> tuple[Padded, Padded]:
    """Both sides of each polygon, by Sutherland and Hodgman's walk around it (1974)."""
    p, k, _ = corners.shape
    place = np.arange(k)[None]
    after = np.where(place + 1 < sides[:, None], place + 1, 0)
    row = np.arange(p)[:, None]
    a = value
    b = value[row, after]
    real = place < sides[:, None]
    meets = (a * b < 0) & real
    share = np.divide(a, a - b, out=np.zeros_like(a), where=meets)[..., None]
    joint = corners + share * (corners[row, after] - corners)
    walk = np.stack([corners, joint], axis=2).reshape(p, 2 * k, 2)
    keep = lambda side: np.stack([side & real, meets], axis=2).reshape(p, 2 * k)
    return _kept(walk, keep(a >= 0)), _kept(walk, keep(a <= 0))


def _kept(walk: np.ndarray, keep: np.ndarray) -> Padded:
    """The chosen corners of each polygon, moved together."""
    sides = keep.sum(axis=1)
    place = np.cumsum(keep, axis=1) - 1
    corners = np.zeros((len(walk), int(sides.max()), 2))
    row, column = np.nonzero(keep)
    corners[row, place[row, column]] = walk[row, column]
    last = corners[np.arange(len(walk)), sides - 1]
    beyond = np.arange(corners.shape[1])[None] >= sides[:, None]
    return np.where(beyond[..., None], last[:, None], corners), sides


def _padded(corners: np.ndarray, width: int) -> np.ndarray:
    return np.concatenate(
        [corners, np.repeat(corners[:, -1:], width - corners.shape[1], axis=1)], axis=1
    )
