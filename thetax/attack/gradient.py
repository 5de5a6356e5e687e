r"""Attacks that follow the gradient of a loss in the input (§13.2): projected ascent in a ball.

$$\eta \leftarrow \Pi\big(\eta + \alpha\, s(\nabla_x \ell(f(x + \eta), y))\big), \qquad
s(g) = \arg\max_{\|\eta\| \le 1} \langle g, \eta \rangle$$

The sign of the gradient in the ball of the maximum norm, the gradient over its length in that of the Euclidean one, a
single number in that of the sum. One long step from the input itself is the fast gradient sign method.
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import Model, Scalar
from ..train.loss import Loss
from .attempt import Range, check_box, check_input, placed
from .ball import Ball, Limits, Linf, Shift, limits_of
from .goal import Goal, as_goal


class PGD(eqx.Module):
    r"""Projected gradient ascent from the input itself, or with a key from points of the ball (§13.2).

    `rate` is $\alpha$, times `schedule` of the number of the step. With `momentum` $\mu$ the direction is that of
    $g \leftarrow \mu g + \nabla / \|\nabla\|_1$. `box` is the range of valid inputs, which is kept to exactly. Of all
    the points that it came to, over all `restarts`, it gives the best, so that more of either never helps the
    defender; with `keep="last"` the last one, as robust training wants it. A plain loss is a goal never reached.
    Madry et al. 2018; with momentum, Dong et al. 2018.

    Departs: the notes rescale to the sphere after every step, and miss a maximum inside the ball.

    >>> from thetax.attack import margin
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> attack = PGD(margin, Linf(0.1), rate=0.05, steps=4)
    >>> attack(line, jnp.array([0.5, 0.5]), jnp.array(0)).tolist()
    [0.6..., 0.4...]
    """

    goal: Goal = eqx.field(static=True, converter=as_goal)
    ball: Ball
    rate: float | Scalar = eqx.field(kw_only=True)
    steps: int = eqx.field(static=True, kw_only=True)
    restarts: int = eqx.field(static=True, kw_only=True, default=1)
    momentum: float | Scalar = eqx.field(kw_only=True, default=0.0)
    schedule: Callable[[Any], Any] = eqx.field(static=True, kw_only=True, default=lambda step: 1.0)
    box: Range | None = eqx.field(static=True, kw_only=True, default=None)
    keep: Literal["best", "last"] = eqx.field(static=True, kw_only=True, default="best")

    def __check_init__(self):
        if self.steps < 1 or self.restarts < 1:
            came = f"steps={self.steps}, restarts={self.restarts}"
            raise ValueError(f"PGD: steps and restarts must be at least 1; got {came}.")
        if isinstance(self.momentum, float | int) and not 0 <= self.momentum <= 1:
            raise ValueError(f"PGD: momentum must lie in [0, 1]; got {self.momentum}.")
        if self.box is not None:
            check_box("PGD", self.box)

    def __call__(self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> Float[Array, "*s"]:
        check_input("PGD", model, x, y, self.box)
        x = jnp.asarray(x)
        limits = limits_of(x, self.box)

        def see(eta):
            return self.goal.judge(model, x, eta, y)

        def gained(eta):
            seen = see(eta)
            return seen.gain, seen

        def ascend(state, step):
            eta, g, best = state
            (_, seen), slope = jax.value_and_grad(gained, has_aux=True)(eta)
            g = self.momentum * g + unit(free(slope, eta, limits))
            rate = self.rate * self.schedule(step)
            eta = self.ball.project(eta + rate * self.ball.steepest(g), limits).astype(x.dtype)
            return (eta, g, best.beside(seen) if self.keep == "best" else best), None

        def once(start):
            state = start, jnp.zeros_like(x), see(start)
            (eta, _, best), _ = jax.lax.scan(ascend, state, jnp.arange(self.steps))
            return best.beside(see(eta)) if self.keep == "best" else best._replace(eta=eta)

        found = jax.lax.map(once, starts("PGD", self.ball, x, limits, self.restarts, key))
        return placed(x, found.best().eta, self.box)


def fgsm(goal: Goal | Loss, ball: Linf, *, box: Range | None = None) -> PGD:
    r"""$x + \varepsilon\, \mathrm{sgn}(\nabla_x \ell)$, one step of `PGD` as long as the ball is wide, from the input
    itself (§13.2; Goodfellow, Shlens & Szegedy 2015).

    Departs: the notes call it descent; it climbs.

    >>> from thetax.attack import margin
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> fgsm(margin, Linf(0.5))(line, jnp.zeros(2), jnp.array(0)).tolist()
    [0.5, -0.5]
    """
    return PGD(goal, ball, rate=ball.radius, steps=1, box=box, keep="last")


def starts(name: str, ball: Ball, x: Array, limits: Limits | None, restarts: int, key: PRNGKeyArray | None) -> Array:
    """The input itself, or with a key so many points of the ball, as shifts along the first axis."""
    if key is not None:
        drawn = jax.vmap(lambda key: ball.sample(key, x.shape).astype(x.dtype))(jr.split(key, restarts))
        return jax.vmap(lambda eta: ball.project(eta, limits))(drawn)
    if restarts > 1:
        raise ValueError(f"{name}: restarts={restarts} begin at different points; give a key.")
    return jnp.zeros_like(x)[None]


def free(g: Shift, eta: Shift, limits: Limits | None) -> Shift:
    """The gradient without what points out of the range."""
    if limits is None:
        return g
    low, high = limits
    return jnp.where(((eta >= high) & (g > 0)) | ((eta <= low) & (g < 0)), 0.0, g)


def unit(g: Shift) -> Shift:
    """The gradient with numbers of sum 1, whatever the loss is scaled by."""
    size = jnp.abs(g).sum()
    return g / jnp.where(size > 0, size, 1.0)
