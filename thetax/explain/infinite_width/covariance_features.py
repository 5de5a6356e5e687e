r"""The features of an infinitely wide layer, represented by their moments for pairs of inputs.

The features $h_1, \dots, h_w$ at a position are identically distributed, and independent in the
limit, so an average over them is an expectation. For two inputs $x, y$ three quantities determine
the rest:

$$k(x, y) = \mathbb{E}\,h(x) h(y), \qquad \Theta(x, y) = \nabla_\theta h(x) \cdot \nabla_\theta
h(y), \qquad
\mu(x) = \mathbb{E}\,h(x).$$

In an image, features at different positions are correlated. Convolutions and activations need $k$
and $\Theta$ at equal positions only; where a later layer averages over positions, they are computed
for all pairs of positions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...layers import Activation
from .dual_activations import DualActivation, dual_activation

Values = Float[Array, "..."]


class NeedsPositionPairs(Exception):
    """A layer averages over positions, but only the moments at equal positions are available."""


class Inputs(NamedTuple):
    """The inputs of the network, before any weight: the examples of both sides, and whether the
    moments of all pairs of positions are needed.

    `same_example` means that both sides are the same single example.
    """

    xs: Float[Array, "n *s"]
    ys: Float[Array, "m *s"]
    pairs: bool = False
    same_example: bool = False

    def map(self, f: Callable[[Any], Any]) -> "Inputs":
        """A deterministic function without weights, applied to every example."""
        return self._replace(xs=jax.vmap(f)(self.xs), ys=jax.vmap(f)(self.ys))

    def features(self) -> "Features":
        r"""The channels as features: $k = \frac1c \sum_l x_l y_l$ and $\Theta = 0$."""
        spatial_axes = self.xs.ndim - 2
        pairs = self.pairs and spatial_axes > 0
        across, within = ("nc...,mc...->nm...", "nc...,nc...->n...")
        if pairs:
            p = "hw"[:spatial_axes]
            q = "ij"[:spatial_axes]
            across = f"nc{p},mc{q}->nm{p}{q}"
            within = f"nc{p},nc{q}->n{p}{q}"
        mean_product = lambda sums, a, b: (
            jnp.einsum(sums, a, b, precision=jax.lax.Precision.HIGHEST) / a.shape[1]
        )
        k = mean_product(across, self.xs, self.ys)
        if self.same_example:
            k_xx, k_yy = k[:, 0], k[0]
        else:
            k_xx = mean_product(within, self.xs, self.xs)
            k_yy = mean_product(within, self.ys, self.ys)
        return Features(
            k=k,
            theta=jnp.zeros_like(k),
            k_xx=k_xx,
            k_yy=k_yy,
            means=(self.xs.mean(axis=1), self.ys.mean(axis=1)),
            width=self.xs.shape[1],
            spatial_axes=spatial_axes,
            pairs=pairs,
        )


@dataclass(frozen=True)
class Features:
    r"""Moments of shape $(n, m)$, followed by the spatial axes, once or (with `pairs`) twice.

    `k_xx` and `k_yy` are $k(x, x)$ and $k(y, y)$; `means` is $\mu$ of both sides, or None for 0;
    `width` is the number of features. Activations need Gaussian features (`is_gaussian`). Features
    that were scaled by a trained $\gamma$ of a norm, `n_scales` times, have the term $h(x) h(y)$ in
    the tangent kernel in addition to $\Theta$, which is random until it is averaged. `sources`
    names the layers whose weights the features depend on.
    """

    k: Values
    theta: Values
    k_xx: Values
    k_yy: Values
    means: tuple[Values, Values] | None
    width: int
    spatial_axes: int = 0
    pairs: bool = False
    is_gaussian: bool = False
    n_scales: int = 0
    sources: frozenset[str] = frozenset({""})

    @property
    def ntk(self) -> Values:
        r"""The tangent kernel averaged over the features: $\Theta$ and the terms of `n_scales`."""
        return self.theta if self.n_scales == 0 else self.theta + self.n_scales * self.k

    @property
    def with_averaged_ntk(self) -> "Features":
        """The same features where later layers use only averages: `theta` is the whole `ntk`."""
        if self.n_scales == 0:
            return self
        return replace(self, theta=self.ntk, n_scales=0, is_gaussian=False)

    @property
    def variances(self) -> tuple[Values, Values]:
        r"""$k(x, x)$ and $k(y, y)$ at equal positions."""
        return self._position_diagonal(self.k_xx, 1), self._position_diagonal(self.k_yy, 1)

    def _position_diagonal(self, k: Values, n_example_axes: int) -> Values:
        """The entries of `k` at equal positions; the first `n_example_axes` axes are examples."""
        if not self.pairs:
            return k
        examples = k.shape[:n_example_axes]
        positions = k.shape[n_example_axes : n_example_axes + self.spatial_axes]
        side = round(k[(0,) * n_example_axes].size ** 0.5)
        square = k.reshape(*examples, side, side)
        return jnp.diagonal(square, axis1=-2, axis2=-1).reshape(*examples, *positions)

    def broadcast_pair(self, x: Values, y: Values) -> tuple[Values, Values]:
        """Values at every position of the x and of the y side, reshaped so that together they
        broadcast to the shape of `k`.
        """
        return self._broadcast(jnp.expand_dims(x, 1), jnp.expand_dims(y, 0), 2)

    def broadcast_single(self, x: Values, y: Values) -> tuple[Values, Values]:
        """Two values at every position of one side, reshaped so that together they broadcast to the
        shape of `k_xx` or `k_yy`.
        """
        return self._broadcast(x, y, 1)

    def _broadcast(self, x: Values, y: Values, n_example_axes: int) -> tuple[Values, Values]:
        if not self.pairs:
            return x, y
        first = tuple(range(n_example_axes, n_example_axes + self.spatial_axes))
        second = tuple(axis + self.spatial_axes for axis in first)
        return jnp.expand_dims(x, second), jnp.expand_dims(y, first)

    def at_equal_positions(self) -> "Features":
        """The moments at equal positions only."""
        k = self._position_diagonal(self.k, 2)
        theta = self._position_diagonal(self.theta, 2)
        k_xx, k_yy = self.variances
        return replace(self, k=k, theta=theta, k_xx=k_xx, k_yy=k_yy, pairs=False)

    def map_positions(self, f: Callable[[Values, int], Values]) -> "Features":
        """A linear map of the positions: `f` gets the moments and the number of example axes."""
        return replace(
            self,
            k=f(self.k, 2),
            theta=f(self.ntk, 2),
            k_xx=f(self.k_xx, 1),
            k_yy=f(self.k_yy, 1),
            n_scales=0,
        )

    def flatten(self) -> "Features":
        """The features of all positions as one vector, of which only averages are used."""
        mean = lambda k, n_example_axes: k.mean(axis=tuple(range(n_example_axes, k.ndim)))
        return replace(self.at_equal_positions().map_positions(mean), spatial_axes=0, means=None)

    def apply_activation(self, activation: Activation) -> "Features":
        r"""$\varphi(h)$ of Gaussian $h$: $k$ becomes $\mathbb{E}\,\varphi\varphi$, $\Theta$ is
        multiplied by $\mathbb{E}\,\varphi'\varphi'$, and the term $h(x)h(y)$ of a norm becomes
        $\mathbb{E}\,h\varphi'(h)\,h\varphi'(h)$.
        """
        dual = dual_activation(activation)
        var_x, var_y = self.variances
        x, y = self.broadcast_pair(var_x, var_y)
        k, slope = dual.pair(x, self.k, y)
        theta = self.theta * slope
        if self.n_scales:
            scale_dual = dual_activation(_scaled_derivative(activation))
            theta = theta + self.n_scales * scale_dual.pair(x, self.k, y)[0]
        return replace(
            self,
            k=k,
            theta=theta,
            k_xx=_second_moment(dual, self.k_xx, self.broadcast_single(var_x, var_x)),
            k_yy=_second_moment(dual, self.k_yy, self.broadcast_single(var_y, var_y)),
            means=(dual.mean(var_x), dual.mean(var_y)),
            is_gaussian=False,
            n_scales=0,
        )

    def add(self, other: "Features") -> "Features":
        r"""The sum of independent features: $k + k' + \mu\mu'^\top + \mu'\mu^\top$ and
        $\Theta + \Theta'$.
        """
        a, b = self.with_averaged_ntk, other.with_averaged_ntk
        k = a.k + b.k
        k_xx = a.k_xx + b.k_xx
        k_yy = a.k_yy + b.k_yy
        means = a.means or b.means
        if a.means and b.means:
            (ax, ay), (bx, by) = a.means, b.means
            k = k + mul(*self.broadcast_pair(ax, by)) + mul(*self.broadcast_pair(bx, ay))
            k_xx = k_xx + mul(*self.broadcast_single(ax, bx)) + mul(*self.broadcast_single(bx, ax))
            k_yy = k_yy + mul(*self.broadcast_single(ay, by)) + mul(*self.broadcast_single(by, ay))
            means = ax + bx, ay + by
        return replace(
            a,
            k=k,
            theta=a.theta + b.theta,
            k_xx=k_xx,
            k_yy=k_yy,
            means=means,
            is_gaussian=a.is_gaussian and b.is_gaussian,
            sources=a.sources | b.sources,
        )

    def concatenate(self, other: "Features") -> "Features":
        """The features of both, concatenated: moments are averages weighted by the widths."""
        a, b = self.with_averaged_ntk, other.with_averaged_ntk
        width = a.width + b.width
        average = lambda x, y: (a.width * x + b.width * y) / width
        means_of = lambda features: (
            features.means or tuple(jnp.zeros_like(v) for v in features.variances)
        )
        return replace(
            a,
            k=average(a.k, b.k),
            theta=average(a.theta, b.theta),
            k_xx=average(a.k_xx, b.k_xx),
            k_yy=average(a.k_yy, b.k_yy),
            means=tuple(map(average, means_of(a), means_of(b))),
            width=width,
            is_gaussian=False,
            sources=a.sources | b.sources,
        )


def _second_moment(dual: DualActivation, k: Values, variances: tuple[Values, Values]) -> Values:
    x, y = variances
    return dual.pair(x, k, y)[0]


def _scaled_derivative(activation: Activation) -> Activation:
    r"""$z \mapsto z\varphi'(z)$; equal to $\varphi$ where that is linear on both sides of 0."""
    scaled = lambda z: z * jax.jvp(activation, (z,), (jnp.ones_like(z),))[1]
    with jax.ensure_compile_time_eval():
        z = jnp.array([-3.0, -0.5, 2.0, 5.0])
        return activation if jnp.allclose(scaled(z), activation(z), atol=1e-6) else scaled
