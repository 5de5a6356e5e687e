r"""The nearest points of two convex hulls, and what can be shown without rounding (§1.2).

Two sets of points are separable iff their convex hulls do not meet; the shortest vector between the
hulls is then the normal of the widest gap. Wolfe's algorithm finds it in finitely many steps: it
holds the shortest vector between two simplices, adds the point that lies furthest in front of it,
and drops those whose weight turns negative.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

TIGHT = 1e-13  # share of the squared length that may be missing at the end
FEW = 16  # rows up to which a combination is worked out in rational numbers
ROUNDING = np.finfo(float).eps


class Nearest(NamedTuple):
    r"""The shortest $w = \sum_i \alpha_i z_i$ with $\alpha \ge 0$ that adds up to 1 in each
    group.
    """

    w: np.ndarray
    alpha: np.ndarray
    low: (
        np.ndarray
    )  # the least $z_i^\top w$ of each group; their sum is $\|w\|^2$ at the optimum and never more


def nearest_point(zs: np.ndarray, group: np.ndarray) -> Nearest:
    r"""The shortest vector of a sum of convex hulls, one for each group of rows (Wolfe 1976).

    >>> found = nearest_point(np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 3.0]]), np.zeros(3, int))
    >>> found.w.round(6).tolist(), found.alpha.round(6).tolist()
    ([0.5, 0.5], [0.5, 0.5, 0.0])
    """
    members = [np.flatnonzero(group == g) for g in range(group.max() + 1)]
    short = np.einsum("nd,nd->n", zs, zs)
    held = np.array([rows[short[rows].argmin()] for rows in members])
    alpha = np.ones(len(held))
    w = zs[held].sum(axis=0)
    noise = 4 * ROUNDING * np.sqrt(short.max())
    best, length = None, np.inf
    for _ in range(1000 + 50 * zs.shape[1]):
        before = length
        length = np.sqrt(w @ w)
        if best is not None and length >= before:  # nothing left but rounding
            return best
        score = zs @ w
        front = np.array([rows[score[rows].argmin()] for rows in members])
        full = np.zeros(len(zs))
        full[held] = alpha
        best = Nearest(w, full, score[front])
        if length <= noise or w @ w - best.low.sum() <= TIGHT * (w @ w):
            return best
        behind = [
            alpha[group[held] == g] @ score[held[group[held] == g]] for g in range(len(members))
        ]
        new = front[np.argmax(behind - score[front])]
        if new in held:
            return best
        held, alpha, w = _shorten(zs, group, np.append(held, new), np.append(alpha, 0.0))
    return best  # type: ignore[return-value]


def _shorten(
    zs: np.ndarray, group: np.ndarray, held: np.ndarray, alpha: np.ndarray
) -> tuple[np.ndarray, ...]:
    """From a point of the simplices to the shortest of their planes, or the last that no weight
    forbids, and again.
    """
    while True:
        target, w = _affine(zs[held], group[held], alpha)
        if (target > 0).all():
            return held, target, w
        down = np.flatnonzero(target <= 0)
        reach = alpha[down] / np.maximum(alpha[down] - target[down], np.finfo(float).tiny)
        alpha = alpha + reach.min() * (target - alpha)
        alpha[down[reach.argmin()]] = 0.0
        held = held[alpha > 0]
        alpha = alpha[alpha > 0]


def _affine(zs: np.ndarray, group: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights, of any sign, and the shortest vector: least squares in the differences to one
    row of each group.

    The vector is as orthogonal to the differences as rounding allows; the same from its weights is
    much less so where it is short.
    """
    from scipy.linalg import lstsq  # for those who ask; most users of a model need not wait for it

    base = np.array(
        [np.flatnonzero(group == g)[alpha[group == g].argmax()] for g in range(group.max() + 1)]
    )
    others = np.setdiff1d(np.arange(len(zs)), base)
    target = np.zeros(len(zs))
    target[base] = 1.0
    edges = (zs[others] - zs[base[group[others]]]).T
    length = np.maximum(np.linalg.norm(edges, axis=0), np.finfo(float).tiny)
    w = target @ zs
    for _ in range(2 if len(others) else 0):  # once more for what rounding has left
        solved = lstsq(edges / length, -w, lapack_driver="gelsy", check_finite=False)
        step = solved[0] / length  # type: ignore[operator]
        target[others] += step
        np.subtract.at(target, base[group[others]], step)
        w = w + edges @ step
    return target, w


def positive(zs: np.ndarray, v: np.ndarray) -> bool:
    r"""Whether $z_i^\top v > 0$ for all $i$, without rounding: in rational numbers where the sum is
    too near to 0.

    >>> positive(np.array([[1e16, 1.0, -1e16]]), np.ones(3))
    True
    """
    if not np.isfinite(v).all():
        return False
    score = zs @ v
    blur = (len(v) + 2) * ROUNDING * (np.abs(zs) @ np.abs(v))
    if not (score >= -blur).all():
        return False
    exact = [Fraction(a) for a in v.tolist()]
    near = zs[~(score > blur)]
    return all(sum(a * Fraction(z) for a, z in zip(exact, row)) > 0 for row in near.tolist())


def vanishing(zs: np.ndarray, alpha: np.ndarray) -> np.ndarray | None:
    r"""Weights $\alpha \ge 0$ of sum 1 close to those given with $\sum_i \alpha_i z_i = 0$; None
    where there are none.

    Up to `FEW` rows are combined in rational numbers, so that the sum is 0 and not merely small.

    >>> vanishing(np.array([[1.0], [-3.0]]), np.array([0.75, 0.25])).tolist()
    [0.75, 0.25]
    >>> vanishing(np.array([[1.0, 1e-300], [-1.0, 0.0]]), np.array([0.5, 0.5])) is None
    True
    """
    held = np.flatnonzero(alpha)
    exact = (
        _eliminate(zs[held].T, alpha[held])
        if len(held) <= FEW
        else [Fraction(a) for a in alpha[held].tolist()]
    )
    if exact is None or min(exact) < 0 or not any(exact):
        return None
    full = np.zeros(len(zs))
    full[held] = [float(a / sum(exact)) for a in exact]
    residual = np.abs(full @ zs) <= 1e-12 * (full @ np.abs(zs))
    return full if residual.all() else None


def _eliminate(columns: np.ndarray, alpha: np.ndarray) -> list[Fraction] | None:
    """The exact solution of columns · a = 0 that agrees with alpha where there is a choice; None if
    only 0 is one.
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
