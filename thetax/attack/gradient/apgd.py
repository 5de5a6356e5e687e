r"""Auto-PGD (APGD): projected gradient ascent with momentum that adapts its step size (Croce & Hein
2020). The number of steps is its only setting.

$$z = \Pi\big(\eta_k + \alpha_k\, s(\nabla_k)\big), \qquad
\eta_{k+1} = \Pi\big(\eta_k + \tfrac34 (z - \eta_k) + \tfrac14 (\eta_k - \eta_{k-1})\big), \quad
\alpha_0 = 2\varepsilon$$

with the steepest direction $s$ of the ball. At checkpoints, which become more frequent, $\alpha$ is
halved, and the ascent continues from the best point so far, if (1) less than three quarters of the
steps since the last checkpoint increased the gain, or (2) $\alpha$ was not halved there, and the
best gain is still what it was there.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ... import tree
from ...check import expect_count
from ...core import Model, Scalar
from ...threat.ball import L2, Ball, Linf, Perturbation, perturbation_bounds
from ...threat.inputs import Box, check_box, check_input
from ..base import Candidate, clip_to_box, no_candidate
from ..continuous_batching import AttackLoop
from ..goal import Goal, as_goal
from .pgd import feasible_gradient, start_points

STEP_WEIGHT = 0.75  # weight of the new step; the rest is the previous step (momentum)
MIN_INCREASING = 0.75  # fraction of the steps that must increase the gain


class EvaluatedPoint(NamedTuple):
    """A point of the ascent and the gradient there."""

    candidate: Candidate
    gradient: Perturbation


class APGDState(NamedTuple):
    """State of one ascent: the current and the previous point, the best points, and what was
    recorded at the last checkpoint.
    """

    current: EvaluatedPoint
    previous: Perturbation
    highest: EvaluatedPoint  # largest gain of this ascent
    best: Candidate  # the result, over all restarts: success first, then gain
    step_size: Scalar
    n_increases: Int[Array, ""]  # steps since the last checkpoint that increased the gain
    halved: Bool[Array, ""]  # whether the step size was halved at the last checkpoint
    checkpoint_gain: Scalar  # the largest gain at the last checkpoint

    def advance(self, new: EvaluatedPoint) -> "APGDState":
        """The state after a step to a new point."""
        gain = new.candidate.gain
        return self._replace(
            current=new,
            previous=self.current.candidate.eta,
            highest=tree.where(gain > self.highest.candidate.gain, new, self.highest),
            best=self.best.better_of(new.candidate),
            n_increases=self.n_increases + (gain > self.current.candidate.gain),
        )

    def at_checkpoint(self, n_steps: Int[Array, ""]) -> "APGDState":
        """Halves the step size at a checkpoint if the ascent has stalled. `n_steps` is the number
        of steps since the last checkpoint; 0 means that there is no checkpoint here.
        """
        gain = self.highest.candidate.gain
        stuck = ~self.halved & (gain == self.checkpoint_gain)
        halved = (self.n_increases < MIN_INCREASING * n_steps) | stuck
        after = self._replace(
            current=tree.where(halved, self.highest, self.current),
            step_size=jnp.where(halved, self.step_size / 2, self.step_size),
            n_increases=jnp.zeros_like(self.n_increases),
            halved=halved,
            checkpoint_gain=gain,
        )
        return tree.where(n_steps > 0, after, self)


class APGD(eqx.Module):
    r"""Auto-PGD: projected gradient ascent with momentum whose step size starts at $2\varepsilon$
    and is halved when progress stalls, for `Linf` and `L2` balls (Croce & Hein 2020).

    The budget eps is the radius of the ball. Without a key the attack starts at the input, with one
    at a random point of the ball, another for each of the `restarts`. It stops as soon as its goal
    is reached, and returns the best point seen, as `PGD` does. A plain loss as its goal is never
    reached, so all steps are run. `box` is the valid range of inputs.

    >>> from thetax.attack import margin_loss
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> APGD(margin_loss, Linf(0.1), steps=10)(line, jnp.array([0.5, 0.5]), jnp.array(0)).tolist()
    [0.6..., 0.4...]
    """

    goal: Goal = eqx.field(static=True, converter=as_goal)
    ball: Ball
    steps: int = eqx.field(static=True, kw_only=True)
    restarts: int = eqx.field(static=True, kw_only=True, default=1)
    box: Box | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        if not isinstance(self.ball, Linf | L2):
            raise ValueError(
                f"APGD: ball must be Linf or L2; got {type(self.ball).__name__}. Use PGD."
            )
        expect_count("APGD", steps=self.steps, restarts=self.restarts)
        if self.box is not None:
            check_box("APGD", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("APGD", model, x, y, self.box)
        return self.loop(model, x, y, key=key).run()

    def loop(self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None) -> AttackLoop:
        """The attack as a loop; step 0 of each ascent only evaluates its start."""
        x = jnp.asarray(x)
        limits = perturbation_bounds(x, self.box)
        start = start_points("APGD", self.ball, x, limits, self.restarts, key)
        spans = jnp.concatenate([jnp.zeros(1, jnp.int32), _checkpoint_spans(self.steps)])
        initial_step_size = jnp.asarray(2 * self.ball.radius, x.dtype)
        steps_per_start = 1 + self.steps

        def project(eta):
            return self.ball.project(eta, limits).astype(x.dtype)

        def gain(eta):
            candidate = self.goal.evaluate(model, x, eta, y)
            return candidate.gain, candidate

        def evaluate(eta):
            (_, candidate), gradient = jax.value_and_grad(gain, has_aux=True)(eta)
            return EvaluatedPoint(candidate, feasible_gradient(gradient, eta, limits))

        def init():
            none = no_candidate(jnp.zeros_like(x))
            point = EvaluatedPoint(none, jnp.zeros_like(x))
            return _new_ascent(point, none, initial_step_size), jnp.zeros((), jnp.int32)

        def unfinished(carry):
            state, step = carry
            return ~state.best.reached & (step < steps_per_start * self.restarts)

        def take_step(carry):
            state, step = carry
            k = step % steps_per_start
            eta = state.current.candidate.eta
            # the first step has no previous one, hence no momentum
            weight = jnp.where(k == 1, 1.0, STEP_WEIGHT).astype(x.dtype)
            z = project(eta + state.step_size * self.ball.steepest(state.current.gradient))
            moved = project(eta + weight * (z - eta) + (1 - weight) * (eta - state.previous))
            point = evaluate(jnp.where(k == 0, start(step // steps_per_start), moved))
            restarted = _new_ascent(point, state.best, initial_step_size)
            advanced = state.advance(point).at_checkpoint(spans[k])
            return tree.where(k == 0, restarted, advanced), step + 1

        def result(carry):
            return clip_to_box(x, carry[0].best.eta, self.box)

        return AttackLoop(init, unfinished, take_step, result)


def checkpoints(steps: int) -> tuple[int, ...]:
    r"""The steps at which the step size may be halved, $\lceil p_j N \rceil$ with $p_0 = 0$,
    $p_1 = 0.22$, $p_{j+1} = p_j + \max(p_j - p_{j-1} - 0.03,\ 0.06)$.

    >>> checkpoints(100)
    (0, 22, 41, 57, 70, 80, 87, 93, 99)
    """
    previous, current, result = 0, 22, {0}  # in hundredths: integers, so no rounding errors
    while current <= 100:
        result.add(-(-current * steps // 100))
        previous, current = current, current + max(current - previous - 3, 6)
    return tuple(sorted(result))


def _checkpoint_spans(steps: int) -> Int[Array, " t"]:
    """For each step 0, or if there is a checkpoint after it the number of steps since the one
    before.
    """
    spans = np.zeros(steps, np.int32)
    ends = checkpoints(steps)
    spans[np.asarray(ends[1:]) - 1] = np.diff(ends)
    return jnp.asarray(spans)


def _new_ascent(point: EvaluatedPoint, best: Candidate, step_size: Scalar) -> APGDState:
    """The state at the start of an ascent; `best` is the best result of the ascents before it."""
    eta, gain = point.candidate.eta, point.candidate.gain
    n_increases = jnp.zeros((), jnp.int32)
    halved = jnp.zeros((), bool)
    best = best.better_of(point.candidate)
    return APGDState(point, eta, point, best, step_size, n_increases, halved, gain)
