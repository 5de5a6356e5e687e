"""Few units in any dimension (§2.5): Barron's network, Maurey's draw, Jones's choice."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from thetax.layers import Chain, Linear, heaviside, relu, sigmoid, tanh
from thetax.models import (
    MLP,
    CosineMixture,
    barron_network,
    gaussian_bell,
    greedy_network,
    random_units,
    sample_units,
)

pytestmark = pytest.mark.usefixtures("x64", "strict")


@pytest.mark.parametrize("n", [1, 2, 7])
def test_bells_waves(n):
    """C_f is the mean of the χ law; frequencies are drawn from it weighted by length: χ with n + 1
    degrees.
    """
    waves = gaussian_bell(n)
    assert np.isclose(waves.constant, stats.chi(n).mean())
    omega, phase = jax.vmap(waves.draw)(jr.split(jr.key(0), 4000))
    length = np.linalg.norm(np.asarray(omega), axis=1)
    assert stats.kstest(length, stats.chi(n + 1).cdf).pvalue > 1e-4
    assert np.abs((omega / length[:, None]).mean(axis=0)).max() < 5 / np.sqrt(4000 * n)
    assert not phase.any()


def test_the_mixture_of_waves_is_the_bell():
    """f(0) + C E[(cos ω·x − 1)/‖ω‖], by drawing."""
    waves = gaussian_bell(3)
    x = jnp.array([0.4, -0.3, 0.5])
    omega, phase = jax.vmap(waves.draw)(jr.split(jr.key(1), 20_000))
    terms = (jnp.cos(omega @ x + phase) - jnp.cos(phase)) / jnp.linalg.norm(omega, axis=1)
    value = waves.origin + waves.constant * terms.mean()
    error = waves.constant * terms.std() / np.sqrt(20_000)
    assert abs(value - np.exp(-(x @ x) / 2)) < 5 * error


@pytest.mark.parametrize("phase", [0.0, 0.7, -2.0])
def test_the_mean_network_is_the_function(phase):
    """f(x) = cos(ω·x + φ) on the ball, for waves of one frequency and a phase: within the error of
    20,000 units.
    """
    omega = jnp.array([1.5, -2.0])
    radius = 1.2
    width = 20_000
    waves = CosineMixture(float(np.cos(phase)), 2.5, lambda key: (omega, jnp.asarray(phase)))
    net = barron_network(waves, radius=radius, width=width, key=jr.key(0))
    xs = normal(1, 40, 2)
    xs = xs * radius / jnp.maximum(radius, jnp.linalg.norm(xs, axis=1))[:, None]
    expected = jnp.cos(xs @ omega + phase)
    bound = 2 * radius * 2.5 / np.sqrt(width)
    assert jnp.abs(jax.vmap(net)(xs)[:, 0] - expected).max() < 5 * bound
    away = jnp.abs(jax.vmap(net)(3 * xs)[:, 0] - jnp.cos(3 * xs @ omega + phase)).max()
    assert away > 10 * bound  # outside the ball nothing is promised


def test_sigmoids_for_steps():
    kinds = {np.inf: heaviside, 50.0: sigmoid}
    nets = {
        k: barron_network(gaussian_bell(2), radius=1.0, width=30, steepness=k, key=jr.key(0))
        for k in kinds
    }
    assert all(nets[k].body.layers[1].activation is phi for k, phi in kinds.items())
    assert jnp.allclose(nets[50.0].body.layers[0].W, 50 * nets[np.inf].body.layers[0].W)
    assert jnp.allclose(jnp.linalg.norm(nets[np.inf].body.layers[0].W, axis=1), 1.0)


@pytest.mark.parametrize("settings", [{"radius": 0.0}, {"width": 0}, {"steepness": -1.0}])
def test_bad_settings_are_refused(settings):
    with pytest.raises(ValueError, match="barron_network"):
        barron_network(gaussian_bell(2), key=jr.key(0), **{"radius": 1.0, "width": 3} | settings)
    with pytest.raises(ValueError, match="dimension"):
        gaussian_bell(0)


def test_drawn_units_have_the_network_as_their_mean():
    """Unbiased, with the variance of one draw over m, vector outputs included."""
    net = MLP.init(2, 30, 2, activation=tanh, key=jr.key(0))
    x = jnp.array([0.5, -1.0])
    draw = jax.jit(jax.vmap(lambda key: sample_units(net, width=8, key=key)(x)))
    values = np.asarray(draw(jr.split(jr.key(1), 4000)))
    assert np.abs(values.mean(axis=0) - net(x)).max() < 5 * values.std() / np.sqrt(4000)
    first, _, last = net.body.layers
    V = np.asarray(last.W)
    phi = np.tanh(np.asarray(first.W) @ np.asarray(x) + np.asarray(first.b))
    sizes = np.linalg.norm(V, axis=0)
    spread = (sizes.sum() * sizes * phi**2).sum() - np.square(V @ phi).sum()  # E‖u‖² − ‖E u‖²
    assert abs(8 * np.square(values - np.asarray(net(x))).sum(axis=1).mean() / spread - 1) < 0.15
    assert sample_units(net, width=1, key=jr.key(0)).body.layers[0].W.shape == (1, 2)


def test_networks_of_other_forms_are_refused():
    with pytest.raises(ValueError, match="one hidden layer"):
        sample_units(MLP.init(2, 3, 3, 1, key=jr.key(0)), width=2, key=jr.key(0))
    with pytest.raises(ValueError, match="width"):
        sample_units(MLP.init(2, 3, 1, key=jr.key(0)), width=0, key=jr.key(0))


@given(seed=st.integers(0, 10**6))
def test_greedy_keeps_joness_promise(seed):
    """y in the hull of ±B φ_j, centred: ‖y − g_k‖² ≤ (b² − ‖y‖²)/k, and the error never rises."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        xs = jnp.asarray(rng.normal(size=(30, 2)))
        units = random_units(xs, width=50, spread=2.0, key=jr.key(seed))
        Phi = 1 / (1 + np.exp(-(np.asarray(xs) @ np.asarray(units.W).T + np.asarray(units.b))))
        Phi -= Phi.mean(axis=0)
        share = rng.normal(size=50) * (rng.uniform(size=50) < 0.3)
        y = Phi @ share
        found = greedy_network(xs, jnp.asarray(y + 3.0), units, width=12)
        b = np.abs(share).sum() * np.sqrt(np.square(Phi).mean(axis=0).max())
        promise = (b**2 - np.square(y).mean()) / np.arange(1, 13)
        assert (np.asarray(found.errors) <= promise + 1e-12).all()
        assert (np.diff(found.errors) <= 1e-12).all()


