"""Loss surfaces: values against the model itself, and verdicts on masked gradients."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.attack import LossSurface, input_loss_surface, margin_loss
from thetax.layers import Chain, Linear
from thetax.models import MLP
from thetax.train import log_loss

net = MLP.init(4, 8, 3, key=jr.key(0))
x = jr.normal(jr.key(1), (4,))
y = jnp.argmax(net(x))


def test_values_are_those_of_the_model():
    surface = input_loss_surface(net, x, y, radius=0.5, n_points=9, key=jr.key(2))
    g = jax.grad(lambda x: log_loss(net(x), y))(x)
    assert surface.gradient_norm == pytest.approx(float(jnp.linalg.norm(g)), rel=1e-5)
    for j, alpha in enumerate(surface.offsets):
        there = net(x + alpha * g / jnp.linalg.norm(g))
        assert surface.losses[4, j] == pytest.approx(float(log_loss(there, y)), abs=1e-5)
        assert surface.margins[4, j] == pytest.approx(float(margin_loss(there, y)), abs=1e-5)
    np.testing.assert_allclose(surface.offsets, np.linspace(-1, 1, 9))
    along, across = surface.increases
    assert along == pytest.approx(surface.losses[4, 2:7].max() - surface.losses[4, 4])
    assert across == pytest.approx(surface.losses[2:7, 4].max() - surface.losses[4, 4])


def test_second_direction_is_orthogonal_and_of_length_1():
    """For the squared norm, Pythagoras gives the value at any distance."""
    bowl = lambda x: jnp.stack([jnp.zeros(()), jnp.square(x).sum()])
    surface = input_loss_surface(bowl, x, jnp.array(0), radius=1.0, n_points=5, key=jr.key(2))
    r = surface.offsets
    start = float(jnp.square(x).sum())
    np.testing.assert_allclose(surface.margins[:, 2], start + r**2, rtol=1e-4)  # across: Pythagoras
    np.testing.assert_allclose(surface.margins[2], (np.sqrt(start) + r) ** 2, rtol=1e-3, atol=1e-4)


def test_verdicts():
    plain = Linear(jnp.array([[2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]), jnp.zeros(2))
    start = jnp.array([1.0, 0.0, 0.0, 0.0])
    zero = jnp.array(0)
    evaluate = lambda model: input_loss_surface(model, start, zero, radius=1.0, key=jr.key(0))
    assert evaluate(plain).verdict == "smooth"
    assert evaluate(plain).smoothness == pytest.approx(1.0)
    waves = Chain(plain, lambda z: z + jnp.array([2.0, 0.0]) * jnp.sin(25 * z[0]))
    assert evaluate(waves).smoothness < 0.5
    assert evaluate(waves).verdict == "jagged"
    steps = Chain(plain, lambda z: jnp.round(4 * z))
    assert evaluate(steps).gradient_norm == 0
    assert evaluate(steps).verdict == "hidden"
    s = np.linspace(-2, 2, 5)
    same = LossSurface(np.add.outer(s, s), np.zeros((5, 5)), s, 1.0, 1.0)
    assert same.increases == (1.0, 1.0)
    assert same.verdict == "hidden"


def test_input_with_one_component():
    one = Linear(jnp.array([[1.0], [0.0]]), jnp.zeros(2))
    surface = input_loss_surface(
        one, jnp.ones(1), jnp.array(0), radius=1.0, n_points=5, key=jr.key(0)
    )
    assert np.isfinite(surface.losses).all()
    assert np.ptp(surface.losses, axis=0).max() < 1e-5


def test_bad_input(unchecked):
    with pytest.raises(
        ValueError,
        match=r"input_loss_surface: radius must be positive and finite; got 0\.0",
    ):
        input_loss_surface(net, x, y, radius=0.0, key=jr.key(0))
    with pytest.raises(
        ValueError, match=r"input_loss_surface: extent must be at least 1 radius; got 0\.5"
    ):
        input_loss_surface(net, x, y, radius=1.0, extent=0.5, key=jr.key(0))
    with pytest.raises(ValueError, match="input_loss_surface: n_points must be odd"):
        input_loss_surface(net, x, y, radius=1.0, n_points=8, key=jr.key(0))
    with pytest.raises(ValueError, match="input_loss_surface: expected a label from 0 to 2, got 3"):
        input_loss_surface(net, x, jnp.array(3), radius=1.0, key=jr.key(0))
