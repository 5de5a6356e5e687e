r"""Attacks that follow the gradient of a loss in the input (§13.2): projected ascent in a ball.

$$\eta \leftarrow \Pi\big(\eta + \alpha\, s(\nabla_x \ell(f(x + \eta), y))\big), \qquad
s(g) = \arg\max_{\|\eta\| \le 1} \langle g, \eta \rangle$$

The sign of the gradient in the ball of the maximum norm, the gradient over its length in that of the Euclidean one, a
single number in that of the sum. One long step from the input itself is the fast gradient sign method.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import Model, Scalar, expect_floats
from ..train.loss import Loss
from .ball import Ball, Limits, Linf, Shift, limits_of
from .goal import Goal, only

Rate = float | Scalar | Callable[[Any], Any]  # a number, or a schedule: a function of the number of the step


@runtime_checkable
class Attack(Protocol):
    """`attack(model, x, y, *, key=None)` is an input near x; chance is in it only with a key."""

    def __call__(self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> Any: ...


class Best(NamedTuple):
    """The best shift so far, what it gained, and whether it reached the goal."""

    eta: Shift
    gain: Scalar
    reached: Any

    def beside(self, other: "Best") -> "Best":
        """The better of the two: one that reached the goal before one that did not, then that of more gain."""
        more = (other.reached & ~self.reached) | ((other.reached == self.reached) & (other.gain > self.gain))
        return jax.tree.map(lambda a, b: jnp.where(more, b, a), self, other)


def pgd(
    goal: Goal | Loss,
    ball: Ball,
    *,
    rate: Rate,
    steps: int,
    restarts: int = 1,
    momentum: float = 0.0,
    box: tuple[float, float] | None = None,
    keep: Literal["best", "last"] = "best",
) -> Attack:
    r"""Projected gradient ascent from the input itself, or with a key from points of the ball (§13.2).

    `rate` is $\alpha$, or a schedule. With `momentum` $\mu$ the direction is that of
    $g \leftarrow \mu g + \nabla / \|\nabla\|_1$. `box` is the range of valid inputs, which is kept to exactly. Of all
    the points that it came to, over all `restarts`, it gives the best, so that more of either never helps the
    defender; with `keep="last"` the last one, as robust training wants it. A plain loss is a goal never reached.
    Madry et al. 2018; with momentum, Dong et al. 2018.

    Departs: the notes rescale to the sphere after every step, and miss a maximum inside the ball.

    >>> from thetax.attack import margin
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> attack = pgd(margin, Linf(0.1), rate=0.05, steps=4)
    >>> attack(line, jnp.array([0.5, 0.5]), jnp.array(0)).tolist()
    [0.6..., 0.4...]
    """
    if steps < 1 or restarts < 1:
        raise ValueError(f"pgd: steps and restarts must be at least 1; got steps={steps}, restarts={restarts}.")
    if not 0 <= momentum <= 1:
        raise ValueError(f"pgd: momentum must lie in [0, 1]; got {momentum}.")
    aim = goal if isinstance(goal, Goal) else only(goal)
    schedule = rate if callable(rate) else lambda step: rate

    def attack(model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> Float[Array, "*s"]:
        expect_floats("pgd: x", x)
        x = jnp.asarray(x)
        limits = limits_of(x, box)

        def see(eta):
            out = model(x + eta)
            return Best(eta, aim.gain(out, y), aim.reached(out, y))

        def gained(eta):
            seen = see(eta)
            return seen.gain, seen

        def ascend(state, step):
            eta, g, best = state
            (_, seen), slope = jax.value_and_grad(gained, has_aux=True)(eta)
            g = momentum * g + _unit(_free(slope, eta, limits))
            eta = ball.project(eta + schedule(step) * ball.steepest(g), limits).astype(x.dtype)
            return (eta, g, best.beside(seen) if keep == "best" else best), None

        def once(start):
            state = start, jnp.zeros_like(x), see(start)
            (eta, _, best), _ = jax.lax.scan(ascend, state, jnp.arange(steps))
            return best.beside(see(eta)) if keep == "best" else best._replace(eta=eta)

        found = jax.lax.map(once, _starts(ball, x, limits, restarts, key))
        eta = found.eta[jnp.argmax(jnp.where(found.reached == found.reached.any(), found.gain, -jnp.inf))]
        return x + eta if box is None else jnp.clip(x + eta, *box)

    return attack


def fgsm(goal: Goal | Loss, ball: Linf, *, box: tuple[float, float] | None = None) -> Attack:
    r"""$x + \varepsilon\, \mathrm{sgn}(\nabla_x \ell)$, one step of `pgd` as long as the ball is wide, from the input
    itself (§13.2; Goodfellow, Shlens & Szegedy 2015).

    Departs: the notes call it descent; it climbs.

    >>> from thetax.attack import margin
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> fgsm(margin, Linf(0.5))(line, jnp.zeros(2), jnp.array(0)).tolist()
    [0.5, -0.5]
    """
    return pgd(goal, ball, rate=ball.radius, steps=1, box=box, keep="last")


def _starts(ball: Ball, x: Array, limits: Limits | None, restarts: int, key: PRNGKeyArray | None) -> Array:
    """The input itself, or so many points of the ball."""
    if key is not None:
        drawn = jax.vmap(lambda key: ball.sample(key, x.shape).astype(x.dtype))(jr.split(key, restarts))
        return jax.vmap(lambda eta: ball.project(eta, limits))(drawn)
    if restarts > 1:
        raise ValueError(f"pgd: restarts={restarts} begin at different points; give a key.")
    return jnp.zeros_like(x)[None]


def _free(g: Shift, eta: Shift, limits: Limits | None) -> Shift:
    """The gradient without what points out of the range."""
    if limits is None:
        return g
    low, high = limits
    return jnp.where(((eta >= high) & (g > 0)) | ((eta <= low) & (g < 0)), 0.0, g)


def _unit(g: Shift) -> Shift:
    """The gradient with numbers of sum 1, whatever the loss is scaled by."""
    size = jnp.abs(g).sum()
    return g / jnp.where(size > 0, size, 1.0)
