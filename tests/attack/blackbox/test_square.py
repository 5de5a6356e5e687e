"""Square: stays in the ball, is never worse than its start, exact on affine models, and uses no
gradients.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.attack import Square, margin_loss, maximise_loss, untargeted
from thetax.attack.blackbox.square import square_sizes
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import L2, Linf

pytestmark = pytest.mark.usefixtures("x64")

KEY = jr.key(0)
BALL = Linf(0.2)
with jax.enable_x64(True):
    Y = jnp.array(0)
    X = jr.uniform(jr.key(3), (2, 3, 3))


@pytest.fixture
def net():
    return MLP.init(18, 8, 3, activation=tanh, key=jr.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(18,), (2, 3, 3), (3, 6)])
def test_affine_model(shape):
    """ε‖w_1 − w_0‖_1 above the start, once single components have been flipped."""
    affine = Linear.init(18, 2, key=KEY)
    model = lambda x: affine(x.ravel())
    x = X.reshape(shape)
    found = Square(margin_loss, BALL, n_queries=1000)(model, x, Y, key=KEY)
    best = float(margin_loss(model(x), Y)) + 0.2 * float(jnp.abs(affine.W[1] - affine.W[0]).sum())
    assert float(margin_loss(model(found), Y)) == pytest.approx(best, rel=1e-9)


def test_ball_box_and_gain(net):
    x = X.at[0, 0].set(0.0).at[1, 1].set(1.0)
    gains = [float(margin_loss(net(x), Y))]
    for n_queries in (2, 300):
        found = Square(margin_loss, BALL, n_queries=n_queries, box=(0.0, 1.0))(net, x, Y, key=KEY)
        assert jnp.abs(found - x).max() <= 0.2 * (1 + 1e-12)
        assert 0 <= found.min() <= found.max() <= 1
        gains.append(float(margin_loss(net(found), Y)))
    assert gains == sorted(gains)
    assert gains[2] > gains[0]


def test_number_of_queries(net):
    queries = []

    def model(x):
        jax.debug.callback(lambda _: queries.append(1), x[0, 0, 0])
        return net(x)

    def count(goal, ball):
        queries.clear()
        Square(goal, ball, n_queries=30)(model, X, jnp.argmax(net(X)), key=KEY).block_until_ready()
        jax.effects_barrier()
        return len(queries)

    assert count(maximise_loss(margin_loss), BALL) == 30
    assert 2 < count(untargeted(margin_loss), Linf(0.045)) < 30


def test_no_gradient_is_used(net):
    @jax.custom_vjp
    def closed(x):
        return net(x)

    def refuse(*_):
        raise AssertionError("the gradient was computed")

    closed.defvjp(refuse, refuse)
    attack = Square(untargeted(margin_loss), BALL, n_queries=20)
    assert np.array_equal(attack(closed, X, Y, key=KEY), attack(net, X, Y, key=KEY))


def test_square_sizes():
    """√(0.8 · 28 · 28 / 2^j), j the number of halvings so far, of 10,000 queries."""
    sides = square_sizes(10_000, 28, 28, 0.8)
    assert (sides[:, 0] == sides[:, 1]).all()
    for query, halvings in {
        0: 0,
        10: 0,
        11: 1,
        51: 2,
        201: 3,
        501: 4,
        1001: 5,
        2001: 6,
        4001: 7,
        9999: 9,
    }.items():
        assert sides[query, 0] == max(round(np.sqrt(0.8 * 784 / 2**halvings)), 1)
    assert np.array_equal(square_sizes(1000, 28, 28, 0.8), sides[::10])
    vector = square_sizes(100, 1, 50, 0.8)
    assert vector[0].tolist() == [1, 40]
    assert (vector[:, 0] == 1).all()


@pytest.mark.slow
def test_vmap_and_key(net):
    attack = Square(untargeted(margin_loss), BALL, n_queries=15)
    xs = jr.uniform(jr.key(5), (3, 2, 3, 3))
    keys = jr.split(KEY, 3)
    call = lambda x, key: attack(net, x, Y, key=key)
    one = jax.jit(call)
    alone = jnp.stack([one(x, key) for x, key in zip(xs, keys)])
    np.testing.assert_allclose(jax.jit(jax.vmap(call))(xs, keys), alone, atol=1e-12)
    np.testing.assert_allclose(call(xs[0], keys[0]), alone[0], atol=1e-12)
    assert np.array_equal(one(xs[0], keys[0]), alone[0])
    assert not np.allclose(alone[0], one(xs[0], keys[1]))


def test_a_misclassified_input_is_returned(net):
    y = jnp.argmin(net(X))
    assert np.array_equal(
        Square(untargeted(margin_loss), BALL, n_queries=15)(net, X, y, key=KEY), X
    )


def test_no_query_is_wasted():
    """A single component has two ends: the start tries one, and the first square the other."""
    up = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    attack = Square(margin_loss, BALL, n_queries=3)
    found = [float(attack(up, jnp.zeros(1), Y, key=key)[0]) for key in jr.split(KEY, 8)]
    assert found == [0.2] * 8


def test_bad_input(net, unchecked):
    with pytest.raises(ValueError, match="Square: ball must be Linf; got L2"):
        Square(margin_loss, L2(0.1), n_queries=10)
    with pytest.raises(
        ValueError,
        match="Square: n_queries must be at least 2, for the input itself and the start; got 1",
    ):
        Square(margin_loss, BALL, n_queries=1)
    with pytest.raises(ValueError, match=r"Square: initial_fraction must lie in \(0, 1\]; got 0"):
        Square(margin_loss, BALL, n_queries=10, initial_fraction=0)
    with pytest.raises(ValueError, match=r"Square: is stochastic, a random search\. Pass key="):
        Square(margin_loss, BALL, n_queries=10)(net, X, Y)
