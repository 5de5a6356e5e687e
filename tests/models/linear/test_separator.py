"""Margins and separators against scikit-learn, quadratic programming and Farkas (§1.2)."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thetax.models import (
    NotSeparable,
    Perceptron,
    find_separator,
    geometric_margin,
    max_margin,
    signed_distance,
)

pytestmark = pytest.mark.usefixtures("x64")
seeds = st.integers(0, 10**6)


def cloud(seed, n=25, d=3, gap=0.05, centre=0.0):
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(n, d))
    u = rng.normal(size=d)
    u /= np.linalg.norm(u)
    ys = np.where(np.arange(n) < 2, [1, -1][0], np.sign(xs @ u))
    xs[:2] = u, -u
    ys[:2] = 1, -1
    return xs + gap * ys[:, None] * u + centre, ys


def rows(xs, ys, bias=True):
    return ys[:, None] * (np.column_stack([xs, np.ones(len(xs))]) if bias else xs)


@given(seeds)
def test_margin_is_the_least_distance(seed):
    """Against distances to the projected points; scaling changes nothing."""
    xs, ys = cloud(seed)
    rng = np.random.default_rng(seed)
    w = rng.normal(size=3)
    b = rng.normal()
    foot = xs - np.outer(xs @ w + b, w) / (w @ w)
    right = np.sign(ys * (xs @ w + b))
    expected = (right * np.linalg.norm(xs - foot, axis=1)).min()
    for scale in (1.0, 7.5):
        unit = Perceptron(jnp.asarray(scale * w), jnp.asarray(scale * b))
        assert np.isclose(
            geometric_margin(unit, jnp.asarray(xs), jnp.asarray(ys)), expected, atol=1e-12
        )


def test_no_direction_no_distance():
    unit = Perceptron(jnp.zeros(2), jnp.array(1.0))
    assert np.isnan(signed_distance(unit, jnp.ones(2), 1.0))
    assert np.isnan(geometric_margin(unit, jnp.ones((3, 2)), jnp.ones(3)))


@given(seeds, st.booleans())
def test_separate_shows_what_it_says(seed, bias):
    """Small integers, some separable and some not: a separator or a certificate, multiplied out."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 12)
    d = rng.integers(1, 4)
    xs = rng.integers(-2, 3, (n, d))
    ys = rng.choice([-1, 1], n)
    found = find_separator(xs, ys, bias=bias)
    zs = rows(xs, ys, bias)
    if found.model is not None:
        assert found.separable
        assert found.certificate is None
        assert (zs @ np.asarray(found.model.v) > 0).all()
    else:
        assert (found.certificate >= 0).all()
        assert np.isclose(found.certificate.sum(), 1)
        assert np.abs(found.certificate @ zs).max() < 1e-12


@pytest.mark.parametrize("flip", [False, True])
def test_separate_many_points(flip):
    """50,000 points, of which one has the wrong label: the working set finds it."""
    xs, ys = cloud(0, n=50_000, d=6, gap=0.05)
    ys[31_415] *= -1 if flip else 1
    found = find_separator(xs, ys)
    zs = rows(xs, ys)
    if flip:
        assert np.abs(found.certificate @ zs).max() < 1e-12
        assert (found.certificate > 0).sum() <= 8
    else:
        assert (zs @ np.asarray(found.model.v) > 0).all()


def near():
    """Points with no gap but what chance leaves, about a hundredth."""
    xs = np.random.default_rng(0).normal(size=(100, 2))
    return xs, np.where(xs.sum(axis=1) > 0.1, 1, -1)


MOVES = {
    "far": lambda xs: xs + 1000,
    "farther": lambda xs: xs + 1e4,
    "tiny": lambda xs: xs * 1e-6,
    "large and off": lambda xs: xs * 1e6 + 1e6,
    "uneven": lambda xs: xs * np.array([[1e-3, 1e3]]),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_where_the_origin_lies_does_not_matter(move, single):
    """Separable data stay separable wherever they are, with weights that separate in the type they
    are returned in.
    """
    xs, ys = near()
    with jax.enable_x64(not single):
        models = find_separator(move(xs), ys).model, max_margin(move(xs), ys).model
    for model in models:
        assert model.w.dtype == (np.float32 if single else np.float64)
        assert (rows(move(xs), ys) @ np.asarray(model.v, float) > 0).all()
    ys[0] *= -1
    zs = rows(move(xs), ys)
    weights = find_separator(move(xs), ys).certificate
    assert (np.abs(weights @ zs) <= 1e-12 * (weights @ np.abs(zs))).all()


@given(seeds, st.sampled_from([2.0**-30, 1.0, 2.0**20]), st.sampled_from([0, 10**6, 10**12]))
def test_the_verdict_is_that_on_small_integers(seed, scale, shift):
    """Integers moved and scaled without rounding: separable iff they were, though many sets only
    just touch.
    """
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 14)
    d = rng.integers(1, 5)
    xs = rng.integers(-3, 4, (n, d))
    ys = rng.choice([-1, 1], n)
    assert find_separator(scale * (xs + shift), ys).separable == find_separator(xs, ys).separable


