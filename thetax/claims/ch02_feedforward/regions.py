"""§2.6: activation patterns, cells, and bounds on their number."""

from itertools import product

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from ... import certify, explain, layers
from ...core import predict
from ...layers import Chain, Linear
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
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
def rectifier(rng):
    r"""The rectified linear unit is $(z)_+ = \max\{0, z\} = \frac12 (z + |z|)$."""
    z = np.concatenate([10 * rng.standard_normal(1000), [0.0, -0.0, 1e-300, -1e300]])
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
def pattern(rng):
    r"""The activation pattern of a layer at $x$ is $\kappa(x) = 1\{Wx + b > 0\} \in \{0, 1\}^m$,
    unit by unit. It does not change along a segment that crosses no unit's hyperplane
    $\{x : w_i^\top x + b_i = 0\}$.
    """
    W = rng.normal(size=(5, 3))
    b = rng.normal(size=5)
    xs = rng.normal(size=(2000, 3))
    ends = rng.normal(size=(2000, 3))
    net = _layer(W, b)
    expected = [
        [int(sum(W[i, j] * x[j] for j in range(3)) + b[i] > 0) for i in range(5)] for x in xs
    ]
    crosses_nothing = ((xs @ W.T + b > 0) == (ends @ W.T + b > 0)).all(axis=1)
    along = lambda t: explain.activation_patterns(net, (1 - t) * xs + t * ends)
    patterns = np.stack([along(t) for t in np.linspace(0, 1, 11)])
    same = (patterns == patterns[:1]).all(axis=(0, 2))
    V, at = (
        rng.integers(-9, 10, (5, 3)).astype(float),
        rng.integers(-9, 10, 3).astype(float),
    )  # integers: no rounding
    return Verdict(
        equal("patterns, against a loop", explain.activation_patterns(net, xs), np.array(expected)),
        equal(
            "at a point on every unit's hyperplane",
            explain.activation_patterns(_layer(V, -V @ at), at[None])[0],
            np.zeros(5),
        ),
        equal(
            "unchanged along every segment that crosses no hyperplane",
            same[crosses_nothing],
            np.ones(crosses_nothing.sum(), bool),
        ),
        refuted(
            equal(
                "unchanged along every other segment",
                same[~crosses_nothing],
                np.ones((~crosses_nothing).sum(), bool),
            )
        ),
        assumptions=[
            at_least("number of segments that cross no hyperplane", int(crosses_nothing.sum()), 20)
        ],
    )


@claim(
    "2.6-cells",
    title="A ReLU layer is affine on convex cells",
    kind="definition",
    of=("explain.activation_patterns", "explain.enumerate_regions"),
)
def cells(rng):
    r"""The sets $X_\kappa = \{x : \kappa(x) = \kappa\}$ divide $\mathbb{R}^n$ into convex cells,
    and on each the layer is one affine map, $(Wx + b)_+ = \mathrm{diag}(\kappa)(Wx + b)$, with
    Jacobian $\mathrm{diag}(\kappa) W$.
    """
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
    partition = explain.enumerate_regions(net, explain.input_plane((-3.0, -4.0), (5.0, 2.0)))
    patterns = partition.patterns
    return Verdict(
        close("the layer, against diag(κ)(Wx + b)", outputs, kappa * (xs @ W.T + b)),
        equal("the midpoint of two points of a cell is in the cell", middle, kappa[a[pairs]]),
        close_derivative(
            "slopes, against diag(κ)W", slopes[inside], (kappa[..., None] * W)[inside]
        ),
        close("total area of the cells in a window", partition.areas.sum(), 48.0, tolerance=1e-9),
        close("matrices of the cells, against diag(κ)W", partition.A, patterns[..., None] * W),
        close("constants of the cells, against diag(κ)b", partition.c, patterns * b),
        equal(
            "patterns of the cells, at their centres",
            explain.activation_patterns(net, partition.centres),
            partition.patterns,
        ),
        refuted(close("the layer, against Wx + b", outputs, xs @ W.T + b)),
        figure=partition,
    )


