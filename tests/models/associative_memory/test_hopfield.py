"""Hebb's rule and the projection rule against numpy, the two forms of one memory, and bad input
(§1.4).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.models import Hebbian, Hopfield, asynchronous_recall, hebb, pseudo_inverse

pytestmark = pytest.mark.usefixtures("x64", "strict")


def patterns(seed, n, d):
    return jnp.asarray(np.random.default_rng(seed).choice([-1.0, 1.0], (n, d)))


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 11]), st.sampled_from([1, 12]))
def test_hebb_is_its_sum(seed, n, d):
    """And learning pattern after pattern gives the same, in both forms; energies and fields
    agree.
    """
    X = patterns(seed, n, d)
    W = np.zeros((d, d))
    for x in np.asarray(X):
        W += np.outer(x, x) / d
    np.fill_diagonal(W, 0)
    matrix = hebb(X)
    implicit = Hebbian(X)
    grown = Hopfield(jnp.zeros((d, d)))
    for x in X:
        grown = grown.learn(x)
    assert np.allclose(matrix.W, W, atol=1e-14)
    assert np.allclose(grown.W, W, atol=1e-14)
    x = patterns(seed + 1, 1, d)[0]
    assert np.allclose(implicit.field(x), W @ x, atol=1e-13)
    assert np.isclose(implicit.energy(x), -0.5 * x @ W @ x, atol=1e-13)
    assert implicit.learn(x).patterns.tolist() == [*X.tolist(), x.tolist()]


def test_both_forms_of_hebbs_memory_recall_alike():
    """With 64 sites the couplings are exact, so that every flip is the same."""
    X = patterns(0, 9, 64)
    starts = patterns(1, 30, 64)
    forms = [
        jax.vmap(lambda x, net=net: asynchronous_recall(net, x))(starts)
        for net in (hebb(X), Hebbian(X))
    ]
    for a, b in zip(*forms):
        assert a.tolist() == b.tolist()


def test_no_matrix_of_all_sites_is_formed():
    """100,000 sites: the couplings would take 80 GB."""
    X = patterns(0, 3, 100_000)
    rest = asynchronous_recall(Hebbian(X), X[0].at[:20_000].multiply(-1))
    assert rest.x.tolist() == X[0].tolist()
    assert int(rest.flips) == 20_000


def test_the_rules_in_numpy():
    """Hebb's sum, its energy by overlaps, and the projection onto the patterns by NumPy's
    pseudo-inverse.
    """
    X = np.sign(np.random.default_rng(0).standard_normal((3, 7)))
    x = np.sign(np.random.default_rng(1).standard_normal(7))
    W = (X.T @ X - 3 * np.eye(7)) / 7
    P = np.linalg.pinv(X) @ X
    energy, hebbian, projection = jax.jit(
        lambda X, x: (Hebbian(X).energy(x), Hebbian(X).field(x), pseudo_inverse(X).W)
    )(X, x)
    assert np.isclose(energy, -x @ W @ x / 2, atol=1e-12)
    assert np.allclose(hebbian, W @ x, atol=1e-12)
    assert np.allclose(projection, P - np.diag(np.diag(P)), atol=1e-12)


def test_the_energy_is_the_double_sum():
    chance = np.random.default_rng(0)
    W = chance.normal(size=(6, 6))
    b = chance.normal(size=6)
    x = chance.choice([-1.0, 1.0], 6)
    W = W + W.T - 2 * np.diag(np.diag(W))
    summed = -0.5 * sum(W[i, j] * x[i] * x[j] for i in range(6) for j in range(6)) + sum(b * x)
    assert np.isclose(Hopfield(jnp.asarray(W), jnp.asarray(b)).energy(jnp.asarray(x)), summed)
    assert np.isclose(Hopfield(jnp.asarray(W)).energy(jnp.asarray(x)), summed - b @ x)
    assert (
        jax.grad(lambda net: net.energy(jnp.asarray(x)))(
            Hopfield(jnp.asarray(W), jnp.asarray(b))
        ).b.tolist()
        == x.tolist()
    )


@given(st.integers(0, 10**6), st.sampled_from([1, 3, 8]))
def test_the_projection_rule_stores_what_is_alike(seed, n):
    """Correlated patterns, one of them twice: the pseudo-inverse less its diagonal, and every
    pattern is stable.
    """
    chance = np.random.default_rng(seed)
    X = np.where(chance.random((n, 24)) < 0.8, 1.0, -1.0)
    X = np.concatenate([X, X[:1]])
    net = pseudo_inverse(jnp.asarray(X))
    P = np.linalg.pinv(X) @ X
    expected = P - np.diag(np.diag(P))
    assert np.allclose(net.W, expected, atol=1e-12)
    free = np.diag(P) < 1 - 1e-9
    fields = np.asarray(jax.vmap(net.field)(jnp.asarray(X)))
    assert np.allclose(fields, (1 - np.diag(P)) * X, atol=1e-12)
    assert (np.sign(fields) == X)[:, free].all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("make", [hebb, pseudo_inverse, Hebbian])
def test_bad_patterns_are_refused(make):
    """How many values are wrong and which, and how to mend them."""
    with pytest.raises(
        ValueError,
        match=r"expected only -1 and \+1, but 2 of 6 are other values, such as 0. Binarise",
    ):
        make(jnp.array([[1, 0, 1], [1, 0, -1]]))
    with pytest.raises(
        ValueError,
        match=r"5 of 6 are other values, such as 0.1, 0.2, 0.3, 0.4. Binarise .*jnp.where",
    ):
        make(jnp.array([[0.1, 0.2, 0.3], [0.4, 0.5, 1.0]]))
    with pytest.raises(ValueError, match="such as nan"):
        make(jnp.array([[1.0, jnp.nan]]))
    for shape in ((0, 4), (4, 0), (4,), (2, 2, 2)):
        with pytest.raises(
            ValueError, match=r"patterns must have shape \(n, d\) with n, d >= 1; got \("
        ):
            make(jnp.ones(shape))


@pytest.mark.parametrize("kind", [int, np.float64])
def test_couplings_of_plain_numpy(kind):
    W = np.array([[0, 1], [1, 0]], kind)
    with jax.enable_x64(False):
        net = Hopfield(W, W[0])
        assert (net.W.dtype, net.b.dtype) == (jnp.float32, jnp.float32)
        assert net.energy(jnp.ones(2)).item() == 0.0


@pytest.mark.usefixtures("unchecked")
def test_bad_couplings_are_refused():
    with pytest.raises(
        ValueError, match=r"symmetric, but w_01 is 1 and w_10 is -1\..*\(W \+ W.T\) / 2"
    ):
        Hopfield(jnp.array([[0.0, 1.0], [-1.0, 0.0]]))
    with pytest.raises(ValueError, match=r"zero diagonal, but w_11 is 0.5"):
        Hopfield(jnp.array([[0.0, 1.0], [1.0, 0.5]]))
    with pytest.raises(ValueError, match="NaN"):
        Hopfield(jnp.array([[0.0, jnp.nan], [jnp.nan, 0.0]]))
    for W, b in (
        (jnp.zeros((2, 3)), None),
        (jnp.zeros(4), None),
        (jnp.zeros((0, 0)), None),
        (jnp.zeros((2, 2)), jnp.zeros(3)),
    ):
        with pytest.raises(ValueError, match=r"W must be \(d, d\) and b \(d,\); got"):
            Hopfield(W, b)
    for net in (hebb(patterns(0, 2, 4)), Hebbian(patterns(0, 2, 4))):
        with pytest.raises(ValueError, match="shape"):
            net.learn(jnp.ones(3))
        with pytest.raises(ValueError, match="Binarise"):
            net.learn(jnp.zeros(4))
        with pytest.raises(ValueError, match="shape"):
            net.energy(jnp.ones(3))
        with pytest.raises(ValueError, match="shape"):
            net.field(jnp.ones(3))


def test_patterns_that_span_everything_are_refused():
    """The projection would be the identity."""
    with pytest.raises(ValueError, match="store fewer patterns than sites"):
        pseudo_inverse(jnp.array([[1, 1], [1, -1]]))
    assert pseudo_inverse(jnp.array([[1, 1], [-1, -1]]))(jnp.array([1, 1])).tolist() == [1, 1]


def test_networks_are_made_under_jit_and_vmap():
    """There values are not looked at, and the numbers are the same."""
    X = jnp.stack([patterns(k, 3, 8) for k in range(4)])
    many = jax.jit(jax.vmap(lambda X: hebb(X).W))(X)
    assert many.tolist() == [hebb(x).W.tolist() for x in X]
