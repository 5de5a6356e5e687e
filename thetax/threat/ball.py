r"""Threat models (§13.1): balls of perturbations, $\|\eta\|_p \le \varepsilon$, combined with the
valid range of inputs.

A ball provides five things: its norm; the Euclidean projection
$\Pi(z) = \arg\min_{\|\eta\|_p \le \varepsilon} \|\eta - z\|_2$; the direction of steepest ascent,
$\arg\max_{\|\eta\|_p \le 1} \langle g, \eta \rangle$; the slope in that direction, the dual norm
$\|g\|_q$ with $1/p + 1/q = 1$; and uniform samples. If inputs have a valid range, as pixels have,
$\eta$ also has limits $l \le \eta \le h$ around 0, and $\Pi(z)$ is the nearest point of the
intersection of the ball and these limits.

Departs: the notes project by $\varepsilon z / \|z\|_p$, which moves interior points onto the sphere
and is not a projection for $p \ne 2$.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..core import Scalar

Perturbation = Float[Array, "*s"]
Radius = float | int | Scalar | Int[Array, ""]
Limits = tuple[Perturbation, Perturbation]  # smallest and largest perturbation, elementwise


def check_ball(where: str, ball: Any) -> None:
    """Raises `ValueError` unless the argument is a ball."""
    if not isinstance(ball, Ball):
        raise ValueError(f"{where}: expected a ball such as Linf(0.1) or L2(1.0); got {ball!r}.")


class Ball(eqx.Module):
    r"""$\{\eta : \|\eta\| \le \varepsilon\}$; the radius is a leaf, so a sweep over radii is a
    `vmap`.
    """

    radius: eqx.AbstractVar[Radius]

    def __check_init__(self):
        is_concrete = isinstance(self.radius, float | int | np.number) or (
            isinstance(self.radius, Array)
            and not isinstance(self.radius, Tracer)
            and self.radius.ndim == 0
        )
        if is_concrete and not 0 <= self.radius < math.inf:
            raise ValueError(
                f"{type(self).__name__}: radius must be finite and >= 0; got {self.radius}."
            )
        if is_concrete and isinstance(self, L0) and self.radius != int(self.radius):
            raise ValueError(
                "L0: radius is the number of components that may change. It must be an integer; "
                f"got {self.radius}."
            )

    @abc.abstractmethod
    def norm(self, eta: Perturbation) -> Scalar:
        r"""$\|\eta\|_p$."""

    @abc.abstractmethod
    def dual_norm(self, g: Perturbation) -> Scalar:
        r"""$\max_{\|\eta\|_p \le 1} \langle g, \eta \rangle = \|g\|_q$."""

    @abc.abstractmethod
    def steepest(self, g: Perturbation) -> Perturbation:
        r"""$\arg\max_{\|\eta\|_p \le 1} \langle g, \eta \rangle$; 0 for $g = 0$."""

    @abc.abstractmethod
    def project(self, z: Perturbation, limits: Limits | None = None) -> Perturbation:
        """The nearest point of the ball within the limits."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Perturbation:
        """A uniform sample from the ball."""


class Linf(Ball):
    r"""$\max_i |\eta_i| \le \varepsilon$: every component may change a little.

    >>> ball = Linf(1.0)
    >>> ball.project(jnp.array([3.0, 0.5])).tolist(), ball.steepest(jnp.array([-2.0, 0.1])).tolist()
    ([1.0, 0.5], [-1.0, 1.0])
    """

    radius: Radius

    def norm(self, eta: Perturbation) -> Scalar:
        return jnp.abs(eta).max()

    def dual_norm(self, g: Perturbation) -> Scalar:
        return jnp.abs(g).sum()

    def steepest(self, g: Perturbation) -> Perturbation:
        return jnp.sign(g)

    def project(self, z: Perturbation, limits: Limits | None = None) -> Perturbation:
        return _within(jnp.clip(z, -self.radius, self.radius), limits)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Perturbation:
        return self.radius * jr.uniform(key, shape, minval=-1.0, maxval=1.0)


