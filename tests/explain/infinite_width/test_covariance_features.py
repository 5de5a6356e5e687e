"""Moments of wide layers, from written-down numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from thetax.explain.infinite_width.covariance_features import Features, Inputs


@pytest.mark.parametrize("n_scales", [0, 1, 3])
def test_each_trained_scale_adds_the_covariance_to_the_tangent_kernel(n_scales):
    k, theta = np.array([[2.0, -1.0]]), np.array([[0.5, 4.0]])
    features = Features(
        k=jnp.asarray(k),
        theta=jnp.asarray(theta),
        k_xx=jnp.ones(1),
        k_yy=jnp.ones(2),
        means=None,
        width=3,
        n_scales=n_scales,
    )
    expected = theta + sum([k] * n_scales)
    np.testing.assert_allclose(features.ntk, expected)
    averaged = features.with_averaged_ntk
    np.testing.assert_allclose(averaged.theta, expected)
    np.testing.assert_allclose(averaged.ntk, expected)


def test_moments_of_inputs_are_means_of_products():
    xs, ys = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 4.0]]), np.array([[2.0, 0.5], [1.0, 1.0]])
    found = Inputs(jnp.asarray(xs), jnp.asarray(ys)).features()
    np.testing.assert_allclose(found.k, [[np.mean(x * y) for y in ys] for x in xs], rtol=1e-6)
    np.testing.assert_allclose(found.k_xx, [np.mean(x**2) for x in xs], rtol=1e-6)
    np.testing.assert_allclose(found.k_yy, [np.mean(y**2) for y in ys], rtol=1e-6)
    np.testing.assert_allclose(found.means[0], xs.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.ntk, np.zeros((3, 2)))
