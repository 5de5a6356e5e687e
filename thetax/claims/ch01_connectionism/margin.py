"""The perceptron as a hyperplane: distances and margins."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ... import layers, models
from ..engine.check import close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng
from .points import separable_points


def _units(w, b):
    return jax.vmap(models.Perceptron)(jnp.asarray(w), jnp.asarray(b))


def _distances(w, b, x, y):
    """Signed distances, one for each row of the arguments."""
    return np.asarray(
        jax.vmap(models.signed_distance)(_units(w, b), jnp.asarray(x), jnp.asarray(y))
    )


def _project(normal, c, x):
    """The point of {normal·p = c} nearest to x, from the equations of constrained least squares."""
    d = len(x)
    equations = np.block([[np.eye(d), normal[:, None]], [normal[None], np.zeros((1, 1))]])
    return np.linalg.solve(equations, np.append(x, c))[:d]


@claim(
    "1.2-sgn", title="The three-valued sign", kind="definition", of=("layers.sign", "layers.spin")
)
def sgn(key):
    r"""$\mathrm{sgn}(z)$ is $+1$, $0$ or $-1$ for $z > 0$, $z = 0$, $z < 0$. The sign of §1.4 is
    another function: its value at 0 is $+1$.
    """
    z = jnp.array([2.0, 1e-300, 0.0, -0.0, -1e-300, -3.0])
    expected = [1.0, 1.0, 0.0, 0.0, -1.0, -1.0]
    return Verdict(
        equal("sgn", layers.sign(z), expected),
        equal("the sign of §1.4", layers.spin(z), [1.0, 1.0, 1.0, 1.0, -1.0, -1.0]),
        refuted(equal("the two signs are the same function", layers.spin(z), expected)),
    )


@claim(
    "1.2-perceptron-unit",
    title="The perceptron unit",
    kind="model",
    of=("models.Perceptron",),
    cites="Rosenblatt 1958",
)
def unit(rng):
    r"""$f[w, b](x) = \mathrm{sgn}(w^\top x + b)$ with $x, w \in \mathbb{R}^d$, $b \in \mathbb{R}$.
    On the boundary $f = 0$, which is neither label.
    """
    w = rng.normal(size=5)
    b = 0.3
    xs = rng.normal(size=(200, 5))
    by_hand = []
    for x in xs:
        z = b + sum(w[j] * x[j] for j in range(5))
        by_hand.append(1.0 if z > 0 else -1.0 if z < 0 else 0.0)
    outputs = jax.vmap(models.Perceptron(jnp.asarray(w), jnp.asarray(b)))(jnp.asarray(xs))
    on_boundary = models.Perceptron(jnp.array([2.0, -3.0]), jnp.array(1.0))(jnp.array([1.0, 1.0]))
    return Verdict(
        equal("outputs on 200 points", outputs, by_hand, method="brute force"),
        equal("output on the boundary", on_boundary, 0.0),
        equal(
            "a point on the boundary is misclassified for both labels",
            [bool(on_boundary != 1), bool(on_boundary != -1)],
            [True, True],
        ),
    )


@claim(
    "1.2-hyperplane",
    title="The boundary is a hyperplane",
    kind="identity",
    of=("models.Perceptron", "models.signed_distance"),
)
def hyperplane(rng):
    r"""$\{x : w^\top x + b = 0\}$ has the unit normal $w / \|w\|$ and lies at the signed offset
    $-b / \|w\|$ from the origin along it; its point nearest to the origin is $-b\,w / \|w\|^2$.
    """
    w = rng.normal(size=(50, 4))
    b = rng.normal(size=50)
    length = np.linalg.norm(w, axis=1)
    p = -b[:, None] * w / length[:, None] ** 2
    nearest = np.array(
        [np.linalg.lstsq(row[None], [-offset], rcond=None)[0] for row, offset in zip(w, b)]
    )
    scores = jax.vmap(models.Perceptron.score)(_units(w, b), jnp.asarray(p))
    offset = -_distances(w, b, np.zeros((50, 4)), np.ones(50))  # of the plane from the origin
    return Verdict(
        close("wᵀp + b", scores, 0.0),
        close("least-norm point of the plane", p, nearest, method="brute force"),
        close("offset along the normal", offset, np.einsum("nd,nd->n", w, nearest) / length),
        close("offset is -b / ‖w‖", offset, -b / length),
    )


@erratum(
    "1.2-hyperplane",
    title="The boundary lies in input space",
    printed=r"\text{a hyperplane in } \mathbb{R}^n",
    corrected=r"\text{a hyperplane in } \mathbb{R}^d",
    of=("models.fit_perceptron",),
    slip=True,
)
def hyperplane_erratum(rng):
    r"""Inputs and weights are in $\mathbb{R}^d$, and $n$ counts the examples. (A side note of the
    proof of Cover's theorem has $x_{s+1}$ for $x_{n+1}$: there too the old names remain.)"""
    n, d = 7, 4
    xs = rng.normal(size=(n, d))
    normal = models.fit_perceptron(xs, np.sign(xs @ rng.normal(size=d))).model.w
    entries = lambda expected: equal(
        "entries of the normal, 7 examples in four dimensions", len(normal), expected
    )
    return Verdict(entries(d), printed=[entries(n)])


def _planes(key):
    """100 planes in Hesse's form, half of them with c < 0, a point for each, and the two distances
    by projection.
    """
    rng = numpy_rng(key)
    normal = rng.normal(size=(100, 3))
    x = rng.normal(size=(100, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    c = np.where(np.arange(100) % 2, 1, -1) * rng.uniform(0.1, 2, 100)
    distances = np.array(
        [np.linalg.norm(_project(row, level, p) - p) for row, level, p in zip(normal, c, x)]
    )
    origin_distances = np.array(
        [np.linalg.norm(_project(row, level, np.zeros(3))) for row, level in zip(normal, c)]
    )
    return normal, c, x, distances, origin_distances


@claim(
    "1.2-hesse", title="Distances in Hesse's form", kind="identity", of=("models.signed_distance",)
)
def hesse(key):
    r"""With $\|n\| = 1$ the plane $n^\top x - c = 0$ is $|n^\top x - c|$ from $x$ and $|c|$ from
    the origin.
    """
    normal, c, x, away, origin = _planes(key)
    distances = np.abs(_distances(normal, -c, x, np.ones(100)))
    plane = {"type": "eq", "fun": lambda p: normal[0] @ p - c[0]}
    slsqp = minimize(lambda p: (p - x[0]) @ (p - x[0]), x[0], constraints=[plane], tol=1e-14)
    return Verdict(
        close("distance of 100 points", distances, away, tolerance=1e-8, method="brute force"),
        close(
            "distance of one point, by SLSQP",
            distances[0],
            np.sqrt(slsqp.fun),
            tolerance=1e-6,
            method="brute force",
        ),
        close(
            "distance of the origin",
            np.abs(_distances(normal, -c, 0 * x, np.ones(100))),
            origin,
            tolerance=1e-8,
        ),
        close("|c|", np.abs(c), origin),
    )


@erratum(
    "1.2-hesse",
    title="The offset of Hesse's form is signed",
    printed=r"n^\top x - d = 0,\quad d \text{ the shortest distance of the hyperplane to the "
    r"origin}",
    corrected=r"n^\top x - d = 0,\quad |d| \text{ the shortest distance of the hyperplane to the "
    r"origin}",
    of=("models.signed_distance",),
    slip=True,
)
def hesse_erratum(key):
    r"""A side note calls $d$ the shortest distance of the hyperplane to the origin. With
    $n = w / \|w\|$ it is $-b / \|w\|$, negative whenever $b > 0$: it is the signed distance, as
    the annotated sentence says."""
    normal, d, x, _, origin = _planes(key)
    return Verdict(
        close("|d| is the distance", np.abs(_distances(normal, -d, 0 * x, np.ones(100))), origin),
        printed=[close("d is the distance", -_distances(normal, -d, 0 * x, np.ones(100)), origin)],
    )


@claim(
    "1.2-signed-distance",
    title="The signed distance",
    kind="definition",
    of=("models.signed_distance",),
)
def signed_distance(rng):
    r"""$\gamma[w, b](x, y) = y\,(w^\top x + b) / \|w\|$: its absolute value is the distance of $x$
    from the boundary, it does not change when $(w, b)$ is multiplied by $c > 0$, and it changes
    sign with $y$. At $w = 0$ it is undefined.
    """
    w = rng.normal(size=(100, 3))
    b = rng.normal(size=100)
    x = rng.normal(size=(100, 3))
    y = rng.choice([-1.0, 1.0], 100)
    c = rng.uniform(0.1, 10, 100)
    gamma = _distances(w, b, x, y)
    nearest = [_project(row, -offset, p) for row, offset, p in zip(w, b, x)]
    right = y * (np.einsum("nd,nd->n", w, x) + b) > 0
    return Verdict(
        close(
            "absolute value",
            np.abs(gamma),
            np.linalg.norm(x - nearest, axis=1),
            method="brute force",
        ),
        equal("positive on the side of the label", gamma > 0, right),
        close("(cw, cb)", _distances(c[:, None] * w, c * b, x, y), gamma),
        equal("the other label", _distances(w, b, x, -y), -gamma),
        equal("w = 0 gives NaN", np.isnan(_distances(0 * w, b, x, y)).all(), True),
    )


@claim(
    "1.2-sign-correct",
    title="The signed distance is positive iff the label is right",
    kind="identity",
    of=("models.Perceptron", "models.signed_distance"),
)
def sign_correct(rng):
    r"""For $w \ne 0$: $f[w, b](x) = y \iff \gamma[w, b](x, y) > 0$."""
    w = rng.normal(size=(10_000, 3))
    x = rng.normal(size=(10_000, 3))
    b = rng.normal(size=10_000)
    y = rng.choice([-1.0, 1.0], 10_000)
    w[:500], x[:500] = rng.integers(1, 9, (500, 3)), rng.integers(-8, 9, (500, 3))
    b[:500] = -np.einsum("nd,nd->n", w[:500], x[:500])  # integers: exactly on the boundary
    f = np.asarray(jax.vmap(lambda unit, x: unit(x))(_units(w, b), jnp.asarray(x)))
    positive = _distances(w, b, x, y) > 0
    return Verdict(
        equal("f = y and γ > 0 agree", f == y, positive, method="brute force"),
        equal("on the boundary f = 0 and γ ≤ 0", ((f[:500] == 0) & ~positive[:500]).sum(), 500),
    )


@claim(
    "1.2-margin",
    "1.2-gamma-separates",
    title="The margin of a classifier on data",
    kind="definition",
    of=("models.geometric_margin",),
)
def margin(rng):
    r"""$\gamma[w, b](S) = \min_{(x, y) \in S} \gamma[w, b](x, y)$, positive iff no example is
    misclassified; $(w, b)$ $\gamma$-separates $S$ iff $\gamma[w, b](S) \ge \gamma$.
    """
    xs, ys, u = separable_points(rng, 200, 12, 3, gap=0.1)
    w = u + np.where(np.arange(200) % 2, 0.0, 1.5)[:, None] * rng.normal(
        size=u.shape
    )  # every other direction is perturbed
    b = np.where(np.arange(200) % 2, 0.0, 0.1)
    score = ys * (np.einsum("knd,kd->kn", xs, w) + b[:, None])
    margins = np.asarray(
        jax.vmap(models.geometric_margin)(_units(w, b), jnp.asarray(xs), jnp.asarray(ys))
    )
    min_distance = (score / np.linalg.norm(w, axis=1)[:, None]).min(axis=1)
    levels = np.linspace(-1, 1, 41)
    separates = margins[:, None] >= levels[None]
    flat = models.Perceptron(jnp.array([3.0, 4.0]), jnp.array(0.0))  # γ = 2 exactly
    exact = models.geometric_margin(
        flat, jnp.array([[2.0, 1.0], [4.0, 2.0], [-6.0, -3.0]]), jnp.array([1.0, 1.0, -1.0])
    )
    return Verdict(
        close("least distance", margins, min_distance, method="brute force"),
        equal(
            "positive iff no errors",
            margins > 0,
            (score <= 0).sum(axis=1) == 0,
            method="brute force",
        ),
        equal("both cases occur", sorted({bool(m > 0) for m in margins}), [False, True]),
        equal(
            "all distances ≥ γ",
            separates,
            (score / np.linalg.norm(w, axis=1)[:, None] >= levels[:, None, None]).all(2).T,
        ),
        equal(
            "γ-separates at equality, but not beyond",
            [bool(exact >= 2), bool(exact >= 2 + 1e-12)],
            [True, False],
        ),
    )
