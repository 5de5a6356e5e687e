"""The loss around an input: against the model itself, and whether hidden gradients are seen."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.attack import LossSurface, loss_surface, margin_loss
from thetax.layers import Chain, Linear
from thetax.models import MLP
from thetax.train import log_loss

net = MLP.init(4, 8, 3, key=jr.key(0))
x = jr.normal(jr.key(1), (4,))
y = jnp.argmax(net(x))


def test_it_holds_the_losses_of_the_plane():
    seen = loss_surface(net, x, y, radius=0.5, count=9, key=jr.key(2))
    g = jax.grad(lambda x: log_loss(net(x), y))(x)
    assert seen.slope == pytest.approx(float(jnp.linalg.norm(g)), rel=1e-5)
    for j, alpha in enumerate(seen.steps):
        there = net(x + alpha * g / jnp.linalg.norm(g))
        assert seen.losses[4, j] == pytest.approx(float(log_loss(there, y)), abs=1e-5)
        assert seen.margins[4, j] == pytest.approx(float(margin_loss(there, y)), abs=1e-5)
    np.testing.assert_allclose(seen.steps, np.linspace(-1, 1, 9))
    along, across = seen.rises
    assert along == pytest.approx(seen.losses[4, 2:7].max() - seen.losses[4, 4])
    assert across == pytest.approx(seen.losses[2:7, 4].max() - seen.losses[4, 4])


def test_the_second_direction_is_a_unit_across_the_gradient():
    """A linear loss does not change across its gradient, and a squared distance shows the length of
    a step.
    """
    bowl = lambda x: jnp.stack([jnp.zeros(()), jnp.square(x).sum()])
    seen = loss_surface(bowl, x, jnp.array(0), radius=1.0, count=5, key=jr.key(2))
    r = seen.steps
    start = float(jnp.square(x).sum())
    np.testing.assert_allclose(seen.margins[:, 2], start + r**2, rtol=1e-4)  # across: Pythagoras
    np.testing.assert_allclose(seen.margins[2], (np.sqrt(start) + r) ** 2, rtol=1e-3, atol=1e-4)


def test_hidden_and_jagged_losses_are_told_from_smooth_ones():
    plain = Linear(jnp.array([[2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]), jnp.zeros(2))
    start = jnp.array([1.0, 0.0, 0.0, 0.0])
    zero = jnp.array(0)
    look = lambda model: loss_surface(model, start, zero, radius=1.0, key=jr.key(0))
    assert look(plain).verdict == "smooth"
    assert look(plain).steady == pytest.approx(1.0)
    waves = Chain(plain, lambda z: z + jnp.array([2.0, 0.0]) * jnp.sin(25 * z[0]))
    assert look(waves).steady < 0.5
    assert look(waves).verdict == "jagged"
    steps = Chain(plain, lambda z: jnp.round(4 * z))
    assert look(steps).slope == 0
    assert look(steps).verdict == "hidden"
    s = np.linspace(-2, 2, 5)
    same = LossSurface(np.add.outer(s, s), np.zeros((5, 5)), s, 1.0, 1.0)
    assert same.rises == (1.0, 1.0)
    assert same.verdict == "hidden"


def test_one_number_has_no_second_direction():
    one = Linear(jnp.array([[1.0], [0.0]]), jnp.zeros(2))
    seen = loss_surface(one, jnp.ones(1), jnp.array(0), radius=1.0, count=5, key=jr.key(0))
    assert np.isfinite(seen.losses).all()
    assert np.ptp(seen.losses, axis=0).max() < 1e-5


def test_bad_input(unchecked):
    with pytest.raises(
        ValueError,
        match=r"surface: radius must be positive and reach at least 1; got 0\.0 and 2\.0",
    ):
        loss_surface(net, x, y, radius=0.0, key=jr.key(0))
    with pytest.raises(ValueError, match="surface: count must be odd"):
        loss_surface(net, x, y, radius=1.0, count=8, key=jr.key(0))
    with pytest.raises(ValueError, match="surface: expected a label from 0 to 2, got 3"):
        loss_surface(net, x, jnp.array(3), radius=1.0, key=jr.key(0))
