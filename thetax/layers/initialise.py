r"""Weight initialisation (§8.1): LeCun, Glorot (Xavier), He (Kaiming), orthogonal, NTK.

An `Initialiser` draws weights of shape `(m, n, *window)` for $n$ inputs and $m$ outputs. The
fan-in is the product of all axes but the first. Preserving the variance of the signal fixes the
standard deviation $\sigma$:

| initialiser | $\sigma$ | preserves |
|---|---|---|
| `lecun` | $1/\sqrt{n}$ | the forward variance, with linear units |
| `glorot` | $\sqrt{2/(n + m)}$ | a compromise forward and backward |
| `he` | $\sqrt{2/n}$ | the forward second moment, with ReLU units |
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
class Initialiser:
    r"""Distribution of a layer's initial weights, and its parametrisation $s_W W x + s_b b$.

    `draw(key, shape)` samples $W_0$. `scale_W(shape)` and `scale_b` are $s_W$ and $s_b$; in the
    standard parametrisation both are 1 and $b_0 = 0$. `std_b` is the standard deviation of
    $b_0$, and `std_W(shape)` that of the entries of $W_0$ (None if unknown).
    """

    draw: Callable[[PRNGKeyArray, Shape], Float[Array, "..."]]
    scale_W: Callable[[Shape], float] = lambda shape: 1.0
    scale_b: float = 1.0
    std_b: float = 0.0
    std_W: Callable[[Shape], float] | None = None

    def __call__(self, key: PRNGKeyArray, shape: Shape) -> Float[Array, "..."]:
        """Draws weights of the given shape."""
        return self.draw(key, shape)

    def bias(self, key: PRNGKeyArray, size: int) -> Float[Array, " m"]:
        """Draws the bias $b_0$ of `size` units; zero if `std_b` is 0."""
        return self.std_b * jr.normal(key, (size,)) if self.std_b else jnp.zeros(size)


def fan_in(shape: Shape) -> int:
    """The number of inputs of one unit, $n$ (the fan-in).

    >>> fan_in((16, 3, 5, 5))
    75
    """
    return math.prod(shape[1:])


def fan_out(shape: Shape) -> int:
    """The number of units that one input feeds, $m$ (the fan-out).

    >>> fan_out((16, 3, 5, 5))
    400
    """
    return shape[0] * math.prod(shape[2:])


def gaussian(sigma: float) -> Initialiser:
    r"""Normal initialisation, $W_{ij} \sim N(0, \sigma^2)$ for any shape.

    >>> gaussian(0.1)(jr.key(0), (2, 3)).shape
    (2, 3)
    """
    return Initialiser(lambda key, shape: sigma * jr.normal(key, shape), std_W=lambda shape: sigma)


def uniform(sigma: float) -> Initialiser:
    r"""Uniform initialisation with standard deviation $\sigma$.

    $W_{ij} \sim \mathrm{Unif}[-\sqrt{3}\sigma, \sqrt{3}\sigma]$.

    >>> bool(jnp.abs(uniform(0.1)(jr.key(0), (50, 50))).max() <= 0.1 * 3**0.5)
    True
    """
    edge = math.sqrt(3) * sigma
    return Initialiser(
        lambda key, shape: jr.uniform(key, shape, minval=-edge, maxval=edge),
        std_W=lambda shape: sigma,
    )


def _normal_with_spread(spread: Callable[[Shape], float]) -> Initialiser:
    return Initialiser(lambda key, shape: jr.normal(key, shape) * spread(shape), std_W=spread)


# Normal with standard deviation $1/\sqrt{n}$ (LeCun).
lecun = Initialiser(
    lambda key, shape: jr.normal(key, shape) / math.sqrt(fan_in(shape)),
    std_W=lambda shape: 1 / math.sqrt(fan_in(shape)),
)
# Normal with standard deviation $\sqrt{2/(n + m)}$ (Glorot, Xavier).
glorot = _normal_with_spread(lambda shape: math.sqrt(2 / (fan_in(shape) + fan_out(shape))))
# Normal with standard deviation $\sqrt{2/n}$ (He, Kaiming).
he = _normal_with_spread(lambda shape: math.sqrt(2 / fan_in(shape)))


def _haar_orthogonal(key: PRNGKeyArray, shape: Shape) -> Float[Array, "..."]:
    flat = (shape[0], fan_in(shape))
    tall = max(flat), min(flat)
    Q, R = jnp.linalg.qr(jr.normal(key, tall))
    # The signs make the draw uniform over the orthogonal group (Haar measure).
    Q = Q * jnp.sign(jnp.diagonal(R))[None]
    return (Q if flat == tall else Q.T).reshape(shape)


# Uniform over orthogonal matrices.
orthogonal = Initialiser(
    _haar_orthogonal, std_W=lambda shape: 1 / math.sqrt(max(shape[0], fan_in(shape)))
)


def ntk_parametrisation(*, weight: float = math.sqrt(2), bias: float = 0.0) -> Initialiser:
    r"""The NTK parametrisation $\frac{\sigma_W}{\sqrt n} W x + \sigma_b b$ (§9.3).

    $W$ and $b$ are standard normal. The network at $\theta_0$ has the same distribution as in the
    standard parametrisation, but its gradients are scaled so that the tangent kernel (NTK) has a
    limit as the width grows (Jacot et al. 2018).


    >>> ntk_parametrisation(weight=1.0).scale_W((5, 4))
    0.5
    """
    return Initialiser(
        lambda key, shape: jr.normal(key, shape),
        scale_W=lambda shape: weight / math.sqrt(fan_in(shape)),
        scale_b=bias,
        std_b=1.0,
        std_W=lambda shape: 1.0,
    )
