"""§2.6: activation patterns, cells, and how many of them there can be."""

from itertools import product

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from ... import certify, explain, layers
from ...core import predict
from ...layers import Chain, Linear
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum


def _layer(W, b):
    return Chain(Linear(jnp.asarray(W, float), jnp.asarray(b, float)), layers.relu)


@claim(
    "2.6-relu",
    title="The rectified linear unit",
    kind="layer",
    of=("layers.relu",),
    cites="Fukushima 1969",
)
def rectifier(key):
    r"""The rectified linear unit is $(z)_+ = \max\{0, z\} = \frac12 (z + |z|)$."""
    z = np.concatenate([10 * chance(key).standard_normal(1000), [0.0, -0.0, 1e-300, -1e300]])
    return Verdict(
        equal(
            "max(0, z) against half of z + |z|",
            np.asarray(layers.relu(jnp.asarray(z))),
            (z + np.abs(z)) / 2,
        ),
        equal(
            "at 0, 1 and -1",
            np.asarray(layers.relu(jnp.array([0.0, 1.0, -1.0]))),
            np.array([0.0, 1.0, 0.0]),
        ),
    )


@claim(
    "2.6-activation-pattern",
    title="Activation patterns",
    kind="definition",
    of=("explain.activation_patterns",),
)
def pattern(key):
    r"""The activation pattern of a layer at $x$ is $\kappa(x) = 1\{Wx + b > 0\} \in \{0, 1\}^m$,
    unit by unit. It does not change along a segment that crosses no unit's hyperplane
    $\{x : w_i^\top x + b_i = 0\}$.
    """
    rng = chance(key)
    W = rng.normal(size=(5, 3))
    b = rng.normal(size=5)
    xs = rng.normal(size=(2000, 3))
    ends = rng.normal(size=(2000, 3))
    net = _layer(W, b)
    looped = [[int(sum(W[i, j] * x[j] for j in range(3)) + b[i] > 0) for i in range(5)] for x in xs]
    stays = ((xs @ W.T + b > 0) == (ends @ W.T + b > 0)).all(axis=1)
    along = lambda t: explain.activation_patterns(net, (1 - t) * xs + t * ends)
    walk = np.stack([along(t) for t in np.linspace(0, 1, 11)])
    same = (walk == walk[:1]).all(axis=(0, 2))
    V, at = (
        rng.integers(-9, 10, (5, 3)).astype(float),
        rng.integers(-9, 10, 3).astype(float),
    )  # no rounding
    return Verdict(
        equal("patterns, against a loop", explain.activation_patterns(net, xs), np.array(looped)),
        equal(
            "at a point on every unit's hyperplane",
            explain.activation_patterns(_layer(V, -V @ at), at[None])[0],
            np.zeros(5),
        ),
        equal(
            "unchanged along every segment that crosses nothing",
            same[stays],
            np.ones(stays.sum(), bool),
        ),
        refuted(
            equal(
                "unchanged along every other segment", same[~stays], np.ones((~stays).sum(), bool)
            )
        ),
        assumptions=[at_least("segments that cross nothing", int(stays.sum()), 20)],
    )


