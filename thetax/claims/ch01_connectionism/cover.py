"""Cover's count: how many labellings of points a hyperplane through the origin can realise."""

from itertools import product
from math import comb

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog

from ... import certify, explain, models
from ..engine.check import equal
from ..engine.claim import Verdict, claim, erratum


def _feasible(zs, on=None):
    """Whether a w has zw ≥ 1 for every row and is orthogonal to `on` (one linear programme)."""
    equality = {} if on is None else {"A_eq": on[None], "b_eq": [0.0]}
    result = linprog(
        np.zeros(zs.shape[1]), A_ub=-zs, b_ub=-np.ones(len(zs)), bounds=(None, None), **equality
    )
    return result.status == 0


def _labellings(n):
    """One of each pair y, -y."""
    return [np.array((1, *rest)) for rest in product((1, -1), repeat=n - 1)]


def _brute(xs):
    """C(S, d) by 2ⁿ⁻¹ linear programmes."""
    return 2 * sum(_feasible(y[:, None] * xs) for y in _labellings(len(xs)))


def _count(xs):
    return len(certify.dichotomies(xs))


@claim(
    "1.2-dichotomies",
    title="Counting dichotomies",
    kind="definition",
    of=("certify.dichotomies",),
    cites="Cover 1965",
)
def dichotomies(rng):
    r"""$C(S, d)$ is the number of $y \in \{-1, +1\}^n$ for which some $w \in \mathbb{R}^d$ has
    $y_i w^\top x_i > 0$ for all $i$. With $y$, $-y$ is one of them.
    """
    sets = {
        f"n = {n}, d = {d}": rng.normal(size=(n, d)) for n, d in ((4, 2), (6, 2), (5, 3), (7, 3))
    }
    sets["a repeated direction"] = np.array(
        [[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    )
    checks = [
        equal(f"C, {name}", _count(xs), _brute(xs), method="brute force")
        for name, xs in sets.items()
    ]
    xs = sets["n = 5, d = 3"]
    labellings = certify.dichotomies(xs)
    expected = {tuple(s * y) for y in _labellings(5) if _feasible(y[:, None] * xs) for s in (1, -1)}
    return Verdict(
        *checks,
        equal(
            "the labellings themselves",
            {tuple(y) for y in labellings.tolist()} == expected,
            True,
            method="brute force",
        ),
        equal("with a point at the origin there are none", _count(np.vstack([xs, np.zeros(3)])), 0),
    )


@claim(
    "1.2-general-position",
    title="General position",
    kind="definition",
    of=("certify.in_general_position",),
    cites="Cover 1965",
)
def general_position(rng):
    r"""Points in $\mathbb{R}^d$ are in general position if every subset of at most $d$ of them is
    linearly independent. Random points are; a repeated direction, or $d$ points in one hyperplane
    through 0, are not.
    """
    gaussian = [
        certify.in_general_position(rng.normal(size=(n, d)))
        for n, d in 25 * [(3, 4), (6, 2), (7, 3), (8, 4)]
    ]
    xs = rng.normal(size=(6, 3))
    repeated = np.vstack([xs, -2.5 * xs[1]])
    flat = np.vstack([xs, xs[0] - 3 * xs[2]])
    parallel = np.array(
        [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    )  # fewer points than dimensions, but dependent
    return Verdict(
        equal("Gaussian sets in general position, of 100", sum(gaussian), 100),
        equal("with a repeated direction", certify.in_general_position(repeated), False),
        equal("with three points in a plane", certify.in_general_position(flat), False),
        equal("two parallel points in space", certify.in_general_position(parallel), False),
    )


@claim(
    "1.2-cover-base",
    title="Cover's count for one point and in one dimension",
    kind="identity",
    of=("certify.cover_count", "certify.dichotomies"),
    cites="Cover 1965",
)
def base(rng):
    r"""$C(1, d) = 2$ and $C(n, 1) = 2$."""
    one_point = [_count(rng.normal(size=(1, d))) for d in range(1, 6)]
    on_a_line = [_count(rng.normal(size=(n, 1))) for n in range(1, 7)]
    return Verdict(
        equal("one point, d = 1 … 5", one_point, [2] * 5),
        equal("n = 1 … 6 points on a line", on_a_line, [2] * 6),
        equal("closed form, one point", [certify.cover_count(1, d) for d in range(1, 6)], [2] * 5),
        equal(
            "closed form, points on a line",
            [certify.cover_count(n, 1) for n in range(1, 7)],
            [2] * 6,
        ),
    )


@claim(
    "1.2-cover-split",
    title="When a labelling extends with both labels of a new point",
    kind="identity",
    of=("certify.dichotomies",),
    cites="Cover 1965",
)
def split(rng):
    r"""A realisable labelling of $n$ points extends to $x_{n+1}$ with both labels iff some $w$ of
    its version space has $w^\top x_{n+1} = 0$; there are $C(n, d - 1)$ such labellings.
    """
    xs = rng.normal(size=(7, 3))
    first = xs[:6]
    last = xs[6]
    extends_twice = []
    has_zero = []
    for y in certify.dichotomies(first):
        zs = y[:, None] * first
        extends_twice.append(all(_feasible(np.vstack([zs, side * last])) for side in (1, -1)))
        has_zero.append(_feasible(zs, on=last))
    projected = first @ null_space(last[None])
    return Verdict(
        equal(
            "both extensions iff wᵀx = 0 is feasible", extends_twice, has_zero, method="brute force"
        ),
        equal(
            "double extensions and labellings of the projected points",
            sum(extends_twice),
            _count(projected),
        ),
        equal("double extensions and C(6, 2)", sum(extends_twice), certify.cover_count(6, 2)),
        equal("labellings of all seven", _count(xs), len(extends_twice) + sum(extends_twice)),
    )


@claim(
    "1.2-cover-recursion",
    title="Cover's recursion",
    kind="identity",
    of=("certify.cover_count", "certify.dichotomies"),
    cites="Cover 1965",
)
def recursion(rng):
    r"""$C(n + 1, d) = C(n, d) + C(n, d - 1)$."""
    C = {(n, d): certify.cover_count(n, d) for n in range(1, 62) for d in range(1, 62)}
    counts = {(n, d): _count(rng.normal(size=(n, d))) for n in range(1, 7) for d in range(1, 5)}
    defect = lambda C, n, d: C[n + 1, d] - C[n, d] - C[n, d - 1]
    return Verdict(
        equal(
            "closed form, n and d ≤ 60",
            [defect(C, n, d) for n in range(1, 61) for d in range(2, 61)],
            [0] * 60 * 59,
        ),
        equal(
            "counts, n ≤ 6 and d ≤ 4",
            [defect(counts, n, d) for n in range(1, 6) for d in range(2, 5)],
            [0] * 15,
            method="brute force",
        ),
    )


@claim(
    "1.2-cover",
    title="Cover's function-counting theorem",
    kind="theorem",
    of=("certify.cover_count", "certify.dichotomies", "explain.arrangement_cells"),
    cites="Cover 1965",
)
def cover(rng):
    r"""Hyperplanes through 0 realise $C(n, d) = 2 \sum_{i=0}^{d-1} \binom{n-1}{i}$ labellings of
    $n$ points in general position in $\mathbb{R}^d$, as many as $n$ such hyperplanes have regions;
    of points not in general position they realise fewer.
    """
    sets = {(n, d): rng.normal(size=(n, d)) for n in range(1, 8) for d in range(1, 5)}
    formula = [certify.cover_count(*size) for size in sets]
    sums = [2 * sum(comb(n - 1, i) for i in range(d)) for n, d in sets]
    n_cells = [len(explain.arrangement_cells(xs, np.zeros(len(xs)))) for xs in sets.values()]
    degenerate = np.round(64 * sets[7, 3]) / 64  # makes sums of coordinates exact
    degenerate[6] = degenerate[0] + degenerate[1]  # three points in a plane
    return Verdict(
        equal("closed form", formula, sums, method="closed form"),
        equal(
            "labellings by linear programmes, n ≤ 7, d ≤ 4",
            [_count(xs) for xs in sets.values()],
            formula,
        ),
        equal("regions of n central hyperplanes", n_cells, formula, method="brute force"),
        equal(
            "fewer where three points lie in a plane",
            _count(degenerate) < certify.cover_count(7, 3),
            True,
        ),
        assumptions=[
            equal(
                "in general position",
                [certify.in_general_position(xs) for xs in sets.values()],
                [True] * 28,
            )
        ],
    )


@erratum(
    "1.2-cover",
    title="The count is printed for n + 1 points instead of n",
    printed=r"n\ \mathrm{points}: \quad C(n + 1, d) = 2 \sum_{i=0}^{d-1} \binom{n}{i}",
    corrected=r"n\ \mathrm{points}: \quad C(n, d) = 2 \sum_{i=0}^{d-1} \binom{n-1}{i}",
    of=("certify.cover_count", "certify.dichotomies"),
    cites="Cover 1965",
    slip=True,
)
def cover_erratum(rng):
    r"""The theorem is about $n$ points and gives the count of $n + 1$: the formula for
    $C(n + 1, d)$ and its proof are right, but it is not the number of labellings of $n$ points."""
    sizes = [(n, d) for n in (4, 5, 6) for d in (2, 3)]
    sets = [rng.normal(size=(n + 1, d)) for n, d in sizes]
    by_programmes = [_brute(xs[:-1]) for xs in sets]
    counts = [_count(xs[:-1]) for xs in sets]
    printed = [2 * sum(comb(n, i) for i in range(d)) for n, d in sizes]
    corrected = [2 * sum(comb(n - 1, i) for i in range(d)) for n, d in sizes]
    return Verdict(
        equal("labellings of n points", by_programmes, corrected, method="brute force"),
        equal("the same, one label at a time", counts, corrected),
        equal(
            "the closed form for n points", [certify.cover_count(n, d) for n, d in sizes], corrected
        ),
        equal("labellings of n + 1 points, as printed", [_count(xs) for xs in sets], printed),
        printed=[
            equal("labellings of n points", by_programmes, printed, method="brute force"),
            equal("the same, one label at a time", counts, printed),
        ],
    )


@claim(
    "1.2-cover-corollary",
    title="Every labelling of up to d points is separable",
    kind="theorem",
    of=("certify.cover_count", "certify.dichotomies"),
    cites="Cover 1965",
)
def corollary(rng):
    r"""$n \le d$ gives $C(n, d) = 2^n$: all labellings. $n = d + 1$ gives $2^n - 2$: all but
    two.
    """
    up_to = [(n, d) for d in range(1, 31) for n in range(1, d + 1)]
    return Verdict(
        equal(
            "n ≤ d ≤ 30", [certify.cover_count(n, d) for n, d in up_to], [2**n for n, _ in up_to]
        ),
        equal(
            "n = d + 1, d ≤ 30",
            [certify.cover_count(d + 1, d) for d in range(1, 31)],
            [2 ** (d + 1) - 2 for d in range(1, 31)],
        ),
        equal(
            "counted, n = d ≤ 5",
            [_count(rng.normal(size=(d, d))) for d in range(1, 6)],
            [2**d for d in range(1, 6)],
        ),
        equal(
            "counted, n = d + 1",
            [_count(rng.normal(size=(d + 1, d))) for d in range(1, 6)],
            [2 ** (d + 1) - 2 for d in range(1, 6)],
        ),
    )


def separable_share(rng, n, d, tries):
    """How many of `tries` fair random labellings of random points are separable."""
    return sum(
        models.find_separator(rng.normal(size=(n, d)), rng.choice([-1, 1], n), bias=False).separable
        for _ in range(tries)
    )
