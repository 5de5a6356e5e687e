r"""HopSkipJump (Chen, Jordan & Wainwright 2020): minimum-norm attack that queries only the
predicted class, no gradients and no scores.

At a point $x_t$ of the decision boundary the direction towards the misclassified side is estimated
from the answers $\varphi = \pm 1$ (wrong, right) at points around it, with directions $u_b$
sampled from the unit sphere:

$$v = \sum_b (\varphi(x_t + \delta u_b) - \bar\varphi)\, u_b, \qquad \delta = \|x_t - x\|_p / d$$

Then a step along $v$, of length $\|x_t - x\|_p / \sqrt t$, is halved until it ends where the
class is wrong; and a binary search back towards $x$ leads to the boundary again.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...check import expect_count
from ...core import Model, Scalar
from ...threat.ball import L2, Ball, Linf, Perturbation
from ...threat.inputs import Box, check_box, check_input
from ..goal import Goal, as_goal, untargeted

IsAdversarial = Callable[[Any], Bool[Array, ""]]
MAX_HALVINGS = 25  # of a step; after that the point stays where it is


class HopSkipJump(eqx.Module):
    r"""HopSkipJump: a near misclassified input in the norm of `L2` or `Linf`, from the predicted
    class alone (Chen, Jordan & Wainwright 2020).

    It takes `steps` steps along the boundary, each with `n_queries` queries for its direction. It
    starts at the nearest misclassified one of `n_starts` uniformly random points of the `box`, and
    needs a key. If none of them is misclassified, or x itself already is, x is returned. `goal`
    says what counts as success; its gain is not used.

    Departs: the paper makes $\sqrt t$ times as many queries in step $t$; here all steps make as
    many.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [0.0, 1.0]]), jnp.array([0.0, -0.5]))
    >>> attack = HopSkipJump(L2, steps=10, n_queries=50, box=(0.0, 1.0))
    >>> x = attack(line, jnp.array([0.5, 0.25]), jnp.array(0), key=jr.key(0))
    >>> bool(0.5 < x[1] < 0.51), bool(abs(x[0] - 0.5) < 0.1)
    (True, True)
    """

    norm: type[Ball] = eqx.field(static=True, default=L2)
    steps: int = eqx.field(static=True, kw_only=True)
    n_queries: int = eqx.field(static=True, kw_only=True, default=100)
    n_starts: int = eqx.field(static=True, kw_only=True, default=100)
    box: Box = eqx.field(static=True, kw_only=True)
    goal: Goal = eqx.field(static=True, kw_only=True, converter=as_goal, default=untargeted())

    def __check_init__(self):
        if self.norm not in (L2, Linf):
            given = getattr(self.norm, "__name__", self.norm)
            raise ValueError(f"HopSkipJump: norm must be L2 or Linf; got {given}.")
        expect_count(
            "HopSkipJump", steps=self.steps, n_queries=self.n_queries, n_starts=self.n_starts
        )
        if self.box is None:
            raise ValueError(
                "HopSkipJump: starts at random points of the valid range of inputs. Pass box=, for "
                "instance (0.0, 1.0)."
            )
        check_box("HopSkipJump", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("HopSkipJump", model, x, y, self.box)
        if key is None:
            raise ValueError("HopSkipJump: samples random points and directions. Pass key=.")
        x = jnp.asarray(x)
        distance = lambda point: self.norm(1.0).norm(point - x)

        def is_adversarial(point):
            return self.goal.success(model(point), y)

        def hop(carry, step_and_key):
            point, best = carry
            t, key = step_and_key
            length = distance(point)
            # the first point is far from x, so its probes use a fraction of the box instead
            probe_radius = jnp.where(t == 1, 0.1 * (self.box[1] - self.box[0]), length / x.size)
            v = self._estimate_direction(is_adversarial, point, probe_radius, key)
            moved = self._line_search(is_adversarial, point, v, length / jnp.sqrt(t))
            point = self._to_boundary(is_adversarial, x, moved)
            best = jnp.where(distance(point) < distance(best), point, best)
            return (point, best), None

        key_start, key_hops = jr.split(key)
        starts = jr.uniform(key_start, (self.n_starts, *x.shape), x.dtype, *self.box)
        adversarial = jax.vmap(is_adversarial)(starts)
        start_distances = jnp.where(adversarial, jax.vmap(distance)(starts), jnp.inf)
        start = self._to_boundary(is_adversarial, x, starts[jnp.argmin(start_distances)])
        times = jnp.arange(1, self.steps + 1).astype(x.dtype)
        (_, best), _ = jax.lax.scan(hop, (start, start), (times, jr.split(key_hops, self.steps)))
        return jnp.where(adversarial.any() & ~is_adversarial(x), best, x)

    def _estimate_direction(
        self,
        is_adversarial: IsAdversarial,
        point: Perturbation,
        probe_radius: Scalar,
        key: PRNGKeyArray,
    ) -> Perturbation:
        """Monte-Carlo estimate of the direction towards the misclassified side, of norm 1."""
        shape = self.n_queries, *point.shape
        u = (
            jr.normal(key, shape)
            if self.norm is L2
            else jr.uniform(key, shape, minval=-1.0, maxval=1.0)
        )
        u = jax.vmap(L2(1.0).steepest)(u.astype(point.dtype))
        probes = jnp.clip(point[None] + probe_radius * u, *self.box)
        signs = jnp.where(jax.vmap(is_adversarial)(probes), 1.0, -1.0).astype(point.dtype)
        # subtracting the mean reduces the variance, but would give 0 if all answers agree
        all_agree = jnp.abs(signs).sum() == jnp.abs(signs.sum())
        weights = jnp.where(all_agree, signs, signs - signs.mean())
        return self.norm(1.0).steepest(jnp.tensordot(weights, probes - point[None], 1))

    def _line_search(
        self, is_adversarial: IsAdversarial, point: Perturbation, v: Perturbation, length: Scalar
    ) -> Perturbation:
        """Halves the step along v until it ends at a misclassified point."""
        moved = lambda halvings: jnp.clip(point + length * 0.5**halvings * v, *self.box)
        halvings = jax.lax.while_loop(
            lambda halvings: (halvings < MAX_HALVINGS) & ~is_adversarial(moved(halvings)),
            lambda halvings: halvings + 1,
            jnp.zeros((), point.dtype),
        )
        return jnp.where(halvings < MAX_HALVINGS, moved(halvings), point)

    def _to_boundary(
        self, is_adversarial: IsAdversarial, x: Perturbation, adversarial: Perturbation
    ) -> Perturbation:
        """Binary search from a misclassified point towards x for the decision boundary; the result
        is on the misclassified side.
        """
        length = self.norm(1.0).norm(adversarial - x)

        def at(fraction):
            if self.norm is L2:
                return jnp.clip((1 - fraction) * x + fraction * adversarial, *self.box)
            step = fraction * length  # in Linf the difference is clipped, not scaled
            return jnp.clip(x + jnp.clip(adversarial - x, -step, step), *self.box)

        def halve(_, state):
            low, high, nearest = state  # at(low) is right, at(high) is misclassified
            middle = (low + high) / 2
            point = at(middle)
            success = is_adversarial(point)
            return (
                jnp.where(success, low, middle),
                jnp.where(success, middle, high),
                jnp.where(success, point, nearest),
            )

        ends = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
        n_steps = _bisection_steps(x.size, self.norm)
        return jax.lax.fori_loop(0, n_steps, halve, (*ends, adversarial))[2]


def _bisection_steps(d: int, norm: type[Ball]) -> int:
    r"""The number of halvings to a relative precision of $d^{-3/2}$, or $d^{-2}$ for `Linf`;
    between 12 and 24.
    """
    return min(max(math.ceil((1.5 if norm is L2 else 2.0) * math.log2(max(d, 2))), 12), 24)
