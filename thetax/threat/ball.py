r"""How far an input may be moved (§13.1): $\|\eta\|_p \le \varepsilon$, and the values that an
input can have.

An attack needs five things of a ball: the norm; the Euclidean projection
$\Pi(z) = \arg\min_{\|\eta\|_p \le \varepsilon} \|\eta - z\|_2$; the direction of steepest ascent,
$\arg\max_{\|\eta\|_p \le 1} \langle g, \eta \rangle$, and how steep it is, the dual norm $\|g\|_q$,
$1/p + 1/q = 1$; and a uniform draw. Where the input has a range, as pixels have, $\eta$ has limits
$l \le \eta \le h$ around 0 besides, and the projection is that onto both at once: of all points in
the ball and in the range, the nearest.

Departs: the notes project by $\varepsilon z / \|z\|_p$, which puts points of the interior onto the
sphere and is no projection for $p \ne 2$.
"""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..core import Scalar

Shift = Float[Array, "*s"]
Radius = float | int | Scalar | Int[Array, ""]
Limits = tuple[Shift, Shift]  # the least and the most that may be added to an input


class Ball(eqx.Module):
    r"""$\{\eta : \|\eta\| \le \varepsilon\}$; the radius is a leaf, so that a sweep over radii is a
    `vmap`.
    """

    radius: eqx.AbstractVar[Radius]

    def __check_init__(self):
        known = isinstance(self.radius, float | int | np.number) or (
            isinstance(self.radius, Array)
            and not isinstance(self.radius, Tracer)
            and self.radius.ndim == 0
        )
        if known and not 0 <= self.radius < math.inf:
            raise ValueError(
                f"{type(self).__name__}: radius must be finite and not negative; got {self.radius}."
            )
        if known and isinstance(self, L0) and self.radius != int(self.radius):
            raise ValueError(
                f"L0: radius is how many numbers may change, so a whole number; got {self.radius}."
            )

    @abc.abstractmethod
    def norm(self, eta: Shift) -> Scalar:
        r"""$\|\eta\|_p$."""

    @abc.abstractmethod
    def dual(self, g: Shift) -> Scalar:
        r"""$\max_{\|\eta\|_p \le 1} \langle g, \eta \rangle = \|g\|_q$."""

    @abc.abstractmethod
    def steepest(self, g: Shift) -> Shift:
        r"""$\arg\max_{\|\eta\|_p \le 1} \langle g, \eta \rangle$; 0 where $g$ is."""

    @abc.abstractmethod
    def project(self, z: Shift, limits: Limits | None = None) -> Shift:
        """The nearest point of the ball that respects the limits."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Shift:
        """A point of the ball, each part of it as likely as it is large."""


class Linf(Ball):
    r"""$\max_i |\eta_i| \le \varepsilon$: every number by a little.

    >>> ball = Linf(1.0)
    >>> ball.project(jnp.array([3.0, 0.5])).tolist(), ball.steepest(jnp.array([-2.0, 0.1])).tolist()
    ([1.0, 0.5], [-1.0, 1.0])
    """

    radius: Radius

    def norm(self, eta: Shift) -> Scalar:
        return jnp.abs(eta).max()

    def dual(self, g: Shift) -> Scalar:
        return jnp.abs(g).sum()

    def steepest(self, g: Shift) -> Shift:
        return jnp.sign(g)

    def project(self, z: Shift, limits: Limits | None = None) -> Shift:
        return _within(jnp.clip(z, -self.radius, self.radius), limits)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Shift:
        return self.radius * jr.uniform(key, shape, minval=-1.0, maxval=1.0)


class L2(Ball):
    r"""$\|\eta\|_2 \le \varepsilon$.

    With limits the projection is $\mathrm{clip}(sz)$ for the $s \le 1$ at which its norm is
    $\varepsilon$.

    >>> L2(1.0).project(jnp.array([3.0, 4.0])).round(6).tolist()
    [0.6..., 0.8...]
    """

    radius: Radius

    def norm(self, eta: Shift) -> Scalar:
        return _length(eta)

    def dual(self, g: Shift) -> Scalar:
        return _length(g)

    def steepest(self, g: Shift) -> Shift:
        return g / jnp.where(_length(g) > 0, _length(g), 1.0)

    def project(self, z: Shift, limits: Limits | None = None) -> Shift:
        if limits is None:
            length = _length(z)
            return z * jnp.where(
                length > self.radius, self.radius / jnp.where(length > 0, length, 1.0), 1.0
            )
        a = jnp.abs(z).ravel()
        caps = _caps(z, limits).ravel()
        return _within(z * _shrinkage(a, caps, self.radius), limits)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Shift:
        key_direction, key_length = jr.split(key)
        direction = self.steepest(jr.normal(key_direction, shape))
        return self.radius * jr.uniform(key_length) ** (1 / direction.size) * direction


class L1(Ball):
    r"""$\sum_i |\eta_i| \le \varepsilon$: few numbers, and by how much in sum.

    The projection takes the same $\lambda$ off every $|z_i|$, as far as there is something to take.
    (Duchi et al. 2008)

    >>> (
    ...     L1(1.0).project(jnp.array([2.0, -1.5, 0.2])).tolist(),
    ...     L1(1.0).steepest(jnp.array([2.0, -3.0])).tolist(),
    ... )
    ([0.75, -0.25, 0.0], [0.0, -1.0])
    """

    radius: Radius

    def norm(self, eta: Shift) -> Scalar:
        return jnp.abs(eta).sum()

    def dual(self, g: Shift) -> Scalar:
        return jnp.abs(g).max()

    def steepest(self, g: Shift) -> Shift:
        flat = g.ravel()
        at = jnp.argmax(jnp.abs(flat))
        return jnp.zeros_like(flat).at[at].set(jnp.sign(flat[at])).reshape(g.shape)

    def project(self, z: Shift, limits: Limits | None = None) -> Shift:
        a = jnp.abs(z)
        caps = a if limits is None else jnp.minimum(a, _caps(z, limits))
        threshold = _threshold(a.ravel(), caps.ravel(), self.radius)
        return _within(jnp.sign(z) * jnp.maximum(a - threshold, 0.0), limits)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Shift:
        key_sign, key_size = jr.split(key)
        signs = jr.rademacher(key_sign, shape, float)
        sizes = jr.exponential(key_size, (signs.size + 1,))
        return self.radius * signs * (sizes[:-1] / sizes.sum()).reshape(shape)


class L0(Ball):
    r"""At most $\varepsilon$ numbers are changed, each by as much as its limits let it: a count,
    and no norm.

    The projection keeps those that bring it nearest. The steepest direction and its slope are those
    of the ball with $|\eta_i| \le 1$ besides, for there is none without such a bound.

    >>> L0(1).project(jnp.array([2.0, -3.0])).tolist(), L0(1).norm(jnp.array([0.0, 0.1])).item()
    ([0.0, -3.0], 1.0)
    """

    radius: Radius

    def norm(self, eta: Shift) -> Scalar:
        return (eta != 0).sum().astype(eta.dtype)

    def dual(self, g: Shift) -> Scalar:
        return jnp.where(_first(jnp.abs(g), self.radius), jnp.abs(g), 0.0).sum()

    def steepest(self, g: Shift) -> Shift:
        return jnp.where(_first(jnp.abs(g), self.radius), jnp.sign(g), 0.0)

    def project(self, z: Shift, limits: Limits | None = None) -> Shift:
        near = _within(z, limits)
        gain = jnp.square(z) - jnp.square(z - near)
        return jnp.where(_first(gain, self.radius), near, 0.0)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Shift:
        key_which, key_size = jr.split(key)
        chosen = _first(jr.uniform(key_which, shape), self.radius)
        return jnp.where(chosen, jr.uniform(key_size, shape, minval=-1.0, maxval=1.0), 0.0)


def limits_of(x: Shift, box: tuple[float, float] | None) -> Limits | None:
    """What may be added to an input without its leaving the range of values, or going further out
    where it has.

    >>> low, high = limits_of(jnp.array([0.25, 1.0]), (0.0, 1.0))
    >>> low.tolist(), high.tolist()
    ([-0.25, -1.0], [0.75, 0.0])
    """
    return None if box is None else (jnp.minimum(box[0] - x, 0.0), jnp.maximum(box[1] - x, 0.0))


def _length(x: Shift) -> Scalar:
    square = jnp.square(x).sum()
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _within(eta: Shift, limits: Limits | None) -> Shift:
    return eta if limits is None else jnp.clip(eta, *limits)


def _caps(z: Shift, limits: Limits) -> Shift:
    """How far each number may go towards z; no way at all if the limits leave none."""
    low, high = limits
    return jnp.maximum(jnp.where(z > 0, high, -low), 0.0)


def _first(x: Shift, count: Radius) -> Bool[Array, "*s"]:
    """Whether a number is among so many largest; of equals the first."""
    flat = x.ravel()
    rank = jnp.zeros(flat.size, int).at[jnp.argsort(-flat)].set(jnp.arange(flat.size))
    return (rank < count).reshape(x.shape)


def _shrinkage(a: Float[Array, " d"], caps: Float[Array, " d"], radius: Radius) -> Scalar:
    r"""The $s \in [0, 1]$ with $\sum_i \min(s a_i, h_i)^2 = \varepsilon^2$, or 1 if that is less at
    1 already.

    Between two of the places $h_i / a_i$ at which a number reaches its cap the sum is $s^2 A + B$.
    """
    reached = jnp.where(a > 0, caps / jnp.where(a > 0, a, 1.0), 1.0)
    order = jnp.argsort(reached)
    square = jnp.square(a[order])
    capped = jnp.square(jnp.minimum(a, caps)[order])
    s = reached[order]
    A = jnp.cumsum(square[::-1])[::-1]  # of those not yet at their caps
    B = jnp.cumsum(capped) - capped  # of those that are
    at = jnp.argmax(s**2 * A + B >= radius**2)
    inside = jnp.sqrt(jnp.maximum(radius**2 - B[at], 0.0) / jnp.where(A[at] > 0, A[at], 1.0))
    return jnp.where(capped.sum() > radius**2, jnp.minimum(inside, 1.0), 1.0)


def _threshold(a: Float[Array, " d"], caps: Float[Array, " d"], radius: Radius) -> Scalar:
    r"""The $\lambda$ with $\sum_i \mathrm{clip}(a_i - \lambda, 0, h_i) = \varepsilon$, or 0 if that
    is less at 0.

    The sum is linear between the places $a_i$, below which a number counts, and $a_i - h_i$, below
    which it has reached its cap; from the largest of them downwards it grows from 0.
    """
    places = jnp.concatenate([a, a - caps])
    counts = jnp.concatenate([jnp.ones_like(a), -jnp.ones_like(a)])
    order = jnp.argsort(-places)
    places = places[order]
    slopes = jnp.cumsum(counts[order])
    ends = jnp.concatenate([places[1:], jnp.zeros(1, places.dtype)])
    grown = jnp.cumsum(slopes * (places - ends))  # at the end of each piece
    at = jnp.argmax(grown >= radius)
    before = jnp.where(at > 0, grown[at - 1], 0.0)
    inside = places[at] - (radius - before) / jnp.where(slopes[at] > 0, slopes[at], 1.0)
    return jnp.where(caps.sum() > radius, inside, 0.0)
