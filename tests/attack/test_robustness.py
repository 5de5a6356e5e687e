"""Robust accuracy of models where it is known, and sanity checks of flawed evaluations."""

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
    targeted,
    untargeted,
)
from thetax.attack.robustness import MASKED, _radius_of_everything, _value_range
from thetax.layers import BatchNorm, Chain, Linear
from thetax.models import MLP
from thetax.threat import L0, L1, L2, Linf

BOX = (0.0, 1.0)
N, D = 40, 5


def white_box(ball, steps, restarts):
    """A small attack, fast to compile."""
    return PGD(
        untargeted(margin_loss),
        ball,
        step_size=ball.radius,
        steps=steps,
        restarts=restarts,
        box=BOX,
    )


def black_box(ball):
    return Square(untargeted(margin_loss), ball, n_queries=60, box=BOX)


@pytest.fixture(scope="module")
def line():
    w = jnp.asarray([1.0, -2.0, 0.5, 1.5, -1.0])
    return Linear(jnp.stack([-w, w]), jnp.zeros(2))


@pytest.fixture(scope="module")
def examples(line):
    """Examples of two classes, a tenth of them with a wrong label."""
    xs = jr.uniform(jr.key(0), (N, D))
    ys = jnp.argmax(jax.vmap(line)(xs), axis=-1)
    return xs, ys.at[:4].set(1 - ys[:4])


BALL = Linf(0.1)


def evaluate(model, data, ball=BALL, **options):
    options = {
        "box": BOX,
        "steps": 3,
        "white_box": white_box,
        "black_box": black_box,
        "n_check_examples": N,
        "key": jr.key(1),
    } | options
    return robustness(model, data, ball, **options)


def failed(result):
    return [check.name for check in result.checks if not check.passed]


@pytest.mark.slow
def test_linear_classifier(line, examples):
    """The worst point in ball and box is known in closed form."""
    result = evaluate(line, examples)
    xs, ys = (np.asarray(part) for part in examples)
    w = np.asarray(line.W[1] - line.W[0])
    sign = 2 * ys - 1
    worst = np.clip(xs - 0.1 * sign[:, None] * np.sign(w), *BOX)
    assert result.is_robust.tolist() == (sign * (worst @ w) > 0).tolist()
    assert result.robust_accuracy == result.is_robust.mean()
    assert result.clean_accuracy == pytest.approx(0.9)
    assert failed(result) == []
    assert str(result).startswith(
        f"clean 90.0%, robust {result.robust_accuracy:.1%} of 40\naccuracy at radius 0: 90.0%"
    )
    assert np.abs(result.worst_inputs - xs).max() <= 0.1 + 1e-6
    np.testing.assert_array_equal(
        np.argmax(jax.vmap(line)(result.worst_inputs), axis=-1) == ys, result.is_robust
    )


class Rounded(eqx.Module):
    """Rounds its input: nearly the same decisions, and zero gradients everywhere."""

    model: Linear

    def __call__(self, x):
        return self.model(jnp.round(x * 40) / 40)


def test_the_range_and_the_radius_of_all_inputs():
    """From -1 to 3 the range is four long, and goes four further on either side."""
    points = jnp.array([[-1.0, 0.0, 2.0], [3.0, 0.5, 1.0]])
    np.testing.assert_allclose(_value_range(points), (-5, 7), atol=2e-6)
    low, high = _value_range(jnp.full((2, 3), 0.5))
    assert low < 0.5 < high  # an interval even if all numbers are equal
    radii = [_radius_of_everything(ball, points, None) for ball in (Linf(1), L2(1), L1(1), L0(1))]
    np.testing.assert_allclose(radii, [40, 40 * np.sqrt(3), 120, 3])
    radii = [_radius_of_everything(ball, points, (-1.0, 1.0)) for ball in (Linf(1), L2(1), L1(1))]
    np.testing.assert_allclose(radii, [2, 2 * np.sqrt(3), 6])


def test_masked_gradients_are_reported(line, examples):
    result = evaluate(Rounded(line), examples)
    assert failed(result) == [
        "accuracy in a ball of all inputs",
        "missed by the white-box, found by the black-box attack",
        "gradients that are zero",
    ]
    assert all(MASKED in warning for warning in result.warnings)
    # the black-box attack still works
    assert abs(result.robust_accuracy - evaluate(line, examples).robust_accuracy) <= 0.1


def test_a_saturated_loss_is_reported(line, examples):
    """Logits a million times as large decide the same, but cross-entropy is flat in float32."""
    sharp = Linear(1e6 * line.W, 1e6 * line.b)
    cross_entropy_pgd = lambda ball, steps, restarts: PGD(
        untargeted(), ball, step_size=ball.radius, steps=steps, restarts=restarts, box=BOX
    )
    result = evaluate(sharp, examples, white_box=cross_entropy_pgd)
    assert "gradients that are zero" in failed(result)
    assert "missed by the white-box, found by the black-box attack" in failed(result)


