"""The gradient of the log evidence by differences and by autodiff of another formula; fits beside
scikit-learn's.
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
    BinaryClassifier,
    GaussianProcess,
    JitterWarning,
    Matern,
    Periodic,
    RationalQuadratic,
    evidence_gradient,
    fit_evidence,
    linear_kernel,
    log_density,
)
from thetax.layers import Linear

density = import_module("thetax.bayes.gaussian_process.log_density")

RNG = np.random.default_rng(1)
XS = RNG.standard_normal((9, 2))
YS = np.stack([np.sin(2 * XS[:, 0]), XS[:, 1]], axis=1) + 0.1 * RNG.standard_normal((9, 2))

PROCESSES = {
    "ard": GaussianProcess.init(RBF.init(scale=1.5, length=[0.7, 1.3]), noise=0.2),
    "matern": GaussianProcess.init(
        Matern.init(smoothness=1.5) + linear_kernel(offset=0.3), noise=0.2
    ),
    "periodic": GaussianProcess.init(
        Periodic.init(period=2.1) * RationalQuadratic.init(mixture=0.8), noise=0.2
    ),
    "mean": GaussianProcess.init(
        RBF.init(), noise=0.2, mean=Linear(jnp.array([[0.3, 0.1]]), jnp.array([0.2]))
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROCESSES)
def test_the_gradient_is_that_of_differences(name, x64):
    """Central differences in every hyper-parameter; from the posterior's factor it is the same."""
    process = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), PROCESSES[name])
    value, slope = evidence_gradient(process, XS, YS)
    np.testing.assert_allclose(value, process.log_evidence(XS, YS), rtol=1e-14)
    theta, back = tree.ravel(process)
    at = lambda step: float(back(theta + step).log_evidence(XS, YS))
    expected = [(at(1e-5 * e) - at(-1e-5 * e)) / 2e-5 for e in np.eye(theta.size)]
    np.testing.assert_allclose(tree.ravel(slope)[0], expected, rtol=1e-6, atol=1e-7)
    again = process.condition(XS, YS).evidence_gradient()
    np.testing.assert_allclose(tree.ravel(again)[0], tree.ravel(slope)[0], rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 4, 7])
def test_half_an_inverse_is_enough(n, x64, monkeypatch):
    """Against autodiff of the plain formula, for one panel of columns and for several."""
    monkeypatch.setattr(density, "PANEL", 4)
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
        jax.jit(jax.grad(f, argnums=(0, 1)))(K, r) for f in (lambda *a: log_density(*a)[0], plain)
    )
    np.testing.assert_allclose(
        (found[0] + found[0].T) / 2, (expected[0] + expected[0].T) / 2, atol=1e-12
    )
    np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    np.testing.assert_allclose(log_density(K, r)[0], plain(K, r), rtol=1e-12)


def test_it_reaches_sklearns_evidence():
    """From the same start, without its bounds; the peak is where scikit-learn's gradient vanishes
    too.
    """
    found = fit_evidence(GaussianProcess.init(RBF.init(), noise=0.1), XS, YS)
    peer = 1.0 * peers.RBF(1.0) + peers.WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(peer, alpha=0.0).fit(XS, YS)
    assert found.evidence >= theirs.log_marginal_likelihood() - 1e-6
    assert found.converged
    assert found.slope <= 1e-5
    model = found.model
    theta = np.array([model.kernel.log_scale, model.kernel.log_length, model.log_noise])
    value, slope = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    np.testing.assert_allclose(found.evidence, value, rtol=1e-9)
    assert np.abs(slope).max() < 1e-4
    assert found.path[-1] == pytest.approx(found.evidence, rel=1e-12)
    assert np.all(np.diff(found.path) >= -1e-9)


def test_restarts_only_help_and_follow_the_key():
    """A start in the valley of pure noise; other starts find the peak where there is a signal."""
    xs = np.linspace(0, 6, 20)
    ys = np.sin(2 * xs) + 0.1 * np.random.default_rng(0).standard_normal(20)
    start = GaussianProcess.init(RBF.init(scale=1e-3, length=30.0), noise=1.0)
    alone = fit_evidence(start, xs, ys)
    several, again = (
        fit_evidence(start, xs, ys, restarts=3, spread=2.0, key=jr.key(0)) for _ in range(2)
    )
    assert several.peaks[0] == pytest.approx(alone.evidence, rel=1e-9)
    assert several.evidence == pytest.approx(several.peaks.max(), rel=1e-9)
    assert several.evidence > alone.evidence + 1
    np.testing.assert_array_equal(several.peaks, again.peaks)


def test_what_is_fixed_stays():
    process = GaussianProcess.init(RBF.init(length=0.9) + linear_kernel(), noise=0.1)
    found = fit_evidence(
        process, XS, YS, fixed=lambda p: (p.log_noise, p.kernel.left.log_length), steps=20
    ).model
    assert found.log_noise == process.log_noise
    assert found.kernel.left.log_length == process.kernel.left.log_length
    assert found.kernel.right.log_offset == -np.inf  # an offset of 0
    assert found.kernel.left.log_scale != process.kernel.left.log_scale


def test_a_fit_that_needs_jitter_says_so():
    """Twice the same noise-free data: the noise is driven to nothing, or stays at nothing."""
    xs = np.tile(np.linspace(0, 3, 6), 2)
    with pytest.warns(JitterWarning):
        found = fit_evidence(GaussianProcess.init(RBF.init()), xs, np.sin(xs), steps=3)
    assert np.isfinite(found.evidence)


@pytest.mark.slow
def test_a_classifier_is_fitted_by_the_same_function():
    labels = (XS[:, 0] > 0).astype(int)
    start = BinaryClassifier(RBF.init())
    found = fit_evidence(start, XS, labels, steps=10)
    assert found.evidence > float(start.log_evidence(XS, labels))


def test_bad_settings_are_refused():
    process = GaussianProcess.init(RBF.init(), noise=0.1)
    with pytest.raises(ValueError, match="fixed must give parts of the model"):
        fit_evidence(process, XS, YS, fixed=lambda p: "log_noise")
    with pytest.raises(ValueError, match="2 restarts are drawn at random; give a key"):
        fit_evidence(process, XS, YS, restarts=2)
    with pytest.raises(ValueError, match="must be positive"):
        fit_evidence(process, XS, YS, steps=0)
    with pytest.raises(ValueError, match="nothing to fit"):
        fit_evidence(process, XS, YS, fixed=lambda p: p)
    with pytest.raises(ValueError, match="ys has shape"):
        fit_evidence(process, XS, YS[:3])
