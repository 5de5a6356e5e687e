r"""Robust accuracy that can be believed: an attack that fails proves nothing, unless it is known
that it can succeed.

Many defences were broken because the attacks that they were tried with could not have worked: the
gradients were zero, or the loss saturated, or the radius was off. Every evaluation here is tried
itself, on some of the examples: a radius of 0 must change nothing; a ball that holds every valid
input must leave nothing right; more steps and restarts must not help the defender, and not much the
attacker; an attack that sees no gradients must not find what one that sees them misses; and
gradients must be there. What fails is said with the result. (Athalye, Carlini & Wagner 2018;
Carlini et al. 2019)
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

from ..core import Model, predict
from ..threat.ball import L0, L1, L2, Ball, Linf
from ..threat.inputs import Range, check_attacked, check_box, check_input
from ..train.objectives.loss import log_loss
from .base import Attack
from .blackbox.hop_skip_jump import HopSkipJump
from .blackbox.square import Square
from .goal import margin_loss, untargeted
from .gradient.apgd import APGD
from .gradient.pgd import PGD
from .perturb import perturb
from .worst_of import AttackEnsemble, MultiTargeted, via_target

MASKED = "gradient masking suspected"
SLACK = 0.01  # of the examples may be found by one attack and missed by another that is as strong


class SanityCheck(NamedTuple):
    """A trial of the evaluation itself: what was measured, what it must be, and what it means if it
    is not.
    """

    name: str
    found: float
    wanted: str
    holds: bool
    warning: str

    def __str__(self) -> str:
        line = f"{self.name}: {self.found:.1%}, wanted {self.wanted}"
        return line if self.holds else f"{line}. WARNING: {self.warning}"


@dataclass(frozen=True)
class Robustness:
    """The share of the examples that no attack made wrong, and whether that can be believed."""

    robust: float
    clean: float  # the share that is right without any attack
    stands: Bool[np.ndarray, " n"]  # which examples no attack made wrong
    worst: Float[Array, "n *s"]  # the worst inputs that were found
    checks: tuple[SanityCheck, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What failed, in words."""
        return tuple(str(check) for check in self.checks if not check.holds)

    def __str__(self) -> str:
        n = len(self.stands)
        return "\n".join(
            [f"clean {self.clean:.1%}, robust {self.robust:.1%} of {n:,}", *map(str, self.checks)]
        )


White = Callable[[Ball, int, int], Attack]  # of a ball, steps and restarts
Black = Callable[[Ball], Attack]


def robustness(
    model: Model,
    data: tuple[Any, Any],
    ball: Ball,
    *,
    box: Range | None = None,
    steps: int = 50,
    restarts: int = 1,
    white: White | None = None,
    black: Black | None = None,
    trial: int = 128,
    batch: int = 64,
    key: PRNGKeyArray,
) -> Robustness:
    r"""The accuracy on `(xs, ys)` that is left in a ball around every example, and whether that can
    be believed.

    By default the gradient is followed by `APGD` on cross-entropy and towards each likely class
    (`PGD` in `L1` and `L0`), and not seen by `Square` in `Linf`, `HopSkipJump` in `L2` with a box;
    `white` and `black` give others. The evaluation is tried on the first `trial` examples; `batch`
    are attacked at once. The model gives logits, and takes inputs as they are: whatever scales them
    is part of it, for instance `Chain(Affine(...), model)`.

    >>> import jax.random as jr
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.zeros(2))
    >>> data = jnp.array([[0.9, 0.1], [0.5, 0.4]]), jnp.zeros(2, int)
    >>> found = robustness(line, data, Linf(0.1), box=(0.0, 1.0), steps=5, key=jr.key(0))
    >>> found.clean, found.robust, found.warnings
    (1.0, 0.5, ())
    """
    xs, ys = check_attacked("robustness", None, model, data)
    if box is not None:
        check_box("robustness", box)
        check_input("robustness", model, xs, jnp.zeros(0), box)
    if trial < 1:
        raise ValueError(f"robustness: trial must be at least 1 example; got {trial}.")
    check_logits("robustness", model, xs[:trial])
    if batch < 1:
        raise ValueError(f"robustness: batch must be at least 1; got {batch}.")
    white = white or partial(_white, box=box, span=_span(xs))
    black = black or partial(_black, box=box, span=_span(xs))
    free = white
    white = _kept(white, box)
    black = _kept(black, box)
    judge = Judge(model, min(batch, len(xs)), key)
    tried = judge._replace(batch=min(batch, trial, len(xs)))
    right = judge.right(xs, ys)
    seen = judge.stand(white(ball, steps, restarts), xs, ys, right)
    blind = tried.stand(black(ball), xs, ys, right[:trial])
    checks = _checks(
        tried, xs[:trial], ys[:trial], ball, box, steps, restarts, free, white, seen, blind
    )
    both = judge.stand(black(ball), xs, ys, seen.stands, seen.worst)
    return Robustness(
        float(both.stands.mean()), float(right.mean()), both.stands, both.worst, checks
    )


