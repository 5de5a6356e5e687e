r"""Robust accuracy, with sanity checks of the evaluation itself: an attack that fails proves
nothing unless it is known that it can succeed.

Many published defences were broken because the attacks they were evaluated with could not work: the
gradients were zero, or the loss saturated, or the radius was wrong. So every evaluation is checked
on some of the examples. A radius of 0 must change nothing; a ball that holds every valid input must
leave no example correct; more steps or restarts must not help the defender, nor help the attacker
much; a black-box attack must not succeed where the white-box attacks fail; and the gradients must
not be zero. Failed checks are reported with the result. (Athalye, Carlini & Wagner 2018; Carlini et
al. 2019)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..check import expect_count
from ..core import Model, predict
from ..threat.ball import L0, L1, L2, Ball, Linf, check_ball
from ..threat.inputs import Box, check_attack_data, check_box, check_input
from ..train.objectives.loss import log_loss
from .base import Attack
from .blackbox.hop_skip_jump import HopSkipJump
from .blackbox.square import Square
from .ensemble import AttackEnsemble, MultiTargeted, via_target
from .goal import margin_loss, untargeted
from .gradient.apgd import APGD
from .gradient.pgd import PGD
from .perturb import perturb

MASKED = "gradient masking suspected"
MAX_DIFFERENCE = 0.01  # fraction of the examples on which equally strong attacks may differ


class SanityCheck(NamedTuple):
    """One check of the evaluation: the measured share of examples, what is expected, and what a
    failure means.
    """

    name: str
    measured: float
    expected: str
    passed: bool
    warning: str

    def __str__(self) -> str:
        line = f"{self.name}: {self.measured:.1%}, expected {self.expected}"
        return line if self.passed else f"{line}. WARNING: {self.warning}"


@dataclass(frozen=True)
class Robustness:
    """Robust accuracy, and the sanity checks that say whether it can be trusted."""

    robust_accuracy: float  # fraction of examples that no attack got misclassified
    clean_accuracy: float  # accuracy without an attack
    is_robust: Bool[np.ndarray, " n"]  # for each example, whether all attacks failed
    worst_inputs: Float[Array, "n *s"]  # the worst inputs found
    checks: tuple[SanityCheck, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The checks that failed, as text."""
        return tuple(str(check) for check in self.checks if not check.passed)

    def __str__(self) -> str:
        accuracies = (
            f"clean {self.clean_accuracy:.1%}, robust {self.robust_accuracy:.1%} of "
            f"{len(self.is_robust):,}"
        )
        return "\n".join([accuracies, *map(str, self.checks)])


WhiteBox = Callable[[Ball, int, int], Attack]  # makes an attack from ball, steps and restarts
BlackBox = Callable[[Ball], Attack]


def robustness(
    model: Model,
    data: tuple[Any, Any],
    ball: Ball,
    *,
    box: Box | None = None,
    steps: int = 50,
    restarts: int = 1,
    white_box: WhiteBox | None = None,
    black_box: BlackBox | None = None,
    n_check_examples: int = 128,
    batch_size: int = 64,
    key: PRNGKeyArray,
) -> Robustness:
    r"""Robust accuracy of a classifier on `(xs, ys)` in a ball around every example, with sanity
    checks.

    The default white-box attacks are `APGD` on cross-entropy and `APGD` targeted at each likely
    class (`PGD` in `L1` and `L0` balls). The default black-box attack is `Square` in `Linf` balls
    and `HopSkipJump` in all others. `white_box` and `black_box` make others. The sanity checks use
    the first `n_check_examples`; `batch_size` examples are attacked at once. The model must return
    logits, and take inputs as they are: include any normalisation in it, for instance
    `Chain(Affine(...), model)`.

    >>> import jax.random as jr
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.zeros(2))
    >>> data = jnp.array([[0.9, 0.1], [0.5, 0.4]]), jnp.zeros(2, int)
    >>> result = robustness(line, data, Linf(0.1), box=(0.0, 1.0), steps=5, key=jr.key(0))
    >>> result.clean_accuracy, result.robust_accuracy, result.warnings
    (1.0, 0.5, ())
    """
    check_ball("robustness", ball)
    xs, ys = check_attack_data("robustness", None, model, data)
    if box is not None:
        check_box("robustness", box)
        check_input("robustness", model, xs, jnp.zeros(0), box)
    expect_count("robustness", n_check_examples=n_check_examples, batch_size=batch_size)
    check_logits("robustness", model, xs[:n_check_examples])
    make_white_box = white_box or partial(_default_white_box, box=box, value_range=_value_range(xs))
    make_black_box = black_box or partial(_default_black_box, box=box, value_range=_value_range(xs))
    white = _projected(make_white_box, box)
    black = _projected(make_black_box, box)

    evaluator = Evaluator(model, min(batch_size, len(xs)), key)
    check_evaluator = evaluator._replace(batch_size=min(batch_size, n_check_examples, len(xs)))
    is_right = evaluator.is_right(xs, ys)
    after_white = evaluator.attack(white(ball, steps, restarts), xs, ys, is_right)
    black_only = check_evaluator.attack(black(ball), xs, ys, is_right[:n_check_examples])
    checks = _sanity_checks(
        check_evaluator,
        xs[:n_check_examples],
        ys[:n_check_examples],
        ball,
        box,
        steps=steps,
        restarts=restarts,
        make_white_box=make_white_box,
        white=white,
        after_white=after_white,
        after_black=black_only,
    )
    # the black-box attack runs on what the white-box attacks left
    after_both = evaluator.attack(
        black(ball), xs, ys, after_white.is_robust, after_white.worst_inputs
    )
    return Robustness(
        float(after_both.is_robust.mean()),
        float(is_right.mean()),
        after_both.is_robust,
        after_both.worst_inputs,
        checks,
    )


