r"""Polyhedra in a few dimensions split by hyperplanes, all cells at once.

A cell is $\{x : Wx + b \ge 0\}$ with a known point inside. The point shows that its side of a new
hyperplane is not empty; for the other side a linear program decides. The programs of many cells are
solved as one with a block-diagonal matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog
from scipy.sparse import block_diag, csr_array

from .affine_cells import Split
from .arrangement import LINPROG_OPTIONS, MIN_CELL_RADIUS, ChebyshevCentre
from .polygons import ZERO_UNIT_TOLERANCE

Walls = tuple[
    Float[np.ndarray, "_ n"], Float[np.ndarray, " _"]
]  # W and b; the rows of W have length 1

PROGRAMS_PER_SOLVE = 64  # linear programs solved as one


@dataclass(frozen=True)
class Polyhedra:
    r"""Cells $\{x : Wx + b \ge 0\}$, each with a point inside."""

    walls: tuple[Walls, ...]
    points: Float[np.ndarray, "p n"]

    def split(self, F: Float[np.ndarray, "p n1 m"], kinks: tuple[float, ...]) -> Split:
        """Splits by one unit after another."""
        noise = ZERO_UNIT_TOLERANCE * np.abs(F).max(initial=0.0)
        polyhedra = self
        parent = np.arange(len(F))
        piece = np.zeros((len(F), F.shape[2]), np.int8)
        for u in range(F.shape[2]):
            for kink in kinks:
                line = F[parent, :, u]
                line[:, -1] -= kink
                polyhedra, crossed, above = polyhedra.cut(line, noise)
                piece = np.concatenate([piece, piece[crossed]])
                piece[:, u] += above
                parent = np.concatenate([parent, parent[crossed]])
        return Split(polyhedra, parent, piece)

    def cut(
        self, line: Float[np.ndarray, "p n1"], noise: float
    ) -> tuple["Polyhedra", np.ndarray, np.ndarray]:
        r"""Splits cell $i$ by the hyperplane $\{x : \sum_j l_{ij} x_j + l_{in} = 0\}$.

        The part above replaces a cell that is crossed; the part below is appended at the end.
        Returns the cells, the indices of those that were crossed, and whether each cell now lies
        above its hyperplane.
        """
        length = np.linalg.norm(line[:, :-1], axis=1)
        real = length > noise
        line = line / np.where(real, length, 1.0)[:, None]
        inside = self._points_inside(line, real)
        crossed = sorted(inside[1].keys() & inside[-1].keys())
        above = np.where(real, [i in inside[1] for i in range(len(line))], line[:, -1] > noise)
        walls = list(self.walls)
        points = self.points.copy()
        for i in crossed:
            walls[i], points[i] = self._half(i, line[i]), inside[1][i]
        walls += [self._half(i, -line[i]) for i in crossed]
        below = np.reshape([inside[-1][i] for i in crossed], (-1, points.shape[1]))
        return (
            Polyhedra(tuple(walls), np.concatenate([points, below])),
            np.array(crossed, int),
            np.append(above, np.zeros(len(below), bool)),
        )

    def _points_inside(
        self, line: np.ndarray, real: np.ndarray
    ) -> dict[int, dict[int, np.ndarray]]:
        """For each side (1 and -1) of the hyperplanes, a point of every cell that has a part there,
        by cell index.
        """
        value = (line[:, :-1] * self.points).sum(axis=1) + line[:, -1]
        inside = {
            side: {
                i: self.points[i]
                for i in np.flatnonzero(real & (side * value > MIN_CELL_RADIUS)).tolist()
            }
            for side in (1, -1)
        }
        undecided = [
            (i, side)
            for side in inside
            for i in np.flatnonzero(real).tolist()
            if i not in inside[side]
        ]
        for (i, side), centre in zip(
            undecided, chebyshev_centres([self._half(i, side * line[i]) for i, side in undecided])
        ):
            if centre.radius > MIN_CELL_RADIUS:
                inside[side][i] = centre.point
        return inside

    def _half(self, i: int, line: np.ndarray) -> Walls:
        W, b = self.walls[i]
        return np.vstack([W, line[:-1]]), np.append(b, line[-1])


def chebyshev_centres(cells: Sequence[Walls]) -> list[ChebyshevCentre]:
    """`chebyshev_centre` of many polyhedra whose normals have length 1."""
    centres = []
    for start in range(0, len(cells), PROGRAMS_PER_SOLVE):
        block = cells[start : start + PROGRAMS_PER_SOLVE]
        n = block[0][0].shape[1]
        A = block_diag(
            [csr_array(np.hstack([-W, np.ones((len(W), 1))])) for W, _ in block], format="csr"
        )
        objective = np.tile(np.append(np.zeros(n), -1.0), len(block))
        bounds = ([(None, None)] * n + [(None, 1.0)]) * len(block)
        solution = linprog(
            objective,
            A_ub=A,
            b_ub=np.concatenate([b for _, b in block]),
            bounds=bounds,
            options=LINPROG_OPTIONS,
        )
        if solution.x is None:
            raise ValueError(f"count_regions: a linear program was not solved: {solution.message}")
        points = solution.x.reshape(len(block), n + 1)[:, :n]
        centres += [
            ChebyshevCentre(float((W @ x + b).min(initial=1.0)), x)
            for (W, b), x in zip(block, points)
        ]
    return centres
