r"""The nearest wrong input as a minimum (§13.1): the square of its distance and a price for not
being wrong.

$$\min_{x'} \|x' - x\|_2^2 + c \max(-m(x'), -\kappa)$$

where the margin m is positive if and only if the goal is reached. A large c buys success, a small
one nearness, and the right one lies between; it is found by bisection. Every step is followed by
the projection onto the range of inputs.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
from ...core import Model, Scalar
from ...threat.inputs import Range, check_box, check_input
from ..base import clip_to_box
from ..goal import Goal, as_goal, margin_loss, untargeted


class CarliniWagner(eqx.Module):
    r"""The nearest input in the Euclidean norm that reaches the goal, by Adam and a bisection on c
    (§13.1).

    `goal` is `untargeted(margin)`, or `targeted(margin)` with the wanted class for y. Success is a
    margin of at least `confidence` $\kappa$. Each of the `binary_search_steps` makes `steps` from
    x, at a `learning_rate` that falls to 0, and then takes a c ten times as large, or halfway
    between the largest that failed and the smallest that succeeded; the first is `initial_const`.
    Of all points seen the nearest successful one is kept. `box` is the range of valid inputs. An
    input at which the goal is reached already stays as it is, and so does one for which nothing is
    found. (Carlini & Wagner 2017)

    Departs: the paper's rate is constant, and then the last steps leap to and fro across the tie;
    and there a c has succeeded if any step did, also the first and longest ones, which c does not
    decide. Here the second half counts. The paper stays in the range by $x' = \tanh w$, which has
    next to no slope at its edges, where the pixels of a digit are.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> found = CarliniWagner(steps=100, learning_rate=0.1)(
    ...     line, jnp.array([0.3, 0.4]), jnp.array(0)
    ... )
    >>> bool(jnp.argmax(line(found)) == 1), bool(jnp.abs(found).max() < 1e-3)
    (True, True)
    """

    goal: Goal = eqx.field(static=True, converter=as_goal, default=untargeted(margin_loss))
    steps: int = eqx.field(static=True, kw_only=True, default=1000)
    binary_search_steps: int = eqx.field(static=True, kw_only=True, default=9)
    learning_rate: float | Scalar = eqx.field(kw_only=True, default=0.01)
    initial_const: float | Scalar = eqx.field(kw_only=True, default=0.01)
    confidence: float | Scalar = eqx.field(kw_only=True, default=0.0)
    box: Range | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        expect_count(
            "CarliniWagner", steps=self.steps, binary_search_steps=self.binary_search_steps
        )
        for name, least in (("learning_rate", ">"), ("initial_const", ">"), ("confidence", ">=")):
            _check_sign(name, getattr(self, name), least)
        if self.box is not None:
            check_box("CarliniWagner", self.box)
        _check_goal(self.goal)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("CarliniWagner", model, x, y, self.box)
        x = jnp.asarray(x)
        adam = optax.scale_by_adam()

        def cost(tried, c):
            z = model(tried)
            gain = self.goal.gain(z, y)
            square = jnp.square(tried - x).sum()
            firm = 32 * jnp.finfo(z.dtype).eps * jnp.abs(z).max()  # or rounding could undo it
            reached = self.goal.reached(z, y) & (gain >= self.confidence + firm)
            return square + c * jnp.maximum(-gain, -self.confidence), (tried, square, reached)

        def descend(state, left):
            tried, moments, c, best = state
            g, seen = jax.grad(cost, has_aux=True)(tried, c)
            direction, moments = adam.update(g, moments)
            eta = tried - x - self.learning_rate * left * direction
            return (
                clip_to_box(x, eta.astype(x.dtype), self.box),
                moments,
                c,
                _nearer(best, seen),
            ), seen[2]

        def once(state, _):
            failed, worked, c, best = state
            left = jnp.square(1 - jnp.arange(self.steps, dtype=x.dtype) / self.steps)
            (tried, _, _, best), reached = jax.lax.scan(descend, (x, adam.init(x), c, best), left)
            last = cost(tried, c)[1]
            success = reached[self.steps // 2 :].any() | last[2]
            failed = jnp.where(success, failed, c)
            worked = jnp.where(success, c, worked)
            c = jnp.where(jnp.isfinite(worked), (failed + worked) / 2, 10 * c)
            return (failed, worked, c, _nearer(best, last)), None

        c = jnp.asarray(self.initial_const, x.dtype)
        wrong = self.goal.reached(model(x), y) & (self.goal.gain(model(x), y) >= self.confidence)
        best = x, jnp.where(wrong, 0.0, jnp.inf).astype(x.dtype)
        state = jnp.zeros_like(c), jnp.full_like(c, jnp.inf), c, best
        (_, _, _, (found, _)), _ = jax.lax.scan(once, state, None, length=self.binary_search_steps)
        return found


def _nearer(best: tuple[Array, Array], seen: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """The successful point of the smaller square."""
    (kept, least), (tried, square, reached) = best, seen
    nearer = reached & (square < least)
    return jnp.where(nearer, tried, kept), jnp.where(nearer, square, least)


def _check_sign(name: str, value: Any, least: str) -> None:
    if isinstance(value, float | int) and not (value > 0 if least == ">" else value >= 0):
        raise ValueError(f"CarliniWagner: {name} must be {least} 0; got {value}.")


def _check_goal(goal: Goal) -> None:
    """Refuses a gain that is not positive where the goal is reached and negative elsewhere: a loss,
    not a margin.
    """
    with jax.ensure_compile_time_eval():
        y = jnp.array(0)
        logits = jnp.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0]])
        gains, reached = (jnp.stack([part(z, y) for z in logits]) for part in goal)
        fits = bool(((gains > 0) == reached).all() & reached.any())
    if not fits:
        raise ValueError(
            "CarliniWagner: the gain must be positive where the goal is reached; give away(margin)."
        )
