r"""Polyhedra of any few dimensions cut by hyperplanes, all cells at once.

A cell is $\{x : Wx + b \ge 0\}$ with a point inside. The point shows that its side of a new
hyperplane is not empty; whether the other side is, one linear program decides, and the programs of
many cells are solved as one whose matrix has them as its blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog
from scipy.sparse import block_diag, csr_array

from .affine_cells import Split
from .arrangement import THIN, TIGHT, Deepest
from .polygons import NOISE

Walls = tuple[
    Float[np.ndarray, "_ n"], Float[np.ndarray, " _"]
]  # W and b, with rows of W of length 1

BLOCKS = 64  # linear programs solved as one


@dataclass(frozen=True)
class Polyhedra:
    r"""Cells $\{x : Wx + b \ge 0\}$, each with a point inside."""

    walls: tuple[Walls, ...]
    points: Float[np.ndarray, "p n"]

    def split(self, F: Float[np.ndarray, "p n1 m"], kinks: tuple[float, ...]) -> Split:
        """Cuts by one unit after another."""
        noise = NOISE * np.abs(F).max(initial=0.0)
        now = self
        parent = np.arange(len(F))
        piece = np.zeros((len(F), F.shape[2]), np.int8)
        for u in range(F.shape[2]):
            for kink in kinks:
                line = F[parent, :, u]
                line[:, -1] -= kink
                now, crossed, above = now.cut(line, noise)
                piece = np.concatenate([piece, piece[crossed]])
                piece[:, u] += above
                parent = np.concatenate([parent, parent[crossed]])
        return Split(now, parent, piece)

    def cut(
        self, line: Float[np.ndarray, "p n1"], noise: float
    ) -> tuple["Polyhedra", np.ndarray, np.ndarray]:
        r"""Cuts cell $i$ by $\{x : \sum_j l_{ij} x_j + l_{in} = 0\}$.

        Of a cell that is crossed the part above takes its place, and the part below is put at the
        end. Returns the cells, those that were crossed, and whether each now lies above.
        """
        length = np.linalg.norm(line[:, :-1], axis=1)
        real = length > noise
        line = line / np.where(real, length, 1.0)[:, None]
        inside = self._inside(line, real)
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

    def _inside(self, line: np.ndarray, real: np.ndarray) -> dict[int, dict[int, np.ndarray]]:
        """For each side of the hyperplanes a point in every cell that has something there."""
        value = (line[:, :-1] * self.points).sum(axis=1) + line[:, -1]
        inside = {
            side: {i: self.points[i] for i in np.flatnonzero(real & (side * value > THIN)).tolist()}
            for side in (1, -1)
        }
        unsure = [
            (i, side)
            for side in inside
            for i in np.flatnonzero(real).tolist()
            if i not in inside[side]
        ]
        for (i, side), found in zip(
            unsure, deepest_of([self._half(i, side * line[i]) for i, side in unsure])
        ):
            if found.radius > THIN:
                inside[side][i] = found.point
        return inside

    def _half(self, i: int, line: np.ndarray) -> Walls:
        W, b = self.walls[i]
        return np.vstack([W, line[:-1]]), np.append(b, line[-1])


def deepest_of(cells: Sequence[Walls]) -> list[Deepest]:
    """`deepest` of each of many polyhedra whose normals have length 1."""
    found = []
    for start in range(0, len(cells), BLOCKS):
        some = cells[start : start + BLOCKS]
        n = some[0][0].shape[1]
        A = block_diag(
            [csr_array(np.hstack([-W, np.ones((len(W), 1))])) for W, _ in some], format="csr"
        )
        goal = np.tile(np.append(np.zeros(n), -1.0), len(some))
        bounds = ([(None, None)] * n + [(None, 1.0)]) * len(some)
        solved = linprog(
            goal, A_ub=A, b_ub=np.concatenate([b for _, b in some]), bounds=bounds, options=TIGHT
        )
        if solved.x is None:
            raise ValueError(f"count_regions: a linear program was not solved: {solved.message}")
        points = solved.x.reshape(len(some), n + 1)[:, :n]
        found += [
            Deepest(float((W @ x + b).min(initial=1.0)), x) for (W, b), x in zip(some, points)
        ]
    return found
