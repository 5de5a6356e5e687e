r"""Attacks that follow the gradient of a loss in the input (§13.2): projected ascent in a ball.

$$\eta \leftarrow \Pi\big(\eta + \alpha\, s(\nabla_x \ell(f(x + \eta), y))\big), \qquad
s(g) = \arg\max_{\|\eta\| \le 1} \langle g, \eta \rangle$$

The sign of the gradient in the ball of the maximum norm, the gradient over its length in that of
the Euclidean one, a single number in that of the sum. One long step from the input itself is the
fast gradient sign method.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Model, Scalar
from ...threat.ball import Ball, Limits, Linf, Shift, limits_of
from ...threat.inputs import Range, check_box, check_input
from ...train.objectives.loss import Loss
from ..base import Candidate, clip_to_box, no_candidate
from ..continuous_batching import AttackLoop
from ..goal import Goal, as_goal


class PGD(eqx.Module):
    r"""Projected gradient ascent from the input itself, or with a key from points of the ball
    (§13.2).

    `step_size` is $\alpha$, times `schedule` of the number of the step. With `momentum` $\mu$ the
    direction is that of $g \leftarrow \mu g + \nabla / \|\nabla\|_1$. `box` is the range of valid
    inputs, which is kept to exactly. It stops at the first point that reaches its goal. A plain
    loss is a goal never reached: then it gives the best of all points that it came to, over all
    `restarts`, so that more of either never helps the defender. With `output="last"` it makes all
    steps and gives the last point, as robust training wants it. Madry et al. 2018; with momentum,
    Dong et al. 2018.

    Departs: the notes rescale to the sphere after every step, and miss a maximum inside the ball.

    >>> from thetax.attack import margin_loss
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> attack = PGD(margin_loss, Linf(0.1), step_size=0.05, steps=4)
    >>> attack(line, jnp.array([0.5, 0.5]), jnp.array(0)).tolist()
    [0.6..., 0.4...]
    """

    goal: Goal = eqx.field(static=True, converter=as_goal)
    ball: Ball
    step_size: float | Scalar = eqx.field(kw_only=True)
    steps: int = eqx.field(static=True, kw_only=True)
    restarts: int = eqx.field(static=True, kw_only=True, default=1)
    momentum: float | Scalar = eqx.field(kw_only=True, default=0.0)
    schedule: Callable[[Any], Any] = eqx.field(static=True, kw_only=True, default=lambda step: 1.0)
    box: Range | None = eqx.field(static=True, kw_only=True, default=None)
    output: Literal["best", "last"] = eqx.field(static=True, kw_only=True, default="best")

    def __check_init__(self):
        if self.steps < 1 or self.restarts < 1:
            came = f"steps={self.steps}, restarts={self.restarts}"
            raise ValueError(f"PGD: steps and restarts must be at least 1; got {came}.")
        if isinstance(self.step_size, float | int) and not 0 <= self.step_size < jnp.inf:
            raise ValueError(f"PGD: rate must be finite and not negative; got {self.step_size}.")
        if self.output not in ("best", "last"):
            raise ValueError(f"PGD: keep is 'best' or 'last'; got {self.output!r}.")
        if self.output == "last" and self.restarts > 1:
            raise ValueError(
                f"PGD: restarts={self.restarts} need a best one; leave out keep='last'."
            )
        if isinstance(self.momentum, float | int) and not 0 <= self.momentum <= 1:
            raise ValueError(f"PGD: momentum must lie in [0, 1]; got {self.momentum}.")
        if self.box is not None:
            check_box("PGD", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("PGD", model, x, y, self.box)
        search = self.search(model, x, y, key=key)
        if self.output == "best":
            return search.run()
        return search.answer(
            jax.lax.fori_loop(0, self.steps, lambda _, now: search.move(now), search.begin())
        )

    def search(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> AttackLoop:
        """Step by step: a point is judged when it is left, so the last is left too."""
        x = jnp.asarray(x)
        limits = limits_of(x, self.box)
        start = start_points("PGD", self.ball, x, limits, self.restarts, key)
        climb = self.steps + (self.output == "best")

        def gained(eta):
            seen = self.goal.judge(model, x, eta, y)
            return seen.gain, seen

        def begin():
            eta = start(0)
            return Ascent(eta, jnp.zeros_like(x), no_candidate(eta), jnp.zeros((), jnp.int32))

        def unfinished(now):
            over = now.best.reached & (self.output == "best")
            return ~over & (now.step < climb * self.restarts)

        def move(now):
            again = now.step % climb == 0  # from another start
            eta, g, best, step = (
                now if self.restarts == 1 else now.where(again, start(now.step // climb))
            )
            (_, seen), slope = jax.value_and_grad(gained, has_aux=True)(eta)
            g = (self.momentum * g + l1_normalise(feasible_gradient(slope, eta, limits))).astype(
                x.dtype
            )
            rate = self.step_size * self.schedule(step % climb)
            eta = self.ball.project(eta + rate * self.ball.steepest(g), limits).astype(x.dtype)
            return Ascent(eta, g, best.beside(seen), step + 1)

        def answer(now):
            return clip_to_box(x, now.best.eta if self.output == "best" else now.eta, self.box)

        return AttackLoop(begin, unfinished, move, answer)


class Ascent(NamedTuple):
    """The next point and the direction so far, the best of the points before, and how many these
    are.
    """

    eta: Shift
    g: Shift
    best: Candidate
    step: Any

    def where(self, again: Any, start: Shift) -> "Ascent":
        """The same, or at another start."""
        return self._replace(eta=jnp.where(again, start, self.eta), g=jnp.where(again, 0.0, self.g))


def fgsm(goal: Goal | Loss, ball: Linf, *, box: Range | None = None) -> PGD:
    r"""$x + \varepsilon\, \mathrm{sgn}(\nabla_x \ell)$, one step of `PGD` as long as the ball is
    wide, from the input itself (§13.2; Goodfellow, Shlens & Szegedy 2015).

    Departs: the notes call it descent; it climbs.

    >>> from thetax.attack import margin_loss
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> fgsm(margin_loss, Linf(0.5))(line, jnp.zeros(2), jnp.array(0)).tolist()
    [0.5, -0.5]
    """
    return PGD(goal, ball, step_size=ball.radius, steps=1, box=box, output="last")


def start_points(
    name: str, ball: Ball, x: Array, limits: Limits | None, restarts: int, key: PRNGKeyArray | None
) -> Callable[[Any], Shift]:
    """Where the ascent of each number begins: at the input itself, or with a key anywhere in the
    ball.
    """
    if key is None:
        if restarts > 1:
            raise ValueError(f"{name}: restarts={restarts} begin at different points; give a key.")
        return lambda number: jnp.zeros_like(x)
    keys = jr.split(key, restarts)
    return lambda number: ball.project(ball.sample(keys[number], x.shape).astype(x.dtype), limits)


def feasible_gradient(g: Shift, eta: Shift, limits: Limits | None) -> Shift:
    """The gradient without what points out of the range, or is no number."""
    g = jnp.where(jnp.isnan(g), 0.0, g)
    if limits is None:
        return g
    low, high = limits
    return jnp.where(((eta >= high) & (g > 0)) | ((eta <= low) & (g < 0)), 0.0, g)


def l1_normalise(g: Shift) -> Shift:
    """The gradient with numbers of sum 1, whatever the loss is scaled by."""
    size = jnp.abs(g).sum()
    return g / jnp.where(size > 0, size, 1.0)
