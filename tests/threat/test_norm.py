"""Norms of any p against numpy, and their steepest directions against a solver."""

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from thetax.threat import L1, L2, Linf, p_norm, p_steepest

pytestmark = pytest.mark.usefixtures("x64")
vectors = arrays(np.float64, 4, elements=st.floats(-5, 5))


@pytest.mark.parametrize("p", [0, 1, 1.5, 2, 3, 7, np.inf])
@given(x=vectors)
def test_norms_are_those_of_numpy(p, x):
    x = np.where(np.abs(x) < 1e-6, 0.0, x)
    assert float(p_norm(jnp.asarray(x), p)) == pytest.approx(
        np.linalg.norm(x, p), rel=1e-10, abs=1e-12
    )


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, np.inf])
@given(w=vectors)
def test_the_steepest_direction_attains_the_dual_norm(p, w):
    w = np.where(np.abs(w) < 1e-3, 0.0, w)
    q = np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)
    eta = np.asarray(p_steepest(jnp.asarray(w), p))
    assert w @ eta == pytest.approx(np.linalg.norm(w, q), rel=1e-9, abs=1e-12)
    assert np.linalg.norm(eta, p) <= 1 + 1e-9


def test_no_other_direction_is_steeper():
    w = np.array([1.0, -2.0, 0.5, 3.0])
    inside = {"type": "ineq", "fun": lambda eta: 1 - (np.abs(eta) ** 3).sum()}
    found = minimize(
        lambda eta: -w @ eta, 0.1 * np.sign(w), constraints=[inside], options={"ftol": 1e-13}
    )
    np.testing.assert_allclose(p_steepest(jnp.asarray(w), 3), found.x, atol=1e-5)


@pytest.mark.parametrize(
    ("ball", "p"), [(L1(1.0), 1), (L2(1.0), 2), (Linf(1.0), np.inf)], ids=["L1", "L2", "Linf"]
)
def test_norms_of_the_balls(ball, p):
    w = jnp.array([[1.0, -2.0], [0.5, 3.0]])
    np.testing.assert_allclose(ball.norm(w), p_norm(w, p))
    np.testing.assert_allclose(ball.steepest(w), p_steepest(w, p))


def test_large_powers_do_not_overflow():
    assert float(p_norm(jnp.array([1e200, 1e200]), 3)) == pytest.approx(1e200 * 2 ** (1 / 3))
    assert float(p_norm(jnp.array([-1.0, 2.0]), 500)) == pytest.approx(2.0)


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match=r"p_norm: p must be >= 1; got 0\.5"):
        p_norm(jnp.ones(2), 0.5)
