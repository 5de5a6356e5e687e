"""PGD: known maxima of affine classifiers and quadratics, and the properties of every attack."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.attack import (
    APGD,
    PGD,
    DeepFool,
    Goal,
    dlr_loss,
    fgsm,
    margin_loss,
    targeted,
    untargeted,
)
from thetax.attack.base import no_candidate
from thetax.attack.gradient.pgd import Ascent, l1_normalise
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import L0, L1, L2, Linf
from thetax.train import log_loss

pytestmark = pytest.mark.usefixtures("x64")

BALLS = {"Linf": Linf(0.2), "L2": L2(0.5), "L1": L1(0.6)}
with jax.enable_x64(True):
    X = jnp.array([0.3, -0.5, 0.8, 0.1])
    Y = jnp.array(0)


@pytest.fixture
def affine():
    return Linear.init(4, 3, key=jr.key(0))


@pytest.fixture
def net():
    return MLP.init(4, 8, 3, activation=tanh, key=jr.key(0))


def test_the_unit_of_a_gradient_has_its_signs():
    one = jax.jit(l1_normalise)
    np.testing.assert_allclose(one(jnp.array([3.0, -1.0, 0.0])), [0.75, -0.25, 0.0], rtol=1e-12)
    assert one(jnp.zeros(3)).tolist() == [0.0] * 3


@pytest.mark.parametrize("name", BALLS)
def test_affine_classifier(affine, name):
    """max_j (z_j − z_y + ε‖w_j − w_y‖_q), by the dual norm."""
    ball = BALLS[name]
    found = PGD(margin_loss, ball, step_size=ball.radius / 4, steps=30)(affine, X, Y)
    z = np.asarray(affine(X))
    W = np.asarray(affine.W)
    best = max(
        z[j] - z[0] + ball.radius * float(ball.dual_norm(jnp.asarray(W[j] - W[0]))) for j in (1, 2)
    )
    assert float(margin_loss(affine(found), Y)) <= best + 1e-12
    aimed = max(
        float(
            margin_loss(
                affine(PGD(_other(j), ball, step_size=ball.radius / 4, steps=30)(affine, X, Y)), Y
            )
        )
        for j in (1, 2)
    )
    assert aimed == pytest.approx(best, rel=1e-9)
    assert ball.norm(found - X) <= ball.radius * (1 + 1e-12)


def _other(j):
    return lambda z, y: z[j] - z[y]


@pytest.mark.parametrize("name", BALLS)
def test_a_maximum_inside_the_ball_is_found(name):
    """−‖x − c‖² with c inside: rescaling to the sphere would miss it."""
    c = X + jnp.asarray([0.05, -0.02, 0.0, 0.04])
    loss = lambda out, y: -jnp.square(out - c).sum()
    attack = PGD(loss, BALLS[name], step_size=0.02, schedule=lambda step: 0.9**step, steps=120)
    found = attack(lambda x: x, X, Y)
    np.testing.assert_allclose(found, c, atol=2e-3)


def test_best_point_is_kept_and_success_ends_the_attack(net):
    """With a step size far too large, the best point seen is still no worse than the start."""
    wild = PGD(untargeted(), L2(3.0), step_size=50.0, steps=7)(net, X, Y)
    assert float(log_loss(net(wild), Y)) >= float(log_loss(net(X), Y))
    run = lambda reached, **more: PGD(
        Goal(lambda out, y: out[0], lambda out, y: reached(out[0])),
        Linf(0.2),
        step_size=0.01,
        steps=9,
        **more,
    )(lambda x: x, X, Y)
    assert float(run(lambda z: z > 0.325)[0]) == pytest.approx(0.33)
    assert float(run(lambda z: z < 0.325)[0]) == pytest.approx(0.3)  # the start
    assert float(run(lambda z: z > 1.0)[0]) == pytest.approx(0.39)
    assert float(run(lambda z: z > 0.325, output="last")[0]) == pytest.approx(0.39)


def test_restarts_only_until_success():
    """The loss is flat around 0 and everything outside is misclassified: only the start matters,
    and the first successful one is returned.
    """
    model = lambda x: jnp.stack([jnp.full((), 0.5), jnp.where(jnp.abs(x[0]) < 0.9, 0.0, 1.0)])
    attack = lambda restarts: PGD(
        untargeted(margin_loss), Linf(1.0), step_size=0.01, steps=1, restarts=restarts
    )
    keys = jr.split(jr.key(0), 40)
    ends = lambda restarts: jax.vmap(lambda key: attack(restarts)(model, jnp.zeros(1), Y, key=key))(
        keys
    )[:, 0]
    assert 0 < (jnp.abs(ends(1)) >= 0.9).sum() < 15  # one start in ten
    found = np.asarray(ends(30))
    assert (np.abs(found) >= 0.9).sum() > 30  # 1 - 0.9^30 = 0.96
    starts = jax.vmap(
        lambda key: jax.vmap(lambda k: Linf(1.0).sample(k, (1,))[0])(jr.split(key, 30))
    )(keys)
    for start, end in zip(np.asarray(starts), found):
        outside = start[np.abs(start) >= 0.9]
        assert not len(outside) or end == outside[0]


def test_more_steps_and_restarts_never_help_the_defender(net):
    gain = lambda **more: float(
        margin_loss(
            net(PGD(margin_loss, Linf(0.5), step_size=0.1, **more)(net, X, Y, key=jr.key(1))), Y
        )
    )
    assert gain(steps=1) <= gain(steps=4) <= gain(steps=16)
    starts = [X + Linf(0.5).sample(key, (4,)) for key in jr.split(jr.key(1), 5)]
    assert gain(steps=1, restarts=5) >= max(float(margin_loss(net(start), Y)) for start in starts)


def test_fgsm(net):
    g = jax.grad(lambda x: log_loss(net(x), Y))(X)
    np.testing.assert_allclose(
        fgsm(log_loss, Linf(0.1))(net, X, Y), X + 0.1 * jnp.sign(g), atol=1e-12
    )
    np.testing.assert_allclose(
        fgsm(log_loss, Linf(0.5), box=(-0.6, 0.6))(net, X.clip(-0.6, 0.6), Y),
        jnp.clip(
            X.clip(-0.6, 0.6)
            + 0.5 * jnp.sign(jax.grad(lambda x: log_loss(net(x), Y))(X.clip(-0.6, 0.6))),
            -0.6,
            0.6,
        ),
        atol=1e-12,
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ball", [*BALLS.values(), L0(2)], ids=[*BALLS, "L0"])
def test_ball_and_box(net, ball):
    x = jnp.asarray([0.0, 1.0, 0.5, 0.9])
    found = PGD(untargeted(), ball, step_size=0.3, steps=10, restarts=2, box=(0.0, 1.0))(
        net, x, Y, key=jr.key(0)
    )
    assert ball.norm(found - x) <= ball.radius * (1 + 1e-12)
    assert found.min() >= 0
    assert found.max() <= 1


def test_gradients_out_of_the_box_are_ignored():
    """The steepest component is at the edge of the box, so the next one is moved."""
    slopes = Linear(jnp.array([[0.0, 0.0], [5.0, 1.0]]), jnp.zeros(2))
    found = PGD(margin_loss, L1(0.4), step_size=0.1, steps=4, box=(0.0, 1.0))(
        slopes, jnp.array([1.0, 0.5]), Y
    )
    np.testing.assert_allclose(found, [1.0, 0.9], atol=1e-12)


def test_a_restart_has_no_momentum():
    ascent = Ascent(X, jnp.ones(4), no_candidate(X), jnp.array(3))
    eta, g, *_ = ascent.restarted(jnp.array(True), 2 * X)
    assert jnp.array_equal(eta, 2 * X)
    assert not g.any()
    assert all(
        map(jnp.array_equal, ascent.restarted(jnp.array(False), 2 * X)[:2], (X, jnp.ones(4)))
    )


@pytest.mark.parametrize(
    "attack",
    [
        PGD(untargeted(), Linf(0.9), step_size=0.3, steps=10),
        APGD(untargeted(), Linf(0.9), steps=10),
        DeepFool(),
    ],
    ids=["PGD", "APGD", "DeepFool"],
)
def test_nan_is_neither_a_direction_nor_a_success(net, attack):
    """A square root has a NaN gradient at 0; the attack uses the other components."""
    rooted = lambda x: net(x) + 0 * jnp.linalg.norm(x[3:])
    x = X.at[3].set(0.0)
    y = jnp.argmax(net(x))
    found = attack(rooted, x, y)
    assert jnp.isfinite(found).all()
    assert found[3] == 0
    assert jnp.argmax(net(found)) != y
    nowhere = attack(lambda x: jnp.where((x == X).all(), net(x), jnp.nan), X, jnp.argmax(net(X)))
    assert jnp.array_equal(nowhere, X)


def test_half_precision_is_kept(net):
    x = X.astype(jnp.bfloat16)
    for attack in (
        PGD(untargeted(), Linf(0.2), step_size=0.1, steps=2, momentum=0.5),
        APGD(untargeted(), Linf(0.2), steps=2),
        DeepFool(),
    ):
        assert attack(net, x, Y).dtype == jnp.bfloat16


def test_an_input_outside_the_box_stays_in_the_ball(net):
    """As in a compiled program, which cannot raise."""
    found = jax.jit(
        lambda x: PGD(log_loss, Linf(0.1), step_size=0.1, steps=3, box=(0.0, 1.0))(net, x, Y)
    )(100 * X)
    assert jnp.abs(found - 100 * X).max() <= 0.1 + 1e-12


def test_momentum_is_the_sum_of_unit_gradients(net):
    """Two steps by hand."""
    l1_normalise = lambda x: (lambda g: g / jnp.abs(g).sum())(
        jax.grad(lambda x: log_loss(net(x), Y))(x)
    )
    first = l1_normalise(X)
    once = X + 0.05 * jnp.sign(first)
    twice = once + 0.05 * jnp.sign(0.9 * first + l1_normalise(once))
    found = PGD(log_loss, Linf(1.0), step_size=0.05, steps=2, momentum=0.9, output="last")(
        net, X, Y
    )
    np.testing.assert_allclose(found, twice, atol=1e-12)


def test_targeted(net):
    target = jnp.argmin(net(X))
    found = PGD(targeted(), L2(8.0), step_size=1.0, steps=40)(net, X, target)
    assert jnp.argmax(net(found)) == target


def test_vmap_and_key(net):
    attack = PGD(untargeted(margin_loss), Linf(0.2), step_size=0.05, steps=3, restarts=2)
    xs = normal(1, 3, 4)
    keys = jr.split(jr.key(0), 3)
    together = jax.jit(jax.vmap(lambda x, key: attack(net, x, Y, key=key)))(xs, keys)
    alone = jnp.stack([attack(net, x, Y, key=key) for x, key in zip(xs, keys)])
    np.testing.assert_allclose(together, alone, atol=1e-12)
    assert not np.allclose(attack(net, X, Y, key=jr.key(1)), attack(net, X, Y, key=jr.key(2)))


def test_dlr_loss(unchecked):
    z = normal(0, 5)
    assert float(dlr_loss(z, Y)) == pytest.approx(float(dlr_loss(100 * z + 7, Y)))
    order = np.sort(np.asarray(z))
    assert float(dlr_loss(z, Y)) == pytest.approx(
        float(margin_loss(z, Y)) / (order[-1] - order[-3])
    )
    with pytest.raises(
        ValueError, match="dlr_loss: needs at least three classes, got 2; use margin_loss"
    ):
        dlr_loss(z[:2], Y)


def test_bad_input(net, unchecked):
    with pytest.raises(ValueError, match="PGD: steps must be an integer >= 1; got 0"):
        PGD(untargeted(), Linf(0.1), step_size=0.1, steps=0)
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\]; got 2"):
        PGD(untargeted(), Linf(0.1), step_size=0.1, steps=1, momentum=2.0)
    with pytest.raises(
        ValueError, match="restarts=3 start at random points of the ball; pass key="
    ):
        PGD(untargeted(), Linf(0.1), step_size=0.1, steps=1, restarts=3)(net, X, Y)
    with pytest.raises(
        ValueError, match=r"that of a single start; got restarts=2\. Use output='best'"
    ):
        PGD(untargeted(), Linf(0.1), step_size=0.1, steps=1, restarts=2, output="last")
    with pytest.raises(ValueError, match=r"step_size must be finite and >= 0; got -0\.1"):
        PGD(untargeted(), Linf(0.1), step_size=-0.1, steps=1)
    unknown: Any = "lst"
    with pytest.raises(ValueError, match="output must be 'best' or 'last'; got 'lst'"):
        PGD(untargeted(), Linf(0.1), step_size=0.1, steps=1, output=unknown)