@claim(
    "2.6-cells",
    title="A ReLU layer is affine on convex cells",
    kind="definition",
    of=("explain.activation_patterns", "explain.regions"),
)
def cells(key):
    r"""The sets $X_\kappa = \{x : \kappa(x) = \kappa\}$ divide $\mathbb{R}^n$ into convex cells,
    and on each the layer is one affine map, $(Wx + b)_+ = \mathrm{diag}(\kappa)(Wx + b)$, with
    Jacobian $\mathrm{diag}(\kappa) W$.
    """
    rng = chance(key)
    W = rng.normal(size=(6, 2))
    b = rng.normal(size=6)
    xs = 2 * rng.normal(size=(10_000, 2))
    net = _layer(W, b)
    h = 1e-6
    outputs = np.asarray(predict(net, jnp.asarray(xs)))
    kappa = explain.activation_patterns(net, xs)
    order = np.lexsort(kappa.T)
    a = order[:-1]
    c = order[1:]
    pairs = (kappa[a] == kappa[c]).all(axis=1)
    middle = explain.activation_patterns(net, (xs[a[pairs]] + xs[c[pairs]]) / 2)
    inside = (np.abs(xs @ W.T + b) > 10 * h).all(axis=1)
    at = lambda shift: np.asarray(predict(net, jnp.asarray(xs + h * shift)))
    slopes = np.stack([at(e) - at(-e) for e in np.eye(2)], axis=2) / (2 * h)
    found = explain.regions(net, explain.window((-3.0, -4.0), (5.0, 2.0)))
    on = found.patterns
    return Verdict(
        close(
            "the layer, against diag(κ)(Wx + b)", outputs, kappa * (xs @ W.T + b), tolerance=1e-12
        ),
        equal("the middle of two points of a cell is in it", middle, kappa[a[pairs]]),
        close(
            "slopes, against diag(κ)W",
            slopes[inside],
            (kappa[..., None] * W)[inside],
            tolerance=1e-8,
            method="finite differences",
        ),
        close("areas of the cells in a window", found.areas.sum(), 48.0, tolerance=1e-9),
        close("their matrices, against diag(κ)W", found.A, on[..., None] * W, tolerance=1e-12),
        close("their constants, against diag(κ)b", found.c, on * b, tolerance=1e-12),
        equal(
            "their patterns, at a point of each",
            explain.activation_patterns(net, found.centres),
            found.patterns,
        ),
        refuted(close("the layer, against Wx + b", outputs, xs @ W.T + b, tolerance=1e-12)),
        figure=found,
    )


@claim(
    "2.6-trivial-bound",
    title="At most two to the m patterns",
    kind="theorem",
    of=("explain.arrangement_patterns",),
)
def at_most_all(key):
    r"""A layer of $m$ units has at most $2^m$ activation patterns, and all of them occur for
    $m \le n$ units in general position; for $m > n$ they cannot.
    """
    rng = chance(key)
    sizes = [(m, n) for n in range(1, 5) for m in range(1, 7)]
    counts = [
        len(explain.arrangement_patterns(rng.normal(size=(m, n)), rng.normal(size=m)))
        for m, n in sizes
    ]
    few = [(k, 2**m) for k, (m, n) in zip(counts, sizes) if m <= n]
    many = [(k, 2**m) for k, (m, n) in zip(counts, sizes) if m > n]
    return Verdict(
        equal("patterns for m ≤ n, against all", *np.array(few).T, method="brute force"),
        at_most(
            "patterns for m > n, against one less than all",
            np.array(many)[:, 0],
            np.array(many)[:, 1] - 1,
        ),
        refuted(equal("patterns for m > n, against all", *np.array(many).T)),
    )


@claim(
    "2.6-zaslavsky",
    title="Zaslavsky's count of regions",
    kind="theorem",
    of=("certify.zaslavsky_bound", "explain.arrangement_cells"),
    cites="Zaslavsky 1975",
)
def zaslavsky(key):
    r"""$m$ hyperplanes cut $\mathbb{R}^n$ into at most
    $R(m, n) = \sum_{i=0}^{\min(n, m)} \binom{m}{i}$ regions, and into exactly so many in general
    position. It obeys $R(m, n) = R(m - 1, n) + R(m - 1, n - 1)$: a new hyperplane adds as many
    regions as the others cut it into.
    """
    rng = chance(key)
    sizes = [(m, n) for n in range(1, 4) for m in range(1, 7)]
    counted = [
        len(explain.arrangement_cells(rng.normal(size=(m, n)), rng.normal(size=m)))
        for m, n in sizes
    ]
    parallel = len(explain.arrangement_cells(np.tile([[1.0, 2.0]], (4, 1)), rng.normal(size=4)))
    central = len(explain.arrangement_cells(rng.normal(size=(4, 2)), np.zeros(4)))
    R = lambda m, n: certify.zaslavsky_bound(m, inputs=n)
    grid = [(m, n) for m in range(1, 13) for n in range(1, 13)]
    few = np.arange(1, 9)
    return Verdict(
        equal(
            "cells of random hyperplanes",
            counted,
            [R(m, n) for m, n in sizes],
            method="brute force",
        ),
        equal(
            "recursion",
            [R(m, n) for m, n in grid],
            [R(m - 1, n) + R(m - 1, n - 1) for m, n in grid],
        ),
        equal(
            "4 parallel lines, 4 lines through a point",
            [parallel, central],
            [5, 8],
            method="brute force",
        ),
        at_most("degenerate lines, against R(4, 2)", [parallel, central], R(4, 2)),
        equal("R(4, 2)", R(4, 2), 11),
        figure=Chart(
            Panel(
                "hyperplanes m",
                "regions",
                log="y",
                lines={f"R(m, {n})": (few, [R(int(m), n) for m in few]) for n in (1, 2, 3)},
                points={"counted": ([m for m, n in sizes], counted)},
                bounds={"all patterns": (few, 2.0**few)},
            )
        ),
    )


