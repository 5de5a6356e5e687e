r"""The capacity of a linear classifier (§1.2): the number of labellings (dichotomies) of $n$ points
that a hyperplane through 0 can realise.

Cover's count for points in general position in $\mathbb{R}^d$, and its fraction of all $2^n$
labellings:

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

from ..check import expect_count
from ..models import find_separator

RANK_TOLERANCE = 1e-10  # unit points whose smallest singular value is below this count as dependent


def cover_count(n: int, d: int) -> int:
    r"""Cover's function counting theorem: $C(n, d)$, the exact number of linearly separable
    labellings of $n$ points in general position in $\mathbb{R}^d$ (§1.2).

    >>> cover_count(3, 2), cover_count(4, 2), cover_count(30, 30) == 2**30
    (6, 8, True)
    """
    expect_count("cover_count", n=n, d=d)
    return 2 * sum(comb(n - 1, i) for i in range(min(d, n)))


def cover_fraction(n: int, d: int) -> Fraction:
    r"""$F(n, d)$, the probability that fair random labels of $n$ points in general position are
    separable (§1.2).

    >>> cover_fraction(8, 4), float(cover_fraction(5, 4))
    (Fraction(1, 2), 0.9375)
    """
    return Fraction(cover_count(n, d), 2**n)


def dichotomies(xs: Num[Any, "n d"]) -> Int8[np.ndarray, "m n"]:
    r"""All linearly separable labellings: every $y \in \{-1, +1\}^n$ with $y_i w^\top x_i > 0$ for
    some $w$ and all $i$, of points in any position (§1.2).

    Labels are added one at a time, and only realisable prefixes are extended: the known separator
    $w$ realises one of the two extensions, and a linear programme decides the other. With $y$, $-y$
    is realisable too. In general position the number of rows is $C(n, d)$.

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
    prefixes = [([1], xs[0])]  # realisable labels of the first points, and a separator
    for k in range(1, len(xs)):
        prefixes = [
            extension for labels, w in prefixes for extension in _extensions(xs[: k + 1], labels, w)
        ]
    half = np.array([labels for labels, _ in prefixes], np.int8)
    return np.unique(np.concatenate([half, -half]), axis=0)


def _extensions(
    xs: np.ndarray, labels: list[int], w: np.ndarray
) -> list[tuple[list[int], np.ndarray]]:
    """The realisable labellings of all points that extend the labels of all but the last."""
    side = 1 if w @ xs[-1] >= 0 else -1
    extensions = [] if w @ xs[-1] == 0 else [([*labels, side], w)]
    for y in (-side,) if extensions else (1, -1):
        model = find_separator(xs, np.array([*labels, y]), bias=False).model
        if model is not None:
            extensions.append(([*labels, y], np.asarray(model.w, float)))
    return extensions


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