def test_a_weak_attack_is_reported(line, examples):
    def weak(ball, steps, restarts):
        return PGD(
            untargeted(margin_loss),
            ball,
            step_size=ball.radius / 12,
            steps=steps,
            restarts=restarts,
            box=BOX,
        )

    result = evaluate(line, examples, ball=Linf(0.2), white_box=weak, key=jr.key(3))
    assert any("not strong enough" in warning for warning in result.warnings)


def test_an_attack_that_leaves_the_ball_is_reported_and_projected(line, examples):
    class Wild(eqx.Module):
        def __call__(self, model, x, y, *, key=None):
            return jnp.clip(x + 0.3 * jr.normal(key, x.shape), *BOX)

    result = evaluate(line, examples, white_box=lambda ball, steps, restarts: Wild())
    assert failed(result)[0] == "accuracy at radius 0"
    assert np.abs(np.asarray(result.worst_inputs - examples[0])).max() <= BALL.radius + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("ball", [Linf(0.05), L2(0.1), L1(0.15)], ids=["Linf", "L2", "L1"])
def test_default_attacks(line, examples, ball):
    """Without a box the closed form is that of the dual norm."""
    result = robustness(line, examples, ball, steps=10, n_check_examples=8, key=jr.key(0))
    xs, ys = (np.asarray(part) for part in examples)
    w = line.W[1] - line.W[0]
    assert (
        result.is_robust.tolist()
        == ((2 * ys - 1) * (xs @ np.asarray(w)) > ball.radius * float(ball.dual_norm(w))).tolist()
    )
    assert result.warnings == ()


@pytest.mark.slow
def test_never_above_any_attack_or_clean_accuracy(examples):
    model = MLP.init(D, 16, 2, key=jr.key(5))
    result = evaluate(model, examples, ball=Linf(0.15))
    for attack in (white_box(Linf(0.15), 3, 1), black_box(Linf(0.15))):
        xs = perturb(model, examples, attack, key=jr.key(1)).xs
        right = np.argmax(jax.vmap(model)(xs), axis=-1) == np.asarray(examples[1])
        assert result.robust_accuracy <= right.mean() + 1e-9
    assert result.robust_accuracy <= result.clean_accuracy


def test_bad_input(line, examples, unchecked):
    xs, ys = examples
    with pytest.raises(ValueError, match=r"robustness: expected a ball such as Linf\(0.1\)"):
        robustness(line, examples, 0.1, key=jr.key(0))
    with pytest.raises(
        ValueError, match="robustness: the model returns probabilities, but attacks need logits"
    ):
        evaluate(lambda x: jax.nn.softmax(line(x)), examples)
    with pytest.raises(
        ValueError, match="robustness: xs: images are floats; divide pixels by 255; got int32"
    ):
        evaluate(line, (jnp.ones((3, D), jnp.int32), ys[:3]))
    with pytest.raises(
        ValueError, match=r"robustness: expected inputs from 0.0 to 1.0, but they go from .* to 2"
    ):
        evaluate(line, (2 * xs / xs.max(), ys))
    with pytest.raises(
        ValueError, match="robustness: ys: expected labels from 0 to 1, but row 0 is 7"
    ):
        evaluate(line, (xs, ys.at[0].set(7)))
    with pytest.raises(
        ValueError, match="robustness: expected a y for each x, but there are 40 xs and 3 ys"
    ):
        evaluate(line, (xs, ys[:3]))
    with pytest.raises(
        ValueError, match=r"robustness: expected data as a pair \(xs, ys\), got a list"
    ):
        evaluate(line, [xs, ys])
    with pytest.raises(
        ValueError, match=r"robustness: box must be \(low, high\) .* got \(1.0, 0.0\)"
    ):
        evaluate(line, examples, box=(1.0, 0.0))
    with pytest.raises(
        ValueError, match="robustness: n_check_examples must be an integer >= 1; got 0"
    ):
        evaluate(line, examples, n_check_examples=0)
    with pytest.raises(ValueError, match="robustness: batch_size must be an integer >= 1; got 0"):
        evaluate(line, examples, batch_size=0)
    with pytest.raises(ValueError, match="returns NaN or infinite logits"):
        evaluate(Linear(line.W * jnp.nan, line.b), examples)
    with pytest.raises(ValueError, match=r"Linf: radius must be finite and >= 0; got -0\.1"):
        Linf(-0.1)
    with pytest.raises(
        ValueError,
        match=r"batch normalisation couples the examples of a batch. Fold it into the model",
    ):
        evaluate(Chain(BatchNorm.init(D), line), examples)


