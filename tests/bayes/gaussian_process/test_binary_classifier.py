"""Classification against scikit-learn's Laplace approximation, quadrature, and finite
differences.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats
from sklearn import gaussian_process as sklearn_gp
from sklearn.gaussian_process import kernels as peers

from thetax.bayes import (
    RBF,
    GaussianProcessBinaryClassifier,
    GaussianProcessClassifier,
    marginal_likelihood_gradient,
    to_float32,
)
from thetax.bayes.gaussian_process.binary_classifier import (
    NewtonState,
    backtracking_step,
    newton_maximise,
    newton_start,
)

RNG = np.random.default_rng(0)
XS = RNG.standard_normal((12, 2))
NEW = RNG.standard_normal((6, 2))
LABELS = (XS[:, 0] + 0.3 * RNG.standard_normal(12) > 0).astype(int)
THREE = np.arange(12) % 3


def test_newton_stops_after_max_steps_or_without_increase():
    step = lambda increase: lambda state: state._replace(increase=increase, steps=state.steps + 1)
    start = NewtonState(
        jnp.zeros(2), jnp.zeros(2), jnp.zeros(()), jnp.full((), jnp.inf), jnp.zeros((), jnp.int32)
    )
    steps = jax.jit(lambda increase: newton_maximise(step(increase), start, max_steps=3).steps)
    assert steps(jnp.array(1.0)) == 3
    assert steps(jnp.array(0.0)) == 1


def test_two_classes_equal_sklearn():
    """Mode, marginal likelihood and gradient, latent mean and variance; scikit-learn approximates
    the probabilities too.
    """
    ours = GaussianProcessBinaryClassifier(RBF.init(variance=3.0, length_scale=0.8))
    peer = sklearn_gp.GaussianProcessClassifier(3.0 * peers.RBF(0.8), optimizer=None).fit(
        XS, LABELS
    )
    posterior = ours.condition(XS, LABELS)
    assert posterior.converged
    np.testing.assert_allclose(posterior.f, peer.base_estimator_.f_cached, atol=1e-6)
    value, slope = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    found, ours_slope = marginal_likelihood_gradient(ours, XS, LABELS)
    np.testing.assert_allclose(found, value, rtol=1e-8)
    np.testing.assert_allclose(
        [ours_slope.kernel.log_variance, ours_slope.kernel.log_length_scale], slope, rtol=1e-5
    )
    mean, variance = peer.latent_mean_and_variance(NEW)
    np.testing.assert_allclose(posterior.latent(NEW)[0], mean, atol=1e-5)
    np.testing.assert_allclose(posterior.latent(NEW)[1], variance, atol=1e-5)
    np.testing.assert_allclose(
        posterior.probabilities(NEW), peer.predict_proba(NEW)[:, 1], atol=2e-3
    )


@pytest.mark.parametrize("scale", [0.1, 9.0, 200.0])
def test_probabilities_are_the_integral(scale):
    """SciPy's quadrature of the sigmoid under the latent Gaussian, also with a large variance."""
    posterior = GaussianProcessBinaryClassifier(RBF.init(variance=scale)).condition(XS, LABELS)
    means, variances = (np.asarray(part) for part in posterior.latent(NEW))
    for p, mean, variance in zip(posterior.probabilities(NEW), means, variances):
        initialiser = stats.norm(mean, np.sqrt(variance))
        weighted = lambda f, initialiser=initialiser: initialiser.pdf(f) / (1 + np.exp(-f))
        ends = mean - 9 * np.sqrt(variance), mean + 9 * np.sqrt(variance)
        assert p == pytest.approx(
            integrate.quad(weighted, *ends, points=[0.0, mean], epsabs=1e-12)[0], abs=1e-9
        )


def grid(K, count=121):
    """Nodes and weights of a quadrature rule for N(0, K), with K of two examples."""
    z = np.linspace(-8, 8, count)
    weight = np.outer(*[stats.norm.pdf(z) * (z[1] - z[0])] * 2)
    a, b = np.meshgrid(z, z, indexing="ij")
    return np.einsum("ij,jkl->ikl", np.linalg.cholesky(K), np.stack([a, b])), weight


def test_marginal_likelihood_of_two_examples_is_near_the_integral():
    """Within 2 % of quadrature for a small prior variance, and nearer than an expansion at f
    = 0.
    """
    xs = np.array([[0.0], [1.0]])
    labels = np.array([0, 1])
    kernel = RBF.init(variance=0.8)
    f, weight = grid(np.asarray(kernel(xs)))
    exact = np.log((weight / (1 + np.exp(f[0])) / (1 + np.exp(-f[1]))).sum())
    found = float(GaussianProcessBinaryClassifier(kernel).log_marginal_likelihood(xs, labels))
    assert found == pytest.approx(exact, abs=0.02)
    assert abs(found - exact) < abs(2 * np.log(0.5) - exact)


def test_marginal_likelihood_of_two_examples_and_three_classes():
    """Monte Carlo over the six latent values: within 0.03 and 5 standard errors."""
    xs = np.array([[0.0], [1.0]])
    labels = np.array([0, 2])
    kernel = RBF.init(variance=0.8)
    f = np.linalg.cholesky(kernel(xs)) @ RNG.standard_normal((200_000, 2, 3))
    p = np.exp(f) / np.exp(f).sum(axis=2, keepdims=True)
    draws = p[:, 0, 0] * p[:, 1, 2]
    exact = np.log(draws.mean())
    error = draws.std() / draws.mean() / np.sqrt(len(draws))
    assert float(
        GaussianProcessClassifier(kernel, 3).log_marginal_likelihood(xs, labels)
    ) == pytest.approx(exact, abs=0.03 + 5 * error)


