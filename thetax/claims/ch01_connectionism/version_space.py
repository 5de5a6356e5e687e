"""The version space: an intersection of half-spaces that shrinks with every example."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from ... import explain, models
from ...plot import Panel
from ..engine.check import at_most, close, equal, refuted, within
from ..engine.claim import Verdict, claim
from .points import separable_points


def _members(w, b, xs, ys):
    """Which of many (w, b) are in the version space."""
    xs = jnp.asarray(xs)
    ys = jnp.asarray(ys)
    inside = jax.vmap(lambda w, b: explain.in_version_space(models.Perceptron(w, b), xs, ys))
    return np.asarray(inside(jnp.asarray(w), jnp.asarray(b)))


@claim(
    "1.2-version-space",
    "1.2-vs-halfspaces",
    title="The version space is an open convex cone",
    kind="definition",
    of=("explain.in_version_space",),
)
def version_space(rng):
    r"""$V(S) = \{(w, b) : \gamma[w, b](S) > 0\}$ is the intersection of the $n$ open half-spaces
    $\{(w, b) : y_i (w^\top x_i + b) > 0\}$: an open convex cone. $(0, b)$ is not in it, even where
    all labels agree.
    """
    xs, ys, _ = separable_points(rng, 4, 2, gap=0.2)
    w = rng.normal(size=(10_000, 2))
    b = rng.normal(size=10_000)
    is_member = _members(w, b, xs, ys)
    half_spaces = ys * (w @ xs.T + b[:, None]) > 0
    classified = [all(np.sign(p @ x + c) == y for x, y in zip(xs, ys)) for p, c in zip(w, b)]
    inside = np.flatnonzero(is_member)
    outside = np.flatnonzero(~is_member)
    scale = rng.uniform(0.01, 3, (2, 1000))

    def combined(pool):
        i, j = rng.choice(pool, (2, 1000))
        mixed = scale[0][:, None] * w[i] + scale[1][:, None] * w[j]
        return _members(mixed, scale[0] * b[i] + scale[1] * b[j], xs, ys)

    bias_only = explain.in_version_space(
        models.Perceptron(jnp.zeros(2), jnp.array(1.0)), jnp.asarray(xs), jnp.ones(4)
    )
    corners = np.array([[1, 0], [0, 1], [2, 1], [-1, -2]])
    signs = np.array([1, 1, 1, -1])
    grid = np.array(
        list(product(range(-3, 4), repeat=3))
    )  # integer (w, b): many lie exactly on a boundary
    min_score = (signs * (grid[:, :2] @ corners.T + grid[:, 2:])).min(axis=1)
    closed_cone = (min_score >= 0) & grid[:, :2].any(axis=1)
    grid_members = _members(
        grid[:, :2].astype(float),
        grid[:, 2].astype(float),
        corners.astype(float),
        signs.astype(float),
    )
    return Verdict(
        equal("members classify all of S correctly", is_member, classified, method="brute force"),
        equal(
            "members lie in all half-spaces",
            is_member,
            half_spaces.all(axis=1),
            method="brute force",
        ),
        equal("positive combinations of 1,000 pairs of members", combined(inside), True),
        refuted(
            equal("positive combinations of non-members stay outside", ~combined(outside), True)
        ),
        equal("(0, b) on a single class", bool(bias_only), False),
        equal(
            "343 integer (w, b), boundary excluded",
            grid_members,
            min_score > 0,
            method="brute force",
        ),
        refuted(equal("343 integer (w, b), boundary included", grid_members, closed_cone)),
        assumptions=[equal("members among 10,000", bool(len(inside) > 100), True)],
    )


@claim(
    "1.2-vs-separable",
    title="Data are separable iff their version space is not empty",
    kind="identity",
    of=("models.find_separator", "models.fit_perceptron", "models.max_margin"),
    cites="Novikoff 1962",
)
def separable(rng):
    r"""$S$ is linearly separable iff $V(S) \ne \emptyset$: a linear programme finds a point of
    $V(S)$ exactly when the perceptron stops, and then it does so within
    $(R^2 + 1) / \tilde\gamma^2$ updates, $\tilde\gamma$ being the largest margin of the points
    $(x, 1)$ without a bias. XOR has no version space.
    """
    xs = rng.integers(-4, 5, (200, 8, 2))
    ys = rng.choice([-1, 1], (200, 8))
    w = rng.normal(size=(100, 2))
    xs = np.where(
        np.arange(200)[:, None, None] < 100, 2 * xs + 1, xs
    )  # odd coordinates: no point is the origin
    ys[:100] = np.sign(np.einsum("knd,kd->kn", xs[:100], w))
    zs = ys[..., None] * np.concatenate([xs, np.ones((200, 8, 1), int)], axis=2)
    feasible = np.array(
        [
            linprog(np.zeros(3), A_ub=-z, b_ub=-np.ones(8), bounds=(None, None)).status == 0
            for z in zs
        ]
    )
    separations = [models.find_separator(x, y) for x, y in zip(xs, ys)]
    has_point = np.array(
        [
            s.model is not None and (z @ np.asarray(s.model.v)).min() > 0
            for s, z in zip(separations, zs)
        ]
    )
    fit = jax.vmap(lambda x, y: models.fit_perceptron(x, y, epochs=20_000))(
        jnp.asarray(xs), jnp.asarray(ys)
    )
    gamma = np.array([models.max_margin(z, np.ones(8), bias=False).margin for z in zs[feasible]])
    bound = (zs[feasible] ** 2).sum(axis=2).max(axis=1) / gamma**2
    square = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])
    combinations = [
        np.abs(s.certificate @ z).max()
        for s, z in zip(separations, zs)
        if s.certificate is not None
    ]
    return Verdict(
        equal(
            "the programme finds a point of V(S) iff y(wᵀx + b) ≥ 1 is feasible",
            has_point,
            feasible,
        ),
        equal(
            "the perceptron stops iff V(S) is not empty",
            fit.separated,
            feasible,
            method="brute force",
        ),
        at_most("updates, where it stops", np.asarray(fit.mistakes)[feasible], bound, slack=1e-6),
        close("where V(S) is empty, Σαz of the certificate", combinations, 0.0),
        equal(
            "XOR is separable",
            models.find_separator(square, np.array([1, 1, -1, -1])).separable,
            False,
        ),
        assumptions=[equal("both cases occur", bool(80 < feasible.sum() < 180), True)],
    )


def _arc(normals):
    """The arc of directions within a right angle of every normal, found by testing the middle
    between any two neighbouring boundaries.
    """
    walls = np.arctan2(normals[:, 1], normals[:, 0])[:, None] + np.array([-1, 1]) * np.pi / 2
    walls = np.sort(walls.ravel() % (2 * np.pi))
    ends = np.append(walls[1:], walls[0] + 2 * np.pi)
    middle = (walls + ends) / 2
    inside = (normals @ np.array([np.cos(middle), np.sin(middle)]) > 0).all(axis=0)
    return walls[inside], ends[inside]


@claim(
    "1.2-vs-shrinks",
    title="More data shrink the version space",
    kind="identity",
    of=("explain.version_volume", "explain.version_cone"),
)
def shrinks(key, rng):
    r"""$S \subset S'$ implies $V(S') \subseteq V(S)$: the share of directions that classify the
    first $k$ examples correctly never rises with $k$.
    """
    xs, ys, _ = separable_points(rng, 8, 2, gap=0.1)
    repeated = np.array(
        [[i if i < k else 0 for i in range(8)] for k in range(1, 9)]
    )  # repeated examples add no constraint
    volume = jax.jit(
        jax.vmap(lambda x, y: explain.version_volume(x, y, n_samples=200_000, key=key))
    )
    volumes = volume(jnp.asarray(xs[repeated]), jnp.asarray(ys[repeated]))
    share = np.asarray(volumes.fraction)
    arcs = [_arc(ys[:k, None] * xs[:k]) for k in range(1, 9)]
    exact = np.array([(high - low).sum() / (2 * np.pi) for low, high in arcs])
    cones = [explain.version_cone(xs[:k], ys[:k]).fraction for k in range(1, 9)]
    return Verdict(
        equal("shares of the same directions never rise", bool((np.diff(share) <= 0).all()), True),
        close("shares of 2·10⁵ directions", share, exact, tolerance=0.005, method="trend"),
        close("arcs", cones, exact, method="brute force"),
        within(
            "shares of 2·10⁵ directions, within sampling error", share, exact, error=volumes.error
        ),
        close(
            "standard errors, against √(p(1 - p)/n) of the arcs",
            volumes.error,
            np.sqrt(exact * (1 - exact) / 200_000),
            tolerance=0.02,
            relative=True,
        ),
        figure=Panel(
            "examples",
            "share of directions left",
            lines={"exact arc": (np.arange(1, 9), exact)},
            points={"200,000 directions": (np.arange(1, 9), share)},
            log="y",
        ),
    )


@claim(
    "1.2-fig1.2",
    title="The version space in the plane",
    kind="figure",
    of=("explain.version_cone",),
)
def picture(rng):
    r"""Without a bias each example in the plane is a line through the origin of weight space; the
    weights on one side of it classify the example correctly. The intersection of these sides is a
    cone, which narrows with every example.
    """
    checks = []
    cone = None
    for _ in range(5):
        xs, ys, _ = separable_points(rng, 5, 2, gap=0.3)
        cone = explain.version_cone(xs, ys)
        low, high = _arc(ys[:, None] * xs)
        turn = np.round((low[0] - cone.low) / (2 * np.pi)) * 2 * np.pi
        checks.append(
            close(
                "edges",
                [cone.low + turn, cone.high + turn],
                [low[0], high[-1]],
                tolerance=1e-9,
                method="brute force",
            )
        )
    return Verdict(*checks, figure=cone)
