r"""Nearest points of two convex hulls (Wolfe's algorithm), and exact checks in rational arithmetic
(§1.2).

Two sets of points are linearly separable iff their convex hulls do not meet; the shortest vector
between the hulls is then the normal of the maximum-margin hyperplane. Wolfe's algorithm finds it in
finitely many steps, as an active-set method: it keeps the shortest vector between two simplices,
adds the point with the smallest projection on it, and drops points whose weight becomes negative.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

RELATIVE_GAP = 1e-13  # duality gap at which the algorithm stops, relative to the squared length
MAX_EXACT_ROWS = 16  # up to this many rows a combination is computed in rational numbers
ROUNDING = np.finfo(float).eps


class NearestPoint(NamedTuple):
    r"""The shortest $w = \sum_i \alpha_i z_i$ with $\alpha \ge 0$ and $\sum \alpha_i = 1$ in each
    group.
    """

    w: np.ndarray
    alpha: np.ndarray
    # the smallest $z_i^\top w$ of each group; their sum is $\|w\|^2$ at the optimum and never more
    low: np.ndarray


def nearest_point(zs: np.ndarray, group: np.ndarray) -> NearestPoint:
    r"""Shortest vector of a sum of convex hulls, one hull per group of rows (Wolfe 1976).

    >>> nearest = nearest_point(np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 3.0]]), np.zeros(3, int))
    >>> nearest.w.round(6).tolist(), nearest.alpha.round(6).tolist()
    ([0.5, 0.5], [0.5, 0.5, 0.0])
    """
    members = [np.flatnonzero(group == g) for g in range(group.max() + 1)]
    short = np.einsum("nd,nd->n", zs, zs)
    active = np.array([rows[short[rows].argmin()] for rows in members])
    alpha = np.ones(len(active))
    w = zs[active].sum(axis=0)
    noise = 4 * ROUNDING * np.sqrt(short.max())
    best, length = None, np.inf
    for _ in range(1000 + 50 * zs.shape[1]):
        before = length
        length = np.sqrt(w @ w)
        if best is not None and length >= before:  # no progress beyond rounding
            return best
        score = zs @ w
        front = np.array([rows[score[rows].argmin()] for rows in members])
        full = np.zeros(len(zs))
        full[active] = alpha
        best = NearestPoint(w, full, score[front])
        if length <= noise or w @ w - best.low.sum() <= RELATIVE_GAP * (w @ w):
            return best
        behind = [
            alpha[group[active] == g] @ score[active[group[active] == g]]
            for g in range(len(members))
        ]
        new = front[np.argmax(behind - score[front])]
        if new in active:
            return best
        active, alpha, w = _minor_cycle(zs, group, np.append(active, new), np.append(alpha, 0.0))
    return best  # type: ignore[return-value]


def _minor_cycle(
    zs: np.ndarray, group: np.ndarray, active: np.ndarray, alpha: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Moves to the shortest vector of the affine hulls of the active points; stops at the boundary
    of the simplices, drops the points of weight 0, and repeats.
    """
    while True:
        target, w = _affine_minimum(zs[active], group[active], alpha)
        if (target > 0).all():
            return active, target, w
        down = np.flatnonzero(target <= 0)
        reach = alpha[down] / np.maximum(alpha[down] - target[down], np.finfo(float).tiny)
        alpha = alpha + reach.min() * (target - alpha)
        alpha[down[reach.argmin()]] = 0.0
        active = active[alpha > 0]
        alpha = alpha[alpha > 0]


