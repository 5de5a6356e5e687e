r"""The Carlini-Wagner attack (§13.1): minimises the squared distance plus a penalty for not
reaching the goal.

$$\min_{x'} \|x' - x\|_2^2 + c \max(-m(x'), -\kappa)$$

where the margin m is positive if and only if the goal is reached. A large c favours success, a
small one a short distance; c is found by binary search. Every step is followed by the projection
onto the valid range of inputs.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
from ...core import Model, Scalar
from ...threat.inputs import Box, check_box, check_input
from ..base import clip_to_box
from ..goal import Goal, as_goal, margin_loss, untargeted


class CarliniWagner(eqx.Module):
    r"""Carlini-Wagner attack: the nearest input in the Euclidean norm that reaches the goal, by
    Adam and a binary search over c (§13.1; Carlini & Wagner 2017).

    `goal` is `untargeted(margin_loss)`, or `targeted(margin_loss)` with the target class as y.
    Success is a margin of at least `confidence` ($\kappa$). Each of the `binary_search_steps` runs
    Adam for `steps` steps from x, with a `learning_rate` that decays to 0, starting with c =
    `initial_const`. Then c is multiplied by ten until a run succeeds; from then on it is the
    midpoint of the largest c that failed and the smallest that succeeded. The nearest successful
    point of all runs is returned. `box` is the valid range of inputs. An input at which the goal is
    already reached is returned unchanged, and so is one for which no successful point is found.

    Departs: the paper's learning rate is constant, and then the last steps oscillate across the
    boundary; and a c counts as successful there if any step succeeded, even the first, largest
    ones, which c hardly influences. Here only the second half of the steps counts. The paper keeps
    to the range by $x' = \tanh w$, whose gradient nearly vanishes at the ends of the range, where
    most pixels of a digit are; here the point is clipped.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> result = CarliniWagner(steps=100, learning_rate=0.1)(
    ...     line, jnp.array([0.3, 0.4]), jnp.array(0)
    ... )
    >>> bool(jnp.argmax(line(result)) == 1), bool(jnp.abs(result).max() < 1e-3)
    (True, True)
    """

    goal: Goal = eqx.field(static=True, converter=as_goal, default=untargeted(margin_loss))
    steps: int = eqx.field(static=True, kw_only=True, default=1000)
    binary_search_steps: int = eqx.field(static=True, kw_only=True, default=9)
    learning_rate: float | Scalar = eqx.field(kw_only=True, default=0.01)
    initial_const: float | Scalar = eqx.field(kw_only=True, default=0.01)
    confidence: float | Scalar = eqx.field(kw_only=True, default=0.0)
    box: Box | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        expect_count(
            "CarliniWagner", steps=self.steps, binary_search_steps=self.binary_search_steps
        )
        for name in ("learning_rate", "initial_const"):
            value = getattr(self, name)
            if isinstance(value, float | int) and not value > 0:
                raise ValueError(f"CarliniWagner: {name} must be > 0; got {value}.")
        if isinstance(self.confidence, float | int) and not self.confidence >= 0:
            raise ValueError(f"CarliniWagner: confidence must be >= 0; got {self.confidence}.")
        if self.box is not None:
            check_box("CarliniWagner", self.box)
        _check_goal(self.goal)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("CarliniWagner", model, x, y, self.box)
        x = jnp.asarray(x)
        adam = optax.scale_by_adam()

        def cost(point, c):
            z = model(point)
            gain = self.goal.gain(z, y)
            square = jnp.square(point - x).sum()
            # success needs a little more than the confidence, or rounding could undo it
            tolerance = 32 * jnp.finfo(z.dtype).eps * jnp.abs(z).max()
            success = self.goal.success(z, y) & (gain >= self.confidence + tolerance)
            penalty = c * jnp.maximum(-gain, -self.confidence)
            return square + penalty, (point, square, success)

        def adam_step(carry, decay):
            point, moments, c, best = carry
            gradient, evaluated = jax.grad(cost, has_aux=True)(point, c)
            direction, moments = adam.update(gradient, moments)
            eta = point - x - self.learning_rate * decay * direction
            point = clip_to_box(x, eta.astype(x.dtype), self.box)
            _, _, success = evaluated
            return (point, moments, c, _nearest(best, evaluated)), success

        def search_step(carry, _):
            c_failed, c_succeeded, c, best = carry
            decay = jnp.square(1 - jnp.arange(self.steps, dtype=x.dtype) / self.steps)
            start = x, adam.init(x), c, best
            (point, _, _, best), successes = jax.lax.scan(adam_step, start, decay)
            last = cost(point, c)[1]
            success = successes[self.steps // 2 :].any() | last[2]
            c_failed = jnp.where(success, c_failed, c)
            c_succeeded = jnp.where(success, c, c_succeeded)
            c = jnp.where(jnp.isfinite(c_succeeded), (c_failed + c_succeeded) / 2, 10 * c)
            return (c_failed, c_succeeded, c, _nearest(best, last)), None

        c = jnp.asarray(self.initial_const, x.dtype)
        z = model(x)
        done = self.goal.success(z, y) & (self.goal.gain(z, y) >= self.confidence)
        best = x, jnp.where(done, 0.0, jnp.inf).astype(x.dtype)  # at distance 0 nothing is nearer
        carry = jnp.zeros_like(c), jnp.full_like(c, jnp.inf), c, best
        carry, _ = jax.lax.scan(search_step, carry, None, length=self.binary_search_steps)
        _, _, _, (result, _) = carry
        return result


def _nearest(best: tuple[Array, Array], point: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Of the best point so far and another, the successful one of smaller squared distance."""
    (best_point, best_square), (new_point, square, success) = best, point
    nearer = success & (square < best_square)
    return jnp.where(nearer, new_point, best_point), jnp.where(nearer, square, best_square)


def _check_goal(goal: Goal) -> None:
    """Raises `ValueError` unless the gain is positive exactly where the goal is reached: it must be
    a margin, not a loss. Tried on two examples of logits.
    """
    with jax.ensure_compile_time_eval():
        y = jnp.array(0)
        logits = jnp.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0]])
        gains, reached = (
            jnp.stack([part(z, y) for z in logits]) for part in (goal.gain, goal.reached)
        )
        fits = bool(((gains > 0) == reached).all() & reached.any())
    if not fits:
        raise ValueError(
            "CarliniWagner: the gain must be positive exactly where the goal is reached. Use "
            "untargeted(margin_loss) or targeted(margin_loss)."
        )
