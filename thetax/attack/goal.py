r"""What an attack makes large, and when that is enough (§13.1): away from the right class, or
towards a chosen one.

A loss judges logits $z$ and a label. Cross-entropy saturates where a network is sure, and then has
no gradient to follow; the margin $\max_{j \ne y} z_j - z_y$ does not, and the ratio of differences
of logits does not change either when all logits are scaled, which hides gradients but changes no
decision.
"""

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..core import Model, Scalar
from ..threat.ball import Shift
from ..train.objectives.loss import Loss, log_loss
from .base import Candidate

Logits = Float[Array, " k"]
Label = Int[Array, ""]


class Goal(NamedTuple):
    """`gain(logits, y)` is made large; `reached(logits, y)` says whether the attack has
    succeeded.
    """

    gain: Loss
    reached: Loss

    def judge(self, model: Model, x: Any, eta: Shift, y: Any) -> Candidate:
        """What a shift of the input comes to; where an output is no number, nothing is reached."""
        out = model(x + eta)
        return Candidate(
            eta, self.gain(out, y).astype(eta.dtype), self.reached(out, y) & ~jnp.isnan(out).any()
        )


def as_goal(goal: Goal | Loss) -> Goal:
    """A plain loss is a goal never reached."""
    return goal if isinstance(goal, Goal) else maximise_loss(goal)


@cache
def untargeted(loss: Loss = log_loss) -> Goal:
    """Any class but `y`, by making a loss large.

    >>> untargeted().reached(jnp.array([1.0, 2.0]), jnp.array(0)).item()
    True
    """
    return Goal(loss, lambda logits, y: jnp.argmax(logits) != y)


@cache
def targeted(loss: Loss = log_loss) -> Goal:
    """The class `y`, whatever the right one is, by making a loss small.

    >>> targeted().reached(jnp.array([1.0, 2.0]), jnp.array(1)).item()
    True
    """
    return Goal(lambda logits, y: -loss(logits, y), lambda logits, y: jnp.argmax(logits) == y)


@cache
def maximise_loss(loss: Loss) -> Goal:
    """The largest loss and nothing else, as robust training wants it; never reached."""
    return Goal(loss, lambda logits, y: jnp.zeros((), bool))


def margin_loss(logits: Logits, y: Label) -> Scalar:
    r"""$\max_{j \ne y} z_j - z_y$: positive if and only if the class is wrong (Carlini & Wagner
    2017).

    >>> margin_loss(jnp.array([3.0, 1.0, 2.5]), jnp.array(0)).item()
    -0.5
    """
    mine = _mine(logits, y)
    return jnp.where(mine, -jnp.inf, logits).max() - jnp.where(mine, logits, 0).sum()


def dlr_loss(logits: Logits, y: Label) -> Scalar:
    r"""$(\max_{j \ne y} z_j - z_y) / (z_{(1)} - z_{(3)})$ with the largest and the third largest
    logit: the same if all logits are scaled or shifted (Croce & Hein 2020, DLR). It takes three
    classes.

    >>> a = dlr_loss(jnp.array([3.0, 1.0, 2.5]), jnp.array(0))
    >>> a.item(), dlr_loss(jnp.array([300.0, 100.0, 250.0]), jnp.array(0)).item()
    (-0.25, -0.25)
    """
    if logits.shape[-1] < 3:
        raise ValueError(
            f"logit_ratio: needs three classes or more, got {logits.shape[-1]}; take the margin."
        )
    order = jnp.sort(logits)
    spread = order[-1] - order[-3]
    return margin_loss(logits, y) / jnp.where(spread > 0, spread, 1.0)


def targeted_dlr_loss(logits: Logits, y: Label, target: Label) -> Scalar:
    r"""$(z_t - z_y) / (z_{(1)} - \frac12 (z_{(3)} + z_{(4)}))$: from the class y to the class t,
    the same if all logits are scaled or shifted (Croce & Hein 2020, targeted DLR). With three
    classes these are $z_{(2)}$, $z_{(3)}$; with two, where the ratio would be a constant, it is the
    difference alone.

    >>> targeted_dlr_loss(jnp.array([3.0, 2.5, 1.0, 1.0]), jnp.array(0), jnp.array(1)).item()
    -0.25
    """
    order = jnp.sort(logits)[::-1]
    spread = order[0] - order[:4][-2:].mean() if len(order) > 2 else jnp.zeros_like(order[0])
    rise = (
        jnp.where(_mine(logits, target), logits, 0).sum()
        - jnp.where(_mine(logits, y), logits, 0).sum()
    )
    return rise / jnp.where(spread > 0, spread, 1.0)


def _mine(logits: Logits, y: Label) -> Bool[Array, " k"]:
    return jnp.arange(logits.shape[-1]) == y
