r"""Projected gradient descent (PGD) and FGSM (§13.2): gradient ascent on the loss in the input,
projected onto a ball.

$$\eta \leftarrow \Pi\big(\eta + \alpha\, s(\nabla_x \ell(f(x + \eta), y))\big), \qquad
s(g) = \arg\max_{\|\eta\| \le 1} \langle g, \eta \rangle$$

The steepest direction $s(g)$ is the sign of the gradient in the `Linf` ball, the normalised
gradient in the `L2` ball, and the largest component alone in the `L1` ball. One step of length
$\varepsilon$ from the input itself is the fast gradient sign method (FGSM).
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
from ...core import Model, Scalar
from ...threat.ball import Ball, Limits, Linf, Perturbation, perturbation_bounds
from ...threat.inputs import Box, check_box, check_input
from ...train.objectives.loss import Loss
from ..base import Candidate, clip_to_box, no_candidate
from ..continuous_batching import AttackLoop
from ..goal import Goal, as_goal


def constant_schedule(step: Any) -> float:
    """The step size stays as it is."""
    return 1.0


class PGD(eqx.Module):
    r"""Projected gradient descent (§13.2): maximises the gain of `goal` within `ball` around the
    input.

    The budget eps ($\varepsilon$) is the radius of the ball: `Linf(8 / 255)`. The step size
    $\alpha$ is `step_size`, multiplied by `schedule(step)`. With a key the attack starts at a
    random point of the ball (random start), and each of the `restarts` at another; without a key it
    starts at the input itself. With `momentum` $\mu$ the direction is that of
    $g \leftarrow \mu g + \nabla / \|\nabla\|_1$. `box` is the valid range of inputs, as
    (0.0, 1.0); it is never left.

    When it stops: with `untargeted(loss)` or `targeted(loss)` as its goal the attack stops at the
    first point that succeeds. A plain loss, as in `PGD(log_loss, ...)`, is a goal that is never
    reached: the attack always runs all steps of all restarts, and returns the point of largest
    loss. The best point seen is returned, so more steps or restarts never help the defender. With
    `output="last"` it runs all steps and returns the last point, as adversarial training wants it.
    Madry et al. 2018; with momentum, Dong et al. 2018.

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
    schedule: Callable[[Any], Any] = eqx.field(static=True, kw_only=True, default=constant_schedule)
    box: Box | None = eqx.field(static=True, kw_only=True, default=None)
    output: Literal["best", "last"] = eqx.field(static=True, kw_only=True, default="best")

    def __check_init__(self):
        expect_count("PGD", steps=self.steps, restarts=self.restarts)
        if isinstance(self.step_size, float | int) and not 0 <= self.step_size < jnp.inf:
            raise ValueError(f"PGD: step_size must be finite and >= 0; got {self.step_size}.")
        if self.output not in ("best", "last"):
            raise ValueError(f"PGD: output must be 'best' or 'last'; got {self.output!r}.")
        if self.output == "last" and self.restarts > 1:
            raise ValueError(
                f"PGD: output='last' is that of a single start; got restarts={self.restarts}. Use "
                "output='best'."
            )
        if isinstance(self.momentum, float | int) and not 0 <= self.momentum <= 1:
            raise ValueError(f"PGD: momentum must lie in [0, 1]; got {self.momentum}.")
        if self.box is not None:
            check_box("PGD", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("PGD", model, x, y, self.box)
        loop = self.loop(model, x, y, key=key)
        if self.output == "best":
            return loop.run()
        return loop.result(
            jax.lax.fori_loop(0, self.steps, lambda _, state: loop.step(state), loop.init())
        )

    def loop(self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> AttackLoop:
        """The attack as a loop. A step evaluates the current point and moves on, so with
        `output="best"` each start takes one step more, which evaluates the last point.
        """
        x = jnp.asarray(x)
        limits = perturbation_bounds(x, self.box)
        start = start_points("PGD", self.ball, x, limits, self.restarts, key)
        steps_per_start = self.steps + (self.output == "best")

        def gain(eta):
            candidate = self.goal.evaluate(model, x, eta, y)
            return candidate.gain, candidate

        def init():
            eta = start(0)
            return Ascent(eta, jnp.zeros_like(x), no_candidate(eta), jnp.zeros((), jnp.int32))

        def unfinished(state):
            succeeded = state.best.reached & (self.output == "best")
            return ~succeeded & (state.step < steps_per_start * self.restarts)

        def step(state):
            if self.restarts > 1:
                is_restart = state.step % steps_per_start == 0
                state = state.restarted(is_restart, start(state.step // steps_per_start))
            (_, candidate), gradient = jax.value_and_grad(gain, has_aux=True)(state.eta)
            direction = l1_normalise(feasible_gradient(gradient, state.eta, limits))
            g = (self.momentum * state.g + direction).astype(x.dtype)
            step_size = self.step_size * self.schedule(state.step % steps_per_start)
            eta = state.eta + step_size * self.ball.steepest(g)
            eta = self.ball.project(eta, limits).astype(x.dtype)
            return Ascent(eta, g, state.best.better_of(candidate), state.step + 1)

        def result(state):
            eta = state.best.eta if self.output == "best" else state.eta
            return clip_to_box(x, eta, self.box)

        return AttackLoop(init, unfinished, step, result)


class Ascent(NamedTuple):
    """State of PGD: the next point and its accumulated gradient, the best point evaluated so far,
    and the number of steps.
    """

    eta: Perturbation
    g: Perturbation
    best: Candidate
    step: Any

    def restarted(self, condition: Any, start: Perturbation) -> "Ascent":
        """Where the condition holds, continues from another start with no momentum."""
        return self._replace(
            eta=jnp.where(condition, start, self.eta), g=jnp.where(condition, 0.0, self.g)
        )


def fgsm(goal: Goal | Loss, ball: Linf, *, box: Box | None = None) -> PGD:
    r"""Fast gradient sign method, $x + \varepsilon\, \mathrm{sgn}(\nabla_x \ell)$: one step of
    `PGD` of length eps, the radius of the ball, from the input itself (§13.2; Goodfellow, Shlens &
    Szegedy 2015).

    Departs: the notes call it descent; it ascends.

    >>> from thetax.attack import margin_loss
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> fgsm(margin_loss, Linf(0.5))(line, jnp.zeros(2), jnp.array(0)).tolist()
    [0.5, -0.5]
    """
    return PGD(goal, ball, step_size=ball.radius, steps=1, box=box, output="last")


def start_points(
    name: str, ball: Ball, x: Array, limits: Limits | None, restarts: int, key: PRNGKeyArray | None
) -> Callable[[Any], Perturbation]:
    """Maps the number of a restart to its starting perturbation: 0 without a key, uniform in the
    ball with one.
    """
    if key is None:
        if restarts > 1:
            raise ValueError(
                f"{name}: restarts={restarts} start at random points of the ball; pass key=."
            )
        return lambda number: jnp.zeros_like(x)
    keys = jr.split(key, restarts)
    return lambda number: ball.project(ball.sample(keys[number], x.shape).astype(x.dtype), limits)


def feasible_gradient(g: Perturbation, eta: Perturbation, limits: Limits | None) -> Perturbation:
    """Gradient with NaNs and components that would leave the box set to 0."""
    g = jnp.where(jnp.isnan(g), 0.0, g)
    if limits is None:
        return g
    low, high = limits
    return jnp.where(((eta >= high) & (g > 0)) | ((eta <= low) & (g < 0)), 0.0, g)


def l1_normalise(g: Perturbation) -> Perturbation:
    """The gradient divided by its L1 norm, so that the scale of the loss does not matter."""
    size = jnp.abs(g).sum()
    return g / jnp.where(size > 0, size, 1.0)