@pytest.mark.slow
def test_multi_class_with_two_classes_equals_binary():
    """f_2 - f_1 has twice the kernel, and f_1 + f_2 is not affected by the labels."""
    kernel = RBF.init(variance=1.5, length_scale=0.8)
    several = GaussianProcessClassifier(kernel, 2)
    binary = GaussianProcessBinaryClassifier(2.0 * kernel)
    a = several.condition(XS, LABELS)
    b = binary.condition(XS, LABELS)
    np.testing.assert_allclose(a.log_marginal_likelihood, b.log_marginal_likelihood, rtol=1e-10)
    mean, covariance = (np.asarray(part) for part in a.latent(NEW))
    np.testing.assert_allclose(mean[:, 1] - mean[:, 0], b.latent(NEW)[0], atol=1e-8)
    apart = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    np.testing.assert_allclose(apart, b.latent(NEW)[1], atol=1e-8)
    probabilities = a.probabilities(NEW, n_samples=4000, key=jr.key(0))
    np.testing.assert_allclose(
        probabilities[:, 1], b.probabilities(NEW), atol=4.5 * 0.5 / np.sqrt(4000)
    )


def test_mode_is_stationary():
    """At the maximum of Ψ: K⁻¹f = y − π for each class, and the latent covariance inverts the
    curvature.
    """
    kernel = RBF.init(variance=2.0)
    posterior = GaussianProcessClassifier(kernel, 3).condition(XS, THREE)
    assert posterior.converged
    K = np.asarray(kernel(XS))
    f = np.asarray(posterior.f)
    np.testing.assert_allclose(f, K @ posterior.gradient, atol=1e-8)
    pi = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    W = np.einsum("nk,nm,kl->knlm", pi, np.eye(12), np.eye(3)) - np.einsum(
        "nk,nl,nm->knlm", pi, pi, np.eye(12)
    )
    W = W.reshape(36, 36)
    wide = np.kron(np.eye(3), K)
    k = np.kron(np.eye(3), np.asarray(kernel(XS, NEW[:1])))
    expected = 2.0 * np.eye(3) - k.T @ np.linalg.solve(np.eye(36) + W @ wide, W @ k)
    np.testing.assert_allclose(posterior.latent(NEW[:1])[1][0], expected, atol=1e-9)
    objective = (f[np.arange(12), THREE] - np.log(np.exp(f).sum(axis=1))).sum() - (
        f * posterior.gradient
    ).sum() / 2
    logs = np.linalg.slogdet(np.eye(36) + wide @ W)[1] / 2
    np.testing.assert_allclose(posterior.log_marginal_likelihood, objective - logs, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "labels"),
    [(GaussianProcessBinaryClassifier, LABELS), (lambda k: GaussianProcessClassifier(k, 3), THREE)],
)
def test_gradient_includes_the_mode(make, labels, x64):
    at = lambda s, l: float(
        make(RBF(jnp.asarray(s), jnp.asarray(l))).log_marginal_likelihood(XS, labels)
    )
    _, slope = marginal_likelihood_gradient(
        make(RBF(jnp.asarray(0.4), jnp.asarray(-0.2))), XS, labels
    )
    h = 1e-5
    expected = [at(0.4 + h, -0.2) - at(0.4 - h, -0.2), at(0.4, -0.2 + h) - at(0.4, -0.2 - h)]
    np.testing.assert_allclose(
        jax.tree.leaves(slope), np.array(expected) / (2 * h), rtol=1e-5, atol=1e-7
    )


def test_a_newton_step_that_overshoots_is_halved():
    """From 1 towards −3 the maximum of −f² is at a quarter of the step."""
    objective = lambda a, f: -jnp.square(f).sum()
    mode = newton_start(jnp.ones(1), objective)._replace(
        a=jnp.ones(1), f=jnp.ones(1), objective=jnp.array(-1.0)
    )
    found = backtracking_step(mode, jnp.array([-3.0]), jnp.array([-3.0]), objective)
    assert (found.f.item(), found.a.item(), found.increase.item(), found.steps.item()) == (
        0.0,
        0.0,
        1.0,
        1,
    )


def test_a_huge_variance_still_converges():
    posterior = GaussianProcessBinaryClassifier(RBF.init(variance=1e6)).condition(XS, LABELS)
    assert posterior.converged
    assert np.isfinite(posterior.log_marginal_likelihood)


def test_to_float32():
    found = to_float32(GaussianProcessBinaryClassifier(RBF.init())).condition(XS, LABELS)
    assert found.probabilities(NEW).dtype == np.float32
    expected = GaussianProcessBinaryClassifier(RBF.init()).condition(XS, LABELS).probabilities(NEW)
    np.testing.assert_allclose(found.probabilities(NEW), expected, atol=1e-4)


@pytest.mark.usefixtures("unchecked")
def test_invalid_labels():
    binary = GaussianProcessBinaryClassifier(RBF.init())
    with pytest.raises(ValueError, match="labels: expected labels from 0 to 1, but row 0 is -1"):
        binary.condition(XS, 2 * LABELS - 1 - 2 * (np.arange(12) == 0) * LABELS)
    with pytest.raises(ValueError, match="labels: expected integer labels"):
        binary.log_marginal_likelihood(XS, LABELS.astype(float))
    with pytest.raises(ValueError, match="xs has 12 examples"):
        binary.condition(XS, LABELS[:5])
    with pytest.raises(ValueError, match="classes must be at least 2; got 1"):
        GaussianProcessClassifier(RBF.init(), 1)
