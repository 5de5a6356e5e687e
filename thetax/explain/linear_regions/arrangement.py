r"""Cells of a hyperplane arrangement (§2.6): the activation patterns of one layer of threshold or
ReLU units.

Hyperplanes $\{x : w_i^\top x + b_i = 0\}$ are added one at a time. A cell is represented by its
signs and a point inside. If a known point of a cell lies on one side of the new hyperplane, that
side of the cell is not empty; otherwise a linear program decides, by the Chebyshev centre of the
polyhedron.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int8
from scipy.optimize import linprog

LINPROG_OPTIONS = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}
# a cell whose largest inscribed ball is smaller counts as empty (for hyperplanes
# at a distance of at most 1 from the origin)
MIN_CELL_RADIUS = 1e-9


class ChebyshevCentre(NamedTuple):
    """Centre and radius, at most 1, of a largest ball inside a polyhedron; a negative radius means
    that the polyhedron is empty.
    """

    radius: float
    point: Float[np.ndarray, " n"]


def chebyshev_centre(
    W: Float[np.ndarray, "m n"],
    b: Float[np.ndarray, " m"],
    *,
    strict: Bool[np.ndarray, " m"] | None = None,
) -> ChebyshevCentre:
    r"""$\max_{x,\, r \le 1} r$ subject to $w_i^\top x + b_i \ge r \|w_i\|$, with no $w_i = 0$
    (Chebyshev centre).

    Where `strict` is false the point may lie on the wall, $w_i^\top x + b_i \ge 0$. The radius is
    measured at the solution, because the linear program is solved only to a tolerance.

    >>> chebyshev_centre(
    ...     np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), np.array([0.0, 1.0, 0.0])
    ... ).radius
    0.5
    """
    m, n = W.shape
    length = np.linalg.norm(W, axis=1)
    strict = np.ones(m, bool) if strict is None else strict
    objective = np.append(np.zeros(n), -1.0)
    bounds = [(None, None)] * n + [(None, 1.0)]
    solution = linprog(
        objective,
        A_ub=np.hstack([-W, (length * strict)[:, None]]),
        b_ub=b,
        bounds=bounds,
        options=LINPROG_OPTIONS,
    )
    if solution.status == 2:  # infeasible: the walls that need no distance exclude each other
        return ChebyshevCentre(-math.inf, np.zeros(n))
    if solution.x is None:
        raise ValueError(f"chebyshev_centre: the linear program was not solved: {solution.message}")
    x = solution.x[:n]
    return ChebyshevCentre(float(((W @ x + b) / length)[strict].min(initial=1.0)), x)


def arrangement_cells(
    W: Float[np.ndarray, "m n"], b: Float[np.ndarray, " m"]
) -> Int8[np.ndarray, "cells m"]:
    r"""The signs $\pm 1$ of $Wx + b$ on every non-empty open cell of the arrangement, in
    lexicographic order.

    A row $w_i = 0$ defines no hyperplane; its sign is that of $b_i$, and $-1$ for $b_i = 0$, as for
    an inactive ReLU. Hyperplanes in general position give $\sum_{i \le n} \binom{m}{i}$ cells
    (`certify.zaslavsky_bound`); with $b = 0$, twice Cover's sum (§1.2, §2.6; Zaslavsky 1975).

    >>> arrangement_cells(np.array([[1.0], [-1.0]]), np.array([0.0, 1.0])).tolist()
    [[-1, 1], [1, -1], [1, 1]]
    """
    return _cell_signs("arrangement_cells", W, b, closed=False)


def arrangement_patterns(
    W: Float[np.ndarray, "m n"], b: Float[np.ndarray, " m"]
) -> Int8[np.ndarray, "patterns m"]:
    r"""Every activation pattern $\kappa(x) = 1\{Wx + b > 0\} \in \{0, 1\}^m$ of a layer, in
    lexicographic order (§2.6).

    In general position there is one pattern per cell. Otherwise there may be more: a pattern may
    belong to a set without interior, since a unit is inactive on its own hyperplane.

    >>> arrangement_patterns(np.array([[1.0], [-1.0]]), np.zeros(2)).tolist()
    [[0, 0], [0, 1], [1, 0]]
    """
    return (_cell_signs("arrangement_patterns", W, b, closed=True) > 0).astype(np.int8)


def _cell_signs(
    name: str, W: np.ndarray, b: np.ndarray, *, closed: bool
) -> Int8[np.ndarray, "cells m"]:
    W, b = _check_hyperplanes(name, W, b)
    length = np.linalg.norm(W, axis=1)
    planes = np.flatnonzero(length)
    W = W[planes] / length[planes, None]
    offset = b[planes] / length[planes]
    offset = offset / (np.abs(offset).max(initial=0.0) or 1.0)
    cells = _insert_hyperplanes(W, offset, closed=closed)
    signs = np.tile(np.where(b > 0, 1, -1).astype(np.int8), (len(cells), 1))
    signs[:, planes] = np.array(sorted(cells), np.int8).reshape(len(cells), len(planes))
    return signs


def _insert_hyperplanes(
    W: Float[np.ndarray, "m n"], b: Float[np.ndarray, " m"], *, closed: bool
) -> set[tuple[int, ...]]:
    """Signs of all cells of hyperplanes with unit normals, inserting one hyperplane after another.

    With `closed`, the negative side of a hyperplane contains the hyperplane.
    """
    m, n = W.shape
    cells: set[tuple[int, ...]] = {()}
    points = [np.zeros(n)]  # known points; each shows that its cell is not empty
    for i in range(m):
        values = np.stack(points) @ W[: i + 1].T + b[None, : i + 1]
        off_planes = (np.abs(values) > MIN_CELL_RADIUS).all(axis=1)
        not_empty = {tuple(row) for row in np.where(values[off_planes] > 0, 1, -1).tolist()}
        extended = set()
        for cell in (cell + (side,) for cell in cells for side in (-1, 1)):
            if cell not in not_empty:
                sign = np.array(cell, float)
                strict = sign > 0 if closed else None
                radius, x = chebyshev_centre(
                    sign[:, None] * W[: i + 1], sign * b[: i + 1], strict=strict
                )
                if not radius > MIN_CELL_RADIUS:
                    continue
                points.append(x)
            extended.add(cell)
        cells = extended
    return cells


def _check_hyperplanes(name, W, b):
    W = np.asarray(W, np.float64)
    b = np.asarray(b, np.float64)
    if W.ndim != 2 or b.shape != W.shape[:1]:
        raise ValueError(
            f"{name}: W must have shape (m, n), one normal per row, and b shape (m,); got "
            f"{W.shape} and {b.shape}."
        )
    if not (np.isfinite(W).all() and np.isfinite(b).all()):
        raise ValueError(f"{name}: W and b must be finite; got NaN or infinity.")
    return W, b
