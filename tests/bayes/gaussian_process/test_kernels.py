"""Kernels against scikit-learn, their properties, sums and products (§10.2)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as peers
from sklearn.metrics.pairwise import rbf_kernel

from thetax.bayes import (
    RBF,
    ConstantKernel,
    Matern,
    Periodic,
    PolynomialKernel,
    RationalQuadratic,
    kernel_diagonal,
    linear_kernel,
    squared_distances,
    to_float32,
)

RNG = np.random.default_rng(0)
XS = RNG.standard_normal((6, 3))
YS = RNG.standard_normal((4, 3))
LENGTHS = [0.5, 1.0, 2.0]

OURS_AND_THEIRS = {
    "rbf": (RBF.init(variance=1.7, length_scale=0.8), 1.7 * peers.RBF(0.8)),
    "ard": (RBF.init(length_scale=LENGTHS), peers.RBF(LENGTHS)),
    "matern-1/2": (Matern.init(nu=0.5, length_scale=0.8), peers.Matern(0.8, nu=0.5)),
    "matern-3/2": (
        Matern.init(nu=1.5, variance=2.0, length_scale=0.8),
        2.0 * peers.Matern(0.8, nu=1.5),
    ),
    "matern-5/2": (Matern.init(nu=2.5, length_scale=LENGTHS), peers.Matern(LENGTHS, nu=2.5)),
    "rational": (
        RationalQuadratic.init(alpha=0.7, length_scale=1.3),
        peers.RationalQuadratic(1.3, alpha=0.7),
    ),
    "linear": (linear_kernel(offset=0.49), peers.DotProduct(0.7)),
    "polynomial": (PolynomialKernel.init(degree=3, offset=0.49), peers.DotProduct(0.7) ** 3),
    "sum": (RBF.init(length_scale=0.8) + linear_kernel(), peers.RBF(0.8) + peers.DotProduct(0.0)),
    "product": (2.0 * RBF.init() * Matern.init(), 2.0 * peers.RBF() * peers.Matern(nu=2.5)),
    "offset": (RBF.init() + 0.3, peers.RBF() + peers.ConstantKernel(0.3)),
}
PERIODIC = Periodic.init(period=1.4, length_scale=0.6)
ALL = [ours for ours, _ in OURS_AND_THEIRS.values()] + [PERIODIC, ConstantKernel.init(2.0)]


@pytest.mark.parametrize("name", OURS_AND_THEIRS)
def test_equals_sklearn(name):
    ours, theirs = OURS_AND_THEIRS[name]
    np.testing.assert_allclose(ours(XS), theirs(XS), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ours(XS, YS), theirs(XS, YS), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(kernel_diagonal(ours, XS), theirs.diag(XS), rtol=1e-12)


def test_periodic_equals_sklearn_and_a_product_over_inputs():
    peer = peers.ExpSineSquared(0.6, 1.4)
    np.testing.assert_allclose(
        PERIODIC(XS[:, :1], YS[:, :1]), peer(XS[:, :1], YS[:, :1]), rtol=1e-12
    )
    apart = [peer(XS[:, [i]], YS[:, [i]]) for i in range(3)]
    np.testing.assert_allclose(PERIODIC(XS, YS), np.prod(apart, axis=0), rtol=1e-12)
    np.testing.assert_allclose(PERIODIC(XS + 1.4, YS), PERIODIC(XS, YS), rtol=1e-12)


def test_rbf_of_the_notes():
    """10.2-rbf: exp(-γ‖x - x'‖²) with γ = 1/(2ℓ²)."""
    np.testing.assert_allclose(
        RBF.init(length_scale=0.8)(XS, YS), rbf_kernel(XS, YS, gamma=1 / (2 * 0.8**2)), rtol=1e-12
    )


@pytest.mark.parametrize("kernel", ALL)
def test_symmetry_and_diagonal(kernel):
    K = np.asarray(kernel(XS))
    assert K.dtype == np.float64
    np.testing.assert_allclose(K, K.T, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(K, kernel(XS, XS), atol=1e-14)
    np.testing.assert_allclose(np.diag(K), kernel_diagonal(kernel, XS), rtol=1e-14)
    np.testing.assert_allclose(kernel(YS, XS), kernel(XS, YS).T, rtol=1e-13)


@given(seed=st.integers(0, 10**6), spread=st.sampled_from([1e-3, 1.0, 30.0]))
def test_positive_semidefinite(seed, spread):
    xs = spread * np.random.default_rng(seed).standard_normal((6, 3))
    for kernel in ALL:
        values = np.linalg.eigvalsh(kernel(xs))
        assert values[0] >= -1e-13 * max(values[-1], 1)


def test_distances_with_many_inputs():
    """With more than 16 inputs: the same distances, and exactly 0 from an example to itself."""
    xs = RNG.standard_normal((50, 40)) + 100
    ys = RNG.standard_normal((4, 40)) + 100
    with jax.enable_x64(True):
        found = squared_distances(jnp.asarray(xs), jnp.asarray(ys))
        own = squared_distances(jnp.asarray(xs))
    np.testing.assert_allclose(found, np.square(xs[:, None] - ys[None]).sum(axis=-1), rtol=1e-11)
    assert np.asarray(own).diagonal().tolist() == [0.0] * 50


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_gradient_is_finite_for_equal_examples(nu, x64):
    twice = jnp.zeros((2, 1))
    slope = jax.grad(lambda k: k(twice).sum())(Matern.init(nu=nu))
    assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(slope))
    assert np.isfinite(jax.grad(lambda xs: Matern.init(nu=nu)(xs).sum())(twice)).all()


def test_any_function_is_a_kernel():
    """Any function of stacked examples: alone, in sums and in products."""
    other = lambda xs, ys=None: jnp.cos(xs[:, :1] - (xs if ys is None else ys)[:, 0][None])
    expected = np.cos(XS[:, :1] - XS[:, 0][None])
    np.testing.assert_allclose(kernel_diagonal(other, XS), np.ones(6))
    np.testing.assert_allclose((RBF.init() + other)(XS), RBF.init()(XS) + expected, rtol=1e-14)
    np.testing.assert_allclose((other * RBF.init())(XS), RBF.init()(XS) * expected, rtol=1e-14)
    np.testing.assert_allclose((RBF.init() * other).diagonal(XS), np.ones(6))


def test_examples_of_any_shape():
    np.testing.assert_array_equal(RBF.init()(XS.reshape(6, 3, 1)), RBF.init()(XS))
    np.testing.assert_array_equal(RBF.init()(XS[:, 0]), RBF.init()(XS[:, :1]))
    np.testing.assert_array_equal(RBF.init()(np.arange(3)), RBF.init()(np.arange(3.0)))


@pytest.mark.parametrize("kernel", ALL)
def test_leaves_are_hyperparameters_and_set_the_dtype(kernel):
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(kernel))
    low = to_float32(kernel)(XS)
    assert low.dtype == np.float32
    np.testing.assert_allclose(low, kernel(XS), rtol=2e-5)


