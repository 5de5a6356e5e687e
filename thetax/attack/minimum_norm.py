r"""Minimum-norm adversarial examples from an attack in a ball, by binary search over the radius.

$$\min \{\, \|\eta\| : \text{the attack succeeds with } \eta \,\}$$

The radius is a leaf of the attack, not part of its compiled program, so all trials share one
program.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..check import expect_count
from ..core import Model
from ..threat.ball import L0
from ..threat.inputs import Box
from .goal import Goal, maximise_loss


class MinimumNormAttack(eqx.Module):
    r"""Binary search for the smallest perturbation with which `attack`, such as a `PGD`, reaches
    its goal.

    The attack's own radius is the largest that is tried. Each of the `binary_search_steps` tries
    the midpoint of the largest radius that failed and the smallest norm that succeeded; a
    `step_size` is scaled with the radius. The result is the successful point of smallest norm, of
    the perturbation itself and not of the ball. With one step of `PGD` as long as the radius it is
    the smallest step along the gradient. An input at which the goal is already reached is returned
    unchanged, and so is one for which no success is found.

    >>> from thetax.threat import L2

    >>> from thetax.attack import PGD, untargeted, margin_loss
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> nearest = MinimumNormAttack(PGD(untargeted(margin_loss), L2(9.0), step_size=3.0, steps=5))
    >>> nearest(line, jnp.array([3.0, 4.0]), jnp.array(0)).round(3).tolist()
    [-0.0, -0.0]
    """

    attack: Any
    binary_search_steps: int = eqx.field(static=True, kw_only=True, default=20)

    def __check_init__(self):
        expect_count("MinimumNormAttack", binary_search_steps=self.binary_search_steps)
        if {"ball", "goal"} - set(getattr(self.attack, "__dict__", ())):
            given = type(self.attack).__name__
            raise ValueError(
                f"MinimumNormAttack: attack must have a ball and a goal, as PGD has; got a {given}."
            )
        if isinstance(self.attack.ball, L0):
            raise ValueError(
                "MinimumNormAttack: an L0 radius is a count and cannot be halved. Use L1, L2 or "
                "Linf."
            )
        if self.attack.goal == maximise_loss(self.attack.goal.gain):
            raise ValueError(
                "MinimumNormAttack: the attack's goal is a plain loss, which is never reached. Use "
                "untargeted(loss)."
            )
        radius = self.attack.ball.radius
        if isinstance(radius, float | int) and radius == 0:
            raise ValueError(
                "MinimumNormAttack: the attack's radius, the largest to try, must be > 0; got 0."
            )

    @property
    def box(self) -> Box | None:
        """The valid range of inputs of the attack."""
        return getattr(self.attack, "box", None)

    @property
    def goal(self) -> Goal:
        """The goal of the attack."""
        return self.attack.goal

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        x = jnp.asarray(x)
        ball, goal = self.attack.ball, self.attack.goal

        def search_step(state, key):
            # failed: largest radius that failed; smallest: norm of the best point (inf if none)
            failed, smallest, best = state
            upper = jnp.where(smallest > 0, jnp.minimum(smallest, ball.radius), ball.radius)
            radius = ((failed + upper) / 2).astype(x.dtype)
            point = _with_radius(self.attack, radius)(model, x, y, key=key)
            success = goal.success(model(point), y)
            norm = ball.norm(point - x)
            nearer = success & (norm < smallest)
            smallest = jnp.where(nearer, norm, smallest)
            best = jnp.where(nearer, point, best)
            failed = jnp.where(success, failed, radius)
            # a success below a radius that failed (randomness) reopens the search from 0
            return (jnp.where(failed < smallest, failed, 0.0), smallest, best), None

        already = goal.success(model(x), y)
        start = jnp.zeros((), x.dtype), jnp.where(already, 0.0, jnp.inf).astype(x.dtype), x
        keys = None if key is None else jr.split(key, self.binary_search_steps)
        (_, _, best), _ = jax.lax.scan(search_step, start, keys, length=self.binary_search_steps)
        return best


def _with_radius(attack: Any, radius: Array) -> Any:
    """The attack with another radius, and its step size scaled in proportion."""
    scale = radius / attack.ball.radius
    attack = eqx.tree_at(lambda a: a.ball.radius, attack, radius)
    if "step_size" not in vars(attack):
        return attack
    return eqx.tree_at(lambda a: a.step_size, attack, scale * attack.step_size)