def test_verdicts_are_exact():
    """A gap of the last bits is a gap, and without it there is none."""
    xs = np.array([[0.0], [1e-14], [1.0]])
    ys = np.array([-1, 1, 1])
    assert (rows(xs, ys) @ np.asarray(find_separator(xs, ys).model.v) > 0).all()
    assert find_separator(np.array([[0.1], [0.1], [1.0]]), ys).certificate.tolist() == [
        0.5,
        0.5,
        0.0,
    ]
    line = np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]])
    ys = np.array([1, 1, -1])
    assert find_separator(line, ys).certificate.tolist() == [0.25, 0.25, 0.5]
    line[2, 0] += 1e-15
    assert find_separator(line, ys).separable


def test_what_a_type_cannot_hold_is_told():
    """Separable in double precision, by no weights in single."""
    xs, ys = near()
    assert find_separator(xs * 1e-6 + 1, ys).separable
    with jax.enable_x64(False):
        for ask in (find_separator, max_margin):
            with pytest.raises(
                ArithmeticError, match="separable, but not by these weights rounded to float32"
            ):
                ask(xs * 1e-6 + 1, ys)


def test_no_verdict_that_was_not_multiplied_out(monkeypatch):
    """Solvers that return nonsense are not believed."""
    nonsense = lambda xs, ys, bias: (np.array([1.0, -1.0, 0.0]), np.full(len(xs), 0.01))
    for solver in ("_by_linear_program", "_by_convex_hulls"):
        monkeypatch.setattr(sys.modules["thetax.models.linear.infeasibility"], solver, nonsense)
    with pytest.raises(ArithmeticError, match="neither a separator nor a certificate"):
        find_separator(*near())


def test_a_margin_lost_in_rounding_is_told():
    """A gap of 1e-13 along an oblique wall: separable, and the widest cannot be told."""
    rng = np.random.default_rng(0)
    along = rng.normal(size=(40, 3))
    u = np.array([0.6, 0.48, 0.64])
    ys = np.where(np.arange(40) % 2, 1, -1)
    xs = along - np.outer(along @ u, u) + 1e-13 * ys[:, None] * u
    assert find_separator(xs, ys).separable
    with pytest.raises(ArithmeticError, match="lost in rounding"):
        max_margin(xs, ys)


@given(seeds, st.booleans(), st.sampled_from([0.01, 1.0, 100.0]))
def test_max_margin_meets_the_optimality_conditions(seed, bias, scale):
    """Feasible, the multipliers positive and only on the margin, no gap between primal and dual."""
    xs, ys = cloud(seed, centre=0.4 if bias else 0.0)
    found = max_margin(scale * xs, ys, bias=bias)
    zs = rows(scale * xs, ys, bias)
    scores = zs @ np.asarray(found.model.v)
    w = np.asarray(found.model.w)
    assert scores.min() > 1 - 1e-8
    assert np.allclose(scores[found.support], 1, atol=1e-8)
    assert (found.alpha > 0).all()
    assert np.allclose(
        (found.alpha * ys[found.support]) @ (scale * xs[found.support]),
        w,
        rtol=1e-8,
        atol=1e-8 / scale,
    )
    assert np.isclose(found.alpha.sum(), w @ w, rtol=1e-8)
    assert not bias or abs(found.alpha @ ys[found.support]) < 1e-8 * found.alpha.sum()
    assert np.isclose(
        found.margin,
        geometric_margin(found.model, jnp.asarray(scale * xs), jnp.asarray(ys)),
        rtol=1e-9,
    )


def test_max_margin_is_the_support_vector_machine():
    """scikit-learn's with a huge penalty, and a quadratic programme."""
    xs, ys = cloud(3, n=40, d=2)
    found = max_margin(xs, ys)
    peer = SVC(kernel="linear", C=1e8, tol=1e-8).fit(xs, ys)
    assert np.allclose(found.model.w, peer.coef_[0], rtol=1e-4)
    assert found.support.tolist() == sorted(peer.support_)
    bound = {"type": "ineq", "fun": lambda v: rows(xs, ys) @ v - 1}
    best = minimize(
        lambda v: v[:2] @ v[:2], np.asarray(found.model.v) + 0.1, constraints=[bound], tol=1e-12
    )
    assert np.allclose(best.x, found.model.v, rtol=1e-4)