def test_dtype_inside_transformations():
    found = jax.jit(lambda k, xs: k(xs))(to_float32(RBF.init()), jnp.asarray(XS, jnp.float32))
    assert found.dtype == np.float32


def test_invalid_arguments(unchecked):
    with pytest.raises(ValueError, match="RBF: length_scale must be positive; got 0"):
        RBF.init(length_scale=0.0)
    with pytest.raises(ValueError, match="ConstantKernel: variance must be positive"):
        ConstantKernel.init(-1.0)
    with pytest.raises(ValueError, match="offset must not be negative"):
        linear_kernel(offset=-1.0)
    with pytest.raises(ValueError, match=r"nu must be 0.5, 1.5 or 2.5; got 2"):
        Matern.init(nu=2)
    with pytest.raises(ValueError, match="degree must be an integer >= 1; got 0"):
        PolynomialKernel.init(degree=0)
    with pytest.raises(ValueError, match="length_scale a number or a vector"):
        RBF.init(length_scale=np.ones((2, 2)))
    with pytest.raises(ValueError, match="got str"):
        RBF.init() + "noise"


@pytest.mark.parametrize(
    "kernel", [RBF.init(length_scale=[1.0, 2.0]), Periodic.init(length_scale=[1.0, 2.0])]
)
def test_wrong_number_of_length_scales(kernel):
    with pytest.raises(ValueError, match="2 length scales for 3 inputs"):
        kernel(XS)


def test_unequal_numbers_of_inputs():
    with pytest.raises(ValueError, match="xs have 3 inputs and ys 2"):
        RBF.init()(XS, YS[:, :2])
    with pytest.raises(ValueError, match="at least one example"):
        RBF.init()(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="expected one array of examples"):
        RBF.init()((XS, XS))
