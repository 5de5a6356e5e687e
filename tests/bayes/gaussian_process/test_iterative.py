"""Conjugate gradients and inducing points against the exact process."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.bayes import (
    RBF,
    GaussianProcess,
    JitterWarning,
    Matern,
    SparseGaussianProcess,
    condition_iteratively,
    conjugate_gradients,
    fit_hyperparameters,
    marginal_likelihood_gradient,
    pivoted_cholesky,
)
from thetax.bayes.gaussian_process import iterative as module

RNG = np.random.default_rng(0)
XS = RNG.standard_normal((30, 2))
NEW = RNG.standard_normal((5, 2))
YS = np.stack([np.sin(2 * XS[:, 0]), XS[:, 1]], axis=1)
PROCESS = GaussianProcess.init(RBF.init(variance=1.5, length_scale=0.7), noise=0.05)


def test_conjugate_gradients_equal_numpy(x64):
    """Several right-hand sides, one of them 0."""
    A = RNG.standard_normal((12, 12))
    A = A @ A.T + np.eye(12)
    b = np.array(RNG.standard_normal((12, 3)))
    b[:, 1] = 0
    found = conjugate_gradients(lambda v: jnp.asarray(A) @ v, jnp.asarray(b), tolerance=1e-12)
    np.testing.assert_allclose(found.x, np.linalg.solve(A, b), atol=1e-9)
    assert found.converged
    few = conjugate_gradients(
        lambda v: jnp.asarray(A) @ v, jnp.asarray(b), tolerance=1e-12, max_steps=3
    )
    assert not few.converged
    assert few.steps == 3


def test_conjugate_gradients_take_as_many_steps_as_there_are_eigenvalues(x64):
    d = jnp.array([1.0] * 5 + [4.0] * 5 + [9.0] * 5)
    assert (
        conjugate_gradients(lambda v: d[:, None] * v, jnp.ones((15, 1)), tolerance=1e-10).steps == 3
    )


@pytest.mark.slow
def test_iterative_posterior_equals_the_exact_one(monkeypatch):
    """With a block size that does not divide the number of rows."""
    monkeypatch.setattr(module, "ROW_BLOCK", 7)
    exact = PROCESS.condition(XS, YS)
    found = condition_iteratively(PROCESS, XS, YS, rank=6)
    assert found.converged
    assert np.all(found.residual < 1e-9)
    np.testing.assert_allclose(found.alpha, exact.alpha, atol=1e-7)
    np.testing.assert_allclose(found.mean(NEW), exact.mean(NEW), atol=1e-8)
    np.testing.assert_allclose(found.variance(NEW), exact.variance(NEW), atol=1e-8)
    one = condition_iteratively(PROCESS, XS, YS[:, 0], rank=30)
    np.testing.assert_allclose(one.mean(NEW), np.asarray(exact.mean(NEW))[:, 0], atol=1e-8)


def test_a_preconditioner_of_full_rank_needs_one_step():
    assert condition_iteratively(PROCESS, XS, YS, rank=30).steps <= 2
    assert condition_iteratively(PROCESS, XS, YS, rank=1).steps > 10


def test_too_few_steps_do_not_converge():
    assert not condition_iteratively(PROCESS, XS, YS, rank=1, max_steps=2).converged


def test_invalid_arguments():
    with pytest.raises(ValueError, match="no noise"):
        condition_iteratively(GaussianProcess.init(RBF.init()), XS, YS)
    with pytest.raises(ValueError, match="rank must be an integer >= 1; got 0"):
        condition_iteratively(PROCESS, XS, YS, rank=0)


def test_pivoted_cholesky_of_full_rank_is_the_matrix():
    found = pivoted_cholesky(Matern.init(nu=0.5), XS, rank=30)
    np.testing.assert_allclose(found.L @ found.L.T, Matern.init(nu=0.5)(XS), atol=1e-12)
    assert sorted(found.pivots.tolist()) == list(range(30))
    assert found.residual_trace < 1e-12


def test_pivots_are_the_greedy_choice():
    """Each pivot has the largest conditional variance given those before it."""
    kernel = RBF.init(length_scale=0.8)
    found = pivoted_cholesky(kernel, XS, rank=5)
    K = np.asarray(kernel(XS))
    for j in range(1, 5):
        seen = found.pivots[:j]
        left = np.diag(K - K[:, seen] @ np.linalg.solve(K[np.ix_(seen, seen)], K[seen]))
        assert left[found.pivots[j]] == pytest.approx(left.max(), rel=1e-9)
    np.testing.assert_allclose(found.residual_trace, np.trace(K - found.L @ found.L.T), rtol=1e-9)


def test_rank_above_that_of_the_matrix():
    found = pivoted_cholesky(RBF.init(), np.repeat(XS[:3], 2, axis=0), rank=6)
    assert np.isfinite(found.L).all()
    np.testing.assert_allclose(found.L[:, 3:], 0, atol=1e-7)


def test_invalid_rank():
    with pytest.raises(ValueError, match="between 1 and the number of examples, 30; got 31"):
        pivoted_cholesky(RBF.init(), XS, rank=31)


def test_all_examples_as_inducing_points_are_the_exact_process():
    exact = PROCESS.condition(XS, YS)
    found = SparseGaussianProcess(PROCESS, XS).condition(XS, YS)
    np.testing.assert_allclose(
        found.log_marginal_likelihood, exact.log_marginal_likelihood, rtol=1e-9
    )
    np.testing.assert_allclose(found.mean(NEW), exact.mean(NEW), atol=1e-8)
    np.testing.assert_allclose(found.covariance(NEW), exact.covariance(NEW), atol=1e-8)
    np.testing.assert_allclose(found.variance(NEW), exact.variance(NEW), atol=1e-8)


def test_the_bound_is_titsias():
    """The formula with n by n matrices in NumPy, for two outputs."""
    few = SparseGaussianProcess.init(PROCESS, XS, n_inducing=8)
    K = np.asarray(PROCESS.kernel(XS))
    cross = np.asarray(PROCESS.kernel(XS, few.inducing_points))
    own = np.asarray(PROCESS.kernel(few.inducing_points))
    Q = cross @ np.linalg.solve(own, cross.T)
    S = Q + 0.05 * np.eye(30)
    fit = (
        -(YS * np.linalg.solve(S, YS)).sum() / 2 - np.linalg.slogdet(S)[1] - 30 * np.log(2 * np.pi)
    )
    expected = fit - 2 * np.trace(K - Q) / (2 * 0.05)
    np.testing.assert_allclose(few.log_marginal_likelihood(XS, YS), expected, rtol=1e-9)
    np.testing.assert_allclose(few.condition(XS, YS).log_marginal_likelihood, expected, rtol=1e-9)


def test_inducing_points_that_need_jitter_give_a_warning():
    """Two equal inducing points: their covariance is singular."""
    twice = SparseGaussianProcess(PROCESS, XS[np.array([0, 0, 1])])
    with pytest.warns(JitterWarning, match="log_marginal_likelihood"):
        assert np.isfinite(twice.log_marginal_likelihood(XS, YS))
    with pytest.warns(JitterWarning, match="condition"):
        assert np.isfinite(twice.condition(XS, YS).log_marginal_likelihood)


@given(seed=st.integers(0, 10**6))
def test_the_bound_is_below_the_exact_value_and_grows_with_inducing_points(seed):
    rng = np.random.default_rng(seed)
    points = rng.permutation(XS)[:9] + 0.1 * rng.standard_normal((9, 2))
    few, more = (
        float(SparseGaussianProcess(PROCESS, points[:m]).log_marginal_likelihood(XS, YS))
        for m in (4, 9)
    )
    assert few <= more + 1e-8 * abs(more)
    assert more <= float(PROCESS.log_marginal_likelihood(XS, YS)) + 1e-8


@pytest.mark.slow
def test_inducing_points_and_hyperparameters_are_fitted():
    start = SparseGaussianProcess.init(PROCESS, XS, n_inducing=4)
    found = fit_hyperparameters(start, XS, YS, max_steps=5)
    assert found.log_marginal_likelihood > float(start.log_marginal_likelihood(XS, YS))
    assert not np.allclose(found.model.inducing_points, start.inducing_points)


def test_the_gradient_in_the_inducing_points_is_that_of_differences(x64):
    start = jax.tree.map(jnp.asarray, SparseGaussianProcess.init(PROCESS, XS, n_inducing=3))
    _, slope = marginal_likelihood_gradient(start, XS, YS)
    at = lambda h: float(
        SparseGaussianProcess(
            PROCESS, start.inducing_points.at[1, 0].add(h)
        ).log_marginal_likelihood(XS, YS)
    )
    np.testing.assert_allclose(
        slope.inducing_points[1, 0], (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-5
    )


def test_inducing_points_need_noise():
    with pytest.raises(ValueError, match="no noise"):
        SparseGaussianProcess(GaussianProcess.init(RBF.init()), XS[:3]).log_marginal_likelihood(
            XS, YS
        )
