r"""Goals of attacks (§13.1): what an attack maximises, and when it has succeeded. An untargeted
attack aims at any wrong class, a targeted one at a given class.

A loss takes logits $z$ and a label. Cross-entropy saturates where a network is confident, and then
its gradient vanishes; the margin $\max_{j \ne y} z_j - z_y$ does not. The DLR loss, a ratio of
logit differences, is also invariant under scaling of all logits, which can hide gradients but
changes no decision.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..core import Model, Scalar
from ..serialise import recorded
from ..threat.ball import Perturbation
from ..train.objectives.loss import Loss, log_loss
from .base import Candidate

Logits = Float[Array, " k"]
Label = Int[Array, ""]


@dataclass(frozen=True)
class Goal:
    """The goal of an attack: `gain(logits, y)` is maximised, and `reached(logits, y)` says whether
    the attack has succeeded and may stop.

    `untargeted(loss)` and `targeted(loss)` make goals that stop at success. A plain loss in place
    of a goal is `maximise_loss(loss)`, which is never reached: the attack always runs all its
    steps, which can cost many times as much.
    """

    gain: Loss
    reached: Loss

    def success(self, logits: Any, y: Any) -> Any:
        """Whether the goal is reached; NaN logits never count as success."""
        return self.reached(logits, y) & ~jnp.isnan(logits).any()

    def evaluate(self, model: Model, x: Any, eta: Perturbation, y: Any) -> Candidate:
        """Evaluates the model at x + eta. NaN logits never count as success."""
        logits = model(x + eta)
        return Candidate(eta, self.gain(logits, y).astype(eta.dtype), self.success(logits, y))


def as_goal(goal: Goal | Loss) -> Goal:
    """Turns a plain loss into a goal that is never reached."""
    return goal if isinstance(goal, Goal) else maximise_loss(goal)


@cache
@recorded
def untargeted(loss: Loss = log_loss) -> Goal:
    """Untargeted goal: any class but `y`, by maximising a loss. Attacks stop as soon as the
    predicted class differs from `y`.

    >>> untargeted().reached(jnp.array([1.0, 2.0]), jnp.array(0)).item()
    True
    """
    return Goal(loss, lambda logits, y: jnp.argmax(logits) != y)


@cache
@recorded
def targeted(loss: Loss = log_loss) -> Goal:
    """Targeted goal: `y` is the class to reach, whatever the true class is, by minimising a loss.

    >>> targeted().reached(jnp.array([1.0, 2.0]), jnp.array(1)).item()
    True
    """
    return Goal(lambda logits, y: -loss(logits, y), lambda logits, y: jnp.argmax(logits) == y)


@cache
@recorded
def maximise_loss(loss: Loss) -> Goal:
    """Maximises the loss and never stops early, as adversarial training needs; never reached.

    >>> maximise_loss(log_loss).reached(jnp.array([1.0, 2.0]), jnp.array(0)).item()
    False
    """
    return Goal(loss, lambda logits, y: jnp.zeros((), bool))


def margin_loss(logits: Logits, y: Label) -> Scalar:
    r"""$\max_{j \ne y} z_j - z_y$: positive if and only if the predicted class is wrong (Carlini &
    Wagner 2017).

    >>> margin_loss(jnp.array([3.0, 1.0, 2.5]), jnp.array(0)).item()
    -0.5
    """
    true_class = _is_class(logits, y)
    largest_other = jnp.where(true_class, -jnp.inf, logits).max()
    return largest_other - jnp.where(true_class, logits, 0).sum()


def dlr_loss(logits: Logits, y: Label) -> Scalar:
    r"""Difference-of-logits ratio, $(\max_{j \ne y} z_j - z_y) / (z_{(1)} - z_{(3)})$ with the
    largest and the third largest logit: invariant under scaling and shifting of all logits (Croce &
    Hein 2020, DLR). It needs at least three classes.

    >>> a = dlr_loss(jnp.array([3.0, 1.0, 2.5]), jnp.array(0))
    >>> a.item(), dlr_loss(jnp.array([300.0, 100.0, 250.0]), jnp.array(0)).item()
    (-0.25, -0.25)
    """
    if logits.shape[-1] < 3:
        raise ValueError(
            f"dlr_loss: needs at least three classes, got {logits.shape[-1]}; use margin_loss."
        )
    order = jnp.sort(logits)
    spread = order[-1] - order[-3]
    return margin_loss(logits, y) / jnp.where(spread > 0, spread, 1.0)


def targeted_dlr_loss(logits: Logits, y: Label, target: Label) -> Scalar:
    r"""Targeted DLR loss, $(z_t - z_y) / (z_{(1)} - \frac12 (z_{(3)} + z_{(4)}))$: from the class y
    to the class t, invariant under scaling and shifting of all logits (Croce & Hein 2020). With
    three classes the last two are $z_{(2)}$, $z_{(3)}$; with two, where the ratio would be
    constant, it is the difference $z_t - z_y$ alone.

    >>> targeted_dlr_loss(jnp.array([3.0, 2.5, 1.0, 1.0]), jnp.array(0), jnp.array(1)).item()
    -0.25
    """
    order = jnp.sort(logits)[::-1]
    spread = order[0] - order[:4][-2:].mean() if len(order) > 2 else jnp.zeros_like(order[0])
    target_logit = jnp.where(_is_class(logits, target), logits, 0).sum()
    true_logit = jnp.where(_is_class(logits, y), logits, 0).sum()
    return (target_logit - true_logit) / jnp.where(spread > 0, spread, 1.0)


def _is_class(logits: Logits, y: Label) -> Bool[Array, " k"]:
    return jnp.arange(logits.shape[-1]) == y
