r"""The nearest input that an attack in a ball can find: bisection on the radius.

$$\min \{\, \|\eta\| : \text{the attack succeeds with } \eta \,\}$$

The radius is a number of the attack, not part of its program, so that every trial runs the same
one.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import Model
from ..threat.ball import L0
from ..threat.inputs import Range
from .goal import maximise_loss


class MinimumNormAttack(eqx.Module):
    r"""The nearest successful input of `attack`, a `PGD` for instance, by trying radii below its
    own.

    Each of the `binary_search_steps` halves what is left between a radius that failed and the
    smallest norm that succeeded; the rate, where there is one, is scaled along. What is kept is the
    smallest norm seen, of the shift itself and not of the ball. With one step of `PGD` as long as
    the ball is wide it is the smallest step along the gradient. An input at which the goal is
    reached already stays as it is, and so does one for which nothing is found.

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
        if self.binary_search_steps < 1:
            raise ValueError(f"Nearest: rounds must be at least 1; got {self.binary_search_steps}.")
        if {"ball", "goal"} - set(getattr(self.attack, "__dict__", ())):
            came = type(self.attack).__name__
            raise ValueError(
                f"Nearest: expected an attack in a ball with a goal, such as PGD; got a {came}."
            )
        if isinstance(self.attack.ball, L0):
            raise ValueError("Nearest: L0 counts and cannot be halved; take L1, L2 or Linf.")
        if self.attack.goal == maximise_loss(self.attack.goal.gain):
            raise ValueError(
                "Nearest: the attack has a plain loss, a goal never reached; give it away(loss)."
            )
        radius = self.attack.ball.radius
        if isinstance(radius, float | int) and radius == 0:
            raise ValueError(
                "Nearest: the attack's radius is the largest to try, so positive; got 0."
            )

    @property
    def box(self) -> Range | None:
        """That of the attack."""
        return getattr(self.attack, "box", None)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        x = jnp.asarray(x)
        ball, goal = self.attack.ball, self.attack.goal

        def halve(state, key):
            failed, found, best = state
            radius = (
                failed + jnp.where(found > 0, jnp.minimum(found, ball.radius), ball.radius)
            ) / 2
            tried = _of_radius(self.attack, radius.astype(x.dtype))(model, x, y, key=key)
            reached = goal.reached(model(tried), y)
            norm = ball.norm(tried - x)
            nearer = reached & (norm < found)
            found = jnp.where(nearer, norm, found)
            best = jnp.where(nearer, tried, best)
            failed = jnp.where(reached, failed, radius.astype(x.dtype))
            return (jnp.where(failed < found, failed, 0.0), found, best), None

        start = (
            jnp.zeros((), x.dtype),
            jnp.where(goal.reached(model(x), y), 0.0, jnp.inf).astype(x.dtype),
            x,
        )
        keys = None if key is None else jr.split(key, self.binary_search_steps)
        (_, _, best), _ = jax.lax.scan(halve, start, keys, length=self.binary_search_steps)
        return best


def _of_radius(attack: Any, radius: Array) -> Any:
    """The attack with another radius, and with steps as much longer or shorter."""
    share = radius / attack.ball.radius
    attack = eqx.tree_at(lambda a: a.ball.radius, attack, radius)
    return (
        eqx.tree_at(lambda a: a.step_size, attack, share * attack.step_size)
        if "rate" in vars(attack)
        else attack
    )