def check_logits(name: str, model: Model, xs: Array) -> None:
    """Raises `ValueError` if the model returns probabilities, whose gradients vanish where it is
    confident, instead of logits.

    >>> check_logits("robustness", jax.nn.softmax, jnp.ones((2, 3)))
    Traceback (most recent call last):
    ValueError: robustness: the model returns probabilities, but attacks need logits. Leave out ...
    lambda x: jnp.log(model(x)).
    """
    out = np.asarray(_predict(model, xs))
    if out.ndim != 2:
        raise ValueError(
            f"{name}: expected k logits per example, got outputs of shape {out.shape[1:]}."
        )
    if not np.isfinite(out).all():
        index = int(np.argmin(np.isfinite(out).all(axis=1)))
        raise ValueError(
            f"{name}: the model returns NaN or infinite logits, first for row {index} of the "
            "inputs. Check its weights, and the range of the inputs."
        )
    if (out >= 0).all() and np.abs(out.sum(axis=1) - 1).max() < 1e-3:
        raise ValueError(
            f"{name}: the model returns probabilities, but attacks need logits. Leave out its "
            "softmax, or wrap it:\nlambda x: jnp.log(model(x))."
        )


class AttackOutcome(NamedTuple):
    """Which examples an attack left correctly classified, and the worst inputs so far."""

    is_robust: Bool[np.ndarray, " n"]
    worst_inputs: Array


