r"""Dual activations: Gaussian expectations of an activation and of its derivative (§9.4, §10.2),
which determine how an infinitely wide layer transforms the kernels.

For centred normal $(u, v)$ with $\mathbb{E} u^2 = k_{xx}$, $\mathbb{E} uv = k$ and
$\mathbb{E} v^2 = k_{yy}$

| $\varphi$ | $\mathbb{E}\,\varphi(u)\varphi(v)$ | $\mathbb{E}\,\varphi'(u)\varphi'(v)$ |
|---|---|---|
| identity | $k$ | $1$ |
| ReLU | $\frac12 \sqrt{k_{xx} k_{yy}}\,\kappa_1(c)$ | $\frac12 \kappa_0(c)$ |
| erf | $\frac2\pi \arcsin(2k / \sqrt{p})$ | $\frac4\pi / \sqrt{p - 4k^2}$ |
| sin | $e^{-(k_{xx} + k_{yy})/2} \sinh k$ | $e^{-(k_{xx} + k_{yy})/2} \cosh k$ |
| GELU | $kG + D\,(k_{xx} k_{yy} - k^2 (1 - s))$ | $G + kD\,(s + 1/\delta)$ |

with $c = k / \sqrt{k_{xx} k_{yy}}$, $p = (1 + 2k_{xx})(1 + 2k_{yy})$, the arc-cosine functions
$\pi\kappa_0 = \pi - \arccos c$ and $\pi\kappa_1 = \sqrt{1 - c^2} + \pi c\,\kappa_0$ (Cho & Saul
2009), and for GELU $\delta = (1 + k_{xx})(1 + k_{yy}) - k^2$,
$s = \frac1{1 + k_{xx}} + \frac1{1 + k_{yy}}$, the density
$D = \mathbb{E}\,\Phi'(u)\Phi'(v) = 1 / 2\pi\sqrt\delta$ and
$G = \mathbb{E}\,\Phi(u)\Phi(v) = \frac14 + \frac1{2\pi} \arcsin \frac{k}{\sqrt{(1 + k_{xx})(1 +
k_{yy})}}$;
the row for GELU follows from Stein's identity
$\mathbb{E}\,u g(u, v) = k_{xx} \mathbb{E}\,g_u + k\,\mathbb{E}\,g_v$.

Any other $\varphi$ is expanded in normalised Hermite polynomials $h_j$: with
$a_j(k) = \mathbb{E}\,\varphi(\sqrt{k} z) h_j(z)$ by Gauss-Hermite quadrature, Mehler's formula says
$\mathbb{E}\,\varphi(u)\varphi(v) = \sum_j a_j(k_{xx})\, a_j(k_{yy})\, c^j$, and likewise for
$\varphi'$. Quadrature is thus needed for every point, not for every pair of points. For tanh it is
accurate to eight digits for variances up to 2, for smoother functions to more, for functions with a
kink to two or three.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from ...layers import Activation, centred, gelu, heaviside, identity, leaky_relu, relu, sign, spin

N_TERMS, N_NODES = 128, 256
Values = Float[Array, "..."]
Pair = tuple[Values, Values]


class DualActivation(NamedTuple):
    r"""$\mathbb{E}\,\varphi(u)$ for $u \sim N(0, k)$, and for a pair
    $\mathbb{E}\,\varphi(u)\varphi(v)$ with $\mathbb{E}\,\varphi'(u)\varphi'(v)$, as functions of
    $(k_{xx}, k, k_{yy})$, arrays of shapes that broadcast.
    """

    mean: Callable[[Values], Values]
    pair: Callable[[Values, Values, Values], Pair]


CLOSED_FORMS: dict[Activation, DualActivation] = {}


def dual_activation(activation: Activation) -> DualActivation:
    r"""The dual activation of $\varphi$: a registered closed form, or numerical quadrature.

    >>> ones = jnp.ones(1)
    >>> [round(float(e[0]), 4) for e in dual_activation(relu).pair(ones, 0 * ones, ones)]
    [0.1592, 0.25]
    >>> [round(float(e[0]), 4) for e in dual_activation(jnp.tanh).pair(ones, ones, ones)]
    [0.3943, 0.4644]
    """
    if activation in CLOSED_FORMS:
        return CLOSED_FORMS[activation]
    if isinstance(activation, partial) and activation.func is leaky_relu and not activation.args:
        return _piecewise_linear(activation.keywords["negative_slope"], at_zero=1.0)
    return _by_quadrature(activation)


def register_dual_activation(activation: Activation, dual: DualActivation) -> None:
    r"""Registers a closed form for $\varphi$, and the one for $\varphi - \varphi(0)$ that follows
    from it.

    >>> double = lambda z: 2 * z
    >>> register_dual_activation(
    ...     double, DualActivation(jnp.zeros_like, lambda x, k, y: (4 * k, 4 * jnp.ones_like(k)))
    ... )
    >>> dual_activation(double).pair(jnp.ones(1), jnp.ones(1), jnp.ones(1))[0].tolist()
    [4.0]
    """
    at_zero = float(activation(jnp.zeros(1))[0])

    def pair(x: Values, k: Values, y: Values) -> Pair:
        product, slope = dual.pair(x, k, y)
        return product - at_zero * (dual.mean(x) + dual.mean(y)) + at_zero**2, slope

    CLOSED_FORMS[activation] = dual
    CLOSED_FORMS[centred(activation)] = (
        dual if at_zero == 0 else DualActivation(lambda k: dual.mean(k) - at_zero, pair)
    )


def safe_sqrt(x: Values) -> Values:
    r"""$\sqrt{x}$ for $x > 0$ and 0 below, with the derivative 0 there."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, jnp.ones_like(x))), jnp.zeros_like(x))