@claim(
    "2.6-trivial-bound",
    title="At most two to the m patterns",
    kind="theorem",
    of=("explain.arrangement_patterns",),
)
def at_most_all(rng):
    r"""A layer of $m$ units has at most $2^m$ activation patterns, and all of them occur for
    $m \le n$ units in general position; for $m > n$ they cannot all occur.
    """
    sizes = [(m, n) for n in range(1, 5) for m in range(1, 7)]
    counts = [
        len(explain.arrangement_patterns(rng.normal(size=(m, n)), rng.normal(size=m)))
        for m, n in sizes
    ]
    up_to_n = [(k, 2**m) for k, (m, n) in zip(counts, sizes) if m <= n]
    above_n = [(k, 2**m) for k, (m, n) in zip(counts, sizes) if m > n]
    return Verdict(
        equal("patterns for m ≤ n, against 2^m", *np.array(up_to_n).T, method="brute force"),
        at_most(
            "patterns for m > n, against 2^m − 1",
            np.array(above_n)[:, 0],
            np.array(above_n)[:, 1] - 1,
        ),
        refuted(equal("patterns for m > n, against 2^m", *np.array(above_n).T)),
    )


@claim(
    "2.6-zaslavsky",
    title="Zaslavsky's count of regions",
    kind="theorem",
    of=("certify.zaslavsky_bound", "explain.arrangement_cells"),
    cites="Zaslavsky 1975",
)
def zaslavsky(rng):
    r"""$m$ hyperplanes cut $\mathbb{R}^n$ into at most
    $R(m, n) = \sum_{i=0}^{\min(n, m)} \binom{m}{i}$ regions, and exactly that many in general
    position. It obeys $R(m, n) = R(m - 1, n) + R(m - 1, n - 1)$: a new hyperplane adds as many
    regions as the others cut it into.
    """
    sizes = [(m, n) for n in range(1, 4) for m in range(1, 7)]
    counts = [
        len(explain.arrangement_cells(rng.normal(size=(m, n)), rng.normal(size=m)))
        for m, n in sizes
    ]
    parallel = len(explain.arrangement_cells(np.tile([[1.0, 2.0]], (4, 1)), rng.normal(size=4)))
    central = len(explain.arrangement_cells(rng.normal(size=(4, 2)), np.zeros(4)))
    R = lambda m, n: certify.zaslavsky_bound(m, inputs=n)
    grid = [(m, n) for m in range(1, 13) for n in range(1, 13)]
    ms = np.arange(1, 9)
    return Verdict(
        equal(
            "cells of random hyperplanes",
            counts,
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
        figure=Panel(
            "hyperplanes m",
            "regions",
            log="y",
            lines={f"R(m, {n})": (ms, [R(int(m), n) for m in ms]) for n in (1, 2, 3)},
            points={"counted": ([m for m, n in sizes], counts)},
            bounds={"all patterns": (ms, 2.0**ms)},
        ),
    )


def _line_patterns(W, b):
    """The patterns of units of one input, at every kink, between kinks and beyond them."""
    kinks = np.sort(-b / W[:, 0])
    xs = np.concatenate([kinks, (kinks[1:] + kinks[:-1]) / 2, [kinks[0] - 1, kinks[-1] + 1]])
    return {tuple((xs[:, None] * W[:, 0] + b > 0)[i].astype(int)) for i in range(len(xs))}


def _degenerate(rng, m, n):
    """Integer hyperplanes, some of which coincide, with equal or opposite normals."""
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
def patterns_and_regions(rng):
    r"""$m$ units have at most $R(m, n)$ activation patterns. In general position each pattern is
    that of one region; if hyperplanes coincide there can be more patterns than regions.
    """
    cells = explain.arrangement_cells
    patterns = explain.arrangement_patterns
    R = lambda m, n: certify.zaslavsky_bound(m, inputs=n)
    opposite = np.array([[1.0], [-1.0]]), np.zeros(2)
    generic = [
        (rng.normal(size=(m, n)), rng.normal(size=m))
        for m, n in [(3, 1), (5, 1), (4, 2), (5, 2), (5, 3)]
    ]
    degenerate = [_degenerate(rng, m, n) for m, n in [(4, 1), (5, 1), (4, 2), (5, 2), (5, 3)]]
    line = [(W, b) for W, b in generic + degenerate if W.shape[1] == 1]
    return Verdict(
        equal(
            "x > 0 and -x > 0: patterns, regions, R(2, 1)",
            [len(patterns(*opposite)), len(cells(*opposite)), R(2, 1)],
            [3, 2, 3],
        ),
        equal(
            "in general position, number of patterns that agree with the signs of their cell",
            [int((patterns(*h) == (cells(*h) > 0)).all(axis=1).sum()) for h in generic],
            [len(cells(*h)) for h in generic],
        ),
        at_most(
            "patterns, against R(m, n)",
            [len(patterns(*h)) for h in generic + degenerate],
            [R(*h[0].shape) for h in generic + degenerate],
        ),
        equal(
            "on a line, against every kink and interval",
            [len(patterns(*h)) for h in line],
            [len(_line_patterns(*h)) for h in line],
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
def patterns_are_not_regions(rng):
    r"""The two agree in general position, which the sentence does not require. The units $x > 0$
    and $-x > 0$ cut the line into 2 regions but have 3 patterns, since both are inactive at the
    single point $x = 0$."""
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
def cover_link(rng):
    r"""The number of regions into which $n$ hyperplanes through the origin cut $\mathbb{R}^d$
    equals the number of labellings of $n$ points by a hyperplane through the origin: $C(n, d) = 2
    \sum_{i=0}^{d-1} \binom{n-1}{i}$.
    """
    sizes = [(n, d) for d in (1, 2, 3) for n in range(1, 7)]
    counts = [
        len(explain.arrangement_cells(rng.normal(size=(n, d)), np.zeros(n))) for n, d in sizes
    ]
    return Verdict(
        equal(
            "cells of central hyperplanes, against Cover",
            counts,
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
    of=("explain.enumerate_regions", "explain.arrangement_patterns", "certify.zaslavsky_bound"),
)
def three_lines(rng):
    r"""Three hidden units of two inputs define three lines, which cut the plane into $R(3, 2) = 7$
    regions with distinct patterns; the eighth pattern does not occur.
    """
    W = np.array([[1.0, 0.2], [-0.3, 1.0], [1.0, 1.0]])
    b = np.array([0.1, 0.1, -0.6])
    turn = rng.uniform(0, 2 * np.pi)
    W = W @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    partition = explain.enumerate_regions(_layer(W, b), explain.input_plane(-2.0, 2.0))
    patterns = explain.arrangement_patterns(W, b).tolist()
    all_patterns = list(product((0, 1), repeat=3))
    missing = [list(kappa) for kappa in all_patterns if list(kappa) not in patterns]
    empty = [list(kappa) for kappa in all_patterns if not _possible(W, b, kappa)]
    return Verdict(
        equal(
            "regions, against R(3, 2)",
            [partition.n_regions, certify.zaslavsky_bound(3, inputs=2)],
            [7, 7],
        ),
        equal(
            "patterns of the polygons, against the enumeration",
            sorted(partition.patterns.tolist()),
            patterns,
        ),
        equal("patterns that do not occur, against infeasible linear programmes", missing, empty),
        equal("number of patterns that do not occur", len(empty), 1),
        close("total area of the polygons", partition.areas.sum(), 16.0, tolerance=1e-9),
        figure=partition,
    )


def _possible(W, b, kappa):
    """Whether some x has the pattern, by a linear programme: active where κ = 1 only."""
    sign = 2 * np.array(kappa) - 1
    result = linprog(
        np.zeros(2),
        A_ub=-sign[:, None] * W,
        b_ub=sign * b - 1e-9 * (sign > 0),
        bounds=[(None, None)] * 2,
    )
    return result.status == 0