class Evaluator(NamedTuple):
    """Runs attacks on those examples that are still classified correctly."""

    model: Model
    batch_size: int
    key: PRNGKeyArray

    def is_right(self, xs: Array, ys: Array) -> Bool[np.ndarray, " n"]:
        return np.argmax(np.asarray(_predict(self.model, xs)), axis=-1) == np.asarray(ys)

    def attack(
        self,
        attack: Attack,
        xs: Array,
        ys: Array,
        is_robust: Bool[np.ndarray, " m"],
        worst_inputs: Any = None,
    ) -> AttackOutcome:
        """Attacks the first m examples, those of them that `is_robust` marks."""
        xs = xs[: len(is_robust)]
        ys = ys[: len(is_robust)]
        is_robust = is_robust.copy()
        worst_inputs = np.array(xs if worst_inputs is None else worst_inputs)
        for member in _members(attack):
            rows = np.flatnonzero(is_robust)
            if not len(rows):
                break
            # repeat rows up to a multiple of the batch size: one shape, so one compiled program
            padded = np.resize(rows, -(-len(rows) // self.batch_size) * self.batch_size)
            # robust accuracy is about misclassification, whatever the attack's own goal is
            result = perturb(
                self.model,
                (xs[padded], ys[padded]),
                member,
                goal=untargeted(),
                batch_size=self.batch_size,
                key=self.key,
            )
            worst_inputs[rows] = result.xs[: len(rows)]
            is_robust[rows] = ~result.success[: len(rows)]
        return AttackOutcome(is_robust, jnp.asarray(worst_inputs))


def _members(attack: Attack) -> Sequence[Attack]:
    """The attacks of an ensemble, run one by one so that each sees only the examples that the
    others left. Attacks that may leave ball or box are wrapped, so that they are projected.
    """
    if not isinstance(attack, AttackEnsemble):
        return [attack]
    members = []
    for member in attack.attacks:
        stays_inside = isinstance(member, PGD | APGD | Square) and (member.ball, member.box) == (
            attack.ball,
            attack.box,
        )
        alone = AttackEnsemble(attack.ball, member, goal=attack.goal, box=attack.box)
        members.append(member if stays_inside else alone)
    return members


def _projected(make_attack: Callable[..., Attack], box: Box | None) -> Callable[..., Attack]:
    """Wraps what `make_attack` returns, so that its results are projected onto ball and box."""

    def make(ball: Ball, *effort: int) -> Attack:
        attack = make_attack(ball, *effort)
        if isinstance(attack, AttackEnsemble) and (attack.ball, attack.box) == (ball, box):
            return attack
        return AttackEnsemble(ball, attack, box=box)

    return make


def _sanity_checks(
    evaluator: Evaluator,
    xs: Array,
    ys: Array,
    ball: Ball,
    box: Box | None,
    *,
    steps: int,
    restarts: int,
    make_white_box: WhiteBox,
    white: WhiteBox,
    after_white: AttackOutcome,
    after_black: AttackOutcome,
) -> tuple[SanityCheck, ...]:
    is_right = evaluator.is_right(xs, ys)
    is_robust = after_white.is_robust[: len(xs)]
    accuracy_under = lambda attack: float(
        evaluator.attack(attack, xs, ys, is_right).is_robust.mean()
    )
    tolerance = max(MAX_DIFFERENCE, 1.5 / len(xs))

    # not projected, so that an attack which leaves the ball is noticed
    at_zero = accuracy_under(make_white_box(_with_radius(ball, 0.0), steps, restarts))
    everywhere = _with_radius(ball, _radius_of_everything(ball, xs, box))
    in_everything = accuracy_under(white(everywhere, steps, restarts))
    more_steps = accuracy_under(white(ball, 4 * steps, restarts))
    more_restarts = accuracy_under(white(ball, steps, restarts + 3))
    clean = float(is_right.mean())
    robust = float(is_robust.mean())
    missed = float((is_robust & ~after_black.is_robust).mean())
    zero_gradients = float(_has_zero_gradient(evaluator.model, xs, ys).mean())
    return (
        SanityCheck(
            "accuracy at radius 0",
            at_zero,
            f"{clean:.1%} as without an attack",
            at_zero == clean,
            "the attack changes inputs at radius 0, or evaluates another model",
        ),
        SanityCheck(
            "accuracy in a ball of all inputs",
            in_everything,
            "0 %",
            in_everything == 0,
            f"{MASKED}: the attack cannot succeed",
        ),
        SanityCheck(
            "accuracy after 4 times the steps",
            more_steps,
            f"near {robust:.1%}",
            abs(more_steps - robust) <= 2 * tolerance,
            _effort_warning(more_steps, robust),
        ),
        SanityCheck(
            "accuracy after 3 more restarts",
            more_restarts,
            f"near {robust:.1%}",
            abs(more_restarts - robust) <= 2 * tolerance,
            _effort_warning(more_restarts, robust),
        ),
        SanityCheck(
            "missed by the white-box, found by the black-box attack",
            missed,
            "none",
            missed <= tolerance,
            MASKED,
        ),
        SanityCheck(
            "gradients that are zero", zero_gradients, "none", zero_gradients <= tolerance, MASKED
        ),
    )


def _effort_warning(with_more: float, accuracy: float) -> str:
    """What it means that more steps or restarts change the robust accuracy."""
    if with_more > accuracy:
        return "more effort helped the defender; the attack does not keep its best point"
    return "the attack was not strong enough; use more steps and restarts"


@eqx.filter_jit
def _predict(model, xs):
    return predict(model, xs)


@eqx.filter_jit
def _has_zero_gradient(model, xs, ys):
    """For each example, whether the gradient of the loss in the input is zero or NaN."""

    def is_zero(x, y):
        gradient = jax.grad(lambda x: log_loss(model(x), y))(x)
        return ~(jnp.abs(gradient) > 0).any() | jnp.isnan(gradient).any()

    return jax.vmap(is_zero)(xs, ys)


def _with_radius(ball: Ball, radius: float) -> Ball:
    return eqx.tree_at(lambda ball: ball.radius, ball, float(radius))


def _radius_of_everything(ball: Ball, xs: Array, box: Box | None) -> float:
    """The radius of a ball around any input that holds all valid inputs; without a box, ten times
    the range of the data.
    """
    width = box[1] - box[0] if box is not None else 10 * float(xs.max() - xs.min())
    d = xs[0].size
    return {Linf: width, L2: width * d**0.5, L1: width * d, L0: float(d)}[type(ball)]


def _default_white_box(
    ball: Ball, steps: int, restarts: int, *, box: Box | None, value_range: Box
) -> Attack:
    if isinstance(ball, Linf | L2):
        apgd = APGD(untargeted(), ball, steps=steps, restarts=restarts, box=box)
        targeted_apgd = APGD(via_target(), ball, steps=steps, restarts=restarts, box=box)
        return AttackEnsemble(ball, apgd, MultiTargeted(targeted_apgd), box=box)
    low, high = box or value_range
    # in L0 balls a step may move a component through its whole range
    step_size = 2.5 * ball.radius / steps if isinstance(ball, L1) else high - low
    goals = untargeted(), untargeted(margin_loss)
    attacks = [
        PGD(goal, ball, step_size=step_size, steps=steps, restarts=restarts, box=box)
        for goal in goals
    ]
    return AttackEnsemble(ball, *attacks, box=box)


def _default_black_box(ball: Ball, *, box: Box | None, value_range: Box) -> Attack:
    if isinstance(ball, Linf):
        return Square(untargeted(margin_loss), ball, n_queries=1000, box=box)
    return AttackEnsemble(ball, HopSkipJump(L2, steps=10, box=box or value_range), box=box)


def _value_range(xs: Array) -> Box:
    """The range of the data, extended by its length on either side."""
    low = float(xs.min())
    high = float(xs.max())
    return 2 * low - high - 1e-6, 2 * high - low + 1e-6
