r"""The law of $\theta_0$ (§8.1): what a layer is before it has learned anything.

A `Law` draws weights of shape `(m, n, *window)`, $n$ inputs to $m$ outputs; fan-in is everything
but the first axis. Keeping the variance of the signal fixes the standard deviation $\sigma$:

| law | $\sigma$ | keeps |
|---|---|---|
| `lecun` | $1/\sqrt{n}$ | the variance forward, linear units |
| `glorot` | $\sqrt{2/(n + m)}$ | a compromise forward and backward |
| `he` | $\sqrt{2/n}$ | the second moment forward, ReLU units |
| `orthogonal` | | every norm, forward and backward |

>>> import jax.numpy as jnp
>>> W = he(jr.key(0), (400, 300))
>>> bool(jnp.abs(W.std() - (2 / 300) ** 0.5) < 1e-3)
True
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Law:
    r"""How a layer begins: the draw of $W_0$, and the parametrisation $s_W W x + s_b b$ it is used
    with.

    In the standard parametrisation $s_W = s_b = 1$ and $b_0 = 0$. The spreads are the standard
    deviations of the draws, that of $W_0$ where it is known.
    """

    draw: Callable[[PRNGKeyArray, Shape], Float[Array, "..."]]
    scale_W: Callable[[Shape], float] = lambda shape: 1.0
    scale_b: float = 1.0
    spread_b: float = 0.0
    spread_W: Callable[[Shape], float] | None = None

    def __call__(self, key: PRNGKeyArray, shape: Shape) -> Float[Array, "..."]:
        """Weights of the given shape."""
        return self.draw(key, shape)

    def bias(self, key: PRNGKeyArray, size: int) -> Float[Array, " m"]:
        """The offset $b_0$, zero unless the law spreads it."""
        return self.spread_b * jr.normal(key, (size,)) if self.spread_b else jnp.zeros(size)


def fan_in(shape: Shape) -> int:
    """$n$, the number of inputs one unit reads.

    >>> fan_in((16, 3, 5, 5))
    75
    """
    return math.prod(shape[1:])


def fan_out(shape: Shape) -> int:
    """$m$, the number of units one input reaches.

    >>> fan_out((16, 3, 5, 5))
    400
    """
    return shape[0] * math.prod(shape[2:])


def gaussian(sigma: float) -> Law:
    r"""$W_{ij} \sim N(0, \sigma^2)$ whatever the shape.

    >>> gaussian(0.1)(jr.key(0), (2, 3)).shape
    (2, 3)
    """
    return Law(lambda key, shape: sigma * jr.normal(key, shape), spread_W=lambda shape: sigma)


def uniform(sigma: float) -> Law:
    r"""$W_{ij} \sim \mathrm{Unif}[-\sqrt{3}\sigma, \sqrt{3}\sigma]$, of standard deviation
    $\sigma$.

    >>> bool(jnp.abs(uniform(0.1)(jr.key(0), (50, 50))).max() <= 0.1 * 3**0.5)
    True
    """
    edge = math.sqrt(3) * sigma
    return Law(
        lambda key, shape: jr.uniform(key, shape, minval=-edge, maxval=edge),
        spread_W=lambda shape: sigma,
    )


def _normal(spread: Callable[[Shape], float]) -> Law:
    return Law(lambda key, shape: jr.normal(key, shape) * spread(shape), spread_W=spread)


lecun = Law(
    lambda key, shape: jr.normal(key, shape) / math.sqrt(fan_in(shape)),
    spread_W=lambda shape: 1 / math.sqrt(fan_in(shape)),
)
glorot = _normal(lambda shape: math.sqrt(2 / (fan_in(shape) + fan_out(shape))))
he = _normal(lambda shape: math.sqrt(2 / fan_in(shape)))


def _haar(key: PRNGKeyArray, shape: Shape) -> Float[Array, "..."]:
    flat = (shape[0], fan_in(shape))
    tall = max(flat), min(flat)
    Q, R = jnp.linalg.qr(jr.normal(key, tall))
    Q = Q * jnp.sign(jnp.diagonal(R))[None]  # makes the draw uniform over the group
    return (Q if flat == tall else Q.T).reshape(shape)


orthogonal = Law(_haar, spread_W=lambda shape: 1 / math.sqrt(max(shape[0], fan_in(shape))))


def tangent(*, weight: float = math.sqrt(2), bias: float = 0.0) -> Law:
    r"""The tangent-kernel parametrisation $\frac{\sigma_W}{\sqrt n} W x + \sigma_b b$, $W, b$
    standard normal (§9.3).

    The function at $\theta_0$ has the law it has in the standard parametrisation; its gradients are
    scaled so that the kernel has a limit as the width grows (Jacot et al. 2018).

    >>> tangent(weight=1.0).scale_W((5, 4))
    0.5
    """
    return Law(
        lambda key, shape: jr.normal(key, shape),
        scale_W=lambda shape: weight / math.sqrt(fan_in(shape)),
        scale_b=bias,
        spread_b=1.0,
        spread_W=lambda shape: 1.0,
    )
