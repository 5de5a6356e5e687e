r"""The worst of several attacks, for each example by itself.

An input is robust only if every attack fails on it, so what several attacks leave standing is what
all of them leave: the robust accuracy is that of the worst answer per example, not the least of
their robust accuracies.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ..core import Model, Scalar
from ..threat.ball import Ball, Linf, Shift, limits_of
from ..threat.inputs import Range, check_box, check_input
from ..train.objectives.loss import Loss
from .base import Attack, Candidate, clip_to_box
from .blackbox.square import Square
from .goal import Goal, as_goal, margin_loss, targeted_dlr_loss, untargeted
from .gradient.apgd import APGD


class AttackEnsemble(eqx.Module):
    r"""Runs every attack, each with a key of its own, and gives of their answers and x itself the
    worst: what reached the goal comes first, then what gained most. The goal is
    `untargeted(margin)` unless another is given.

    Answers outside of the ball or the box are projected into them, so that attacks that look for
    the nearest wrong input may take part. Answers that are not finite count for nothing.

    >>> from thetax.attack import PGD, fgsm
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> ball = Linf(0.1)
    >>> attack = AttackEnsemble(
    ...     ball, fgsm(margin_loss, Linf(0.05)), PGD(margin_loss, ball, step_size=0.05, steps=4)
    ... )
    >>> attack(line, jnp.array([0.5, 0.5]), jnp.array(0)).tolist()
    [0.6..., 0.4...]
    """

    ball: Ball
    attacks: tuple[Attack, ...]
    goal: Goal = eqx.field(static=True)
    box: Range | None = eqx.field(static=True)

    def __init__(
        self,
        ball: Ball,
        *attacks: Attack,
        goal: Goal | Loss | None = None,
        box: Range | None = None,
    ):
        if not attacks:
            raise ValueError("WorstOf: needs one attack or more; got none.")
        if box is not None:
            check_box("WorstOf", box)
        self.ball, self.attacks, self.goal, self.box = (
            ball,
            attacks,
            as_goal(goal or untargeted(margin_loss)),
            box,
        )

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("WorstOf", model, x, y, self.box)
        x = jnp.asarray(x)
        keys = [None] * len(self.attacks) if key is None else jr.split(key, len(self.attacks))
        found = [attack(model, x, y, key=key) for attack, key in zip(self.attacks, keys)]
        return worst(
            self.goal, model, jnp.stack([x, *(self._inside(x, point) for point in found)]), y
        )

    def _inside(self, x: Shift, point: Shift) -> Shift:
        eta = point - x
        near = clip_to_box(x, self.ball.project(eta, limits_of(x, self.box)), self.box)
        low, high = self.box or (-jnp.inf, jnp.inf)
        valid = (
            (self.ball.norm(eta) <= self.ball.radius) & (point >= low).all() & (point <= high).all()
        )
        return jnp.where(valid, point, jnp.where(jnp.isfinite(near).all(), near, x)).astype(x.dtype)


class MultiTargeted(eqx.Module):
    r"""An attack towards each of the `targets` likeliest wrong classes, or as many as there are;
    the worst answer.

    The attack is given a pair $(y, t)$ as its label, so its goal is that of `via_target`. Each run
    has a key of its own. Croce & Hein 2020.

    >>> from thetax.layers import Linear
    >>> plane = Linear(jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), jnp.array([2.0, 1.0, 0.0]))
    >>> attack = MultiTargeted(APGD(via_target(), Linf(1.0), steps=10), targets=2)
    >>> attack(plane, jnp.zeros(2), jnp.array(0)).tolist()[0]
    1.0
    """

    attack: Attack
    targets: int = eqx.field(static=True, kw_only=True, default=9)

    def __check_init__(self):
        if self.targets < 1:
            raise ValueError(f"Targeted: targets must be at least 1; got {self.targets}.")

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("Targeted", model, x, y, getattr(self.attack, "box", None))
        y = jnp.asarray(y)
        logits = model(x)
        chosen = _likeliest(logits, y, min(self.targets, len(logits) - 1))
        keys = None if key is None else jr.split(key, len(chosen))
        once = lambda now: self.attack(model, x, jnp.stack([y, now[0]]), key=now[1])
        return worst(untargeted(margin_loss), model, jax.lax.map(once, (chosen, keys)), y)


@cache
def via_target(loss: Callable[..., Scalar] = targeted_dlr_loss) -> Goal:
    """Away from y by way of a class t, with a loss of logits, y and t; the labels are pairs (y, t).

    >>> via_target().reached(jnp.array([1.0, 2.0]), jnp.array([0, 1])).item()
    True
    """
    return Goal(
        lambda logits, pair: loss(logits, *pair), lambda logits, pair: jnp.argmax(logits) != pair[0]
    )


def auto_attack(
    ball: Ball,
    *,
    steps: int = 100,
    restarts: int = 1,
    n_queries: int = 1000,
    targets: int = 9,
    box: Range | None = None,
) -> AttackEnsemble:
    """The ensemble to report robust accuracy with, without settings to be tuned, after AutoAttack
    (Croce & Hein 2020): `APGD` on cross-entropy, `APGD` towards each of the likeliest wrong classes
    on the ratio of logits, and in the ball of the maximum norm `Square`, which sees no gradients
    and so is not misled by them. It needs a key.

    Departs: AutoAttack has the attack FAB too, and asks Square 5,000 times.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> attack = auto_attack(Linf(0.1), steps=5, n_queries=20)
    >>> attack(line, jnp.array([0.5, 0.5]), jnp.array(0), key=jr.key(0)).tolist()
    [0.6..., 0.4...]
    """
    ascent = APGD(untargeted(), ball, steps=steps, restarts=restarts, box=box)
    aimed = MultiTargeted(
        APGD(via_target(), ball, steps=steps, restarts=restarts, box=box), targets=targets
    )
    blind = (
        [Square(untargeted(margin_loss), ball, n_queries=n_queries, box=box)]
        if isinstance(ball, Linf)
        else []
    )
    return AttackEnsemble(ball, ascent, aimed, *blind, box=box)


def worst(goal: Goal, model: Model, points: Float[Array, "n *s"], y: Any) -> Float[Array, "*s"]:
    """Of points along the first axis the one that reached the goal, or gained most."""

    def judged(point):
        out = model(point)
        return Candidate(point, goal.gain(out, y), goal.reached(out, y))

    return jax.vmap(judged)(points).best().eta


def _likeliest(logits: Float[Array, " k"], y: Shaped[Array, ""], count: int) -> Int[Array, " m"]:
    """The wrong classes of the largest logits."""
    others = jnp.where(jnp.arange(len(logits)) == y, -jnp.inf, logits)
    return jnp.argsort(-others)[:count].astype(y.dtype)
