"""The log density and its slope, against NumPy and differences in a symmetric direction."""

from importlib import import_module

import jax
import numpy as np
import pytest

from thetax.bayes.gaussian_process.log_density import from_factor, slope

density = import_module("thetax.bayes.gaussian_process.log_density")

RNG = np.random.default_rng(3)
A = RNG.standard_normal((4, 4))
S = RNG.standard_normal((4, 4))
R = RNG.standard_normal((4, 2))
K = A @ A.T + 4 * np.eye(4)
S = S + S.T


def log_density(K):
    return (
        -np.trace(R.T @ np.linalg.solve(K, R)) / 2 - np.linalg.slogdet(K)[1] - 4 * np.log(2 * np.pi)
    )


@pytest.mark.usefixtures("x64")
def test_the_density_and_its_slope(monkeypatch):
    """With two panels; the diagonal counts once, what is below it twice."""
    monkeypatch.setattr(density, "PANEL", 3)
    L = np.linalg.cholesky(K)
    alpha = np.linalg.solve(K, R)
    value, found = jax.jit(lambda L, alpha, r: (from_factor(L, alpha, r), slope(L, alpha)))(
        L, alpha, R
    )
    np.testing.assert_allclose(value, log_density(K), rtol=1e-12)
    assert not np.triu(found, 1).any()
    for direction in (S, np.diag([1.0, 0.0, 0.0, 0.0]), np.eye(4)):
        expected = (log_density(K + 1e-5 * direction) - log_density(K - 1e-5 * direction)) / 2e-5
        np.testing.assert_allclose(np.vdot(found, direction), expected, rtol=1e-7)
