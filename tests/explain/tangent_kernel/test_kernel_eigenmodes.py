"""A kernel taken apart: what is fitted along its modes is the solution of the linear system."""

import jax.numpy as jnp
import numpy as np
import pytest

from thetax.explain.tangent_kernel.kernel_eigenmodes import modes, moved

RNG = np.random.default_rng(0)


def kernel(n, m):
    A = RNG.standard_normal((n, m))
    return A @ A.T


def test_ridge_along_the_modes_is_the_linear_system():
    K = kernel(5, 9)
    ys = RNG.standard_normal((5, 2))
    f = RNG.standard_normal((5, 2))
    found = modes(jnp.asarray(K, jnp.float32), ys, f)
    a = found.coefficients(found.inverse(0.3))
    expected = np.linalg.solve(K + 0.3 * np.eye(5), ys - f)
    np.testing.assert_allclose(a, expected, atol=1e-5)
    np.testing.assert_allclose(found.fitted(found.inverse(0.3)), K @ expected, atol=1e-5)
    each = found.coefficients(np.stack([found.inverse(0.3), found.inverse(3.0)]))
    np.testing.assert_allclose(each[1], np.linalg.solve(K + 3 * np.eye(5), ys - f), atol=1e-5)
    np.testing.assert_allclose(moved(jnp.asarray(K, jnp.float32), each)[0], K @ expected, atol=1e-5)


def test_outputs_of_which_each_has_a_kernel_with_each():
    """The kernel n n o o as one matrix of the pairs."""
    flat = kernel(6, 9)
    ys = RNG.standard_normal((3, 2))
    K = jnp.asarray(flat.reshape(3, 2, 3, 2).transpose(0, 2, 1, 3), jnp.float32)
    found = modes(K, ys, np.zeros((3, 2)))
    a = found.coefficients(found.inverse(0.1))
    np.testing.assert_allclose(
        a.ravel(), np.linalg.solve(flat + 0.1 * np.eye(6), ys.ravel()), atol=1e-4
    )
    np.testing.assert_allclose(moved(K, a[None])[0].ravel(), flat @ a.ravel(), atol=1e-4)


def test_what_cannot_be_told_from_zero_is_not_learnt():
    K = kernel(4, 2)
    found = modes(jnp.asarray(K, jnp.float32), K @ np.arange(4.0), np.zeros(4))
    assert np.count_nonzero(found.inverse()) == 2
    np.testing.assert_allclose(found.fitted(found.inverse()), K @ np.arange(4.0), rtol=1e-5)
    other = modes(jnp.asarray(K, jnp.float32), np.ones(4), np.zeros(4))
    with pytest.warns(UserWarning, match="2 of 4 eigenvalues of the kernel cannot be told from 0"):
        other.inverse()
