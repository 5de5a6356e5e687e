"""Ensembles: no member does better on any example, and points outside the ball are projected."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.attack import (
    APGD,
    PGD,
    AttackEnsemble,
    HopSkipJump,
    MultiTargeted,
    Square,
    auto_attack,
    margin_loss,
    perturb,
    targeted_dlr_loss,
    untargeted,
    via_target,
)
from thetax.attack.ensemble import _likeliest_wrong
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import L2, Linf

pytestmark = pytest.mark.usefixtures("x64")

BOX = (-2.0, 2.0)
with jax.enable_x64(True):
    X = jnp.array([0.3, -0.5, 0.8, 0.1])
    Y = jnp.array(0)
    XS = jr.uniform(jr.key(2), (12, 4), minval=-1.0, maxval=1.0)


@pytest.fixture
def net():
    return MLP.init(4, 8, 5, activation=tanh, key=jr.key(0))


def shifted(by):
    return lambda model, x, y, *, key=None: x + by


@pytest.mark.slow
def test_no_member_does_better_on_any_example(net):
    """The members one by one, with the keys that the ensemble gives them."""
    ball = Linf(0.2)
    ys = jax.vmap(lambda x: jnp.argmax(net(x)))(XS)
    members = (
        PGD(untargeted(), ball, step_size=0.05, steps=3),
        Square(untargeted(margin_loss), ball, n_queries=10, box=BOX),
        HopSkipJump(Linf, steps=2, n_queries=10, n_starts=20, box=BOX),
    )
    ensemble = AttackEnsemble(ball, *members, box=BOX)
    keys = jr.split(jr.key(1), 12)

    def seen(x, y, key):
        answers = [attack(net, x, y, key=key) for attack, key in zip(members, jr.split(key, 3))]
        inside = [x + jnp.clip(jnp.clip(answer, *BOX) - x, -0.2, 0.2) for answer in answers]
        found = ensemble(net, x, y, key=key)
        return (
            found,
            jnp.stack([margin_loss(net(point), y) for point in [x, *inside]]),
            margin_loss(net(found), y),
        )

    found, each, all_ = jax.jit(jax.vmap(seen))(XS, ys, keys)
    np.testing.assert_allclose(all_, each.max(axis=1), atol=1e-9)
    assert len(set(np.asarray(each.argmax(axis=1)).tolist())) > 1
    assert jnp.abs(found - XS).max() <= 0.2 * (1 + 1e-12)


def test_points_outside_are_projected_and_nonfinite_ones_ignored():
    model = lambda x: jnp.stack([0.0 * x[0], x.sum()])
    far = jnp.asarray([3.0, 4.0, 0.0, 0.0])
    x = jnp.zeros(4)
    np.testing.assert_allclose(
        AttackEnsemble(L2(1.0), shifted(far))(model, x, Y), far / 5, atol=1e-12
    )
    boxed = AttackEnsemble(L2(1.0), shifted(far), box=(-0.7, 0.7))(model, x, Y)
    np.testing.assert_allclose(boxed, L2(1.0).project(far, (x - 0.7, x + 0.7)), atol=1e-12)
    assert boxed[1] == pytest.approx(0.7)
    broken = shifted(jnp.full(4, jnp.nan))
    np.testing.assert_allclose(
        AttackEnsemble(L2(1.0), broken, shifted(far))(model, x, Y), far / 5, atol=1e-12
    )
    assert np.array_equal(AttackEnsemble(L2(1.0), broken)(model, x, Y), x)


def test_worst_of_three_results():
    """One that succeeds, one that is better but has to be projected, and one that is NaN."""
    model = lambda x: jnp.stack([0.0 * x[0] + 0.4, x.sum()])
    one = jax.jit(lambda x, shifts: AttackEnsemble(L2(1.0), *map(shifted, shifts))(model, x, Y))
    shifts = np.array([[0.3, 0.1], [3.0, 4.0], [np.nan, 0.0]])
    np.testing.assert_allclose(one(np.zeros(2), shifts), [0.6, 0.8], atol=1e-12)
    np.testing.assert_allclose(one(np.zeros(2), shifts[[0, 0, 2]]), [0.3, 0.1], atol=1e-12)
    np.testing.assert_allclose(one(np.zeros(2), -shifts), [0.0, 0.0], atol=1e-12)


def test_likeliest_wrong_classes():
    found = jax.jit(lambda z, y: _likeliest_wrong(z, y, 2))(np.array([3.0, 1.0, 5.0, 2.0]), 2)
    assert found.tolist() == [0, 3]


def test_success_comes_before_gain():
    goal = untargeted(lambda z, y: -z[1])  # the gain is larger away from the goal
    model = lambda x: jnp.stack([0.1 + 0 * x[0], x[0]])
    reaches = shifted(jnp.asarray([0.5]))
    gains = shifted(jnp.asarray([-0.5]))
    for members in ((reaches, gains), (gains, reaches)):
        assert AttackEnsemble(Linf(1.0), *members, goal=goal)(model, jnp.zeros(1), Y).item() == 0.5
    assert (
        AttackEnsemble(Linf(1.0), shifted(jnp.asarray([0.05])), gains, goal=goal)(
            model, jnp.zeros(1), Y
        ).item()
        == -0.5
    )


@pytest.mark.slow
@pytest.mark.parametrize("ball", [Linf(0.2), L2(0.5)], ids=["Linf", "L2"])
def test_multi_targeted_finds_the_largest_margin_of_an_affine_classifier(ball):
    """max_j (z_j − z_y + ε‖w_j − w_y‖_q), whichever class is nearest at the start, where none can
    be reached.
    """
    affine = Linear.init(4, 5, key=jr.key(3))
    affine = Linear(affine.W, affine.b.at[0].add(9.0))
    difference = lambda z, y, t: z[t] - z[y]
    z = affine(X)
    W = affine.W
    ends = {j: float(z[j] - z[0] + ball.radius * ball.dual_norm(W[j] - W[0])) for j in range(1, 5)}
    found = MultiTargeted(APGD(via_target(difference), ball, steps=8))(affine, X, Y)
    assert float(margin_loss(affine(found), Y)) == pytest.approx(max(ends.values()), rel=1e-9)
    first = MultiTargeted(APGD(via_target(difference), ball, steps=8), targets=1)(affine, X, Y)
    nearest = max(range(1, 5), key=lambda j: float(z[j]))
    assert float(affine(first)[nearest] - affine(first)[0]) == pytest.approx(
        ends[nearest], rel=1e-9
    )


def test_targeted_dlr_loss():
    z = normal(0, 6)
    t = jnp.array(3)
    assert float(targeted_dlr_loss(z, Y, t)) == pytest.approx(
        float(targeted_dlr_loss(100 * z + 7, Y, t))
    )
    order = np.sort(np.asarray(z))[::-1]
    assert float(targeted_dlr_loss(z, Y, t)) == pytest.approx(
        float(z[3] - z[0]) / (order[0] - (order[2] + order[3]) / 2)
    )
    three = np.sort(np.asarray(z[:3]))[::-1]
    for t in (1, 2):  # neither is a constant, whatever the order
        expected = float(z[t] - z[0]) / (three[0] - (three[1] + three[2]) / 2)
        assert float(targeted_dlr_loss(z[:3], Y, jnp.array(t))) == pytest.approx(expected)
    assert float(targeted_dlr_loss(z[:2], Y, jnp.array(1))) == pytest.approx(float(z[1] - z[0]))


@pytest.mark.slow
def test_auto_attack(net):
    """Its members, batched and one by one, and the ball."""
    assert [type(attack) for attack in auto_attack(Linf(0.1)).attacks] == [
        APGD,
        MultiTargeted,
        Square,
    ]
    assert [type(attack) for attack in auto_attack(L2(0.1)).attacks] == [APGD, MultiTargeted]
    attack = auto_attack(Linf(0.15), steps=3, n_queries=8, targets=2, box=BOX)
    ys = jax.vmap(lambda x: jnp.argmax(net(x)))(XS)
    keys = jr.split(jr.key(1), 12)
    found = perturb(net, (XS, ys), attack, key=jr.key(1)).xs
    one = jax.jit(lambda x, y, key: attack(net, x, y, key=key))
    np.testing.assert_allclose(
        found[:3], jnp.stack([one(*row) for row in zip(XS[:3], ys, keys)]), atol=1e-12
    )
    assert jnp.abs(found - XS).max() <= 0.15 * (1 + 1e-12)
    assert (
        jax.vmap(lambda x, y: margin_loss(net(x), y))(found, ys)
        > jax.vmap(lambda x, y: margin_loss(net(x), y))(XS, ys)
    ).all()


def test_bad_input(net, unchecked):
    with pytest.raises(ValueError, match="AttackEnsemble: needs at least one attack; got none"):
        AttackEnsemble(Linf(0.1))
    with pytest.raises(ValueError, match="MultiTargeted: targets must be an integer >= 1; got 0"):
        MultiTargeted(APGD(via_target(), Linf(0.1), steps=1), targets=0)
    with pytest.raises(ValueError, match=r"Square: is stochastic, a random search\. Pass key="):
        auto_attack(Linf(0.1), steps=1)(net, X, Y)
    with pytest.raises(ValueError, match="AttackEnsemble: expected a label from 0 to 4, got 5"):
        auto_attack(Linf(0.1), steps=1)(net, X, jnp.array(5))
