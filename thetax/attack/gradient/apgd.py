r"""Projected ascent that finds the length of its own step (Croce & Hein 2020): the number of steps
is all it is told.

$$z = \Pi\big(\eta_k + \alpha_k\, s(\nabla_k)\big), \qquad
\eta_{k+1} = \Pi\big(\eta_k + \tfrac34 (z - \eta_k) + \tfrac14 (\eta_k - \eta_{k-1})\big), \quad
\alpha_0 = 2\varepsilon$$

with the steepest direction $s$ of the ball. At checkpoints, which come the more often the later it
is, $\alpha$ is halved, and the ascent goes on from the best point so far, if (1) less than three
quarters of the steps since the last checkpoint gained anything, or (2) $\alpha$ was not halved
there, and the best gain is still what it was there.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...core import Model, Scalar
from ...threat.ball import L2, Ball, Linf, Shift, limits_of
from ...threat.inputs import Range, check_box, check_input
from ..base import Candidate, clip_to_box, no_candidate
from ..continuous_batching import AttackLoop
from ..goal import Goal, as_goal
from .pgd import feasible_gradient, start_points

ONWARDS = 0.75  # of a step is the new direction, the rest is that of the step before
RISES = 0.75  # the share of the steps that has to gain


class Place(NamedTuple):
    """A point of the ascent and the gradient there."""

    seen: Candidate
    slope: Shift


class Climb(NamedTuple):
    """Where an ascent stands and stood before, the highest place and the best, and what the last
    checkpoint saw.
    """

    here: Place
    before: Shift
    peak: Place  # of most gain
    best: Candidate  # the answer: what reached the goal comes first
    step_size: Scalar
    rises: Int[Array, ""]  # steps since the last checkpoint that gained
    halved: Bool[Array, ""]  # at the last checkpoint
    level: Scalar  # the gain of the peak there

    def to(self, new: Place) -> "Climb":
        """One step further."""
        rises = self.rises + (new.seen.gain > self.here.seen.gain)
        peak = _choose(new.seen.gain > self.peak.seen.gain, new, self.peak)
        best = self.best.beside(new.seen)
        return self._replace(here=new, before=self.here.seen.eta, peak=peak, best=best, rises=rises)

    def checked(self, span: Int[Array, ""]) -> "Climb":
        """After a checkpoint so many steps from the last one; the same if there is none, that is
        for 0.
        """
        stuck = ~self.halved & (self.peak.seen.gain == self.level)
        halved = (self.rises < RISES * span) | stuck
        after = self._replace(
            here=_choose(halved, self.peak, self.here),
            step_size=jnp.where(halved, self.step_size / 2, self.step_size),
            rises=jnp.zeros_like(self.rises),
            halved=halved,
            level=self.peak.seen.gain,
        )
        return _choose(span > 0, after, self)


class APGD(eqx.Module):
    r"""Projected ascent with momentum whose step begins at $2\varepsilon$ and is halved where it
    stalls, for the balls `Linf` and `L2` (Croce & Hein 2020).

    From the input itself, or with a key from points of the ball; it stops where its goal is
    reached, and of all points that it came to, over all `restarts`, it gives the best, as `PGD`
    does. `box` is the range of valid inputs. A plain loss is a goal never reached.

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
    box: Range | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        if not isinstance(self.ball, Linf | L2):
            raise ValueError(
                f"APGD: its steps are made for Linf and L2; got {type(self.ball).__name__}; take "
                "PGD."
            )
        if self.steps < 1 or self.restarts < 1:
            came = f"steps={self.steps}, restarts={self.restarts}"
            raise ValueError(f"APGD: steps and restarts must be at least 1; got {came}.")
        if self.box is not None:
            check_box("APGD", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("APGD", model, x, y, self.box)
        return self.search(model, x, y, key=key).run()

    def search(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> AttackLoop:
        """Step by step; the first of each ascent only looks at its start."""
        x = jnp.asarray(x)
        limits = limits_of(x, self.box)
        start = start_points("APGD", self.ball, x, limits, self.restarts, key)
        spans = jnp.concatenate([jnp.zeros(1, jnp.int32), _spans(self.steps)])
        rate = jnp.asarray(2 * self.ball.radius, x.dtype)

        def inside(eta):
            return self.ball.project(eta, limits).astype(x.dtype)

        def gained(eta):
            seen = self.goal.judge(model, x, eta, y)
            return seen.gain, seen

        def look(eta):
            (_, seen), slope = jax.value_and_grad(gained, has_aux=True)(eta)
            return Place(seen, feasible_gradient(slope, eta, limits))

        def begin():
            none = no_candidate(jnp.zeros_like(x))
            return _begin(Place(none, jnp.zeros_like(x)), none, rate), jnp.zeros((), jnp.int32)

        def unfinished(now):
            climb, step = now
            return ~climb.best.reached & (step < (1 + self.steps) * self.restarts)

        def move(now):
            (climb, step), k = now, now[1] % (1 + self.steps)
            eta = climb.here.seen.eta
            onwards = jnp.where(k == 1, 1.0, ONWARDS).astype(
                x.dtype
            )  # there is no step before the first
            z = inside(eta + climb.step_size * self.ball.steepest(climb.here.slope))
            next_one = inside(eta + onwards * (z - eta) + (1 - onwards) * (eta - climb.before))
            seen = look(jnp.where(k == 0, start(step // (1 + self.steps)), next_one))
            return _choose(
                k == 0, _begin(seen, climb.best, rate), climb.to(seen).checked(spans[k])
            ), step + 1

        def answer(now):
            return clip_to_box(x, now[0].best.eta, self.box)

        return AttackLoop(begin, unfinished, move, answer)


def checkpoints(steps: int) -> tuple[int, ...]:
    r"""$\lceil p_j N \rceil$ with $p_0 = 0$, $p_1 = 0.22$,
    $p_{j+1} = p_j + \max(p_j - p_{j-1} - 0.03,\ 0.06)$.

    >>> checkpoints(100)
    (0, 22, 41, 57, 70, 80, 87, 93, 99)
    """
    before, share, found = 0, 22, {0}  # in hundredths, so that nothing is rounded
    while share <= 100:
        found.add(-(-share * steps // 100))
        before, share = share, share + max(share - before - 3, 6)
    return tuple(sorted(found))


def _spans(steps: int) -> Int[Array, " t"]:
    """For each step the number of steps between the last checkpoint and the one after it; 0 where
    there is none.
    """
    spans = np.zeros(steps, np.int32)
    places = checkpoints(steps)
    spans[np.asarray(places[1:]) - 1] = np.diff(places)
    return jnp.asarray(spans)


def _begin(here: Place, best: Candidate, rate: Scalar) -> Climb:
    """An ascent from here, after others of which the best is known."""
    eta, gain = here.seen.eta, here.seen.gain
    rises = jnp.zeros((), jnp.int32)
    halved = jnp.zeros((), bool)
    return Climb(here, eta, here, best.beside(here.seen), rate, rises, halved, gain)


def _choose(condition: Any, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), a, b)
