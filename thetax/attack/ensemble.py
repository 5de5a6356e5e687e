r"""Ensembles of attacks: for each example, the worst result of several attacks.

An input is robust only if every attack fails on it. So robust accuracy is that of the worst result
for each example, not the smallest of the attacks' robust accuracies.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ..check import expect_count
from ..core import Model, Scalar
from ..serialise import recorded
from ..threat.ball import Ball, Linf, Perturbation, perturbation_bounds
from ..threat.inputs import Box, check_box, check_input
from ..train.objectives.loss import Loss
from .base import Attack, Candidate, clip_to_box
from .blackbox.square import Square
from .goal import Goal, as_goal, margin_loss, targeted_dlr_loss, untargeted
from .gradient.apgd import APGD


class AttackEnsemble(eqx.Module):
    r"""Runs several attacks and returns, for each example, the worst of their results and x itself:
    success comes first, then the largest gain. The goal is `untargeted(margin_loss)` unless another
    is given. With a key each attack gets a key of its own.

    Results outside the ball or the box are projected onto them, so minimum-norm attacks may take
    part. Results that are not finite are discarded.

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
    box: Box | None = eqx.field(static=True)

    def __init__(
        self,
        ball: Ball,
        *attacks: Attack,
        goal: Goal | Loss | None = None,
        box: Box | None = None,
    ):
        if not attacks:
            raise ValueError("AttackEnsemble: needs at least one attack; got none.")
        if box is not None:
            check_box("AttackEnsemble", box)
        self.ball, self.attacks, self.goal, self.box = (
            ball,
            attacks,
            as_goal(goal or untargeted(margin_loss)),
            box,
        )

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("AttackEnsemble", model, x, y, self.box)
        x = jnp.asarray(x)
        keys = [None] * len(self.attacks) if key is None else jr.split(key, len(self.attacks))
        points = [x]
        for attack, attack_key in zip(self.attacks, keys):
            points.append(self._project(x, attack(model, x, y, key=attack_key)))
        return worst_point(self.goal, model, jnp.stack(points), y)

    def _project(self, x: Perturbation, point: Perturbation) -> Perturbation:
        """`point` if it lies in ball and box, else its projection; x if that is not finite."""
        eta = point - x
        projected = clip_to_box(
            x, self.ball.project(eta, perturbation_bounds(x, self.box)), self.box
        )
        low, high = self.box or (-jnp.inf, jnp.inf)
        in_box = (point >= low).all() & (point <= high).all()
        valid = (self.ball.norm(eta) <= self.ball.radius) & in_box
        fallback = jnp.where(jnp.isfinite(projected).all(), projected, x)
        return jnp.where(valid, point, fallback).astype(x.dtype)


class MultiTargeted(eqx.Module):
    r"""Runs an attack towards each of the `targets` most likely wrong classes (or all, if there are
    fewer) and returns the worst result (Croce & Hein 2020).

    The attack gets a pair $(y, t)$ as its label, so its goal must be `via_target(loss)`. With a key
    each run gets a key of its own.

    >>> from thetax.layers import Linear
    >>> plane = Linear(jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), jnp.array([2.0, 1.0, 0.0]))
    >>> attack = MultiTargeted(APGD(via_target(), Linf(1.0), steps=10), targets=2)
    >>> attack(plane, jnp.zeros(2), jnp.array(0)).tolist()[0]
    1.0
    """

    attack: Attack
    targets: int = eqx.field(static=True, kw_only=True, default=9)

    def __check_init__(self):
        expect_count("MultiTargeted", targets=self.targets)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("MultiTargeted", model, x, y, getattr(self.attack, "box", None))
        y = jnp.asarray(y)
        logits = model(x)
        targets = _likeliest_wrong(logits, y, min(self.targets, len(logits) - 1))
        keys = None if key is None else jr.split(key, len(targets))

        def run(target_and_key):
            target, key = target_and_key
            return self.attack(model, x, jnp.stack([y, target]), key=key)

        points = jax.lax.map(run, (targets, keys))
        return worst_point(untargeted(margin_loss), model, points, y)


@cache
@recorded
def via_target(loss: Callable[..., Scalar] = targeted_dlr_loss) -> Goal:
    """Untargeted goal with a targeted loss: any class but y, by maximising `loss(logits, y, t)` of
    a target t. Labels are pairs (y, t).

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
    box: Box | None = None,
) -> AttackEnsemble:
    """AutoAttack-style ensemble to report robust accuracy with, without settings to tune (Croce &
    Hein 2020): `APGD` on cross-entropy, targeted `APGD` on the DLR loss (`targeted_dlr_loss`), and
    in `Linf` balls the black-box attack `Square`, which hidden gradients cannot mislead. It needs a
    key.

    Departs: AutoAttack also has the attack FAB, and gives Square 5,000 queries.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> attack = auto_attack(Linf(0.1), steps=5, n_queries=20)
    >>> attack(line, jnp.array([0.5, 0.5]), jnp.array(0), key=jr.key(0)).tolist()
    [0.6..., 0.4...]
    """
    apgd = APGD(untargeted(), ball, steps=steps, restarts=restarts, box=box)
    targeted_apgd = MultiTargeted(
        APGD(via_target(), ball, steps=steps, restarts=restarts, box=box), targets=targets
    )
    black_box = (
        [Square(untargeted(margin_loss), ball, n_queries=n_queries, box=box)]
        if isinstance(ball, Linf)
        else []
    )
    return AttackEnsemble(ball, apgd, targeted_apgd, *black_box, box=box)


def worst_point(
    goal: Goal, model: Model, points: Float[Array, "n *s"], y: Any
) -> Float[Array, "*s"]:
    """Of points along the first axis, one that reaches the goal, or else that of largest gain."""

    def evaluate(point):
        logits = model(point)
        return Candidate(point, goal.gain(logits, y), goal.success(logits, y))

    return jax.vmap(evaluate)(points).best().eta


def _likeliest_wrong(logits: Float[Array, " k"], y: Shaped[Array, ""], n: int) -> Int[Array, " m"]:
    """The n wrong classes with the largest logits."""
    others = jnp.where(jnp.arange(len(logits)) == y, -jnp.inf, logits)
    return jnp.argsort(-others)[:n].astype(y.dtype)
