r"""The capacity of a linear classifier (§1.2): how many labellings of $n$ points a hyperplane
through 0 can make.

Cover's count for points in general position in $\mathbb{R}^d$, and the share of all $2^n$
labellings that it is:

$$C(n, d) = 2 \sum_{i=0}^{d-1} \binom{n-1}{i}, \qquad
  F(n, d) = \frac{C(n, d)}{2^n} = P(\mathrm{Bin}(n - 1, \tfrac12) \le d - 1)$$

$F$ falls from 1 to 0 around $n = 2d$, where it is one half. With a bias, points in $\mathbb{R}^d$
count as $(x, 1)$ in $\mathbb{R}^{d+1}$. Departs: the notes print for $n$ points the count of
$n + 1$. Cover 1965.
"""

from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Int8, Num

from ..models import separate

RANK_TOLERANCE = 1e-10  # unit points whose smallest singular value is below this count as dependent


def cover_count(n: int, d: int) -> int:
    r"""$C(n, d)$, an exact integer: the labellings of $n$ points in general position in
    $\mathbb{R}^d$ (§1.2).

    >>> cover_count(3, 2), cover_count(4, 2), cover_count(30, 30) == 2**30
    (6, 8, True)
    """
    if n < 1 or d < 1:
        raise ValueError(f"cover_count: n and d must be at least 1; got n={n} and d={d}.")
    return 2 * sum(comb(n - 1, i) for i in range(min(d, n)))


def cover_fraction(n: int, d: int) -> Fraction:
    r"""$F(n, d)$, the probability that fair random labels of $n$ points in general position are
    separable (§1.2).

    >>> cover_fraction(8, 4), float(cover_fraction(5, 4))
    (Fraction(1, 2), 0.9375)
    """
    return Fraction(cover_count(n, d), 2**n)


def dichotomies(xs: Num[Any, "n d"]) -> Int8[np.ndarray, "count n"]:
    r"""Every $y \in \{-1, +1\}^n$ with $y_i w^\top x_i > 0$ for some $w$ and all $i$, in any
    position (§1.2).

    Labels are added one at a time: only a realisable beginning is extended, its witness $w$ settles
    one of the two extensions and a linear programme the other. With $y$, $-y$ is realisable. The
    number of rows is $C(S, d)$.

    >>> len(dichotomies(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))), cover_count(3, 2)
    (6, 6)
    >>> dichotomies(np.array([[1.0], [2.0]])).tolist()
    [[-1, -1], [1, 1]]
    """
    xs = np.asarray(xs, float)
    if xs.ndim != 2 or not len(xs) or not np.isfinite(xs).all():
        raise ValueError(
            f"dichotomies: xs must be at least one finite point, of shape (n, d); got {xs.shape}."
        )
    if not xs.any(axis=1).all():
        return np.zeros((0, len(xs)), np.int8)  # a point at the origin is on no side
    begun = [([1], xs[0])]
    for k in range(1, len(xs)):
        begun = [found for labels, w in begun for found in _extended(xs[: k + 1], labels, w)]
    half = np.array([labels for labels, _ in begun], np.int8)
    return np.unique(np.concatenate([half, -half]), axis=0)


def _extended(
    xs: np.ndarray, labels: list[int], w: np.ndarray
) -> list[tuple[list[int], np.ndarray]]:
    side = 1 if w @ xs[-1] >= 0 else -1
    found = [] if w @ xs[-1] == 0 else [([*labels, side], w)]
    for y in (-side,) if found else (1, -1):
        model = separate(xs, np.array([*labels, y]), bias=False).model
        found += [] if model is None else [([*labels, y], np.asarray(model.w, float))]
    return found


def in_general_position(xs: Num[Any, "n d"]) -> bool:
    r"""Whether every subset of at most $d$ points is linearly independent (§1.2).

    >>> in_general_position(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    True
    >>> in_general_position(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]))
    False
    """
    xs = np.asarray(xs, float)
    n, d = xs.shape
    length = np.linalg.norm(xs, axis=1, keepdims=True)
    if not length.all():
        return False
    subsets = np.array(list(combinations(range(n), min(n, d))))
    return bool(
        (np.linalg.svd((xs / length)[subsets], compute_uv=False)[:, -1] > RANK_TOLERANCE).all()
    )
