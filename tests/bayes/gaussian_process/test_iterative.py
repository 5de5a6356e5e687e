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
    InducingProcess,
    JitterWarning,
    Matern,
    condition_iteratively,
    conjugate_gradients,
    evidence_gradient,
    fit_evidence,
    pivoted_cholesky,
)
from thetax.bayes.gaussian_process import iterative as module

RNG = np.random.default_rng(0)
XS = RNG.standard_normal((30, 2))
NEW = RNG.standard_normal((5, 2))
YS = np.stack([np.sin(2 * XS[:, 0]), XS[:, 1]], axis=1)
PROCESS = GaussianProcess.init(RBF.init(scale=1.5, length=0.7), noise=0.05)


def test_conjugate_gradients_solve(x64):
    """numpy's solution, for several right-hand sides of which one is 0."""
    A = RNG.standard_normal((12, 12))
    A = A @ A.T + np.eye(12)
    b = np.array(RNG.standard_normal((12, 3)))
    b[:, 1] = 0
    found = conjugate_gradients(lambda v: jnp.asarray(A) @ v, jnp.asarray(b), tolerance=1e-12)
    np.testing.assert_allclose(found.x, np.linalg.solve(A, b), atol=1e-9)
    assert found.converged
    few = conjugate_gradients(
        lambda v: jnp.asarray(A) @ v, jnp.asarray(b), tolerance=1e-12, steps=3
    )
    assert not few.converged
    assert few.steps == 3


def test_conjugate_gradients_take_as_many_steps_as_there_are_eigenvalues(x64):
    d = jnp.array([1.0] * 5 + [4.0] * 5 + [9.0] * 5)
    assert (
        conjugate_gradients(lambda v: d[:, None] * v, jnp.ones((15, 1)), tolerance=1e-10).steps == 3
    )


@pytest.mark.slow
def test_the_iterative_posterior_is_the_exact_one(monkeypatch):
    """Cholesky's, with rows in blocks that do not divide their number."""
    monkeypatch.setattr(module, "ROWS", 7)
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


def test_too_few_steps_are_said():
    assert not condition_iteratively(PROCESS, XS, YS, rank=1, steps=2).converged


def test_bad_settings_of_the_iteration_are_refused():
    with pytest.raises(ValueError, match="no noise"):
        condition_iteratively(GaussianProcess.init(RBF.init()), XS, YS)
    with pytest.raises(ValueError, match="must be positive"):
        condition_iteratively(PROCESS, XS, YS, rank=0)


def test_pivoted_cholesky_of_full_rank_is_the_matrix():
    found = pivoted_cholesky(Matern.init(smoothness=0.5), XS, rank=30)
    np.testing.assert_allclose(found.L @ found.L.T, Matern.init(smoothness=0.5)(XS), atol=1e-12)
    assert sorted(found.places.tolist()) == list(range(30))
    assert found.rest < 1e-12


def test_pivots_are_the_greedy_choice():
    """Each place has the largest conditional variance given those before it; `rest` is what is
    left.
    """
    kernel = RBF.init(length=0.8)
    found = pivoted_cholesky(kernel, XS, rank=5)
    K = np.asarray(kernel(XS))
    for j in range(1, 5):
        seen = found.places[:j]
        left = np.diag(K - K[:, seen] @ np.linalg.solve(K[np.ix_(seen, seen)], K[seen]))
        assert left[found.places[j]] == pytest.approx(left.max(), rel=1e-9)
    np.testing.assert_allclose(found.rest, np.trace(K - found.L @ found.L.T), rtol=1e-9)


def test_beyond_the_rank_of_the_matrix_there_is_nothing():
    found = pivoted_cholesky(RBF.init(), np.repeat(XS[:3], 2, axis=0), rank=6)
    assert np.isfinite(found.L).all()
    np.testing.assert_allclose(found.L[:, 3:], 0, atol=1e-7)


def test_bad_rank_is_refused():
    with pytest.raises(ValueError, match="between 1 and the number of examples, 30; got 31"):
        pivoted_cholesky(RBF.init(), XS, rank=31)


def test_all_examples_as_places_are_the_exact_process():
    exact = PROCESS.condition(XS, YS)
    found = InducingProcess(PROCESS, XS).condition(XS, YS)
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(found.mean(NEW), exact.mean(NEW), atol=1e-8)
    np.testing.assert_allclose(found.covariance(NEW), exact.covariance(NEW), atol=1e-8)
    np.testing.assert_allclose(found.variance(NEW), exact.variance(NEW), atol=1e-8)


def test_the_bound_is_titsias():
    """The formula with matrices of n by n in numpy, for two outputs."""
    few = InducingProcess.init(PROCESS, XS, count=8)
    K = np.asarray(PROCESS.kernel(XS))
    cross = np.asarray(PROCESS.kernel(XS, few.places))
    own = np.asarray(PROCESS.kernel(few.places))
    Q = cross @ np.linalg.solve(own, cross.T)
    S = Q + 0.05 * np.eye(30)
    fit = (
        -(YS * np.linalg.solve(S, YS)).sum() / 2 - np.linalg.slogdet(S)[1] - 30 * np.log(2 * np.pi)
    )
    expected = fit - 2 * np.trace(K - Q) / (2 * 0.05)
    np.testing.assert_allclose(few.log_evidence(XS, YS), expected, rtol=1e-9)
    np.testing.assert_allclose(few.condition(XS, YS).log_evidence, expected, rtol=1e-9)


def test_places_that_need_jitter_give_a_warning():
    """Two inducing points at one place: their covariance is singular."""
    twice = InducingProcess(PROCESS, XS[np.array([0, 0, 1])])
    with pytest.warns(JitterWarning, match="log_evidence"):
        assert np.isfinite(twice.log_evidence(XS, YS))
    with pytest.warns(JitterWarning, match="condition"):
        assert np.isfinite(twice.condition(XS, YS).log_evidence)


@given(seed=st.integers(0, 10**6))
def test_the_bound_is_below_the_evidence_and_grows_with_places(seed):
    rng = np.random.default_rng(seed)
    places = rng.permutation(XS)[:9] + 0.1 * rng.standard_normal((9, 2))
    few, more = (float(InducingProcess(PROCESS, places[:m]).log_evidence(XS, YS)) for m in (4, 9))
    assert few <= more + 1e-8 * abs(more)
    assert more <= float(PROCESS.log_evidence(XS, YS)) + 1e-8


@pytest.mark.slow
def test_places_and_hyper_parameters_are_fitted():
    start = InducingProcess.init(PROCESS, XS, count=4)
    found = fit_evidence(start, XS, YS, steps=5)
    assert found.evidence > float(start.log_evidence(XS, YS))
    assert not np.allclose(found.model.places, start.places)


def test_the_gradient_in_the_places_is_that_of_differences(x64):
    start = jax.tree.map(jnp.asarray, InducingProcess.init(PROCESS, XS, count=3))
    _, slope = evidence_gradient(start, XS, YS)
    at = lambda h: float(
        InducingProcess(PROCESS, start.places.at[1, 0].add(h)).log_evidence(XS, YS)
    )
    np.testing.assert_allclose(slope.places[1, 0], (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-5)


def test_inducing_points_without_noise_are_refused():
    with pytest.raises(ValueError, match="no noise"):
        InducingProcess(GaussianProcess.init(RBF.init()), XS[:3]).log_evidence(XS, YS)
