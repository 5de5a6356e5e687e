"""Evaluations of models whose robust accuracy is known, and of those that hide it: each must be
found out.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.attack import (
    PGD,
    HopSkipJump,
    Square,
    auto_attack,
    margin_loss,
    perturb,
    robustness,
    untargeted,
)
from thetax.attack.robustness import MASKED
from thetax.layers import BatchNorm, Chain, Linear
from thetax.models import MLP
from thetax.threat import L0, L1, L2, Linf

BOX = (0.0, 1.0)
N, D = 40, 5


def white(ball, steps, restarts):
    """Light enough to be compiled in a blink."""
    return PGD(
        untargeted(margin_loss),
        ball,
        step_size=ball.radius,
        steps=steps,
        restarts=restarts,
        box=BOX,
    )


def black(ball):
    return Square(untargeted(margin_loss), ball, n_queries=60, box=BOX)


@pytest.fixture(scope="module")
def line():
    w = jnp.asarray([1.0, -2.0, 0.5, 1.5, -1.0])
    return Linear(jnp.stack([-w, w]), jnp.zeros(2))


@pytest.fixture(scope="module")
def examples(line):
    """Of either class, and a tenth of them labelled wrongly."""
    xs = jr.uniform(jr.key(0), (N, D))
    ys = jnp.argmax(jax.vmap(line)(xs), axis=-1)
    return xs, ys.at[:4].set(1 - ys[:4])


BALL = Linf(0.1)


def judged(model, data, ball=BALL, **options):
    options = {
        "box": BOX,
        "steps": 3,
        "white": white,
        "black": black,
        "trial": N,
        "key": jr.key(1),
    } | options
    return robustness(model, data, ball, **options)


def failed(found):
    return [check.name for check in found.checks if not check.holds]


@pytest.mark.slow
def test_an_honest_line(line, examples):
    """Right all around an example if its margin is at least what the ball can take off, where the
    box leaves room.
    """
    found = judged(line, examples)
    xs, ys = (np.asarray(part) for part in examples)
    w = np.asarray(line.W[1] - line.W[0])
    sign = 2 * ys - 1
    worst = np.clip(xs - 0.1 * sign[:, None] * np.sign(w), *BOX)
    assert found.stands.tolist() == (sign * (worst @ w) > 0).tolist()
    assert found.robust == found.stands.mean()
    assert found.clean == pytest.approx(0.9)
    assert failed(found) == []
    assert str(found).startswith(
        f"clean 90.0%, robust {found.robust:.1%} of 40\nright at radius 0: 90.0%"
    )
    assert np.abs(found.worst - xs).max() <= 0.1 + 1e-6
    np.testing.assert_array_equal(
        np.argmax(jax.vmap(line)(found.worst), axis=-1) == ys, found.stands
    )


class Steps(eqx.Module):
    """Reads its input in steps: every decision nearly as before, and no gradient anywhere."""

    model: Linear

    def __call__(self, x):
        return self.model(jnp.round(x * 40) / 40)


def test_hidden_gradients_are_suspected(line, examples):
    found = judged(Steps(line), examples)
    assert failed(found) == [
        "right in a ball of everything",
        "missed, but found without gradients",
        "gradients that are zero",
    ]
    assert all(MASKED in warning for warning in found.warnings)
    assert (
        abs(found.robust - judged(line, examples).robust) <= 0.1
    )  # the search without gradients is not misled


def test_a_loss_that_saturates_is_suspected(line, examples):
    """Logits a million times as large decide the same, but cross-entropy is flat in float32."""
    sharp = Linear(1e6 * line.W, 1e6 * line.b)
    follow = lambda ball, steps, restarts: PGD(
        untargeted(), ball, step_size=ball.radius, steps=steps, restarts=restarts, box=BOX
    )
    found = judged(sharp, examples, white=follow)
    assert "gradients that are zero" in failed(found)
    assert "missed, but found without gradients" in failed(found)


def test_a_weak_attack_is_told(line, examples):
    def weak(ball, steps, restarts):
        return PGD(
            untargeted(margin_loss),
            ball,
            step_size=ball.radius / 12,
            steps=steps,
            restarts=restarts,
            box=BOX,
        )

    found = judged(line, examples, ball=Linf(0.2), white=weak, key=jr.key(3))
    assert any("not strong enough" in warning for warning in found.warnings)


def test_an_attack_that_keeps_to_no_ball_is_told_and_cut_back(line, examples):
    class Wild(eqx.Module):
        def __call__(self, model, x, y, *, key=None):
            return jnp.clip(x + 0.3 * jr.normal(key, x.shape), *BOX)

    found = judged(line, examples, white=lambda ball, steps, restarts: Wild())
    assert failed(found)[0] == "right at radius 0"
    assert np.abs(np.asarray(found.worst - examples[0])).max() <= BALL.radius + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("ball", [Linf(0.05), L2(0.1), L1(0.15)], ids=["Linf", "L2", "L1"])
def test_the_attacks_that_come_with_it(line, examples, ball):
    """Without a box the closed form is that of the dual norm."""
    found = robustness(line, examples, ball, steps=10, trial=8, key=jr.key(0))
    xs, ys = (np.asarray(part) for part in examples)
    w = line.W[1] - line.W[0]
    assert (
        found.stands.tolist()
        == ((2 * ys - 1) * (xs @ np.asarray(w)) > ball.radius * float(ball.dual(w))).tolist()
    )
    assert found.warnings == ()


@pytest.mark.slow
def test_never_above_any_attack_and_never_below_what_is_clean(examples):
    model = MLP.init(D, 16, 2, key=jr.key(5))
    found = judged(model, examples, ball=Linf(0.15))
    for attack in (white(Linf(0.15), 3, 1), black(Linf(0.15))):
        xs = perturb(attack, model, examples, key=jr.key(1))
        right = np.argmax(jax.vmap(model)(xs), axis=-1) == np.asarray(examples[1])
        assert found.robust <= right.mean() + 1e-9
    assert found.robust <= found.clean


def test_bad_input(line, examples, unchecked):
    xs, ys = examples
    with pytest.raises(
        ValueError, match="robustness: the model gives probabilities, and attacks need logits"
    ):
        judged(lambda x: jax.nn.softmax(line(x)), examples)
    with pytest.raises(
        ValueError, match="robustness: xs: images are floats; divide pixels by 255; got int32"
    ):
        judged(line, (jnp.ones((3, D), jnp.int32), ys[:3]))
    with pytest.raises(
        ValueError, match=r"robustness: expected inputs from 0.0 to 1.0, but they go from .* to 2"
    ):
        judged(line, (2 * xs / xs.max(), ys))
    with pytest.raises(
        ValueError, match="robustness: ys: expected labels from 0 to 1, but row 0 is 7"
    ):
        judged(line, (xs, ys.at[0].set(7)))
    with pytest.raises(
        ValueError, match="robustness: expected a y for each x, but there are 40 xs and 3 ys"
    ):
        judged(line, (xs, ys[:3]))
    with pytest.raises(
        ValueError, match=r"robustness: expected data as a pair \(xs, ys\), got a list"
    ):
        judged(line, [xs, ys])
    with pytest.raises(
        ValueError, match=r"robustness: box is the least and the largest value .* got \(1.0, 0.0\)"
    ):
        judged(line, examples, box=(1.0, 0.0))
    with pytest.raises(ValueError, match="robustness: trial must be at least 1 example; got 0"):
        judged(line, examples, trial=0)
    with pytest.raises(ValueError, match="robustness: batch must be at least 1; got 0"):
        judged(line, examples, batch=0)
    with pytest.raises(ValueError, match="not finite"):
        judged(Linear(line.W * jnp.nan, line.b), examples)
    with pytest.raises(
        ValueError, match=r"Linf: radius must be finite and not negative; got -0\.1"
    ):
        Linf(-0.1)
    with pytest.raises(
        ValueError, match=r"batch normalisation ties the examples together; fold it in"
    ):
        judged(Chain(BatchNorm.init(D), line), examples)


@pytest.mark.slow
def test_perturb(line, examples, unchecked):
    xs, ys = examples
    attack = auto_attack(Linf(0.1), steps=2, n_queries=5, box=BOX)
    one = perturb(attack, line, (xs[:6], ys[:6]), key=jr.key(0), batch=4)
    np.testing.assert_array_equal(
        one, perturb(attack, line, (xs[:6], ys[:6]), key=jr.key(0), batch=4)
    )
    keys = jr.split(jr.key(0), 6)
    far = lambda value, target: (value - target) ** 2
    moved = perturb(
        PGD(far, L2(0.1), step_size=0.1, steps=1), lambda x: x.sum(), (xs[:6], jnp.zeros(6))
    )  # of no classes
    np.testing.assert_allclose(moved, xs[:6] + 0.1 / D**0.5, rtol=1e-5)
    np.testing.assert_allclose(one[5], attack(line, xs[5], ys[5], key=keys[5]), atol=1e-6)
    with pytest.raises(ValueError, match="perturb: batch must be at least 1; got 0"):
        perturb(attack, line, (xs, ys), key=jr.key(0), batch=0)
    with pytest.raises(ValueError, match="PGD: expected a label from 0 to 1, got 5"):
        white(Linf(0.1), 1, 1)(line, xs[0], jnp.array(5))


def test_another_radius_is_no_new_program(line, examples):
    xs, ys = examples
    seen = []

    def model(x):
        seen.append(x)
        return line(x)

    for radius in (0.1, 0.2, 0.3):
        perturb(PGD(margin_loss, Linf(radius), step_size=radius / 2, steps=2), model, (xs, ys))
        if radius == 0.1:
            traced = len(seen)
    assert len(seen) - traced == 2 * len(
        seen[:1]
    )  # the shape of the output is asked for each time, and nothing else


def test_what_lies_outside_of_the_ball_does_not_count(line, examples):
    """An attack to any distance is cut back to the ball."""
    found = judged(
        line, examples, black=lambda ball: HopSkipJump(L2, steps=2, n_queries=10, box=BOX)
    )
    assert found.robust == judged(line, examples).robust
    assert np.abs(np.asarray(found.worst - examples[0])).max() <= BALL.radius + 1e-6


@pytest.mark.slow
def test_counts_of_changes_do_not_depend_on_the_scale(line, examples):
    xs, ys = examples
    still = lambda ball: PGD(untargeted(margin_loss), ball, step_size=0.0, steps=1)
    told = lambda scale: robustness(
        lambda x: line(x / scale),
        (scale * xs, ys),
        L0(1),
        box=(0.0, scale),
        steps=4,
        black=still,
        trial=8,
        key=jr.key(0),
    )
    small = told(1.0)
    large = told(255.0)
    assert large.robust == small.robust < small.clean
