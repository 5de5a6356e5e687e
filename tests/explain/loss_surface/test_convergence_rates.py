"""Fitted rates of curves whose rates are known, and the promises of the theorems kept."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax import train
from thetax.explain import Smoothness, fit_decay, promises, rates, trajectory

pytestmark = pytest.mark.usefixtures("x64")
VALUES = np.geomspace(0.02, 1, 6)


def bowl(theta, batch=None):
    return (jnp.asarray(VALUES) * theta**2).sum() / 2


@given(c=st.floats(0.01, 100), rho=st.floats(0.1, 0.99), p=st.floats(0.3, 4))
def test_known_laws_are_found(c, rho, p):
    t = np.arange(1, 40)
    for found, law in (
        (fit_decay(c * rho**t, times=t), "geometric"),
        (fit_decay(c * t**-p, times=t), "power"),
    ):
        assert found.law == law
        assert min(found.misfit) < 1e-9
    assert fit_decay(c * rho**t, times=t).factor == pytest.approx(rho)
    assert fit_decay(c * t**-p, times=t).power == pytest.approx(p)
    assert np.allclose(fit_decay(c * rho**t, times=t).at(t), c * rho**t)
    assert np.allclose(fit_decay(c * t**-p, times=t).at(t), c * t**-p)


def test_what_cannot_be_logged_is_left_out():
    found = fit_decay([8.0, np.nan, 2.0, 0.0, 0.5, -1.0])
    assert found.factor == pytest.approx(0.5)
    with pytest.raises(ValueError, match="fewer than two positive gaps"):
        fit_decay([1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="as many times"):
        fit_decay([1.0, 0.5], times=[1, 2, 3])


def test_descent_on_a_quadratic_has_its_eigenvalue_s_rate():
    """In the end the gap shrinks by (1 − ημ)² a step; every curve begins at h(θ₀) and is the
    loop's.
    """
    optimisers = {"descent": optax.sgd(1.0), "Nesterov": train.nesterov(1.0, momentum=0.7)}
    found = rates(bowl, jnp.ones(6), None, optimisers=optimisers, steps=300, first=150)
    assert found.decays["descent"].law == "geometric"
    assert found.decays["descent"].factor == pytest.approx((1 - 0.02) ** 2, rel=1e-4)
    theta = np.ones(6)
    before = np.ones(6)
    for t in range(301):
        assert found.gaps["descent"][t] == pytest.approx(
            (VALUES * (1 - VALUES) ** (2 * t)).sum() / 2, rel=1e-9
        )
        assert found.gaps["Nesterov"][t] == pytest.approx((VALUES * theta**2).sum() / 2, rel=1e-8)
        chi = theta + 0.7 * (theta - before)
        theta, before = chi - VALUES * chi, theta


def test_the_least_value_is_taken_off():
    lifted = lambda theta, batch=None: bowl(theta) + 2
    found = rates(
        lifted, jnp.ones(6), None, optimisers={"descent": optax.sgd(1.0)}, steps=20, least=2.0
    )
    assert found.gaps["descent"][0] == pytest.approx(VALUES.sum() / 2)


def test_promises_are_kept_on_a_quadratic():
    q = np.sqrt(0.02)
    optimisers = {
        "descent 1/t": optax.sgd(1.0),
        "Nesterov 1/t²": train.nesterov(1.0, momentum=lambda t: (t - 1) / (t + 2)),
        "descent geometric": optax.sgd(1.0),
        "Nesterov geometric": train.nesterov(1.0, momentum=(1 - q) / (1 + q)),
    }
    promised = promises(
        steps=100, smooth=1.0, distance=np.sqrt(6), gap=VALUES.sum() / 2, convex=0.02
    )
    found = rates(bowl, jnp.ones(6), None, optimisers=optimisers, steps=100, promises=promised)
    assert set(promised) == set(optimisers)
    for name, gap in found.gaps.items():
        assert (gap[1:] <= found.promises[name][1:]).all(), name
    assert set(promises(steps=3, smooth=1.0, distance=1.0)) == {"descent 1/t", "Nesterov 1/t²"}


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="0 ≤ convex ≤ smooth"):
        promises(steps=3, smooth=1.0, distance=1.0, convex=2.0)
    with pytest.raises(ValueError, match="at least one optimiser"):
        rates(bowl, jnp.ones(6), None, optimisers={}, steps=10)
    with pytest.raises(ValueError, match="first below it"):
        rates(bowl, jnp.ones(6), None, optimisers={"descent": optax.sgd(0.1)}, steps=10, first=10)


def test_a_run_s_trajectory():
    found = trajectory([3.0, 2.0, 1.5], Smoothness(4.0, np.array([4.0])), least=1.0)
    assert found.decay.factor == pytest.approx(0.5)
    assert found.losses.tolist() == [3.0, 2.0, 1.5]
    assert found.smoothness.rate == 0.5


def test_an_optimiser_that_diverges_is_named():
    """θ ← −2θ in its steepest direction: h exceeds the largest double after about 512 steps."""
    optimisers = {"good": optax.sgd(1.0), "too fast": optax.sgd(3.0)}
    with pytest.raises(
        ValueError, match=r"with 'too fast' the loss became not finite at step 51\d of 600; lower"
    ):
        rates(bowl, jnp.ones(6), None, optimisers=optimisers, steps=600)


def test_optimisers_without_names_are_refused(unchecked):
    with pytest.raises(ValueError, match="optimiser by its name"):
        rates(bowl, jnp.ones(6), None, optimisers=[optax.sgd(1.0)], steps=10)
