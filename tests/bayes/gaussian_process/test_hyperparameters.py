"""The gradient of the log marginal likelihood against finite differences and autodiff; fits against
scikit-learn.
"""

from importlib import import_module

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peers

from thetax import tree
from thetax.bayes import (
    RBF,
    GaussianProcess,
    GaussianProcessBinaryClassifier,
    JitterWarning,
    Matern,
    Periodic,
    RationalQuadratic,
    fit_hyperparameters,
    gaussian_log_density,
    linear_kernel,
    marginal_likelihood_gradient,
)
from thetax.layers import Linear

density = import_module("thetax.bayes.gaussian_process.gaussian_log_density")

RNG = np.random.default_rng(1)
XS = RNG.standard_normal((9, 2))
YS = np.stack([np.sin(2 * XS[:, 0]), XS[:, 1]], axis=1) + 0.1 * RNG.standard_normal((9, 2))

PROCESSES = {
    "ard": GaussianProcess.init(RBF.init(variance=1.5, length_scale=[0.7, 1.3]), noise=0.2),
    "matern": GaussianProcess.init(Matern.init(nu=1.5) + linear_kernel(offset=0.3), noise=0.2),
    "periodic": GaussianProcess.init(
        Periodic.init(period=2.1) * RationalQuadratic.init(alpha=0.8), noise=0.2
    ),
    "mean": GaussianProcess.init(
        RBF.init(), noise=0.2, mean=Linear(jnp.array([[0.3, 0.1]]), jnp.array([0.2]))
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROCESSES)
def test_gradient_equals_finite_differences(name, x64):
    """Central differences in every hyperparameter; the gradient from the posterior's factor is the
    same.
    """
    process = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), PROCESSES[name])
    value, slope = marginal_likelihood_gradient(process, XS, YS)
    np.testing.assert_allclose(value, process.log_marginal_likelihood(XS, YS), rtol=1e-14)
    theta, back = tree.ravel(process)
    at = lambda step: float(back(theta + step).log_marginal_likelihood(XS, YS))
    expected = [(at(1e-5 * e) - at(-1e-5 * e)) / 2e-5 for e in np.eye(theta.size)]
    np.testing.assert_allclose(tree.ravel(slope)[0], expected, rtol=1e-6, atol=1e-7)
    again = process.condition(XS, YS).marginal_likelihood_gradient()
    np.testing.assert_allclose(tree.ravel(again)[0], tree.ravel(slope)[0], rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 4, 7])
def test_gradient_from_half_the_inverse(n, x64, monkeypatch):
    """Against autodiff of the plain formula, with one and several blocks of columns."""
    monkeypatch.setattr(density, "COLUMN_BLOCK", 4)
    A = RNG.standard_normal((n, n))
    r = jnp.asarray(RNG.standard_normal((n, 2)))
    K = jnp.asarray(A @ A.T + n * np.eye(n))

    def plain(K, r):
        return (
            -jnp.vdot(r, jnp.linalg.solve(K, r)) / 2
            - jnp.linalg.slogdet(K)[1]
            - n * np.log(2 * np.pi)
        )

    found, expected = (
        jax.jit(jax.grad(f, argnums=(0, 1)))(K, r)
        for f in (lambda *a: gaussian_log_density(*a)[0], plain)
    )
    np.testing.assert_allclose(
        (found[0] + found[0].T) / 2, (expected[0] + expected[0].T) / 2, atol=1e-12
    )
    np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    np.testing.assert_allclose(gaussian_log_density(K, r)[0], plain(K, r), rtol=1e-12)


def test_reaches_the_optimum_of_sklearn():
    """From the same start, without its bounds; the gradient of scikit-learn vanishes there too."""
    found = fit_hyperparameters(GaussianProcess.init(RBF.init(), noise=0.1), XS, YS)
    peer = 1.0 * peers.RBF(1.0) + peers.WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(peer, alpha=0.0).fit(XS, YS)
    assert found.log_marginal_likelihood >= theirs.log_marginal_likelihood() - 1e-6
    assert found.converged
    assert found.max_gradient <= 1e-5
    model = found.model
    theta = np.array([model.kernel.log_variance, model.kernel.log_length_scale, model.log_noise])
    value, slope = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    np.testing.assert_allclose(found.log_marginal_likelihood, value, rtol=1e-9)
    assert np.abs(slope).max() < 1e-4
    assert found.history[-1] == pytest.approx(found.log_marginal_likelihood, rel=1e-12)
    assert np.all(np.diff(found.history) >= -1e-9)


def test_restarts_never_hurt_and_follow_the_key():
    """The start is in the basin of pure noise; restarts find the optimum with a signal."""
    xs = np.linspace(0, 6, 20)
    ys = np.sin(2 * xs) + 0.1 * np.random.default_rng(0).standard_normal(20)
    start = GaussianProcess.init(RBF.init(variance=1e-3, length_scale=30.0), noise=1.0)
    alone = fit_hyperparameters(start, xs, ys)
    several, again = (
        fit_hyperparameters(start, xs, ys, restarts=3, spread=2.0, key=jr.key(0)) for _ in range(2)
    )
    assert several.optima[0] == pytest.approx(alone.log_marginal_likelihood, rel=1e-9)
    assert several.log_marginal_likelihood == pytest.approx(several.optima.max(), rel=1e-9)
    assert several.log_marginal_likelihood > alone.log_marginal_likelihood + 1
    np.testing.assert_array_equal(several.optima, again.optima)


def test_fixed_leaves_do_not_change():
    process = GaussianProcess.init(RBF.init(length_scale=0.9) + linear_kernel(), noise=0.1)
    found = fit_hyperparameters(
        process, XS, YS, fixed=lambda p: (p.log_noise, p.kernel.left.log_length_scale), max_steps=20
    ).model
    assert found.log_noise == process.log_noise
    assert found.kernel.left.log_length_scale == process.kernel.left.log_length_scale
    assert found.kernel.right.log_offset == -np.inf  # an offset of 0
    assert found.kernel.left.log_variance != process.kernel.left.log_variance


def test_fit_warns_about_jitter():
    """The same noise-free data twice: the noise tends to 0, or stays 0."""
    xs = np.tile(np.linspace(0, 3, 6), 2)
    with pytest.warns(JitterWarning):
        found = fit_hyperparameters(GaussianProcess.init(RBF.init()), xs, np.sin(xs), max_steps=3)
    assert np.isfinite(found.log_marginal_likelihood)


@pytest.mark.slow
def test_fit_a_classifier():
    labels = (XS[:, 0] > 0).astype(int)
    start = GaussianProcessBinaryClassifier(RBF.init())
    found = fit_hyperparameters(start, XS, labels, max_steps=10)
    assert found.log_marginal_likelihood > float(start.log_marginal_likelihood(XS, labels))


def test_invalid_arguments():
    process = GaussianProcess.init(RBF.init(), noise=0.1)
    with pytest.raises(ValueError, match="fixed must return parts of the model"):
        fit_hyperparameters(process, XS, YS, fixed=lambda p: "log_noise")
    with pytest.raises(ValueError, match=r"2 restarts need random starting points\. Pass a key"):
        fit_hyperparameters(process, XS, YS, restarts=2)
    with pytest.raises(ValueError, match="max_steps must be an integer >= 1; got 0"):
        fit_hyperparameters(process, XS, YS, max_steps=0)
    with pytest.raises(ValueError, match="nothing to fit"):
        fit_hyperparameters(process, XS, YS, fixed=lambda p: p)
    with pytest.raises(ValueError, match="ys has shape"):
        fit_hyperparameters(process, XS, YS[:3])