def _norm_and_cosine(x: Values, k: Values, y: Values) -> tuple[Values, Values]:
    r"""$\sqrt{k_{xx} k_{yy}}$ and the cosine $c$, which is exactly 1 where $k_{xx} = k = k_{yy}$,
    and 0 where a variance is 0.
    """
    norm = safe_sqrt(x * y)
    cosine = k / jnp.where(norm > 0, norm, jnp.ones_like(norm))
    return norm, jnp.where(norm > 0, cosine, jnp.zeros_like(k))


def _arccos(c: Values) -> Values:
    r"""In float32, $\sqrt{1 - c}$ times a polynomial (Abramowitz & Stegun 4.4.46): half the time of
    `jnp.arccos`, and as accurate.
    """
    if c.dtype != jnp.float32:
        return jnp.arccos(c)
    a = jnp.abs(c)
    p = jnp.full_like(c, -0.0012624911)
    for term in (
        0.0066700901,
        -0.0170881256,
        0.0308918810,
        -0.0501743046,
        0.0889789874,
        -0.2145988016,
        1.5707963050,
    ):
        p = p * a + term
    half = p * jnp.sqrt(1 - a)
    return jnp.where(c < 0, math.pi - half, half)


@jax.custom_jvp
def _kappa0(c: Values) -> Values:
    return 1 - _arccos(jnp.clip(c, -1, 1)) / math.pi


@jax.custom_jvp
def _kappa1(c: Values) -> Values:
    c = jnp.clip(c, -1, 1)
    return jnp.sqrt((1 - c) * (1 + c)) / math.pi + c * _kappa0(c)


@_kappa0.defjvp
def _kappa0_jvp(primals: tuple[Values], tangents: tuple[Values]) -> Pair:
    """The derivative is infinite at c = -1 and 1, where 0 is used instead."""
    (c,), (dc,) = primals, tangents
    sine = safe_sqrt((1 - c) * (1 + c))
    inside = sine > 0
    return _kappa0(c), jnp.where(
        inside, dc / (math.pi * jnp.where(inside, sine, jnp.ones_like(sine))), 0 * dc
    )


@_kappa1.defjvp
def _kappa1_jvp(primals: tuple[Values], tangents: tuple[Values]) -> Pair:
    r"""$\kappa_1' = \kappa_0$, finite everywhere."""
    (c,), (dc,) = primals, tangents
    return _kappa1(c), _kappa0(c) * dc


def _piecewise_linear(alpha: float, *, at_zero: float) -> DualActivation:
    r"""$\varphi(z) = \max(0, z) + \alpha \min(0, z)$, which is
    $\alpha z + (1 - \alpha)\,\mathrm{ReLU}(z)$.

    Where $u$ is 0 almost surely, `at_zero` is used as the slope, as by `jax.grad`.
    """
    rest = (1 - alpha) ** 2 / 2

    def pair(x: Values, k: Values, y: Values) -> Pair:
        norm, c = _norm_and_cosine(x, k, y)
        flat = jnp.where(
            (x > 0) | (y > 0),
            at_zero * (1 + alpha) / 2 * jnp.ones_like(k),
            at_zero**2 * jnp.ones_like(k),
        )
        slope = jnp.where(norm > 0, alpha + rest * _kappa0(c), flat)
        return alpha * k + rest * norm * _kappa1(c), slope

    return DualActivation(lambda k: (1 - alpha) * safe_sqrt(k) / math.sqrt(2 * math.pi), pair)


