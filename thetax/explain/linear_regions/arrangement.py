r"""The cells into which hyperplanes cut space (§2.6): what one layer of threshold or ReLU units can
tell apart.

Hyperplanes $\{x : w_i^\top x + b_i = 0\}$ are added one at a time. A cell is known by its signs and
by a point deep inside it. Where a point seen before lies on a side of the new hyperplane, that side
of its cell is not empty; otherwise one linear program decides, the deepest point of a polyhedron.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int8
from scipy.optimize import linprog

TIGHT = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}  # of a linear program
# a cell whose largest ball is smaller, for hyperplanes at distance 1 from the origin, counts as
# empty
THIN = 1e-9


class Deepest(NamedTuple):
    """The centre of a largest ball inside a polyhedron, and its radius, at most 1; none fits where
    it is negative.
    """

    radius: float
    point: Float[np.ndarray, " n"]


def deepest(
    W: Float[np.ndarray, "m n"],
    b: Float[np.ndarray, " m"],
    *,
    needs: Bool[np.ndarray, " m"] | None = None,
) -> Deepest:
    r"""$\max_{x,\, r \le 1} r$ subject to $w_i^\top x + b_i \ge r \|w_i\|$, with no $w_i = 0$
    (Chebyshev's centre).

    Where `needs` is false the wall may be touched, $w_i^\top x + b_i \ge 0$. The radius is not the
    program's, which is solved to a tolerance, but the one measured at its point.

    >>> deepest(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), np.array([0.0, 1.0, 0.0])).radius
    0.5
    """
    m, n = W.shape
    length = np.linalg.norm(W, axis=1)
    needs = np.ones(m, bool) if needs is None else needs
    goal = np.append(np.zeros(n), -1.0)
    bounds = [(None, None)] * n + [(None, 1.0)]
    found = linprog(
        goal, A_ub=np.hstack([-W, (length * needs)[:, None]]), b_ub=b, bounds=bounds, options=TIGHT
    )
    if found.status == 2:  # walls that may be touched leave no place
        return Deepest(-math.inf, np.zeros(n))
    if found.x is None:
        raise ValueError(f"deepest: the linear program was not solved: {found.message}")
    x = found.x[:n]
    return Deepest(float(((W @ x + b) / length)[needs].min(initial=1.0)), x)


def arrangement_cells(
    W: Float[np.ndarray, "m n"], b: Float[np.ndarray, " m"]
) -> Int8[np.ndarray, "cells m"]:
    r"""The signs of $Wx + b$ on every non-empty open cell of the arrangement, $\pm 1$, in
    lexicographic order.

    A row $w_i = 0$ is no hyperplane; its sign is that of $b_i$, and $-1$ for $b_i = 0$, as for a
    ReLU that is off. Hyperplanes in general position give $\sum_{i \le n} \binom{m}{i}$ cells
    (`certify.zaslavsky_bound`); with $b = 0$, twice Cover's sum (§1.2, §2.6; Zaslavsky 1975).

    >>> arrangement_cells(np.array([[1.0], [-1.0]]), np.array([0.0, 1.0])).tolist()
    [[-1, 1], [1, -1], [1, 1]]
    """
    return _signs("arrangement_cells", W, b, closed=False)


def arrangement_patterns(
    W: Float[np.ndarray, "m n"], b: Float[np.ndarray, " m"]
) -> Int8[np.ndarray, "patterns m"]:
    r"""Every activation pattern $\kappa(x) = 1\{Wx + b > 0\} \in \{0, 1\}^m$ of a layer, in
    lexicographic order (§2.6).

    In general position there is one for each cell. Otherwise there may be more: a pattern can be
    that of a set without interior, since a unit is off on its own hyperplane.

    >>> arrangement_patterns(np.array([[1.0], [-1.0]]), np.zeros(2)).tolist()
    [[0, 0], [0, 1], [1, 0]]
    """
    return (_signs("arrangement_patterns", W, b, closed=True) > 0).astype(np.int8)


def _signs(name: str, W: np.ndarray, b: np.ndarray, *, closed: bool) -> Int8[np.ndarray, "cells m"]:
    W, b = _checked(name, W, b)
    length = np.linalg.norm(W, axis=1)
    planes = np.flatnonzero(length)
    W = W[planes] / length[planes, None]
    offset = b[planes] / length[planes]
    offset = offset / (np.abs(offset).max(initial=0.0) or 1.0)
    cells = _grown(W, offset, closed=closed)
    signs = np.tile(np.where(b > 0, 1, -1).astype(np.int8), (len(cells), 1))
    signs[:, planes] = np.array(sorted(cells), np.int8).reshape(len(cells), len(planes))
    return signs


def _grown(
    W: Float[np.ndarray, "m n"], b: Float[np.ndarray, " m"], *, closed: bool
) -> set[tuple[int, ...]]:
    """The cells of hyperplanes with unit normals, one hyperplane after another; a closed side holds
    its hyperplane.
    """
    m, n = W.shape
    cells: set[tuple[int, ...]] = {()}
    pool = [np.zeros(n)]
    for i in range(m):
        values = np.stack(pool) @ W[: i + 1].T + b[None, : i + 1]
        away = (np.abs(values) > THIN).all(axis=1)
        seen = {tuple(row) for row in np.where(values[away] > 0, 1, -1).tolist()}
        grown = set()
        for cell in (cell + (side,) for cell in cells for side in (-1, 1)):
            if cell not in seen:
                sign = np.array(cell, float)
                needs = sign > 0 if closed else None
                radius, x = deepest(sign[:, None] * W[: i + 1], sign * b[: i + 1], needs=needs)
                if not radius > THIN:
                    continue
                pool.append(x)
            grown.add(cell)
        cells = grown
    return cells


def _checked(name, W, b):
    W = np.asarray(W, np.float64)
    b = np.asarray(b, np.float64)
    if W.ndim != 2 or b.shape != W.shape[:1]:
        raise ValueError(
            f"{name}: W holds a normal in each row, (m, n), and b is (m,); got {W.shape} and "
            f"{b.shape}."
        )
    if not (np.isfinite(W).all() and np.isfinite(b).all()):
        raise ValueError(f"{name}: W and b must be finite; got NaN or infinity.")
    return W, b
