r"""What is left of a layer's features when it is infinitely wide: their moments for pairs of
inputs.

The features $h_1, \dots, h_w$ of a place are alike in law, and independent in the limit, so that an
average over them is an expectation. For two inputs $x, y$ there remain

$$k(x, y) = \mathbb{E}\,h(x) h(y), \qquad \Theta(x, y) = \nabla_\theta h(x) \cdot \nabla_\theta
h(y), \qquad
\mu(x) = \mathbb{E}\,h(x).$$

In an image features at two places are not independent: $k$ and $\Theta$ are kept for equal places
only, which is all that convolutions and activations need, or for all pairs of places where
something later averages over them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...layers import Activation
from .dual_activations import Expectations, expectations

Numbers = Float[Array, "..."]


class NeedsPairs(Exception):
    """Places are averaged, but only moments of equal places were kept."""


class Given(NamedTuple):
    """The data, before any weight: examples of the two sides, and whether the moments of all pairs
    of places are kept.

    `alone` says that the two sides are one and the same example.
    """

    xs: Float[Array, "n *s"]
    ys: Float[Array, "m *s"]
    pairs: bool = False
    alone: bool = False

    def map(self, f: Callable[[Any], Any]) -> "Given":
        """A function without chance or weights, applied to every example."""
        return self._replace(xs=jax.vmap(f)(self.xs), ys=jax.vmap(f)(self.ys))

    def features(self) -> "Features":
        r"""Channels are the features, and all that is known of them: $k = \frac1c \sum_l x_l y_l$
        and $\Theta = 0$.
        """
        space = self.xs.ndim - 2
        pairs = self.pairs and space > 0
        across, own = ("nc...,mc...->nm...", "nc...,nc...->n...")
        if pairs:
            p = "hw"[:space]
            q = "ij"[:space]
            across = f"nc{p},mc{q}->nm{p}{q}"
            own = f"nc{p},nc{q}->n{p}{q}"
        mean = lambda sums, a, b: (
            jnp.einsum(sums, a, b, precision=jax.lax.Precision.HIGHEST) / a.shape[1]
        )
        k = mean(across, self.xs, self.ys)
        left, right = (
            (k[:, 0], k[0])
            if self.alone
            else (mean(own, self.xs, self.xs), mean(own, self.ys, self.ys))
        )
        means = self.xs.mean(axis=1), self.ys.mean(axis=1)
        return Features(k, jnp.zeros_like(k), left, right, means, self.xs.shape[1], space, pairs)


@dataclass(frozen=True)
class Features:
    r"""The moments: of shape $(n, m)$, then the places, once or (with `pairs`) twice.

    `left` and `right` are $k(x, x)$ and $k(y, y)$; `means` is $\mu$ of both, or None for 0; `width`
    counts the features, `space` the axes of places. Activations want `gaussian` features. Those
    that a norm has scaled by a trained $\gamma$, `stretch` times, have besides $\Theta$ the part
    $h(x) h(y)$, which is chance until it is averaged. `origin` names the layers whose draws the
    features are made of.
    """

    k: Numbers
    theta: Numbers
    left: Numbers
    right: Numbers
    means: tuple[Numbers, Numbers] | None
    width: int
    space: int = 0
    pairs: bool = False
    gaussian: bool = False
    stretch: int = 0
    origin: frozenset[str] = frozenset({""})

    @property
    def ntk(self) -> Numbers:
        r"""$\Theta$ with all its parts, averaged over the features."""
        return self.theta if self.stretch == 0 else self.theta + self.stretch * self.k

    @property
    def settled(self) -> "Features":
        """The same where only averages matter from here on."""
        return (
            self if self.stretch == 0 else replace(self, theta=self.ntk, stretch=0, gaussian=False)
        )

    @property
    def variances(self) -> tuple[Numbers, Numbers]:
        r"""$k(x, x)$ and $k(y, y)$ at equal places."""
        equal = lambda k: self._equal(k, 1)
        return equal(self.left), equal(self.right)

    def _equal(self, k: Numbers, lead: int) -> Numbers:
        """Of all pairs of places those of equal ones, for moments with so many axes before the
        places.
        """
        if not self.pairs:
            return k
        shape = k.shape[lead : lead + self.space]
        size = k[(0,) * lead].size
        side = round(size**0.5)
        flat = k.reshape(*k.shape[:lead], side, side)
        return jnp.diagonal(flat, axis1=-2, axis2=-1).reshape(*k.shape[:lead], *shape)

    def across(self, x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
        """Numbers for every place of either side, laid so that together they broadcast to the shape
        of `k`.
        """
        x = jnp.expand_dims(x, 1)
        y = jnp.expand_dims(y, 0)
        return self._crossed(x, y, 2)

    def within(self, x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
        """The same for two numbers at every place of one side, and the shape of `left` or
        `right`.
        """
        return self._crossed(x, y, 1)

    def _crossed(self, x: Numbers, y: Numbers, lead: int) -> tuple[Numbers, Numbers]:
        if not self.pairs:
            return x, y
        ahead = tuple(range(lead, lead + self.space))
        behind = tuple(range(lead + self.space, lead + 2 * self.space))
        return jnp.expand_dims(x, behind), jnp.expand_dims(y, ahead)

    def apart(self) -> "Features":
        """Equal places only."""
        k = self._equal(self.k, 2)
        theta = self._equal(self.theta, 2)
        left, right = self.variances
        return replace(self, k=k, theta=theta, left=left, right=right, pairs=False)

    def mixed(self, f: Callable[[Numbers, int], Numbers]) -> "Features":
        """A map of the places, given the moments and how many axes come before the places."""
        k = f(self.k, 2)
        theta = f(self.ntk, 2)
        return replace(
            self, k=k, theta=theta, left=f(self.left, 1), right=f(self.right, 1), stretch=0
        )

    def averaged(self) -> "Features":
        """All features of all places as one vector, of which only averages matter."""
        over = lambda k, lead: k.mean(axis=tuple(range(lead, k.ndim)))
        return replace(self.apart().mixed(over), space=0, means=None)

    def through(self, activation: Activation) -> "Features":
        r"""$\varphi(h)$ of Gaussian $h$: $k$ becomes $\mathbb{E}\,\varphi\varphi$, $\Theta$ is
        multiplied by $\mathbb{E}\,\varphi'\varphi'$, and $h(x)h(y)$ becomes
        $\mathbb{E}\,h\varphi'(h)\,h\varphi'(h)$.
        """
        of, (vx, vy) = expectations(activation), self.variances
        (x, y), own = self.across(vx, vy), lambda k, v: _own(of, k, self.within(v, v))
        k, slope = of.pair(x, self.k, y)
        theta = self.theta * slope
        if self.stretch:
            theta = theta + self.stretch * expectations(_leaning(activation)).pair(x, self.k, y)[0]
        left = own(self.left, vx)
        right = own(self.right, vy)
        means = (of.mean(vx), of.mean(vy))
        return replace(
            self, k=k, theta=theta, left=left, right=right, means=means, gaussian=False, stretch=0
        )

    def plus(self, other: "Features") -> "Features":
        r"""Sums of features that are independent: $k + k' + \mu\mu'^\top + \mu'\mu^\top$, and
        $\Theta + \Theta'$.
        """
        one, two = self.settled, other.settled
        k = one.k + two.k
        left = one.left + two.left
        right = one.right + two.right
        means = one.means or two.means
        if one.means and two.means:
            (ax, ay), (bx, by) = one.means, two.means
            k = k + mul(*self.across(ax, by)) + mul(*self.across(bx, ay))
            left = left + mul(*self.within(ax, bx)) + mul(*self.within(bx, ax))
            right = right + mul(*self.within(ay, by)) + mul(*self.within(by, ay))
            means = ax + bx, ay + by
        return replace(
            one,
            k=k,
            theta=one.theta + two.theta,
            left=left,
            right=right,
            means=means,
            gaussian=one.gaussian and two.gaussian,
            origin=one.origin | two.origin,
        )

    def beside(self, other: "Features") -> "Features":
        """The features of both, one after another: averages over all of them."""
        one, two = self.settled, other.settled
        width = one.width + two.width
        joined = lambda a, b: (one.width * a + two.width * b) / width
        zeros = lambda of: (
            tuple(map(jnp.zeros_like, of.variances)) if of.means is None else of.means
        )
        means = tuple(map(joined, zeros(one), zeros(two)))
        moments = {
            name: joined(getattr(one, name), getattr(two, name))
            for name in ("k", "theta", "left", "right")
        }
        return replace(
            one, **moments, means=means, width=width, gaussian=False, origin=one.origin | two.origin
        )


def _own(of: Expectations, k: Numbers, variances: tuple[Numbers, Numbers]) -> Numbers:
    x, y = variances
    return of.pair(x, k, y)[0]


def _leaning(activation: Activation) -> Activation:
    r"""$z \mapsto z\varphi'(z)$, which is $\varphi$ again where it is linear on either side of
    0.
    """
    lean = lambda z: z * jax.jvp(activation, (z,), (jnp.ones_like(z),))[1]
    with jax.ensure_compile_time_eval():
        z = jnp.array([-3.0, -0.5, 2.0, 5.0])
        return activation if jnp.allclose(lean(z), activation(z), atol=1e-6) else lean