class L2(Ball):
    r"""$\|\eta\|_2 \le \varepsilon$.

    With limits the projection is $\mathrm{clip}(sz)$, with the $s \le 1$ for which its norm is
    $\varepsilon$.

    >>> L2(1.0).project(jnp.array([3.0, 4.0])).round(6).tolist()
    [0.6..., 0.8...]
    """

    radius: Radius

    def norm(self, eta: Perturbation) -> Scalar:
        return _length(eta)

    def dual_norm(self, g: Perturbation) -> Scalar:
        return _length(g)

    def steepest(self, g: Perturbation) -> Perturbation:
        return g / jnp.where(_length(g) > 0, _length(g), 1.0)

    def project(self, z: Perturbation, limits: Limits | None = None) -> Perturbation:
        if limits is None:
            length = _length(z)
            return z * jnp.where(
                length > self.radius, self.radius / jnp.where(length > 0, length, 1.0), 1.0
            )
        a = jnp.abs(z).ravel()
        caps = _caps(z, limits).ravel()
        return _within(z * _shrinkage(a, caps, self.radius), limits)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Perturbation:
        key_direction, key_length = jr.split(key)
        direction = self.steepest(jr.normal(key_direction, shape))
        return self.radius * jr.uniform(key_length) ** (1 / direction.size) * direction


class L1(Ball):
    r"""$\sum_i |\eta_i| \le \varepsilon$: the changes are limited in sum, so few components change
    much.

    The projection is soft thresholding: it subtracts the same $\lambda$ from every $|z_i|$, down to
    0 (Duchi et al. 2008).

    >>> (
    ...     L1(1.0).project(jnp.array([2.0, -1.5, 0.2])).tolist(),
    ...     L1(1.0).steepest(jnp.array([2.0, -3.0])).tolist(),
    ... )
    ([0.75, -0.25, 0.0], [0.0, -1.0])
    """

    radius: Radius

    def norm(self, eta: Perturbation) -> Scalar:
        return jnp.abs(eta).sum()

    def dual_norm(self, g: Perturbation) -> Scalar:
        return jnp.abs(g).max()

    def steepest(self, g: Perturbation) -> Perturbation:
        flat = g.ravel()
        at = jnp.argmax(jnp.abs(flat))
        return jnp.zeros_like(flat).at[at].set(jnp.sign(flat[at])).reshape(g.shape)

    def project(self, z: Perturbation, limits: Limits | None = None) -> Perturbation:
        a = jnp.abs(z)
        caps = a if limits is None else jnp.minimum(a, _caps(z, limits))
        threshold = _threshold(a.ravel(), caps.ravel(), self.radius)
        return _within(jnp.sign(z) * jnp.maximum(a - threshold, 0.0), limits)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Perturbation:
        key_sign, key_size = jr.split(key)
        signs = jr.rademacher(key_sign, shape, float)
        sizes = jr.exponential(key_size, (signs.size + 1,))
        return self.radius * signs * (sizes[:-1] / sizes.sum()).reshape(shape)


class L0(Ball):
    r"""At most $\varepsilon$ components may change, by any amount within the limits. The count of
    changed components is not a norm.

    The projection keeps the components that bring it nearest to $z$. Without a bound on their size
    there is no steepest direction, so `steepest` and `dual_norm` also assume $|\eta_i| \le 1$.

    >>> L0(1).project(jnp.array([2.0, -3.0])).tolist(), L0(1).norm(jnp.array([0.0, 0.1])).item()
    ([0.0, -3.0], 1.0)
    """

    radius: Radius

    def norm(self, eta: Perturbation) -> Scalar:
        return (eta != 0).sum().astype(eta.dtype)

    def dual_norm(self, g: Perturbation) -> Scalar:
        return jnp.where(_is_among_largest(jnp.abs(g), self.radius), jnp.abs(g), 0.0).sum()

    def steepest(self, g: Perturbation) -> Perturbation:
        return jnp.where(_is_among_largest(jnp.abs(g), self.radius), jnp.sign(g), 0.0)

    def project(self, z: Perturbation, limits: Limits | None = None) -> Perturbation:
        near = _within(z, limits)
        gain = jnp.square(z) - jnp.square(z - near)
        return jnp.where(_is_among_largest(gain, self.radius), near, 0.0)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Perturbation:
        key_which, key_size = jr.split(key)
        changed = _is_among_largest(jr.uniform(key_which, shape), self.radius)
        return jnp.where(changed, jr.uniform(key_size, shape, minval=-1.0, maxval=1.0), 0.0)