def test_greedy_is_the_loop():
    """Each step against all units by brute force; the model computes what the errors say."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(40, 2))
    ys = rng.normal(size=40)
    units = random_units(jnp.asarray(xs), width=25, key=jr.key(0))
    found = greedy_network(jnp.asarray(xs), jnp.asarray(ys), units, width=5, activation=relu)
    Phi = np.maximum(0, xs @ np.asarray(units.W).T + np.asarray(units.b))
    Phi = Phi - Phi.mean(axis=0)
    y = ys - ys.mean()
    g = np.zeros(40)
    errors = []
    chosen = []
    for k in range(5):
        fits = []
        for phi in Phi.T:
            A = np.c_[g, phi] if k else phi[:, None]
            fits.append(A @ np.linalg.lstsq(A, y, rcond=None)[0])
        chosen.append(int(np.argmin([np.square(y - fit).sum() for fit in fits])))
        g = fits[chosen[-1]]
        errors.append(np.square(y - g).mean())
    assert np.allclose(found.errors, errors, atol=1e-9)
    assert found.chosen.tolist() == chosen
    outputs = np.asarray(jax.vmap(found.model)(jnp.asarray(xs)))[:, 0]
    assert np.isclose(np.square(outputs - ys).mean(), errors[-1], atol=1e-9)


def test_greedy_survives_useless_units():
    """Constant units, or fewer units than steps: finite weights, and nothing gets worse."""
    xs = normal(0, 20, 1)
    ys = normal(1, 20)
    flat = Linear(jnp.zeros((3, 1)), jnp.ones(3))
    found = greedy_network(xs, ys, flat, width=4)
    assert jnp.isfinite(found.model(xs[0])).all()
    assert jnp.allclose(found.errors, ys.var())
    one = greedy_network(xs, ys, Linear(jnp.ones((1, 1)), jnp.zeros(1)), width=6, activation=tanh)
    assert jnp.allclose(one.errors, one.errors[0])
    assert jnp.isfinite(one.model(xs[0])).all()


def test_bad_greedy_input_is_refused(unchecked):
    units = Linear(jnp.ones((2, 1)))
    with pytest.raises(ValueError, match="greedy"):
        greedy_network(jnp.ones((4, 1)), jnp.ones(3), units, width=2)
    with pytest.raises(ValueError, match="width=0"):
        greedy_network(jnp.ones((4, 1)), jnp.ones(4), units, width=0)


def test_greedy_without_biases():
    found = greedy_network(normal(0, 20, 2), normal(1, 20), Linear(normal(2, 9, 2)), width=3)
    assert isinstance(found.model.body, Chain)
    assert found.model.body.layers[0].b is None
