"""APGD: known maxima, and the same points as a plain implementation in NumPy."""

from fractions import Fraction
from math import ceil

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import normal

from thetax.attack import APGD, PGD, Goal, dlr_loss, margin_loss, targeted, untargeted
from thetax.attack.base import Candidate
from thetax.attack.gradient.apgd import APGDState, EvaluatedPoint, checkpoints
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import L1, L2, Linf
from thetax.train import log_loss

pytestmark = pytest.mark.usefixtures("x64")

BALLS = {"Linf": Linf(0.2), "L2": L2(0.5)}
each_ball = pytest.mark.parametrize("name", BALLS)
with jax.enable_x64(True):
    X = jnp.array([0.3, -0.5, 0.8, 0.1])
    Y = jnp.array(0)


@pytest.fixture
def net():
    return MLP.init(4, 8, 3, activation=tanh, key=jr.key(0))


@pytest.mark.sampled(4)
@each_ball
@pytest.mark.parametrize("j", [1, 2])
def test_affine_classifier(name, j):
    """z_j − z_y + ε‖w_j − w_y‖_q, by the dual norm."""
    affine = Linear.init(4, 3, key=jr.key(0))
    ball = BALLS[name]
    difference = lambda z, y: z[j] - z[y]
    found = APGD(difference, ball, steps=10)(affine, X, Y)
    w = np.asarray(affine.W[j] - affine.W[0])
    slope = np.abs(w).sum() if name == "Linf" else np.linalg.norm(w)
    assert float(difference(affine(found), Y)) == pytest.approx(
        float(difference(affine(X), Y)) + ball.radius * slope, rel=1e-9
    )
    assert ball.norm(found - X) <= ball.radius * (1 + 1e-12)


@each_ball
def test_a_maximum_inside_the_ball_is_found(name):
    c = X + jnp.asarray([0.05, -0.02, 0.0, 0.04])
    found = APGD(lambda out, y: -jnp.square(out - c).sum(), BALLS[name], steps=100)(
        lambda x: x, X, Y
    )
    np.testing.assert_allclose(found, c, atol=2e-3)


def test_checkpoints_are_those_of_the_paper():
    assert checkpoints(100) == (0, 22, 41, 57, 70, 80, 87, 93, 99)
    for steps in (1, 5, 10, 37, 1000):
        p = [Fraction(0), Fraction(22, 100)]
        while p[-1] <= 1:
            p.append(p[-1] + max(p[-1] - p[-2] - Fraction(3, 100), Fraction(6, 100)))
        assert checkpoints(steps) == tuple(
            sorted({ceil(share * steps) for share in p if share <= 1})
        )


def plainly(f, project, direction, radius, steps):
    """The algorithm in NumPy: the best point, and the final step size."""
    value = jax.jit(f)
    slope = jax.jit(jax.grad(f))
    marks = sorted({ceil(Fraction(m, 100) * steps) for m in (0, 22, 41, 57, 70, 80, 87, 93, 99)})
    here = before = top = np.zeros(4)
    rate = 2 * radius
    level = value(here)
    reduced = False
    risen = []
    for k in range(1, steps + 1):
        z = project(here + rate * direction(np.asarray(slope(here))))
        new = z if k == 1 else project(here + 0.75 * (z - here) + 0.25 * (here - before))
        risen.append(value(new) > value(here))
        before, here = here, new
        top = here if value(here) > value(top) else top
        if k in marks:
            few = sum(risen) < 0.75 * len(risen)
            same = not reduced and value(top) == level
            level = value(top)
            reduced = few or same
            risen = []
            rate, here = (rate / 2, top) if reduced else (rate, here)
    return top, rate


@pytest.mark.sampled(4)
@each_ball
@pytest.mark.parametrize("steps", [7, 40])
def test_same_points_as_the_plain_algorithm(net, name, steps):
    radius = 1.5
    if name == "Linf":
        ball = Linf(radius)
        project = lambda z: np.clip(z, -radius, radius)
        direction = np.sign
    else:
        ball = L2(radius)
        direction = lambda g: g / np.linalg.norm(g)
        project = lambda z: z * min(1.0, radius / max(np.linalg.norm(z), 1e-300))
    top, rate = plainly(lambda eta: log_loss(net(X + eta), Y), project, direction, radius, steps)
    assert rate < 2 * radius
    np.testing.assert_allclose(APGD(log_loss, ball, steps=steps)(net, X, Y), X + top, atol=1e-9)


@pytest.fixture(scope="module")
def trained():
    """A network that separates three spirals, and points of them."""
    with jax.enable_x64(True):
        turn = jnp.tile(jnp.linspace(0.3, 1.0, 40), 3)
        ys = jnp.repeat(jnp.arange(3), 40)
        angle = 4 * turn + 2 * jnp.pi / 3 * ys
        xs = jnp.stack([turn * jnp.cos(angle), turn * jnp.sin(angle)], axis=1)
        descent = optax.adam(0.03)

        @jax.jit
        def train(net):
            loss = lambda net: jax.vmap(lambda x, y: log_loss(net(x), y))(xs, ys).mean()

            def step(state, _):
                net, moments = state
                update, moments = descent.update(jax.grad(loss)(net), moments)
                return (optax.apply_updates(net, update), moments), None

            return jax.lax.scan(step, (net, descent.init(net)), length=300)[0][0]

        return train(MLP.init(2, 32, 3, activation=tanh, key=jr.key(0))), xs, ys


