"""Eigenmodes of a kernel: fitting along them solves the linear system."""

import jax.numpy as jnp
import numpy as np
import pytest

from thetax.explain.tangent_kernel.kernel_eigenmodes import kernel_eigenmodes, predicted_change

RNG = np.random.default_rng(0)


def kernel(n, m):
    A = RNG.standard_normal((n, m))
    return A @ A.T


def test_ridge_along_the_modes_is_the_linear_system():
    K = kernel(5, 9)
    ys = RNG.standard_normal((5, 2))
    f = RNG.standard_normal((5, 2))
    found = kernel_eigenmodes(jnp.asarray(K, jnp.float32), ys, f)
    a = found.coefficients(found.inverse(0.3))
    expected = np.linalg.solve(K + 0.3 * np.eye(5), ys - f)
    np.testing.assert_allclose(a, expected, atol=1e-5)
    np.testing.assert_allclose(found.training_change(found.inverse(0.3)), K @ expected, atol=1e-5)
    each = found.coefficients(np.stack([found.inverse(0.3), found.inverse(3.0)]))
    np.testing.assert_allclose(each[1], np.linalg.solve(K + 3 * np.eye(5), ys - f), atol=1e-5)
    np.testing.assert_allclose(
        predicted_change(jnp.asarray(K, jnp.float32), each)[0], K @ expected, atol=1e-5
    )


def test_kernel_between_outputs():
    """The kernel n n o o as one matrix of the pairs."""
    flat = kernel(6, 9)
    ys = RNG.standard_normal((3, 2))
    K = jnp.asarray(flat.reshape(3, 2, 3, 2).transpose(0, 2, 1, 3), jnp.float32)
    found = kernel_eigenmodes(K, ys, np.zeros((3, 2)))
    a = found.coefficients(found.inverse(0.1))
    np.testing.assert_allclose(
        a.ravel(), np.linalg.solve(flat + 0.1 * np.eye(6), ys.ravel()), atol=1e-4
    )
    np.testing.assert_allclose(predicted_change(K, a[None])[0].ravel(), flat @ a.ravel(), atol=1e-4)


def test_eigenvalues_of_zero_are_not_fitted():
    K = kernel(4, 2)
    found = kernel_eigenmodes(jnp.asarray(K, jnp.float32), K @ np.arange(4.0), np.zeros(4))
    assert np.count_nonzero(found.inverse()) == 2
    np.testing.assert_allclose(
        found.training_change(found.inverse()), K @ np.arange(4.0), rtol=1e-5
    )
    other = kernel_eigenmodes(jnp.asarray(K, jnp.float32), np.ones(4), np.zeros(4))
    with pytest.warns(
        UserWarning, match="2 of 4 eigenvalues of the kernel are zero up to rounding"
    ):
        other.inverse()
