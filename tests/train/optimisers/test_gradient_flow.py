"""Gradient flow against matrix exponentials, closed forms, and Euler's method."""

import diffrax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import close, normal
from scipy.linalg import expm

from thetax.core import run
from thetax.models import MLP
from thetax.train import descend, gradient_flow, squared_error

pytestmark = pytest.mark.usefixtures("x64")


def bowl(H):
    A = jnp.asarray(H)
    return lambda theta, batch=None, key=None: theta @ A @ theta / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver", [None, diffrax.Dopri8(), diffrax.Kvaerno5()], ids=["Tsit5", "Dopri8", "Kvaerno5"]
)
def test_quadratic_is_the_exponential(solver):
    H = np.array([[2.0, 0.5], [0.5, 1.0]])
    start = np.array([1.0, -2.0])
    times = np.array([0.0, 0.3, 2.0])
    found = gradient_flow(
        bowl(H), jnp.asarray(start), None, times=times, tolerance=1e-9, solver=solver
    )
    exact = np.stack([expm(-H * t) @ start for t in times])
    assert np.allclose(found.models, exact, atol=1e-7)
    assert np.allclose(found.losses, np.einsum("ti,ij,tj->t", exact, H, exact) / 2, atol=1e-7)
    assert np.allclose(found.gradient_norms, np.linalg.norm(exact @ H, axis=1), atol=1e-7)
    assert (found.model == found.models[-1]).all()


def test_a_nonlinear_flow_in_closed_form():
    """h = ¼θ⁴: θ' = −θ³ has θ(t) = θ₀ / √(1 + 2θ₀²t)."""
    times = np.linspace(0.5, 5, 10)
    found = gradient_flow(
        lambda t, batch: (t**4).sum() / 4, jnp.array([1.5]), None, times=times, tolerance=1e-9
    )
    assert np.allclose(found.models[:, 0], 1.5 / np.sqrt(1 + 2 * 1.5**2 * times), atol=1e-8)
    assert found.model[0] == found.models[-1, 0]


def test_euler_with_a_constant_step_is_gradient_descent():
    """Diffrax's Euler on −∇h against the library's descent, on a network."""
    net = jax.tree.map(
        lambda a: a.astype(float), MLP.init(2, 4, 1, activation=jnp.tanh, key=jr.key(0))
    )
    batch = normal(1, 8, 2), normal(2, 8)
    step = descend(lambda model, _, key: squared_error(model, batch), optax.sgd(0.1))
    state, _ = run(step, net, jnp.zeros(20), key=jr.key(0))
    velocity = diffrax.ODETerm(
        lambda t, net, _: jax.tree.map(jnp.negative, jax.grad(squared_error)(net, batch))
    )
    euler = diffrax.diffeqsolve(velocity, diffrax.Euler(), t0=0.0, t1=2.0, dt0=0.1, y0=net)
    assert close(jax.tree.map(lambda a: a[0], euler.ys), state.model, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_a_network_flows_downhill_and_small_steps_follow_it():
    net = jax.tree.map(
        lambda a: a.astype(float), MLP.init(2, 4, 1, activation=jnp.tanh, key=jr.key(0))
    )
    batch = normal(1, 8, 2), normal(2, 8)
    found = gradient_flow(squared_error, net, batch, times=np.linspace(0, 3, 31), tolerance=1e-9)
    losses = np.asarray(found.losses)
    assert (np.diff(losses) < 0).all()
    energy = np.trapezoid(np.asarray(found.gradient_norms) ** 2, np.asarray(found.times))
    assert energy == pytest.approx(losses[0] - losses[-1], rel=0.02)  # h(0) − h(T) = ∫ ‖∇h‖²
    descent = descend(lambda model, _, key: squared_error(model, batch), optax.sgd(0.005))
    state, _ = run(descent, net, jnp.zeros(600), key=jr.key(0))
    assert close(state.model, found.model, rtol=0.02, atol=0.01)


@pytest.mark.slow
def test_a_stiff_valley_needs_the_implicit_solver():
    H = np.diag([1.0, 1e5])
    times = np.array([1.0])
    implicit = gradient_flow(
        bowl(H), jnp.ones(2), None, times=times, tolerance=1e-6, solver=diffrax.Kvaerno5()
    )
    explicit = gradient_flow(bowl(H), jnp.ones(2), None, times=times, tolerance=1e-6)
    assert implicit.model[0] == pytest.approx(np.exp(-1), abs=1e-4)
    assert int(implicit.steps) < int(explicit.steps) / 50


@pytest.mark.parametrize(
    "times", [[], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0], [0.0], [[1.0]], [1.0, np.nan]]
)
def test_bad_times_are_refused(times):
    with pytest.raises(ValueError, match="time"):
        gradient_flow(bowl(np.eye(2)), jnp.ones(2), None, times=times)


def test_bad_tolerance_is_refused_and_the_limit_is_kept():
    with pytest.raises(ValueError, match="tolerance must be > 0; got 0"):
        gradient_flow(bowl(np.eye(2)), jnp.ones(2), None, times=[1.0], tolerance=0.0)
    with pytest.raises(
        RuntimeError,
        match=r"stopped after 50 steps .max_steps=50., before time 1.0. Use solver=.*Kvaerno5",
    ):
        gradient_flow(bowl(np.diag([1.0, 1e5])), jnp.ones(2), None, times=[1.0], max_steps=50)


@pytest.mark.parametrize("start", [[1.0, np.nan], [1.0, np.inf]])
def test_a_start_that_is_not_finite_is_refused_at_once(start):
    with pytest.raises(
        ValueError,
        match=r"loss at the given model is (nan|inf) and its gradient has norm (nan|inf)",
    ):
        gradient_flow(bowl(np.eye(2)), jnp.asarray(start), None, times=[1.0])
