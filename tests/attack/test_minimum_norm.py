"""Binary search over the radius, against closed forms and a fine search along one direction."""

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
def test_affine_classifier(norm):
    """The nearest of all classes, by a targeted attack on each."""
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


def test_fgsm_finds_the_first_crossing(net):
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


def test_result_is_measured_by_its_own_norm():
    """An attack that moves by 0.3 if its radius is at least 0.9, and else not at all."""

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
def test_vmap_and_key(net):
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
    assert jnp.array_equal(together[0], xs[0])  # already misclassified
    assert not np.array_equal(together[1], attack(net, xs[1], ys[1], key=jr.key(9)))
    assert attack.box == (-3.0, 3.0)


def test_failure_returns_the_input(net):
    x = normal(2, 4)
    y = jnp.argmax(net(x))
    assert jnp.array_equal(
        MinimumNormAttack(
            PGD(untargeted(), L2(1e-4), step_size=1e-4, steps=2), binary_search_steps=3
        )(net, x, y),
        x,
    )


def test_a_success_below_a_failed_radius_reopens_the_search():
    """An attack that succeeds in large and in small balls, but not in between."""

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
    with pytest.raises(
        ValueError, match="MinimumNormAttack: binary_search_steps must be an integer >= 1; got 0"
    ):
        MinimumNormAttack(PGD(untargeted(), L2(1.0), step_size=0.1, steps=1), binary_search_steps=0)
    with pytest.raises(
        ValueError,
        match="MinimumNormAttack: attack must have a ball and a goal, as PGD has; got a DeepFool",
    ):
        MinimumNormAttack(DeepFool())
    with pytest.raises(
        ValueError,
        match=r"MinimumNormAttack: an L0 radius is a count and cannot be halved\. Use L1",
    ):
        MinimumNormAttack(PGD(untargeted(), L0(2), step_size=0.1, steps=1))
    with pytest.raises(
        ValueError, match=r"a plain loss, which is never reached\. Use untargeted\(loss\)"
    ):
        MinimumNormAttack(PGD(margin_loss, L2(1.0), step_size=0.1, steps=1))
    with pytest.raises(ValueError, match="the largest to try, must be > 0; got 0"):
        MinimumNormAttack(PGD(untargeted(), L2(0.0), step_size=0.1, steps=1))
    with pytest.raises(
        ValueError, match="restarts=3 start at random points of the ball; pass key="
    ):
        MinimumNormAttack(PGD(untargeted(), L2(1.0), step_size=0.1, steps=1, restarts=3))(
            net, jnp.zeros(4), jnp.array(0)
        )