def perturbation_bounds(x: Perturbation, box: tuple[float, float] | None) -> Limits | None:
    """The smallest and largest perturbation that keeps an input in the box; components that are
    already outside are not moved further out.

    >>> low, high = perturbation_bounds(jnp.array([0.25, 1.0]), (0.0, 1.0))
    >>> low.tolist(), high.tolist()
    ([-0.25, -1.0], [0.75, 0.0])
    """
    return None if box is None else (jnp.minimum(box[0] - x, 0.0), jnp.maximum(box[1] - x, 0.0))


def _length(x: Perturbation) -> Scalar:
    square = jnp.square(x).sum()
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _within(eta: Perturbation, limits: Limits | None) -> Perturbation:
    return eta if limits is None else jnp.clip(eta, *limits)


def _caps(z: Perturbation, limits: Limits) -> Perturbation:
    """How far each component may move towards z within the limits; 0 if not at all."""
    low, high = limits
    return jnp.maximum(jnp.where(z > 0, high, -low), 0.0)


def _is_among_largest(x: Perturbation, count: Radius) -> Bool[Array, "*s"]:
    """Whether each component is among the `count` largest; of equal ones the first count."""
    flat = x.ravel()
    rank = jnp.zeros(flat.size, int).at[jnp.argsort(-flat)].set(jnp.arange(flat.size))
    return (rank < count).reshape(x.shape)


def _shrinkage(a: Float[Array, " d"], caps: Float[Array, " d"], radius: Radius) -> Scalar:
    r"""The $s \in [0, 1]$ with $\sum_i \min(s a_i, h_i)^2 = \varepsilon^2$; 1 if the sum is smaller
    than that even at $s = 1$.

    Between consecutive values $h_i / a_i$, where a component reaches its cap, the sum is
    $s^2 A + B$.
    """
    reached = jnp.where(a > 0, caps / jnp.where(a > 0, a, 1.0), 1.0)
    order = jnp.argsort(reached)
    square = jnp.square(a[order])
    capped = jnp.square(jnp.minimum(a, caps)[order])
    s = reached[order]
    A = jnp.cumsum(square[::-1])[::-1]  # components below their caps
    B = jnp.cumsum(capped) - capped  # components at their caps
    at = jnp.argmax(s**2 * A + B >= radius**2)
    inside = jnp.sqrt(jnp.maximum(radius**2 - B[at], 0.0) / jnp.where(A[at] > 0, A[at], 1.0))
    return jnp.where(capped.sum() > radius**2, jnp.minimum(inside, 1.0), 1.0)


def _threshold(a: Float[Array, " d"], caps: Float[Array, " d"], radius: Radius) -> Scalar:
    r"""The $\lambda$ with $\sum_i \mathrm{clip}(a_i - \lambda, 0, h_i) = \varepsilon$; 0 if the
    sum is smaller than that at 0.

    The sum is piecewise linear in $\lambda$: a component contributes below $a_i$, and is at its cap
    below $a_i - h_i$. From the largest of these breakpoints downwards the sum grows from 0.
    """
    breakpoints = jnp.concatenate([a, a - caps])
    counts = jnp.concatenate([jnp.ones_like(a), -jnp.ones_like(a)])
    order = jnp.argsort(-breakpoints)
    breakpoints = breakpoints[order]
    slopes = jnp.cumsum(counts[order])
    ends = jnp.concatenate([breakpoints[1:], jnp.zeros(1, breakpoints.dtype)])
    sums = jnp.cumsum(slopes * (breakpoints - ends))  # at the end of each piece
    at = jnp.argmax(sums >= radius)
    before = jnp.where(at > 0, sums[at - 1], 0.0)
    inside = breakpoints[at] - (radius - before) / jnp.where(slopes[at] > 0, slopes[at], 1.0)
    return jnp.where(caps.sum() > radius, inside, 0.0)