@pytest.mark.slow
@each_ball
def test_mostly_as_good_as_pgd_of_fixed_step_size(trained, name):
    net, xs, ys = trained
    ball = BALLS[name]
    gain = lambda attack: jax.jit(jax.vmap(lambda x, y: margin_loss(net(attack(net, x, y)), y)))(
        xs, ys
    )
    own = gain(APGD(margin_loss, ball, steps=20))
    fixed = gain(PGD(margin_loss, ball, step_size=ball.radius / 4, steps=20))
    assert (own >= fixed - 1e-6).mean() >= 0.9
    assert (own > fixed + 1e-6).sum() >= (fixed > own + 1e-6).sum()


def test_success_comes_before_gain():
    low = Goal(
        lambda out, y: out[0], lambda out, y: out[0] < 0.325
    )  # more gain leads away from the goal
    assert float(APGD(low, Linf(0.2), steps=9)(lambda x: x, X, Y)[0]) == pytest.approx(0.3)


def test_restarts_never_help_the_defender(net):
    found = lambda key, **more: APGD(margin_loss, Linf(0.5), steps=3, **more)(net, X, Y, key=key)
    one = found(jr.key(1))
    five = found(jr.key(1), restarts=5)
    starts = [X + Linf(0.5).sample(key, (4,)) for key in jr.split(jr.key(1), 5)]
    assert float(margin_loss(net(five), Y)) >= max(
        float(margin_loss(net(start), Y)) for start in starts
    )
    assert np.array_equal(one, found(jr.key(1)))
    assert not np.allclose(one, found(jr.key(2)), atol=1e-9)


@each_ball
def test_ball_and_box(net, name):
    x = jnp.asarray([0.0, 1.0, 0.5, 0.9])
    ball = BALLS[name]
    found = APGD(untargeted(), ball, steps=12, restarts=2, box=(0.0, 1.0))(net, x, Y, key=jr.key(0))
    assert ball.norm(found - x) <= ball.radius * (1 + 1e-12)
    assert found.min() >= 0
    assert found.max() <= 1


def test_targeted_and_dlr_loss(net):
    target = jnp.argmin(net(X))
    assert jnp.argmax(net(APGD(targeted(), L2(8.0), steps=40)(net, X, target))) == target
    y = jnp.argmax(net(X))
    assert jnp.argmax(net(APGD(untargeted(dlr_loss), L2(8.0), steps=40)(net, X, y))) != y


@pytest.mark.slow
def test_vmap(net):
    attack = APGD(untargeted(margin_loss), L2(0.2), steps=5, restarts=2)
    xs = normal(1, 3, 4)
    keys = jr.split(jr.key(0), 3)
    call = lambda x, key: attack(net, x, Y, key=key)
    one = jax.jit(call)
    alone = jnp.stack([one(x, key) for x, key in zip(xs, keys)])
    np.testing.assert_allclose(jax.jit(jax.vmap(call))(xs, keys), alone, atol=1e-12)
    np.testing.assert_allclose(call(xs[0], keys[0]), alone[0], atol=1e-12)


@pytest.mark.parametrize("halved", [False, True])
def test_a_stuck_maximum_halves_the_step_unless_it_was_just_halved(halved):
    """Even if every step since the last checkpoint increased the gain."""
    at = lambda gain: EvaluatedPoint(
        Candidate(X, jnp.asarray(gain), jnp.asarray(False)), jnp.zeros(4)
    )
    state = APGDState(
        at(1.0),
        X,
        at(2.0),
        at(2.0).candidate,
        jnp.array(0.4),
        jnp.array(5),
        jnp.array(halved),
        jnp.array(2.0),
    )
    after = state.at_checkpoint(jnp.array(5))
    assert bool(after.halved) is not halved
    assert float(after.step_size) == (0.4 if halved else 0.2)
    assert float(after.current.candidate.gain) == (1.0 if halved else 2.0)


def test_bad_input(net, unchecked):
    with pytest.raises(ValueError, match=r"APGD: ball must be Linf or L2; got L1\. Use PGD"):
        APGD(untargeted(), L1(0.1), steps=3)
    with pytest.raises(ValueError, match="APGD: steps must be an integer >= 1; got 0"):
        APGD(untargeted(), Linf(0.1), steps=0)
    with pytest.raises(
        ValueError, match="APGD: restarts=3 start at random points of the ball; pass key="
    ):
        APGD(untargeted(), Linf(0.1), steps=1, restarts=3)(net, X, Y)
    with pytest.raises(ValueError, match=r"APGD: expected inputs from 0\.0 to 1\.0"):
        APGD(untargeted(), Linf(0.1), steps=1, box=(0.0, 1.0))(net, X, Y)