def _affine_minimum(
    zs: np.ndarray, group: np.ndarray, alpha: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weights, of any sign, and the shortest vector of the affine hulls: least squares in the
    differences to one row of each group.

    The vector is updated along with the weights: recomputed from the weights it would be less
    orthogonal to the differences when it is short.
    """
    from scipy.linalg import lstsq  # imported here because it is slow and rarely needed

    base = np.array(
        [np.flatnonzero(group == g)[alpha[group == g].argmax()] for g in range(group.max() + 1)]
    )
    others = np.setdiff1d(np.arange(len(zs)), base)
    target = np.zeros(len(zs))
    target[base] = 1.0
    edges = (zs[others] - zs[base[group[others]]]).T
    length = np.maximum(np.linalg.norm(edges, axis=0), np.finfo(float).tiny)
    w = target @ zs
    for _ in range(2 if len(others) else 0):  # the second pass is iterative refinement
        solved = lstsq(edges / length, -w, lapack_driver="gelsy", check_finite=False)
        step = solved[0] / length  # type: ignore[operator]
        target[others] += step
        np.subtract.at(target, base[group[others]], step)
        w = w + edges @ step
    return target, w


def all_positive(zs: np.ndarray, v: np.ndarray) -> bool:
    r"""Whether $z_i^\top v > 0$ for all $i$, decided exactly: in rational numbers where a
    floating-point sum is too close to 0.

    >>> all_positive(np.array([[1e16, 1.0, -1e16]]), np.ones(3))
    True
    """
    if not np.isfinite(v).all():
        return False
    score = zs @ v
    rounding_error = (len(v) + 2) * ROUNDING * (np.abs(zs) @ np.abs(v))
    if not (score >= -rounding_error).all():
        return False
    exact = [Fraction(a) for a in v.tolist()]
    near = zs[~(score > rounding_error)]
    return all(sum(a * Fraction(z) for a, z in zip(exact, row)) > 0 for row in near.tolist())


def exact_certificate(zs: np.ndarray, alpha: np.ndarray) -> np.ndarray | None:
    r"""Weights $\alpha \ge 0$ of sum 1, close to those given, with $\sum_i \alpha_i z_i = 0$; None
    if there are none.

    Up to `MAX_EXACT_ROWS` rows are combined in rational numbers, so that the sum is exactly 0.

    >>> exact_certificate(np.array([[1.0], [-3.0]]), np.array([0.75, 0.25])).tolist()
    [0.75, 0.25]
    >>> exact_certificate(np.array([[1.0, 1e-300], [-1.0, 0.0]]), np.array([0.5, 0.5])) is None
    True
    """
    active = np.flatnonzero(alpha)
    exact = (
        _eliminate(zs[active].T, alpha[active])
        if len(active) <= MAX_EXACT_ROWS
        else [Fraction(a) for a in alpha[active].tolist()]
    )
    if exact is None or min(exact) < 0 or not any(exact):
        return None
    full = np.zeros(len(zs))
    full[active] = [float(a / sum(exact)) for a in exact]
    residual = np.abs(full @ zs) <= 1e-12 * (full @ np.abs(zs))
    return full if residual.all() else None


def _eliminate(columns: np.ndarray, alpha: np.ndarray) -> list[Fraction] | None:
    """Exact solution of columns · a = 0 by Gaussian elimination, with the free variables taken from
    alpha; None if 0 is the only solution.
    """
    rows = [[Fraction(a) for a in row] for row in columns.tolist()]
    pivots: list[int] = []
    for j in range(len(alpha)):
        k = next((i for i in range(len(pivots), len(rows)) if rows[i][j]), None)
        if k is None:
            continue
        top = len(pivots)
        rows[top], rows[k] = rows[k], rows[top]
        rows[top] = [a / rows[top][j] for a in rows[top]]
        rows = [
            row if i == top or not row[j] else [a - row[j] * b for a, b in zip(row, rows[top])]
            for i, row in enumerate(rows)
        ]
        pivots.append(j)
    free = [j for j in range(len(alpha)) if j not in pivots]
    if not free:
        return None
    exact = [Fraction(a) for a in alpha.tolist()]
    for i, j in enumerate(pivots):
        exact[j] = -sum((rows[i][k] * exact[k] for k in free), Fraction(0))
    return exact