def _on_a_line(W, b):
    """The patterns of units of one input, at every kink, between and beyond."""
    kinks = np.sort(-b / W[:, 0])
    xs = np.concatenate([kinks, (kinks[1:] + kinks[:-1]) / 2, [kinks[0] - 1, kinks[-1] + 1]])
    return {tuple((xs[:, None] * W[:, 0] + b > 0)[i].astype(int)) for i in range(len(xs))}


def _degenerate(rng, m, n):
    """Integer hyperplanes, some the same as others, or the same seen from the other side."""
    W = rng.integers(-2, 3, (m, n)).astype(float)
    b = rng.integers(-1, 2, m).astype(float)
    W[~W.any(axis=1), 0] = 1.0
    W[-1], b[-1] = -W[0], -b[0]
    return W, b


@claim(
    "2.6-patterns-vs-regions",
    title="Patterns and regions",
    kind="identity",
    of=("explain.arrangement_patterns", "explain.arrangement_cells"),
)
def patterns_and_regions(key):
    r"""The activation patterns of $m$ units never number more than $R(m, n)$. In general position
    each is that of one region; where hyperplanes coincide there can be more patterns than regions.
    """
    rng = chance(key)
    cells = explain.arrangement_cells
    patterns = explain.arrangement_patterns
    R = lambda m, n: certify.zaslavsky_bound(m, inputs=n)
    opposite = np.array([[1.0], [-1.0]]), np.zeros(2)
    generic = [
        (rng.normal(size=(m, n)), rng.normal(size=m))
        for m, n in [(3, 1), (5, 1), (4, 2), (5, 2), (5, 3)]
    ]
    special = [_degenerate(rng, m, n) for m, n in [(4, 1), (5, 1), (4, 2), (5, 2), (5, 3)]]
    line = [(W, b) for W, b in generic + special if W.shape[1] == 1]
    return Verdict(
        equal(
            "x > 0 and -x > 0: patterns, regions, R(2, 1)",
            [len(patterns(*opposite)), len(cells(*opposite)), R(2, 1)],
            [3, 2, 3],
        ),
        equal(
            "in general position, patterns and signs of cells that agree",
            [int((patterns(*h) == (cells(*h) > 0)).all(axis=1).sum()) for h in generic],
            [len(cells(*h)) for h in generic],
        ),
        at_most(
            "patterns, against R(m, n)",
            [len(patterns(*h)) for h in generic + special],
            [R(*h[0].shape) for h in generic + special],
        ),
        equal(
            "on a line, against every kink and interval",
            [len(patterns(*h)) for h in line],
            [len(_on_a_line(*h)) for h in line],
            method="brute force",
        ),
    )


