"""Cover's count: how many labellings of points a hyperplane through the origin can make."""

from itertools import product
from math import comb

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog

from ... import certify, explain, models
from ..engine.chance import chance
from ..engine.check import equal
from ..engine.claim import Verdict, claim, erratum


def _feasible(zs, on=None):
    """Whether some w has zw ≥ 1 for every row, and is orthogonal to `on`: one linear programme,
    solved by itself.
    """
    equality = {} if on is None else {"A_eq": on[None], "b_eq": [0.0]}
    found = linprog(
        np.zeros(zs.shape[1]), A_ub=-zs, b_ub=-np.ones(len(zs)), bounds=(None, None), **equality
    )
    return found.status == 0


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
def dichotomies(key):
    r"""$C(S, d)$ is the number of $y \in \{-1, +1\}^n$ for which some $w \in \mathbb{R}^d$ has
    $y_i w^\top x_i > 0$ for all $i$. With $y$, $-y$ is one of them.
    """
    rng = chance(key)
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
    found = certify.dichotomies(xs)
    expected = {tuple(s * y) for y in _labellings(5) if _feasible(y[:, None] * xs) for s in (1, -1)}
    return Verdict(
        *checks,
        equal(
            "the labellings themselves",
            {tuple(y) for y in found.tolist()} == expected,
            True,
            method="brute force",
        ),
        equal("a point at the origin leaves none", _count(np.vstack([xs, np.zeros(3)])), 0),
    )