def check_logits(name: str, model: Model, xs: Array) -> None:
    """Refuses a model that gives probabilities, whose gradients fade where it is sure.

    >>> check_logits("robustness", jax.nn.softmax, jnp.ones((2, 3)))
    Traceback (most recent call last):
    ValueError: robustness: the model gives probabilities, and attacks need logits; leave out ...
    lambda x: jnp.log(model(x)).
    """
    out = np.asarray(_predict(model, xs))
    if out.ndim != 2:
        raise ValueError(
            f"{name}: expected k logits an example, got outputs of shape {out.shape[1:]}."
        )
    if not np.isfinite(out).all():
        raise ValueError(f"{name}: the model gives numbers that are not finite.")
    if (out >= 0).all() and np.abs(out.sum(axis=1) - 1).max() < 1e-3:
        raise ValueError(
            f"{name}: the model gives probabilities, and attacks need logits; leave out its "
            "softmax, or wrap it:\nlambda x: jnp.log(model(x))."
        )


class Stand(NamedTuple):
    """Which examples an attack left right, and the inputs that it found for the others."""

    stands: Bool[np.ndarray, " n"]
    worst: Array


class Judge(NamedTuple):
    """Runs attacks on the examples that are still right; nothing can make the others any worse."""

    model: Model
    batch: int
    key: PRNGKeyArray

    def right(self, xs: Array, ys: Array) -> Bool[np.ndarray, " n"]:
        return np.argmax(np.asarray(_predict(self.model, xs)), axis=-1) == np.asarray(ys)

    def stand(
        self, attack: Attack, xs: Array, ys: Array, still: Bool[np.ndarray, " m"], worst: Any = None
    ) -> Stand:
        """Of the first examples, those that were right before and withstand the attack too."""
        xs = xs[: len(still)]
        ys = ys[: len(still)]
        still = still.copy()
        worst = np.array(xs if worst is None else worst)
        for member in _members(attack):
            rows = np.flatnonzero(still)
            if not len(rows):
                break
            whole = np.resize(
                rows, -(-len(rows) // self.batch) * self.batch
            )  # blocks of one size are one program
            found = perturb(
                member, self.model, (xs[whole], ys[whole]), key=self.key, batch=self.batch
            )[: len(rows)]
            worst[rows], still[rows] = found, self.right(found, ys[rows])
        return Stand(still, jnp.asarray(worst))


def _members(attack: Attack) -> Sequence[Attack]:
    """The attacks of an ensemble, each kept to its ball if it does not keep to it by itself."""
    if not isinstance(attack, AttackEnsemble):
        return [attack]
    by_itself = PGD | APGD | Square
    kept = lambda member: (
        isinstance(member, by_itself) and (member.ball, member.box) == (attack.ball, attack.box)
    )
    alone = lambda member: AttackEnsemble(attack.ball, member, goal=attack.goal, box=attack.box)
    return [member if kept(member) else alone(member) for member in attack.attacks]


def _kept(attacks: Callable[..., Attack], box: Range | None) -> Callable[..., Attack]:
    """What the attacks in a ball find in it and in the box, whatever they would find elsewhere."""

    def inside(ball: Ball, *effort: int) -> Attack:
        attack = attacks(ball, *effort)
        known = isinstance(attack, AttackEnsemble) and (attack.ball, attack.box) == (ball, box)
        return attack if known else AttackEnsemble(ball, attack, box=box)

    return inside


def _checks(
    judge, xs, ys, ball, box, steps, restarts, free, white, seen, blind
) -> tuple[SanityCheck, ...]:
    right = judge.right(xs, ys)
    stands = seen.stands[: len(xs)]
    share = lambda attack: float(judge.stand(attack, xs, ys, right).stands.mean())
    slack = max(SLACK, 1.5 / len(xs))
    nothing = share(
        free(_of_radius(ball, 0.0), steps, restarts)
    )  # not cut back, so that it would show
    whole = share(white(_of_radius(ball, _everything(ball, xs, box)), steps, restarts))
    more = share(white(ball, 4 * steps, restarts))
    again = share(white(ball, steps, restarts + 3))
    plain = float(right.mean())
    found = float(stands.mean())
    missed = float((stands & ~blind.stands).mean())
    flat = float(_flat(judge.model, xs, ys).mean())
    return (
        SanityCheck(
            "right at radius 0",
            nothing,
            f"{plain:.1%} as without an attack",
            nothing == plain,
            _OFF,
        ),
        SanityCheck(
            "right in a ball of everything",
            whole,
            "0 %",
            whole == 0,
            f"{MASKED}: the attack cannot succeed",
        ),
        SanityCheck(
            "right after 4 times the steps",
            more,
            f"near {found:.1%}",
            abs(more - found) <= 2 * slack,
            _more(more, found),
        ),
        SanityCheck(
            "right after 3 more restarts",
            again,
            f"near {found:.1%}",
            abs(again - found) <= 2 * slack,
            _more(again, found),
        ),
        SanityCheck("missed, but found without gradients", missed, "none", missed <= slack, MASKED),
        SanityCheck("gradients that are zero", flat, "none", flat <= slack, MASKED),
    )


_OFF = "the attack moves what it must not, or the model is not the one that was judged"


def _more(more: float, found: float) -> str:
    """What it means that more effort changes the result."""
    if more > found:
        return "more effort helped the defender; the attack is no search for the worst"
    return "the attack was not strong enough; give it more steps and restarts"


@eqx.filter_jit
def _predict(model, xs):
    return predict(model, xs)


@eqx.filter_jit
def _flat(model, xs, ys):
    """Whether no number of the input changes the loss, or nobody can say."""
    slope = lambda x, y: jax.grad(lambda x: log_loss(model(x), y))(x)
    flat = lambda slope: ~(jnp.abs(slope) > 0).any() | jnp.isnan(slope).any()
    return jax.vmap(lambda x, y: flat(slope(x, y)))(xs, ys)


def _of_radius(ball: Ball, radius: float) -> Ball:
    return eqx.tree_at(lambda ball: ball.radius, ball, float(radius))


def _everything(ball: Ball, xs: Array, box: Range | None) -> float:
    """The radius of a ball around any input that holds all valid ones; without a range, ten times
    the data's.
    """
    width = box[1] - box[0] if box is not None else 10 * float(xs.max() - xs.min())
    d = xs[0].size
    return {Linf: width, L2: width * d**0.5, L1: width * d, L0: float(d)}[type(ball)]


def _white(ball: Ball, steps: int, restarts: int, *, box: Range | None, span: Range) -> Attack:
    if isinstance(ball, Linf | L2):
        ascent = APGD(untargeted(), ball, steps=steps, restarts=restarts, box=box)
        return AttackEnsemble(
            ball,
            ascent,
            MultiTargeted(APGD(via_target(), ball, steps=steps, restarts=restarts, box=box)),
            box=box,
        )
    low, high = box or span
    rate = (
        2.5 * ball.radius / steps if isinstance(ball, L1) else high - low
    )  # a number is moved all the way
    losses = (untargeted(), untargeted(margin_loss))
    return AttackEnsemble(
        ball,
        *(
            PGD(loss, ball, step_size=rate, steps=steps, restarts=restarts, box=box)
            for loss in losses
        ),
        box=box,
    )


def _black(ball: Ball, *, box: Range | None, span: Range) -> Attack:
    if isinstance(ball, Linf):
        return Square(untargeted(margin_loss), ball, n_queries=1000, box=box)
    return AttackEnsemble(ball, HopSkipJump(L2, steps=10, box=box or span), box=box)


def _span(xs: Array) -> Range:
    """What the data span, and as much again on either side."""
    low = float(xs.min())
    high = float(xs.max())
    return 2 * low - high - 1e-6, 2 * high - low + 1e-6
