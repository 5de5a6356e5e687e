r"""The nearest wrong input by asking for decisions alone (Chen, Jordan & Wainwright 2020): no
gradient, no score.

At a point $x_t$ of the boundary the direction in which the answer becomes wrong is seen from the
answers $\varphi = \pm 1$ (wrong, right) at points around it, with directions $u_b$ drawn from the
unit sphere:

$$v = \sum_b (\varphi(x_t + \delta u_b) - \bar\varphi)\, u_b, \qquad \delta = \|x_t - x\|_p / d$$

Then a step along $v$, of length $\|x_t - x\|_p / \sqrt t$ or half of it and so on until it ends
where the answer is wrong; and from there back towards $x$ by bisection, to the boundary again.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...core import Model, Scalar
from ...threat.ball import L2, Ball, Linf, Shift
from ...threat.inputs import Range, check_box, check_input
from ..goal import Goal, as_goal, untargeted

Wrong = Callable[[Any], Bool[Array, ""]]
HALVINGS = 25  # of a step, after which it is none


class HopSkipJump(eqx.Module):
    r"""The nearest wrong input that `steps` hops along the boundary find, in the norm of `L2` or
    `Linf`; the model is asked for its class only, `n_queries` times a hop for the direction (Chen,
    Jordan & Wainwright 2020).

    It begins at the nearest wrong one of `n_starts` points drawn from the `box`, and needs a key.
    Where none of them is wrong, and where x itself is, it gives x. `goal` says what is wrong; its
    gain is never looked at.

    Departs: the paper asks $\sqrt t$ times as often in hop $t$; here every hop asks alike.

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
    box: Range = eqx.field(static=True, kw_only=True)
    goal: Goal = eqx.field(static=True, kw_only=True, converter=as_goal, default=untargeted())

    def __check_init__(self):
        if self.norm not in (L2, Linf):
            raise ValueError(
                f"HopSkipJump: norm is L2 or Linf; got {getattr(self.norm, '__name__', self.norm)}."
            )
        if min(self.steps, self.n_queries, self.n_starts) < 1:
            came = f"steps={self.steps}, queries={self.n_queries}, tries={self.n_starts}"
            raise ValueError(
                f"HopSkipJump: steps, queries and tries must be at least 1; got {came}."
            )
        if self.box is None:
            raise ValueError(
                "HopSkipJump: begins at points drawn from the range of inputs; give a box, as "
                "(0.0, 1.0)."
            )
        check_box("HopSkipJump", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("HopSkipJump", model, x, y, self.box)
        if key is None:
            raise ValueError(
                "HopSkipJump: begins at drawn points and looks in drawn directions; give a key."
            )
        x = jnp.asarray(x)
        distance = lambda point: self.norm(1.0).norm(point - x)

        def wrong(point):
            return self.goal.reached(model(point), y)

        def hop(state, now):
            here, best = state
            t, key = now
            far = distance(here)
            reach = jnp.where(t == 1, 0.1 * (self.box[1] - self.box[0]), far / x.size)
            v = self._direction(wrong, here, reach, key)
            here = self._back(wrong, x, self._leap(wrong, here, v, far / jnp.sqrt(t)))
            return (here, jnp.where(distance(here) < distance(best), here, best)), None

        key_start, key_hops = jr.split(key)
        drawn = jr.uniform(key_start, (self.n_starts, *x.shape), x.dtype, *self.box)
        hits = jax.vmap(wrong)(drawn)
        here = self._back(
            wrong, x, drawn[jnp.argmin(jnp.where(hits, jax.vmap(distance)(drawn), jnp.inf))]
        )
        times = jnp.arange(1, self.steps + 1).astype(x.dtype)
        (_, best), _ = jax.lax.scan(hop, (here, here), (times, jr.split(key_hops, self.steps)))
        return jnp.where(hits.any() & ~wrong(x), best, x)

    def _direction(self, wrong: Wrong, here: Shift, reach: Scalar, key: PRNGKeyArray) -> Shift:
        """Where the answer becomes wrong, of norm 1, as the answers around a point tell."""
        shape = self.n_queries, *here.shape
        u = (
            jr.normal(key, shape)
            if self.norm is L2
            else jr.uniform(key, shape, minval=-1.0, maxval=1.0)
        )
        u = jax.vmap(L2(1.0).steepest)(u.astype(here.dtype))
        points = jnp.clip(here[None] + reach * u, *self.box)
        signs = jnp.where(jax.vmap(wrong)(points), 1.0, -1.0).astype(here.dtype)
        alike = jnp.abs(signs).sum() == jnp.abs(signs.sum())
        weights = jnp.where(alike, signs, signs - signs.mean())
        return self.norm(1.0).steepest(jnp.tensordot(weights, points - here[None], 1))

    def _leap(self, wrong: Wrong, here: Shift, v: Shift, length: Scalar) -> Shift:
        """The longest of the steps that ends where the answer is wrong."""
        to = lambda count: jnp.clip(here + length * 0.5**count * v, *self.box)
        count = jax.lax.while_loop(
            lambda count: (count < HALVINGS) & ~wrong(to(count)),
            lambda count: count + 1,
            jnp.zeros((), here.dtype),
        )
        return jnp.where(count < HALVINGS, to(count), here)

    def _back(self, wrong: Wrong, x: Shift, far: Shift) -> Shift:
        """The wrong point where the way from a wrong point back to x, straight in the norm, leaves
        what is wrong.
        """
        length = self.norm(1.0).norm(far - x)

        def at(share):
            if self.norm is L2:
                return jnp.clip((1 - share) * x + share * far, *self.box)
            return jnp.clip(x + jnp.clip(far - x, -share * length, share * length), *self.box)

        def halve(_, state):
            right, least, nearest = state
            middle = (right + least) / 2
            point = at(middle)
            hit = wrong(point)
            return (
                jnp.where(hit, right, middle),
                jnp.where(hit, middle, least),
                jnp.where(hit, point, nearest),
            )

        ends = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
        return jax.lax.fori_loop(0, _bisections(x.size, self.norm), halve, (*ends, far))[2]


def _bisections(d: int, norm: type[Ball]) -> int:
    r"""As many as it takes to come within $d^{-3/2}$, or $d^{-2}$ for `Linf`, of the whole way; 12
    at the least.
    """
    return min(max(math.ceil((1.5 if norm is L2 else 2.0) * math.log2(max(d, 2))), 12), 24)