@claim(
    "1.2-general-position",
    title="General position",
    kind="definition",
    of=("certify.in_general_position",),
    cites="Cover 1965",
)
def general_position(key):
    r"""Points in $\mathbb{R}^d$ are in general position if every subset of at most $d$ of them is
    linearly independent. Random points are; a repeated direction, or $d$ points in one hyperplane
    through 0, are not.
    """
    rng = chance(key)
    gaussian = [
        certify.in_general_position(rng.normal(size=(n, d)))
        for n, d in 25 * [(3, 4), (6, 2), (7, 3), (8, 4)]
    ]
    xs = rng.normal(size=(6, 3))
    repeated = np.vstack([xs, -2.5 * xs[1]])
    flat = np.vstack([xs, xs[0] - 3 * xs[2]])
    few = np.array(
        [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    )  # fewer points than dimensions, and yet dependent
    return Verdict(
        equal("Gaussian sets in general position, of 100", sum(gaussian), 100),
        equal("with a repeated direction", certify.in_general_position(repeated), False),
        equal("with three points in a plane", certify.in_general_position(flat), False),
        equal("two parallel points in space", certify.in_general_position(few), False),
    )


@claim(
    "1.2-cover-base",
    title="Cover's count at its edges",
    kind="identity",
    of=("certify.cover_count", "certify.dichotomies"),
    cites="Cover 1965",
)
def base(key):
    r"""$C(1, d) = 2$ and $C(n, 1) = 2$."""
    rng = chance(key)
    one = [_count(rng.normal(size=(1, d))) for d in range(1, 6)]
    line = [_count(rng.normal(size=(n, 1))) for n in range(1, 7)]
    return Verdict(
        equal("one point, d = 1 … 5", one, [2] * 5),
        equal("n = 1 … 6 points on a line", line, [2] * 6),
        equal("closed form", [certify.cover_count(1, d) for d in range(1, 6)], [2] * 5),
        equal("closed form on a line", [certify.cover_count(n, 1) for n in range(1, 7)], [2] * 6),
    )


@claim(
    "1.2-cover-split",
    title="When a labelling extends both ways",
    kind="identity",
    of=("certify.dichotomies",),
    cites="Cover 1965",
)
def split(key):
    r"""A realisable labelling of $n$ points extends to $x_{n+1}$ both ways iff some $w$ of its
    version space has $w^\top x_{n+1} = 0$; there are $C(n, d - 1)$ such labellings.
    """
    rng = chance(key)
    xs = rng.normal(size=(7, 3))
    old = xs[:6]
    new = xs[6]
    both = []
    through = []
    for y in certify.dichotomies(old):
        zs = y[:, None] * old
        both.append(all(_feasible(np.vstack([zs, side * new])) for side in (1, -1)))
        through.append(_feasible(zs, on=new))
    projected = old @ null_space(new[None])
    return Verdict(
        equal("both extensions iff wᵀx = 0 is feasible", both, through, method="brute force"),
        equal(
            "double extensions and labellings of the projected points", sum(both), _count(projected)
        ),
        equal("and C(6, 2)", sum(both), certify.cover_count(6, 2)),
        equal("labellings of all seven", _count(xs), len(both) + sum(both)),
    )


@claim(
    "1.2-cover-recursion",
    title="Cover's recursion",
    kind="identity",
    of=("certify.cover_count", "certify.dichotomies"),
    cites="Cover 1965",
)
def recursion(key):
    r"""$C(n + 1, d) = C(n, d) + C(n, d - 1)$."""
    rng = chance(key)
    C = {(n, d): certify.cover_count(n, d) for n in range(1, 62) for d in range(1, 62)}
    counted = {(n, d): _count(rng.normal(size=(n, d))) for n in range(1, 7) for d in range(1, 5)}
    missing = lambda C, n, d: C[n + 1, d] - C[n, d] - C[n, d - 1]
    return Verdict(
        equal(
            "closed form, n and d ≤ 60",
            [missing(C, n, d) for n in range(1, 61) for d in range(2, 61)],
            [0] * 60 * 59,
        ),
        equal(
            "counts, n ≤ 6 and d ≤ 4",
            [missing(counted, n, d) for n in range(1, 6) for d in range(2, 5)],
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
def cover(key):
    r"""Of $n$ points in general position in $\mathbb{R}^d$ a hyperplane through 0 makes
    $C(n, d) = 2 \sum_{i=0}^{d-1} \binom{n-1}{i}$ labellings, as many as $n$ such hyperplanes have
    regions; of points in other positions it makes fewer.
    """
    rng = chance(key)
    sets = {(n, d): rng.normal(size=(n, d)) for n in range(1, 8) for d in range(1, 5)}
    closed = [certify.cover_count(*size) for size in sets]
    sums = [2 * sum(comb(n - 1, i) for i in range(d)) for n, d in sets]
    cells = [len(explain.arrangement_cells(xs, np.zeros(len(xs)))) for xs in sets.values()]
    bent = np.round(64 * sets[7, 3]) / 64  # so that sums of coordinates are exact
    bent[6] = bent[0] + bent[1]  # three points in a plane
    return Verdict(
        equal("closed form", closed, sums, method="closed form"),
        equal(
            "labellings by linear programmes, n ≤ 7, d ≤ 4",
            [_count(xs) for xs in sets.values()],
            closed,
        ),
        equal("regions of n central hyperplanes", cells, closed, method="brute force"),
        equal(
            "fewer where three points lie in a plane",
            _count(bent) < certify.cover_count(7, 3),
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
    title="The count is printed for one point more",
    printed=r"n\ \mathrm{points}: \quad C(n + 1, d) = 2 \sum_{i=0}^{d-1} \binom{n}{i}",
    corrected=r"n\ \mathrm{points}: \quad C(n, d) = 2 \sum_{i=0}^{d-1} \binom{n-1}{i}",
    of=("certify.cover_count", "certify.dichotomies"),
    cites="Cover 1965",
    slip=True,
)
def cover_erratum(key):
    r"""The theorem speaks of $n$ points and gives the count of $n + 1$: the formula for
    $C(n + 1, d)$ and its proof are right, but it is not how many labellings the $n$ points have."""
    rng = chance(key)
    sizes = [(n, d) for n in (4, 5, 6) for d in (2, 3)]
    sets = [rng.normal(size=(n + 1, d)) for n, d in sizes]
    brute = [_brute(xs[:-1]) for xs in sets]
    found = [_count(xs[:-1]) for xs in sets]
    printed = [2 * sum(comb(n, i) for i in range(d)) for n, d in sizes]
    corrected = [2 * sum(comb(n - 1, i) for i in range(d)) for n, d in sizes]
    return Verdict(
        equal("labellings of n points", brute, corrected, method="brute force"),
        equal("the same, one label at a time", found, corrected),
        equal(
            "the closed form for n points", [certify.cover_count(n, d) for n, d in sizes], corrected
        ),
        equal("labellings of n + 1 points, as printed", [_count(xs) for xs in sets], printed),
        printed=[
            equal("labellings of n points", brute, printed, method="brute force"),
            equal("the same, one label at a time", found, printed),
        ],
    )


@claim(
    "1.2-cover-corollary",
    title="Up to d points, every labelling",
    kind="theorem",
    of=("certify.cover_count", "certify.dichotomies"),
    cites="Cover 1965",
)
def corollary(key):
    r"""$n \le d$ gives $C(n, d) = 2^n$: all labellings. $n = d + 1$ gives $2^n - 2$: all but
    two.
    """
    rng = chance(key)
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
    """How many of some fair random labellings of random points are separable."""
    return sum(
        models.separate(rng.normal(size=(n, d)), rng.choice([-1, 1], n), bias=False).separable
        for _ in range(tries)
    )
