"""The log density and its gradient against NumPy and finite differences in symmetric directions."""

from importlib import import_module

import jax
import numpy as np
import pytest

from thetax.bayes.gaussian_process.gaussian_log_density import (
    log_density_from_cholesky,
    log_density_gradient,
)

density = import_module("thetax.bayes.gaussian_process.gaussian_log_density")

RNG = np.random.default_rng(3)
A = RNG.standard_normal((4, 4))
S = RNG.standard_normal((4, 4))
R = RNG.standard_normal((4, 2))
K = A @ A.T + 4 * np.eye(4)
S = S + S.T


def gaussian_log_density(K):
    return (
        -np.trace(R.T @ np.linalg.solve(K, R)) / 2 - np.linalg.slogdet(K)[1] - 4 * np.log(2 * np.pi)
    )


@pytest.mark.usefixtures("x64")
def test_density_and_gradient(monkeypatch):
    """With two blocks of columns; the diagonal counts once, entries below it twice."""
    monkeypatch.setattr(density, "COLUMN_BLOCK", 3)
    L = np.linalg.cholesky(K)
    alpha = np.linalg.solve(K, R)
    value, found = jax.jit(
        lambda L, alpha, r: (log_density_from_cholesky(L, alpha, r), log_density_gradient(L, alpha))
    )(L, alpha, R)
    np.testing.assert_allclose(value, gaussian_log_density(K), rtol=1e-12)
    assert not np.triu(found, 1).any()
    for direction in (S, np.diag([1.0, 0.0, 0.0, 0.0]), np.eye(4)):
        expected = (
            gaussian_log_density(K + 1e-5 * direction) - gaussian_log_density(K - 1e-5 * direction)
        ) / 2e-5
        np.testing.assert_allclose(np.vdot(found, direction), expected, rtol=1e-7)