@erratum(
    "2.6-patterns-vs-regions",
    title="Regions are patterns only in general position",
    printed=r"\text{the connected regions are the activation patterns}",
    corrected=r"\#\,\mathrm{regions} \le \#\,\mathrm{patterns} \le R(m, n)",
    of=("explain.arrangement_patterns", "explain.arrangement_cells"),
    slip=True,
)
def patterns_are_not_regions(key):
    r"""The two agree in general position, which the sentence does not ask for. The units $x > 0$
    and $-x > 0$ cut the line into 2 regions but have 3 patterns, since both are off at the single
    point $x = 0$."""
    rng = chance(key)
    planes = [
        (np.array([[1.0], [-1.0]]), np.zeros(2)),
        *(_degenerate(rng, 4, n) for n in (1, 1, 2)),
    ]
    general = [(rng.normal(size=(4, n)), rng.normal(size=4)) for n in (1, 2)]
    counts = lambda f, where: [len(f(*h)) for h in where]
    cells = explain.arrangement_cells
    patterns = explain.arrangement_patterns
    bound = [certify.zaslavsky_bound(len(W), inputs=W.shape[1]) for W, _ in planes]
    return Verdict(
        at_most("regions, against patterns", counts(cells, planes), counts(patterns, planes)),
        at_most("patterns, against R(m, n)", counts(patterns, planes), bound),
        equal(
            "regions and patterns in general position",
            counts(cells, general),
            counts(patterns, general),
        ),
        printed=[equal("regions and patterns", counts(cells, planes), counts(patterns, planes))],
    )


@claim(
    "2.6-cover-link",
    title="Central hyperplanes and Cover's count",
    kind="identity",
    of=("explain.arrangement_cells", "certify.cover_count"),
    cites="Cover 1965",
)
def cover_link(key):
    r"""The regions into which $n$ hyperplanes through the origin cut $\mathbb{R}^d$ are as many as
    the labellings of $n$ points by a hyperplane through the origin:
    $C(n, d) = 2 \sum_{i=0}^{d-1} \binom{n-1}{i}$.
    """
    rng = chance(key)
    sizes = [(n, d) for d in (1, 2, 3) for n in range(1, 7)]
    counted = [
        len(explain.arrangement_cells(rng.normal(size=(n, d)), np.zeros(n))) for n, d in sizes
    ]
    return Verdict(
        equal(
            "cells of central hyperplanes, against Cover",
            counted,
            [certify.cover_count(n, d) for n, d in sizes],
            method="brute force",
        ),
        equal(
            "Cover's count, against 2R(n - 1, d - 1)",
            [certify.cover_count(n, d) for n, d in sizes],
            [2 * certify.zaslavsky_bound(n - 1, inputs=d - 1) for n, d in sizes],
        ),
    )


@claim(
    "2.6-fig2.1",
    title="Three units of two inputs",
    kind="figure",
    of=("explain.regions", "explain.arrangement_patterns", "certify.zaslavsky_bound"),
)
def three_lines(key):
    r"""Three hidden units of two inputs draw three lines, which cut the plane into $R(3, 2) = 7$
    regions, each with a pattern of its own; the eighth pattern belongs to no point.
    """
    W = np.array([[1.0, 0.2], [-0.3, 1.0], [1.0, 1.0]])
    b = np.array([0.1, 0.1, -0.6])
    turn = chance(key).uniform(0, 2 * np.pi)
    W = W @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    found = explain.regions(_layer(W, b), explain.window(-2.0, 2.0))
    named = explain.arrangement_patterns(W, b).tolist()
    everything = list(product((0, 1), repeat=3))
    missing = [list(kappa) for kappa in everything if list(kappa) not in named]
    empty = [list(kappa) for kappa in everything if not _possible(W, b, kappa)]
    return Verdict(
        equal(
            "regions, against R(3, 2)", [found.count, certify.zaslavsky_bound(3, inputs=2)], [7, 7]
        ),
        equal(
            "patterns of the polygons, against the enumeration",
            sorted(found.patterns.tolist()),
            named,
        ),
        equal(
            "the pattern of no point, against linear programs without a solution", missing, empty
        ),
        equal("such patterns", len(empty), 1),
        close("areas of the polygons", found.areas.sum(), 16.0, tolerance=1e-9),
        figure=found,
    )


def _possible(W, b, kappa):
    """Whether some x has the pattern, by a program of its own: on where κ is 1, off where it is
    0.
    """
    sign = 2 * np.array(kappa) - 1
    solved = linprog(
        np.zeros(2),
        A_ub=-sign[:, None] * W,
        b_ub=sign * b - 1e-9 * (sign > 0),
        bounds=[(None, None)] * 2,
    )
    return solved.status == 0