@pytest.mark.slow
def test_perturb(line, examples, unchecked):
    xs, ys = examples
    attack = auto_attack(Linf(0.1), steps=2, n_queries=5, box=BOX)
    one = perturb(line, (xs[:6], ys[:6]), attack, key=jr.key(0), batch_size=4).xs
    np.testing.assert_array_equal(
        one, perturb(line, (xs[:6], ys[:6]), attack, key=jr.key(0), batch_size=4).xs
    )
    keys = jr.split(jr.key(0), 6)
    far = lambda value, target: (value - target) ** 2
    moved = perturb(
        lambda x: x.sum(), (xs[:6], jnp.zeros(6)), PGD(far, L2(0.1), step_size=0.1, steps=1)
    ).xs  # of no classes
    np.testing.assert_allclose(moved, xs[:6] + 0.1 / D**0.5, rtol=1e-5)
    np.testing.assert_allclose(one[5], attack(line, xs[5], ys[5], key=keys[5]), atol=1e-6)
    with pytest.raises(ValueError, match="perturb: batch_size must be an integer >= 1; got 0"):
        perturb(line, (xs, ys), attack, key=jr.key(0), batch_size=0)
    with pytest.raises(ValueError, match="PGD: expected a label from 0 to 1, got 5"):
        white_box(Linf(0.1), 1, 1)(line, xs[0], jnp.array(5))


@pytest.mark.parametrize("goal", [None, targeted(margin_loss)], ids=["loss", "targeted"])
def test_success_and_distance(line, examples, goal):
    """Success is evaluated at the returned inputs; of a plain loss it is misclassification."""
    xs, ys = examples
    attack = PGD(goal or margin_loss, L2(0.2), step_size=0.1, steps=3, box=BOX)
    result = perturb(line, (xs, ys), attack, batch_size=16)
    predictions = np.argmax(jax.vmap(line)(result.xs), axis=-1)
    reached = predictions == ys if goal else predictions != ys
    assert result.success.tolist() == reached.tolist()
    assert 0 < reached.mean() < 1
    np.testing.assert_allclose(
        result.distance, np.linalg.norm(result.xs - xs, axis=1), rtol=1e-5, atol=1e-7
    )
    nan = perturb(lambda x: line(x) * jnp.nan, (xs[:2], ys[:2]), attack)
    assert not nan.success.any()


def test_another_radius_does_not_recompile(line, examples):
    xs, ys = examples
    seen = []

    def model(x):
        seen.append(x)
        return line(x)

    for radius in (0.1, 0.2, 0.3):
        perturb(model, (xs, ys), PGD(margin_loss, Linf(radius), step_size=radius / 2, steps=2))
        if radius == 0.1:
            traced = len(seen)
    assert len(seen) - traced == 2 * len(seen[:1])  # only the output shape is traced again


def test_successes_outside_the_ball_do_not_count(line, examples):
    """A minimum-norm attack is projected onto the ball."""
    result = evaluate(
        line, examples, black_box=lambda ball: HopSkipJump(L2, steps=2, n_queries=10, box=BOX)
    )
    assert result.robust_accuracy == evaluate(line, examples).robust_accuracy
    assert np.abs(np.asarray(result.worst_inputs - examples[0])).max() <= BALL.radius + 1e-6


@pytest.mark.slow
def test_l0_does_not_depend_on_the_scale(line, examples):
    xs, ys = examples
    still = lambda ball: PGD(untargeted(margin_loss), ball, step_size=0.0, steps=1)
    evaluate_scaled = lambda scale: robustness(
        lambda x: line(x / scale),
        (scale * xs, ys),
        L0(1),
        box=(0.0, scale),
        steps=4,
        black_box=still,
        n_check_examples=8,
        key=jr.key(0),
    )
    small = evaluate_scaled(1.0)
    large = evaluate_scaled(255.0)
    assert large.robust_accuracy == small.robust_accuracy < small.clean_accuracy


class SlowAttack(eqx.Module):
    """Does nothing before `needed` steps."""

    inner: PGD
    steps: int = eqx.field(static=True)
    needed: int = eqx.field(static=True)

    def __call__(self, model, x, y, *, key=None):
        return x if self.steps < self.needed else self.inner(model, x, y, key=key)


def test_an_attack_that_needs_more_steps_fails_its_check(line, examples):
    lazy = lambda ball, steps, restarts: SlowAttack(white_box(ball, 3, restarts), steps, 12)
    checks = {check.name: check for check in evaluate(line, examples, white_box=lazy).checks}
    more_steps = checks["accuracy after 4 times the steps"]
    assert not more_steps.passed
    assert more_steps.measured < 0.9
