"""The spectrum of the tangent kernel, its alignment with targets and its effective dimension, each
by another route.
"""

import jax
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import effective_dimension, kernel_alignment, tangent_spectrum
from thetax.explain.tangent_kernel.tangent_spectrum import centred_targets, mean_kernel
from thetax.models import MLP

net = MLP.init(3, 8, 2, key=jr.key(0))
xs = jr.normal(jr.key(1), (12, 3))
labels = np.arange(12) % 3


def by_jacobian(model, xs):
    """$JJ^T$, a row of $J$ for each output of each example, summed over equal outputs and divided
    by their number.
    """
    flat, back = jax.flatten_util.ravel_pytree(model)
    J = np.asarray(jax.jacobian(lambda theta: jax.vmap(back(theta))(xs))(flat), np.float64)
    return np.einsum("nop,mop->nm", J, J) / J.shape[1]


@pytest.mark.slow
def test_eigenvalues_and_shares_are_those_of_the_jacobian():
    found = tangent_spectrum(net, (xs, labels))
    K = by_jacobian(net, xs)
    assert np.allclose(mean_kernel(net, xs), K, rtol=1e-4, atol=1e-5)
    U, s, _ = np.linalg.svd(K / 12)
    assert np.allclose(found.eigenvalues, s, rtol=1e-3, atol=1e-5 * s[0])
    H = np.eye(12) - 1 / 12
    Y = H @ np.eye(3)[labels]
    for count in (1, 4, 12):
        P = U[:, :count] @ U[:, :count].T
        assert found.cumulative_fractions[count - 1] == pytest.approx(
            np.linalg.norm(P @ Y) ** 2 / np.linalg.norm(Y) ** 2, abs=1e-3
        )
    assert found.n_targets == 3
    assert found.n_eigenvectors(1.0) == 12
    assert (
        found.cumulative_fractions[found.n_eigenvectors(0.5) - 1]
        >= 0.5
        > found.cumulative_fractions[found.n_eigenvectors(0.5) - 1] - found.target_fractions.max()
    )


@pytest.mark.slow
def test_alignment_is_the_cosine_of_the_centred_matrices():
    K = by_jacobian(net, xs)
    H = np.eye(12) - 1 / 12
    for ys in (labels, np.asarray(xs[:, 0]), np.asarray(xs[:, :2])):
        Y = np.eye(3)[ys] if ys is labels else ys.reshape(12, -1)
        A = H @ K @ H
        B = H @ Y @ Y.T @ H
        cosine = (A * B).sum() / np.sqrt((A * A).sum() * (B * B).sum())
        assert kernel_alignment(K, ys) == pytest.approx(cosine, rel=1e-5)
        assert tangent_spectrum(net, (xs, ys)).alignment == pytest.approx(cosine, rel=1e-3)
    assert kernel_alignment(
        7.0 + 3 * np.outer(xs[:, 0], xs[:, 0]), np.asarray(xs[:, 0])
    ) == pytest.approx(1.0, abs=1e-6)


def test_integer_targets_are_classes_and_their_values_do_not_matter():
    assert np.array_equal(centred_targets(labels), centred_targets(10 * labels - 7))
    assert centred_targets(labels.astype(float)).shape == (12, 1)


@pytest.mark.slow
def test_the_effective_dimension_is_the_trace_of_the_hat_matrix():
    found = tangent_spectrum(net, (xs, labels), weight_decay=0.1)
    K = by_jacobian(net, xs) / 12
    for ridge in (0.01, 0.1, 10.0):
        hat = K @ np.linalg.inv(K + ridge * np.eye(12))
        assert float(found.effective_dimension(ridge)) == pytest.approx(np.trace(hat), rel=1e-3)
    assert found.effective_dimension(np.array([0.1, 1.0])).shape == (2,)
    u = np.geomspace(
        1e-4, 1e4, 2000
    )  # λ t, of a mode that gradient flow has learnt as far as 1 - exp(-λ t)
    ratio = -np.expm1(-u) / effective_dimension(np.array([1.0]), 1 / u)
    assert ratio.min() > 1 - 1e-9
    assert 1.29 < ratio.max() < 1.3


@pytest.mark.slow
def test_the_kernel_of_a_single_number_needs_no_axis():
    scalar = MLP.init(3, 8, 1, key=jr.key(0))
    assert np.allclose(mean_kernel(scalar, xs), by_jacobian(scalar, xs), rtol=1e-4, atol=1e-5)


def test_invalid_arguments_are_rejected(unchecked):
    with pytest.raises(
        ValueError,
        match="targets must be finite and not all equal; give examples of several classes",
    ):
        tangent_spectrum(net, (xs, np.zeros(12, int)))
    with pytest.raises(
        ValueError,
        match="targets must be finite and not all equal; give examples of several classes",
    ):
        tangent_spectrum(net, (xs, np.full(12, np.nan)))
    with pytest.raises(
        ValueError,
        match=r"K must have shape \(12, 12\), one row and column per target; got \(3, 3\)",
    ):
        kernel_alignment(np.eye(3), labels)
    with pytest.raises(ValueError, match="same for all pairs"):
        kernel_alignment(np.zeros((12, 12)), labels)
    with pytest.raises(ValueError, match="eigenvalues and ridges must be >= 0"):
        effective_dimension([1.0], -1.0)
