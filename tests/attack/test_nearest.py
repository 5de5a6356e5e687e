"""Bisection on the radius where the distance is known, and along one direction by a fine search."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.attack import (
    PGD,
    DeepFool,
    MinimumNormAttack,
    affine_radius,
    fgsm,
    margin_loss,
    targeted,
    untargeted,
)
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import L0, L1, L2, Linf
from thetax.train import log_loss

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.slow
@pytest.mark.parametrize("norm", [L1, L2, Linf])
def test_of_an_affine_classifier_it_is_the_closed_form(norm):
    """The nearest of all classes, each aimed at by itself."""
    models = jax.vmap(lambda key: Linear.init(5, 4, key=key))(jr.split(jr.key(0), 10))
    xs = normal(1, 10, 5)
    ys = jax.vmap(lambda model, x: jnp.argmax(model(x)))(models, xs)
    nearest = MinimumNormAttack(
        PGD(targeted(margin_loss), norm(20.0), step_size=5.0, steps=8), binary_search_steps=32
    )

    def least(model, x, y):
        ends = jax.vmap(lambda j: nearest(model, x, j))(jnp.arange(4))
        reached = jax.vmap(lambda end: jnp.argmax(model(end)) != y)(ends)
        return jnp.where(
            reached, jax.vmap(lambda end: norm(1.0).norm(end - x))(ends), jnp.inf
        ).min()

    found = np.asarray(jax.jit(jax.vmap(least))(models, xs, ys))
    exact = np.asarray(
        jax.vmap(lambda model, x, y: affine_radius(model, x, y, norm))(models, xs, ys)
    )
    assert (found >= exact * (1 - 1e-9)).all()
    np.testing.assert_allclose(found, exact, rtol=1e-4)


@pytest.fixture
def net():
    return MLP.init(4, 8, 3, activation=tanh, key=jr.key(0))


def test_along_the_sign_of_the_gradient_it_is_the_first_crossing(net):
    x = normal(2, 4)
    y = jnp.argmax(net(x))
    direction = jnp.sign(jax.grad(lambda x: log_loss(net(x), y))(x))
    sizes = np.linspace(0, 4, 4001)
    wrong = np.asarray(
        jax.vmap(lambda size: jnp.argmax(net(x + size * direction)) != y)(jnp.asarray(sizes))
    )
    assert (
        np.diff(wrong.astype(int)) != 0
    ).sum() == 1  # it crosses once, so bisection must find it
    found = MinimumNormAttack(fgsm(untargeted(), Linf(4.0)), binary_search_steps=16)(net, x, y)
    assert float(jnp.abs(found - x).max()) == pytest.approx(sizes[wrong.argmax()], abs=1.1e-3)
    assert jnp.argmax(net(found)) != y


def test_it_keeps_the_norm_of_the_shift_and_not_the_radius():
    """An attack that always moves by 0.3, whatever its ball, and succeeds if that is allowed."""

    class Stubborn(eqx.Module):
        ball: L2
        goal: object = eqx.field(static=True)

        def __call__(self, model, x, y, *, key=None):
            return jnp.where(self.ball.radius >= 0.9, x.at[0].add(0.3), x)

    line = Linear(jnp.array([[0.0, 0.0], [1.0, 0.0]]), jnp.array([0.2, 0.0]))
    found = MinimumNormAttack(Stubborn(L2(2.0), untargeted()), binary_search_steps=3)(
        line, jnp.zeros(2), jnp.array(0)
    )
    np.testing.assert_allclose(found, [0.3, 0.0])


@pytest.mark.slow
def test_a_batch_is_a_vmap_and_a_key_decides(net):
    attack = MinimumNormAttack(
        PGD(
            untargeted(margin_loss), Linf(2.0), step_size=0.5, steps=3, restarts=2, box=(-3.0, 3.0)
        ),
        binary_search_steps=5,
    )
    xs = normal(1, 3, 4)
    keys = jr.split(jr.key(0), 3)
    ys = jax.vmap(lambda x: jnp.argmax(net(x)))(xs).at[0].add(1) % 3
    together = jax.jit(jax.vmap(lambda x, y, key: attack(net, x, y, key=key)))(xs, ys, keys)
    alone = jnp.stack([attack(net, x, y, key=key) for x, y, key in zip(xs, ys, keys)])
    np.testing.assert_allclose(together, alone, atol=1e-12)
    assert jnp.array_equal(together[0], xs[0])  # wrong already
    assert not np.array_equal(together[1], attack(net, xs[1], ys[1], key=jr.key(9)))
    assert attack.box == (-3.0, 3.0)


def test_where_nothing_is_found_the_input_stays(net):
    x = normal(2, 4)
    y = jnp.argmax(net(x))
    assert jnp.array_equal(
        MinimumNormAttack(
            PGD(untargeted(), L2(1e-4), step_size=1e-4, steps=2), binary_search_steps=3
        )(net, x, y),
        x,
    )


def test_a_radius_that_failed_is_tried_again_below_what_was_found_nearer():
    """An attack with luck in large balls and in small ones only."""

    class Fickle(eqx.Module):
        ball: L2
        goal: object = eqx.field(static=True)

        def __call__(self, model, x, y, *, key=None):
            size = jnp.where(
                self.ball.radius > 0.6, 0.2, jnp.where(self.ball.radius < 0.15, 0.05, 0.0)
            )
            return x.at[0].add(size)

    step = lambda x: jnp.array([0.01, x[0]])
    found = MinimumNormAttack(Fickle(L2(1.0), untargeted(margin_loss)), binary_search_steps=4)(
        step, jnp.zeros(2), jnp.array(0)
    )
    assert found.tolist() == [0.05, 0.0]


def test_bad_input(net, unchecked):
    with pytest.raises(ValueError, match="Nearest: rounds must be at least 1; got 0"):
        MinimumNormAttack(PGD(untargeted(), L2(1.0), step_size=0.1, steps=1), binary_search_steps=0)
    with pytest.raises(
        ValueError,
        match="Nearest: expected an attack in a ball with a goal, such as PGD; got a DeepFool",
    ):
        MinimumNormAttack(DeepFool())
    with pytest.raises(ValueError, match="Nearest: L0 counts and cannot be halved"):
        MinimumNormAttack(PGD(untargeted(), L0(2), step_size=0.1, steps=1))
    with pytest.raises(ValueError, match=r"a goal never reached; give it away\(loss\)"):
        MinimumNormAttack(PGD(margin_loss, L2(1.0), step_size=0.1, steps=1))
    with pytest.raises(ValueError, match="the largest to try, so positive; got 0"):
        MinimumNormAttack(PGD(untargeted(), L2(0.0), step_size=0.1, steps=1))
    with pytest.raises(ValueError, match="restarts=3 begin at different points; give a key"):
        MinimumNormAttack(PGD(untargeted(), L2(1.0), step_size=0.1, steps=1, restarts=3))(
            net, jnp.zeros(4), jnp.array(0)
        )
