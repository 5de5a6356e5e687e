"""Carlini-Wagner: known minima, confidence, box, and the properties of every attack."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.attack import CarliniWagner, affine_radius, margin_loss, targeted, untargeted
from thetax.attack.gradient.carlini_wagner import _nearest
from thetax.layers import Linear, tanh
from thetax.models import MLP

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.slow
def test_affine_classifier():
    """The nearest of all classes, by a targeted attack on each; the learning rate is a tenth of
    the typical distance.
    """
    models = jax.vmap(lambda key: Linear.init(5, 4, key=key))(jr.split(jr.key(0), 10))
    xs = normal(1, 10, 5)
    ys = jax.vmap(lambda model, x: jnp.argmax(model(x)))(models, xs)
    attack = CarliniWagner(targeted(margin_loss), steps=1000, learning_rate=0.01)

    def least(model, x, y):
        ends = jax.vmap(lambda j: attack(model, x, j))(jnp.arange(4))
        reached = jax.vmap(lambda end: jnp.argmax(model(end)) != y)(ends)
        return jnp.where(
            reached, jax.vmap(lambda end: jnp.linalg.norm(end - x))(ends), jnp.inf
        ).min()

    found = np.asarray(jax.jit(jax.vmap(least))(models, xs, ys))
    exact = np.asarray(jax.vmap(affine_radius)(models, xs, ys))
    assert (found >= exact * (1 - 1e-9)).all()
    np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_confidence_is_a_distance_beyond_the_boundary():
    """With two classes the margin κ is reached at distance (gap + κ) / ‖w‖."""
    line = Linear(jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.zeros(2))
    x = jnp.array([0.3, 0.4])
    y = jnp.array(0)
    go = jax.jit(
        lambda confidence: CarliniWagner(steps=400, learning_rate=0.03, confidence=confidence)(
            line, x, y
        )
    )
    for confidence in (0.0, 1.0):
        end = go(confidence)
        assert float(margin_loss(line(end), y)) >= confidence
        assert float(jnp.linalg.norm(end - x)) == pytest.approx((2.5 + confidence) / 5, rel=1e-3)


def test_nearest_successful_point_is_kept():
    nearer = jax.jit(_nearest)
    best = jnp.zeros(2), jnp.array(4.0)
    for square, reached, kept, least in (
        (3.0, True, 1, 3),
        (4.0, True, 0, 4),
        (3.0, False, 0, 4),
        (5.0, True, 0, 4),
    ):
        point, found = nearer(best, (jnp.ones(2), jnp.array(square), jnp.array(reached)))
        assert point.tolist() == [kept] * 2
        assert found.item() == least


@pytest.fixture
def net():
    return MLP.init(4, 8, 3, activation=tanh, key=jr.key(0))


def test_box_and_vmap(net):
    xs = jnp.asarray([[0.0, 1.0, 0.5, 0.9], [0.2, 0.7, 0.1, 1.0]])
    first = jnp.argmin(net(xs[0]))
    ys = jnp.stack([first, jnp.argmax(net(xs[1]))])
    attack = CarliniWagner(
        steps=20, binary_search_steps=6, learning_rate=0.1, initial_const=1.0, box=(0.0, 1.0)
    )
    one = jax.jit(lambda x, y: attack(net, x, y))
    together = jax.jit(jax.vmap(lambda x, y: attack(net, x, y)))(xs, ys)
    np.testing.assert_allclose(together, jnp.stack([one(x, y) for x, y in zip(xs, ys)]), atol=1e-9)
    np.testing.assert_allclose(together[1], attack(net, xs[1], ys[1]), atol=1e-9)
    assert jnp.array_equal(together[0], xs[0])  # already misclassified
    assert together.min() >= 0
    assert together.max() <= 1


def test_targeted(net):
    x = normal(2, 4)
    target = jnp.argmin(net(x))
    end = CarliniWagner(
        targeted(margin_loss),
        steps=100,
        binary_search_steps=4,
        learning_rate=0.1,
        initial_const=1.0,
    )(net, x, target)
    assert jnp.argmax(net(end)) == target


def test_failure_returns_the_input():
    never = Linear(jnp.zeros((2, 3)), jnp.array([1.0, 0.0]))
    x = jnp.array([0.1, 0.2, 0.3])
    assert jnp.array_equal(CarliniWagner(steps=3, binary_search_steps=2)(never, x, jnp.array(0)), x)


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="CarliniWagner: steps must be an integer >= 1; got 0"):
        CarliniWagner(steps=0)
    with pytest.raises(ValueError, match="CarliniWagner: learning_rate must be > 0; got 0"):
        CarliniWagner(learning_rate=0.0)
    with pytest.raises(ValueError, match="CarliniWagner: confidence must be >= 0; got -1"):
        CarliniWagner(confidence=-1.0)
    for loss in (untargeted(), targeted(), margin_loss):
        with pytest.raises(
            ValueError,
            match=r"positive exactly where the goal is reached\. Use untargeted\(margin_loss\)",
        ):
            CarliniWagner(loss)
    with pytest.raises(ValueError, match=r"CarliniWagner: box must be \(low, high\)"):
        CarliniWagner(box=(1.0, 1.0))
    with pytest.raises(ValueError, match="expected a label from 0 to 1, got 2"):
        CarliniWagner()(lambda x: x, jnp.zeros(2), jnp.array(2))
