"""Exact regression against a joint Gaussian in NumPy, scikit-learn, and SciPy's density (§10.2)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peers

from thetax.bayes import (
    RBF,
    GaussianProcess,
    JitterWarning,
    Matern,
    Periodic,
    cholesky_with_jitter,
    linear_kernel,
    to_float32,
)
from thetax.explain import infinite_width_limit
from thetax.layers import Linear, he
from thetax.models import MLP

RNG = np.random.default_rng(0)
XS = RNG.standard_normal((8, 2))
NEW = RNG.standard_normal((5, 2))
YS = np.sin(2 * XS[:, 0]) + XS[:, 1]
BOTH = np.stack([YS, np.cos(XS[:, 1])], axis=1)

KERNELS = {
    "rbf": (RBF.init(variance=1.7, length_scale=0.8), 1.7 * peers.RBF(0.8)),
    "ard": (RBF.init(length_scale=[0.5, 2.0]), peers.RBF([0.5, 2.0])),
    "matern": (Matern.init(nu=1.5, length_scale=0.8), peers.Matern(0.8, nu=1.5)),
    "dot product": (linear_kernel(offset=0.49), peers.DotProduct(0.7)),
    "sum": (
        RBF.init() + linear_kernel(variance=0.5, offset=0.49),
        peers.RBF() + 0.5 * peers.DotProduct(0.7),
    ),
    "product": (RBF.init() * Matern.init(nu=0.5), peers.RBF() * peers.Matern(nu=0.5)),
}


def compare(kernel, peer, xs, new, noise=0.1):
    """Mean, covariance, standard deviation and marginal likelihood, to 1e-8."""
    posterior = GaussianProcess.init(kernel, noise=noise).condition(xs, BOTH)
    for at in (0, 1):
        fitted = GaussianProcessRegressor(peer, alpha=noise, optimizer=None).fit(xs, BOTH[:, at])
        mean, covariance = fitted.predict(new, return_cov=True)
        np.testing.assert_allclose(np.asarray(posterior.mean(new))[:, at], mean, atol=1e-8)
        np.testing.assert_allclose(posterior.covariance(new), covariance, atol=1e-8)
    both = GaussianProcessRegressor(peer, alpha=noise, optimizer=None).fit(xs, BOTH)
    np.testing.assert_allclose(
        posterior.log_marginal_likelihood, both.log_marginal_likelihood(), rtol=1e-8
    )
    np.testing.assert_allclose(
        np.sqrt(posterior.variance(new)), fitted.predict(new, return_std=True)[1], atol=1e-8
    )


@pytest.mark.parametrize("name", KERNELS)
def test_equals_sklearn(name):
    compare(*KERNELS[name], XS, NEW)


def test_periodic_kernel_equals_sklearn():
    compare(
        Periodic.init(period=1.4, length_scale=0.6),
        peers.ExpSineSquared(0.6, 1.4),
        XS[:, :1],
        NEW[:, :1],
    )


def test_posterior_is_a_conditional_gaussian():
    """10.2-gp-posterior: from blocks of the precision matrix of (f*, y), independent of the
    posterior's formulas.
    """
    kernel = RBF.init(variance=1.3, length_scale=0.7)
    joint = np.array(kernel(np.concatenate([NEW, XS])))
    joint[5:, 5:] += 0.2 * np.eye(8)
    precision = np.linalg.inv(joint)
    covariance = np.linalg.inv(precision[:5, :5])
    posterior = GaussianProcess.init(kernel, noise=0.2).condition(XS, YS)
    np.testing.assert_allclose(
        posterior.mean(NEW), -covariance @ precision[:5, 5:] @ YS, atol=1e-10
    )
    np.testing.assert_allclose(posterior.covariance(NEW), covariance, atol=1e-10)
    np.testing.assert_allclose(posterior.variance(NEW), np.diag(covariance), atol=1e-10)


def test_marginal_likelihood_equals_scipy():
    process = GaussianProcess.init(RBF.init(variance=1.3), noise=0.2)
    initialiser = stats.multivariate_normal(
        np.zeros(8), np.asarray(RBF.init(variance=1.3)(XS)) + 0.2 * np.eye(8)
    )
    np.testing.assert_allclose(
        process.log_marginal_likelihood(XS, YS), initialiser.logpdf(YS), rtol=1e-12
    )
    np.testing.assert_allclose(
        process.log_marginal_likelihood(XS, BOTH), initialiser.logpdf(BOTH.T).sum(), rtol=1e-12
    )
    np.testing.assert_allclose(
        process.condition(XS, BOTH).log_marginal_likelihood,
        initialiser.logpdf(BOTH.T).sum(),
        rtol=1e-12,
    )


def test_linear_kernel_is_bayesian_linear_regression():
    """10.2-gp-blr: w ~ N(0, sI) and y = Xw + noise, by the posterior of w."""
    s, noise = 0.5, 0.2
    S = np.linalg.inv(XS.T @ XS / noise + np.eye(2) / s)
    posterior = GaussianProcess.init(linear_kernel(variance=s), noise=noise).condition(XS, YS)
    np.testing.assert_allclose(posterior.mean(NEW), NEW @ S @ XS.T @ YS / noise, atol=1e-10)
    np.testing.assert_allclose(posterior.covariance(NEW), NEW @ S @ NEW.T, atol=1e-10)


def test_noise_free_posterior_interpolates():
    posterior = GaussianProcess.init(RBF.init(length_scale=0.5)).condition(XS, YS)
    np.testing.assert_allclose(posterior.mean(XS), YS, atol=1e-10)
    np.testing.assert_allclose(posterior.variance(XS), 0, atol=1e-10)
    assert posterior.jitter == 0


def test_mean_function():
    """Equal to conditioning the residuals and adding the mean again; one mean for all outputs, or
    one each.
    """
    mean = Linear(jnp.array([[0.5, -1.0]]), jnp.array([2.0]))
    rest = YS - (XS @ [0.5, -1.0] + 2.0)
    plain = GaussianProcess.init(RBF.init(), noise=0.1).condition(XS, rest)
    moved = GaussianProcess.init(RBF.init(), noise=0.1, mean=mean)
    posterior = moved.condition(XS, YS)
    np.testing.assert_allclose(
        posterior.mean(NEW), plain.mean(NEW) + NEW @ [0.5, -1.0] + 2.0, atol=1e-9
    )
    np.testing.assert_allclose(
        posterior.log_marginal_likelihood, plain.log_marginal_likelihood, rtol=1e-10
    )
    wide = moved.condition(XS, BOTH).mean(NEW)
    np.testing.assert_allclose(np.asarray(wide)[:, 0], posterior.mean(NEW), atol=1e-10)
    with pytest.raises(
        ValueError, match=r"the mean has shape \(3,\) for one example, but ys has \(2,\)"
    ):
        GaussianProcess.init(RBF.init(), mean=Linear(jnp.zeros((3, 2)), jnp.zeros(3))).condition(
            XS, BOTH
        )


def test_samples_have_the_mean_and_covariance():
    """10.2-gp: within 4.5 standard errors, before and after conditioning."""
    process = GaussianProcess.init(RBF.init(variance=2.0), noise=0.1)
    count = 4000
    posterior = process.condition(XS, YS)
    cases = [
        (process.sample(NEW, count, key=jr.key(0)), np.zeros(5), np.asarray(process.kernel(NEW))),
        (
            posterior.sample(NEW, count, key=jr.key(1)),
            posterior.mean(NEW),
            np.asarray(posterior.covariance(NEW)),
        ),
    ]
    for draws, mean, K in cases:
        draws = np.asarray(draws) - mean
        assert np.all(np.abs(draws.mean(axis=0)) < 4.5 * np.sqrt(np.diag(K) / count))
        error = np.sqrt((np.outer(np.diag(K), np.diag(K)) + K**2) / count)
        assert np.all(np.abs(draws.T @ draws / count - K) < 4.5 * error)
    assert process.condition(XS, BOTH).sample(NEW, 3, key=jr.key(2)).shape == (3, 5, 2)
    np.testing.assert_array_equal(
        process.sample(NEW, 2, key=jr.key(3)), process.sample(NEW, 2, key=jr.key(3))
    )


@given(seed=st.integers(0, 10**6))
def test_more_data_never_increase_the_variance(seed):
    xs = np.random.default_rng(seed).standard_normal((8, 2))
    process = GaussianProcess.init(RBF.init(), noise=0.1)
    few, many = (np.asarray(process.condition(xs[:n], np.zeros(n)).variance(NEW)) for n in (4, 8))
    assert np.all(many <= few + 1e-12)
    assert np.all(few <= 1 + 1e-12)
    assert np.all(many >= 0)


def test_float64_outside_and_given_dtype_inside_transformations():
    process = GaussianProcess.init(RBF.init(), noise=0.1)
    posterior = process.condition(jnp.asarray(XS, jnp.float32), jnp.asarray(YS, jnp.float32))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(posterior)} == {"float64"}
    low = to_float32(process)
    inside = jax.jit(lambda p, xs, ys: p.condition(xs, ys).mean(xs))
    found = inside(low, jnp.asarray(XS, jnp.float32), jnp.asarray(YS, jnp.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, posterior.mean(XS), atol=1e-4)
    assert low.condition(XS, YS).variance(NEW).dtype == np.float32


def test_vmap_over_processes(x64):
    """Marginal likelihood over a grid of length scales, with vmap and separately."""
    lengths = jnp.array([0.5, 1.0, 2.0])
    of = lambda length: GaussianProcess(
        RBF(jnp.zeros(()), jnp.log(length)), jnp.log(0.1)
    ).log_marginal_likelihood(XS, YS)
    np.testing.assert_allclose(
        jax.vmap(of)(lengths), [of(length) for length in lengths], rtol=1e-12
    )


def test_examples_as_trees():
    """A kernel on pairs of arrays; the process only counts examples."""
    pairs = {"a": XS[:, :1], "b": XS[:, 1:]}
    kernel = lambda xs, ys=None: (
        RBF.init()(xs["a"], None if ys is None else ys["a"])
        * RBF.init()(xs["b"], None if ys is None else ys["b"])
    )
    found = GaussianProcess.init(kernel, noise=0.1).condition(pairs, YS)
    plain = GaussianProcess.init(RBF.init(), noise=0.1).condition(XS, YS)
    np.testing.assert_allclose(found.mean(pairs), plain.mean(XS), atol=1e-12)
    np.testing.assert_allclose(found.variance(pairs), plain.variance(XS), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["nngp", "ntk"])
def test_nngp_kernel(which, x64):
    """10.2-nngp-regression: the posterior in NumPy, and the product of the kernel with a
    constant.
    """
    kernel = getattr(infinite_width_limit(MLP.init(2, 4, 1, key=jr.key(0)), initialiser=he), which)
    K = np.asarray(kernel(jnp.asarray(XS)))
    cross = np.asarray(kernel(jnp.asarray(NEW), jnp.asarray(XS)))
    posterior = GaussianProcess.init(
        2.0 * RBF.init(length_scale=1e6) * kernel, noise=0.2
    ).condition(XS, YS)
    np.testing.assert_allclose(
        posterior.mean(NEW), cross @ np.linalg.solve(K + 0.1 * np.eye(8), YS), atol=1e-8
    )
    plain = GaussianProcess.init(kernel, noise=0.1).condition(XS, YS)
    np.testing.assert_allclose(plain.mean(NEW), posterior.mean(NEW), atol=1e-8)
    np.testing.assert_allclose(
        plain.variance(NEW), np.asarray(posterior.variance(NEW)) / 2, atol=1e-8
    )


def test_duplicates_without_noise_warn():
    """A warning, the jitter in the result, and a posterior that still interpolates."""
    twice = np.concatenate([XS, XS])
    ys = np.concatenate([YS, YS])
    with pytest.warns(JitterWarning, match=r"added 1.0e-12 to the diagonal .* duplicate"):
        posterior = GaussianProcess.init(RBF.init()).condition(twice, ys)
    assert 0 < posterior.jitter <= 1e-10
    np.testing.assert_allclose(posterior.mean(XS), YS, atol=1e-4)
    with pytest.warns(JitterWarning, match="log_marginal_likelihood: added"):
        GaussianProcess.init(RBF.init()).log_marginal_likelihood(twice, ys)


def test_duplicates_with_noise():
    posterior = GaussianProcess.init(RBF.init(), noise=1e-6).condition(
        np.concatenate([XS, XS]), np.tile(YS, 2)
    )
    assert posterior.jitter == 0


def test_smallest_sufficient_jitter(x64):
    """A matrix with an eigenvalue of −1e-9 needs 1e-8 of the mean variance, not more."""
    Q = np.linalg.qr(RNG.standard_normal((5, 5)))[0]
    K = Q @ np.diag([-1e-9, 1, 1, 1, 1]) @ Q.T
    L, jitter = cholesky_with_jitter(jnp.asarray(K))
    np.testing.assert_allclose(jitter, 1e-8 * np.trace(K) / 5, rtol=1e-12)
    np.testing.assert_allclose(L @ L.T, K + float(jitter) * np.eye(5), atol=1e-15)


def test_pivots_at_rounding_error_are_rejected(x64):
    """The Cholesky decomposition succeeds, but with a pivot that is rounding error."""
    K = np.array([[1.0, 1.0], [1.0, 1 + 4e-16]])
    assert np.isfinite(np.linalg.cholesky(K)).all()
    np.testing.assert_allclose(cholesky_with_jitter(jnp.asarray(K)).jitter, 1e-12, rtol=1e-9)


def test_indefinite_kernel_raises():
    with pytest.raises(ValueError, match="condition: the covariance is not positive definite"):
        GaussianProcess.init(lambda xs, ys=None: -RBF.init()(xs, ys)).condition(XS, YS)


@pytest.mark.slow
def test_derivatives_of_the_cholesky_factor(x64):
    """Forward and reverse mode, with and without jitter."""
    slope = jax.grad(lambda s: cholesky_with_jitter(s * jnp.eye(3)).L.sum())(4.0)
    np.testing.assert_allclose(slope, 3 / (2 * 2.0), rtol=1e-12)
    singular = lambda s: cholesky_with_jitter(s * jnp.ones((2, 2))).L[0, 0]
    np.testing.assert_allclose(jax.grad(singular)(4.0), 0.25, rtol=1e-6)
    K, dK = (np.asarray(RBF.init(length_scale=length)(XS[:4])) for length in (0.5, 1.0))
    along = lambda t: cholesky_with_jitter(jnp.asarray(K + t * dK)).L
    found = jax.jvp(along, (0.0,), (1.0,))[1]
    np.testing.assert_allclose(found, (along(1e-5) - along(-1e-5)) / 2e-5, atol=1e-8)


PROCESS = GaussianProcess.init(RBF.init(), noise=0.1)


@pytest.mark.parametrize(
    "ys", [YS[:, None, None], np.float64(1.0), YS[:5]], ids=["rank 3", "number", "too few"]
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_shape_of_ys(ys):
    with pytest.raises(ValueError, match=r"condition: .*ys has shape"):
        PROCESS.condition(XS, ys)


@pytest.mark.usefixtures("unchecked")
def test_non_finite_input():
    with pytest.raises(
        ValueError, match="log_marginal_likelihood: ys: expected finite numbers, but row 2 is nan"
    ):
        PROCESS.log_marginal_likelihood(XS, np.where(np.arange(8) == 2, np.nan, YS))
    with pytest.raises(
        ValueError, match="condition: xs: expected finite numbers, but row 0, column 0 is inf"
    ):
        PROCESS.condition(np.where(np.arange(16).reshape(8, 2) == 0, np.inf, XS), YS)
    with pytest.raises(ValueError, match="mean: xs: expected finite"):
        PROCESS.condition(XS, YS).mean(np.full((1, 2), np.nan))


@pytest.mark.usefixtures("unchecked")
def test_empty_input():
    with pytest.raises(ValueError, match="at least one example"):
        PROCESS.condition(np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(ValueError, match="expected an array of examples"):
        PROCESS.condition((), YS)
    with pytest.raises(ValueError, match="got a float in a list"):
        PROCESS.condition([[1.0], [2.0]], YS)


@pytest.mark.usefixtures("unchecked")
def test_trees_of_different_lengths():
    with pytest.raises(ValueError, match=r"arrays of 5 and 8 examples"):
        PROCESS.condition((XS, NEW), YS)


@pytest.mark.usefixtures("unchecked")
def test_not_enough_memory(monkeypatch):
    monkeypatch.setattr("thetax.memory.free_memory", lambda: 1000)
    with pytest.raises(
        ValueError,
        match=r"condition: it needs 1\.0 kB of memory, but 1\.0 kB are free; use Sparse",
    ):
        PROCESS.condition(XS, YS)


@pytest.mark.usefixtures("unchecked")
def test_lists_and_negative_n_samples():
    with pytest.raises(ValueError, match="condition: expected an array, got a list"):
        PROCESS.condition(XS, YS.tolist())
    with pytest.raises(ValueError, match="sample: n_samples must be an integer >= 1; got -1"):
        PROCESS.sample(XS, -1, key=jr.key(0))


@pytest.mark.usefixtures("unchecked")
def test_kernel_with_the_wrong_shape():
    with pytest.raises(ValueError, match=r"expected a matrix of shape \(8, 8\).*; got \(8, 8, 2\)"):
        GaussianProcess.init(lambda xs, ys=None: np.ones((8, 8, 2))).condition(XS, YS)


@pytest.mark.usefixtures("unchecked")
def test_invalid_arguments():
    with pytest.raises(ValueError, match="noise must not be negative; got -1"):
        GaussianProcess.init(RBF.init(), noise=-1.0)
    with pytest.raises(ValueError, match="kernel must be a function"):
        GaussianProcess.init(1.0)
