"""Dense associative memories: degree 2 is Hopfield's, the exponential is the limit of no overflow
(§1.4).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from thetax.layers import ModernHopfield
from thetax.models import DenseMemory, ExponentialMemory, Hebbian, asynchronous_recall, hebb

strict = pytest.mark.usefixtures("strict")


def patterns(seed, n, d):
    return jnp.asarray(np.random.default_rng(seed).choice([-1.0, 1.0], (n, d)))


@pytest.mark.usefixtures("x64", "strict")
def test_degree_two_is_hopfields():
    """E = 2dH - nd, the field is 2d times, and every run is the same."""
    X = patterns(0, 7, 16)
    starts = patterns(1, 20, 16)
    dense = DenseMemory(X, 2)
    net = hebb(X)
    for x in starts:
        assert np.isclose(dense.energy(x), 2 * 16 * net.energy(x) - 7 * 16)
        assert np.allclose(dense.field(x), 2 * 16 * net.field(x))
    for a, b in zip(
        *(jax.vmap(lambda x, m=m: asynchronous_recall(m, x))(starts) for m in (dense, Hebbian(X)))
    ):
        assert a.tolist() == b.tolist()


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("p", [2, 3, 4, 7])
def test_energy_is_the_sum_of_powers(p):
    X = patterns(0, 6, 10)
    x = patterns(1, 1, 10)[0]
    assert np.isclose(DenseMemory(X, p).energy(x), -sum(float(row @ x) ** p for row in X))


@strict
def test_the_field_does_not_cancel_in_single_precision():
    """F(z + 2) - F(z - 2) of overlaps near 2,000 would lose half its digits; expanded it does
    not.
    """
    X = patterns(0, 3, 2000).astype(jnp.float32)
    x = np.asarray(X[0], np.float64)
    rest = (np.asarray(X, np.float64) @ x)[:, None] - np.asarray(X) * x
    exact = ((rest + np.asarray(X)) ** 5 - (rest - np.asarray(X)) ** 5).sum(axis=0) / 2
    assert np.allclose(DenseMemory(X, 5).field(X[0]), exact, rtol=1e-5)


@strict
def test_the_exponential_does_not_overflow():
    """With 5,000 sites e^m is infinite; the energy is the logarithm, and recall works."""
    X = patterns(0, 50, 5000).astype(jnp.float32)
    memory = ExponentialMemory(X)
    assert np.isclose(memory.energy(X[0]), -logsumexp(np.asarray(X @ X[0], np.float64)))
    rest = asynchronous_recall(memory, X[3].at[:1000].multiply(-1))
    assert rest.settled
    assert rest.x.tolist() == X[3].tolist()


@pytest.mark.slow
@pytest.mark.usefixtures("x64", "strict")
def test_a_site_stays_where_the_modern_layer_agrees():
    """A flip happens exactly where x s < tanh 1, s being the answer of the modern Hopfield layer at
    β = 1.
    """
    X = patterns(0, 30, 12)
    starts = patterns(1, 40, 12)
    memory = ExponentialMemory(X)
    layer = ModernHopfield(X, beta=1.0)
    for x in starts:
        stays = x * memory.field(x) >= 0
        assert stays.tolist() == (x * layer(x) >= np.tanh(1)).tolist()


def test_capacity_grows_with_the_degree():
    """400 patterns of 60 sites: the quadratic flips a third of the signs, the cubic some, degree 5
    next to none.
    """
    X = patterns(0, 400, 60)
    rates = [float(jnp.mean(jax.vmap(DenseMemory(X, p).field)(X) * X < 0)) for p in (2, 3, 5)]
    assert rates[0] > 0.3
    assert rates[0] > 2 * rates[1]
    assert rates[2] < 0.01


@pytest.mark.usefixtures("unchecked")
def test_bad_memories_are_refused():
    with pytest.raises(ValueError, match="degree must be an integer >= 2"):
        DenseMemory(jnp.ones((2, 3)), 1)
    with pytest.raises(
        ValueError,
        match=r"2 x 4000\^11 overflows float32; take a lower degree, or ExponentialMemory",
    ):
        DenseMemory(jnp.ones((2, 4000)), 11)
    for make in (lambda X: DenseMemory(X, 3), ExponentialMemory):
        with pytest.raises(ValueError, match="Binarise"):
            make(jnp.zeros((2, 3)))
        with pytest.raises(ValueError, match="with n, d >= 1"):
            make(jnp.ones((0, 3)))