def _step(low: float) -> DualActivation:
    """The step function that is 1 above zero and `low` below:
    $\\frac12(1 + low) + \\frac12(1 - low)\\,\\mathrm{sign}$.
    """

    def pair(x: Values, k: Values, y: Values) -> Pair:
        signs = 2 * _kappa0(_norm_and_cosine(x, k, y)[1]) - 1
        return ((1 + low) ** 2 + (1 - low) ** 2 * signs) / 4, jnp.zeros_like(signs)

    return DualActivation(lambda k: jnp.full_like(k, (1 + low) / 2), pair)


def _erf_pair(x: Values, k: Values, y: Values) -> Pair:
    p = (1 + 2 * x) * (1 + 2 * y)
    return 2 / math.pi * jnp.arcsin(2 * k / jnp.sqrt(p)), 4 / math.pi / jnp.sqrt(p - 4 * k**2)


def _half_cosines(x: Values, k: Values, y: Values) -> Pair:
    r"""$\mathbb{E} \cos(u - v)$ and $\mathbb{E} \cos(u + v)$, divided by 2."""
    return jnp.exp(k - (x + y) / 2) / 2, jnp.exp(-k - (x + y) / 2) / 2


def _sin_pair(x: Values, k: Values, y: Values) -> Pair:
    difference, total = _half_cosines(x, k, y)
    return difference - total, difference + total


def _cos_pair(x: Values, k: Values, y: Values) -> Pair:
    difference, total = _half_cosines(x, k, y)
    return difference + total, difference - total


def _gelu_pair(x: Values, k: Values, y: Values) -> Pair:
    p = (1 + x) * (1 + y)
    delta = p - k**2
    D = 1 / (2 * math.pi * jnp.sqrt(delta))
    G = 1 / 4 + jnp.arcsin(k / jnp.sqrt(p)) / (2 * math.pi)
    s = 1 / (1 + x) + 1 / (1 + y)
    return k * G + D * (x * y - k**2 * (1 - s)), G + k * D * (s + 1 / delta)


@cache
def _hermite() -> tuple[np.ndarray, np.ndarray]:
    """The quadrature nodes, and the values of each polynomial there times the weights."""
    z, w = np.polynomial.hermite_e.hermegauss(N_NODES)
    h = [np.ones_like(z), z]
    for j in range(2, N_TERMS):
        h.append((z * h[-1] - math.sqrt(j - 1) * h[-2]) / math.sqrt(j))
    return z, np.stack(h) * (w / w.sum())


def _by_quadrature(activation: Activation) -> DualActivation:
    def coefficients(k: Values) -> tuple[Values, Values]:
        z, polynomials = (jnp.asarray(table, k.dtype) for table in _hermite())
        u = jnp.expand_dims(safe_sqrt(k), -1) * z.reshape((1,) * k.ndim + (-1,))
        value, slope = jax.jvp(activation, (u,), (jnp.ones_like(u),))
        return jnp.moveaxis(value @ polynomials.T, -1, 0), jnp.moveaxis(
            slope @ polynomials.T, -1, 0
        )

    def pair(x: Values, k: Values, y: Values) -> Pair:
        c = jnp.clip(_norm_and_cosine(x, k, y)[1], -1, 1)
        terms = (*coefficients(x), *coefficients(y))

        def horner(sums: Pair, coefficients: tuple[Values, ...]) -> tuple[Pair, None]:
            a, da, b, db = coefficients
            return (sums[0] * c + a * b, sums[1] * c + da * db), None

        return jax.lax.scan(horner, (jnp.zeros_like(c), jnp.zeros_like(c)), terms, reverse=True)[0]

    return DualActivation(lambda k: coefficients(k)[0][0], pair)


_zero = jnp.zeros_like
register_dual_activation(relu, _piecewise_linear(0.0, at_zero=0.0))
register_dual_activation(leaky_relu, _piecewise_linear(0.01, at_zero=1.0))
register_dual_activation(jnp.abs, _piecewise_linear(-1.0, at_zero=1.0))
register_dual_activation(identity, DualActivation(_zero, lambda x, k, y: (k, jnp.ones_like(k))))
register_dual_activation(erf, DualActivation(_zero, _erf_pair))
register_dual_activation(jax.lax.erf, CLOSED_FORMS[erf])
register_dual_activation(jnp.sin, DualActivation(_zero, _sin_pair))
register_dual_activation(jnp.cos, DualActivation(lambda k: jnp.exp(-k / 2), _cos_pair))
register_dual_activation(
    gelu, DualActivation(lambda k: k / jnp.sqrt(2 * math.pi * (1 + k)), _gelu_pair)
)
register_dual_activation(heaviside, _step(0.0))
register_dual_activation(sign, _step(-1.0))
register_dual_activation(spin, _step(-1.0))
