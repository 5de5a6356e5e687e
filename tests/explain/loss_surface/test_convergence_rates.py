"""Fitted rates of curves whose rates are known, and the promises of the theorems kept."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax import train
from thetax.explain import (
    convergence_bounds,
    convergence_rates,
    fit_convergence_rate,
    training_convergence,
)
from thetax.explain.loss_surface import Smoothness

pytestmark = pytest.mark.usefixtures("x64")
VALUES = np.geomspace(0.02, 1, 6)


def bowl(theta, batch=None):
    return (jnp.asarray(VALUES) * theta**2).sum() / 2


@given(c=st.floats(0.01, 100), rho=st.floats(0.1, 0.99), p=st.floats(0.3, 4))
def test_known_laws_are_found(c, rho, p):
    t = np.arange(1, 40)
    for found, law in (
        (fit_convergence_rate(c * rho**t, times=t), "geometric"),
        (fit_convergence_rate(c * t**-p, times=t), "power"),
    ):
        assert found.law == law
        assert min(found.fit_errors) < 1e-9
    assert fit_convergence_rate(c * rho**t, times=t).factor == pytest.approx(rho)
    assert fit_convergence_rate(c * t**-p, times=t).power == pytest.approx(p)
    assert np.allclose(fit_convergence_rate(c * rho**t, times=t).at(t), c * rho**t)
    assert np.allclose(fit_convergence_rate(c * t**-p, times=t).at(t), c * t**-p)


def test_gaps_without_a_logarithm_are_ignored():
    found = fit_convergence_rate([8.0, np.nan, 2.0, 0.0, 0.5, -1.0])
    assert found.factor == pytest.approx(0.5)
    with pytest.raises(ValueError, match="at least two positive gaps"):
        fit_convergence_rate([1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="as many times"):
        fit_convergence_rate([1.0, 0.5], times=[1, 2, 3])


def test_descent_on_a_quadratic_has_its_eigenvalue_s_rate():
    """In the end the gap shrinks by (1 − ημ)² a step; every curve begins at h(θ₀) and is the
    loop's.
    """
    optimisers = {"descent": optax.sgd(1.0), "Nesterov": train.nesterov(1.0, momentum=0.7)}
    found = convergence_rates(
        bowl, jnp.ones(6), None, optimisers=optimisers, steps=300, fit_from=150
    )
    assert found.rates["descent"].law == "geometric"
    assert found.rates["descent"].factor == pytest.approx((1 - 0.02) ** 2, rel=1e-4)
    theta = np.ones(6)
    before = np.ones(6)
    for t in range(301):
        assert found.gaps["descent"][t] == pytest.approx(
            (VALUES * (1 - VALUES) ** (2 * t)).sum() / 2, rel=1e-9
        )
        assert found.gaps["Nesterov"][t] == pytest.approx((VALUES * theta**2).sum() / 2, rel=1e-8)
        chi = theta + 0.7 * (theta - before)
        theta, before = chi - VALUES * chi, theta


def test_min_loss_is_subtracted():
    lifted = lambda theta, batch=None: bowl(theta) + 2
    found = convergence_rates(
        lifted, jnp.ones(6), None, optimisers={"descent": optax.sgd(1.0)}, steps=20, min_loss=2.0
    )
    assert found.gaps["descent"][0] == pytest.approx(VALUES.sum() / 2)


def test_bounds_hold_on_a_quadratic():
    q = np.sqrt(0.02)
    optimisers = {
        "descent 1/t": optax.sgd(1.0),
        "Nesterov 1/t²": train.nesterov(1.0, momentum=lambda t: (t - 1) / (t + 2)),
        "descent geometric": optax.sgd(1.0),
        "Nesterov geometric": train.nesterov(1.0, momentum=(1 - q) / (1 + q)),
    }
    promised = convergence_bounds(
        steps=100, smoothness=1.0, distance=np.sqrt(6), gap=VALUES.sum() / 2, strong_convexity=0.02
    )
    found = convergence_rates(
        bowl, jnp.ones(6), None, optimisers=optimisers, steps=100, bounds=promised
    )
    assert set(promised) == set(optimisers)
    for name, gap in found.gaps.items():
        assert (gap[1:] <= found.bounds[name][1:]).all(), name
    assert set(convergence_bounds(steps=3, smoothness=1.0, distance=1.0)) == {
        "descent 1/t",
        "Nesterov 1/t²",
    }


def test_bad_input_is_rejected():
    with pytest.raises(ValueError, match="strong_convexity from 0 to smoothness"):
        convergence_bounds(steps=3, smoothness=1.0, distance=1.0, strong_convexity=2.0)
    with pytest.raises(ValueError, match="non-empty dictionary of optimisers"):
        convergence_rates(bowl, jnp.ones(6), None, optimisers={}, steps=10)
    with pytest.raises(ValueError, match="fit_from from 0 to steps - 1"):
        convergence_rates(
            bowl, jnp.ones(6), None, optimisers={"descent": optax.sgd(0.1)}, steps=10, fit_from=10
        )


def test_training_convergence_of_a_loss_curve():
    found = training_convergence([3.0, 2.0, 1.5], Smoothness(4.0, np.array([4.0])), min_loss=1.0)
    assert found.rate.factor == pytest.approx(0.5)
    assert found.losses.tolist() == [3.0, 2.0, 1.5]
    assert found.smoothness.max_learning_rate == 0.5


def test_an_optimiser_that_diverges_is_named():
    """θ ← −2θ in its steepest direction: h exceeds the largest double after about 512 steps."""
    optimisers = {"good": optax.sgd(1.0), "too fast": optax.sgd(3.0)}
    with pytest.raises(
        ValueError, match=r"with 'too fast' the loss is not finite from step 51\d of 600 on; lower"
    ):
        convergence_rates(bowl, jnp.ones(6), None, optimisers=optimisers, steps=600)


def test_optimisers_without_names_are_rejected(unchecked):
    with pytest.raises(ValueError, match="optimisers by name"):
        convergence_rates(bowl, jnp.ones(6), None, optimisers=[optax.sgd(1.0)], steps=10)