def ordinary():
    """Data sets, and what libsvm misses of the largest margin once it has converged; None where it
    takes minutes.
    """
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(1000, 5))
    yield "Gaussian", xs, np.where(xs @ np.ones(5) > 0, 1, -1), 0.4
    tumours, ys = load_breast_cancer(return_X_y=True)
    yield "tumours, standardised", StandardScaler().fit_transform(tumours), 2 * ys - 1, 0.15
    yield "tumours", tumours, 2 * ys - 1, None
    for seed in range(2):
        rng = np.random.default_rng(seed)
        xs = rng.normal(size=(20_000, 20))
        yield f"many, {seed}", xs, np.where(xs @ rng.normal(size=20) > 0, 1, -1), None
    digits, ys = load_digits(return_X_y=True)
    yield "threes", digits, np.where(ys == 3, 1, -1), 1e-3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [row[0] for row in ordinary()])
def test_max_margin_of_ordinary_data(name):
    """Margins down to 1e-8 of the coordinates: no gap between primal and dual, and libsvm comes no
    further.
    """
    xs, ys, missed = next(row[1:] for row in ordinary() if row[0] == name)
    found = max_margin(xs, ys)
    w = np.asarray(found.model.w)
    scores = rows(xs, ys) @ np.asarray(found.model.v)
    assert scores.min() > 1 - (1e-9 if name != "tumours" else 1e-6)
    share = found.alpha / found.alpha[ys[found.support] > 0].sum()
    between = np.linalg.norm(
        (share * ys[found.support]) @ xs[found.support]
    )  # of two points, one in each hull
    assert np.isclose(found.margin, between / 2, rtol=1e-8)
    assert np.isclose(found.margin, 1 / np.linalg.norm(w), rtol=1e-12)
    if missed is not None:
        peer = SVC(kernel="linear", C=1e10).fit(xs, ys)
        reached = (ys * peer.decision_function(xs)).min() / np.linalg.norm(peer.coef_)
        assert found.margin * (1 - missed) < reached < found.margin * (1 + 1e-7)


def test_max_margin_of_many_points():
    """The working set grows until no point is nearer: the same as on the support alone."""
    xs, ys = cloud(1, n=50_000, d=5, gap=0.1)
    found = max_margin(xs, ys)
    assert (rows(xs, ys) @ np.asarray(found.model.v)).min() > 1 - 1e-8
    again = max_margin(xs[found.support], ys[found.support])
    assert np.isclose(again.margin, found.margin, rtol=1e-8)


def test_max_margin_of_what_has_none():
    square = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(NotSeparable, match="separates") as error:
        max_margin(square, np.array([1, 1, -1, -1]))
    assert np.allclose(error.value.certificate, 0.25)
    with pytest.raises(ValueError, match="both labels"):
        max_margin(square, np.ones(4))
    assert np.isclose(max_margin(np.array([[3.0, 4.0]]), np.ones(1), bias=False).margin, 5.0)


@pytest.mark.parametrize("ask", [find_separator, max_margin], ids=["find_separator", "max_margin"])
@pytest.mark.usefixtures("unchecked")
def test_bad_data_is_refused(ask):
    xs = np.ones((3, 2))
    with pytest.raises(ValueError, match="labels -1 or \\+1, but row 1 is 0"):
        ask(xs, np.array([1, 0, -1]))
    with pytest.raises(ValueError, match=r"got \(3, 2\) and \(2,\)"):
        ask(xs, np.ones(2))
    with pytest.raises(ValueError, match="at least one example"):
        ask(np.ones((0, 2)), np.ones(0))
    with pytest.raises(ValueError, match=r"row 0, column 1 is nan"):
        ask(np.array([[1.0, np.nan]]), np.ones(1))
    with pytest.raises(ValueError, match=r"shape \(n, d\)"):
        ask(np.ones(3), np.ones(3))


def test_margins_map():
    """One compiled program over models and data sets."""
    xs, ys = cloud(0)
    w = np.random.default_rng(1).normal(size=(4, 3))
    found = jax.jit(
        jax.vmap(lambda w: geometric_margin(Perceptron(w), jnp.asarray(xs), jnp.asarray(ys)))
    )(jnp.asarray(w))
    assert np.allclose(found, [(ys * (xs @ row)).min() / np.linalg.norm(row) for row in w])
