r"""Gaussian expectations of an activation (§9.4, §10.2): all that a wide layer lets through of it.

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
Stein's identity $\mathbb{E}\,u g(u, v) = k_{xx} \mathbb{E}\,g_u + k\,\mathbb{E}\,g_v$, used until
only these are left, gives the row.

Any other $\varphi$ is expanded in normalised Hermite polynomials $h_j$: with
$a_j(k) = \mathbb{E}\,\varphi(\sqrt{k} z) h_j(z)$ by Gauss-Hermite quadrature, Mehler's formula says
$\mathbb{E}\,\varphi(u)\varphi(v) = \sum_j a_j(k_{xx})\, a_j(k_{yy})\, c^j$, and likewise for
$\varphi'$. So quadrature is done at every point, not at every pair of points. For tanh it is exact
to eight digits on variances up to 2, for smoother functions to more; with a kink two or three
digits are left.
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

TERMS, NODES = 128, 256
Numbers = Float[Array, "..."]
Both = tuple[Numbers, Numbers]


class Expectations(NamedTuple):
    r"""$\mathbb{E}\,\varphi(u)$ for $u \sim N(0, k)$, and for a pair
    $\mathbb{E}\,\varphi(u)\varphi(v)$ with $\mathbb{E}\,\varphi'(u)\varphi'(v)$, as functions of
    $(k_{xx}, k, k_{yy})$, arrays of shapes that broadcast.
    """

    mean: Callable[[Numbers], Numbers]
    pair: Callable[[Numbers, Numbers, Numbers], Both]


CLOSED: dict[Activation, Expectations] = {}


def expectations(activation: Activation) -> Expectations:
    r"""The Gaussian expectations of $\varphi$: in closed form where there is one, otherwise by
    quadrature.

    >>> ones = jnp.ones(1)
    >>> [round(float(e[0]), 4) for e in expectations(relu).pair(ones, 0 * ones, ones)]
    [0.1592, 0.25]
    >>> [round(float(e[0]), 4) for e in expectations(jnp.tanh).pair(ones, ones, ones)]
    [0.3943, 0.4644]
    """
    if activation in CLOSED:
        return CLOSED[activation]
    if isinstance(activation, partial) and activation.func is leaky_relu and not activation.args:
        return _kinked(activation.keywords["negative_slope"], at_zero=1.0)
    return _by_quadrature(activation)


def closed_form(activation: Activation, found: Expectations) -> None:
    r"""Makes these the expectations of $\varphi$, and of $\varphi - \varphi(0)$ those that follow
    from them.

    >>> double = lambda z: 2 * z
    >>> closed_form(
    ...     double, Expectations(jnp.zeros_like, lambda x, k, y: (4 * k, 4 * jnp.ones_like(k)))
    ... )
    >>> expectations(double).pair(jnp.ones(1), jnp.ones(1), jnp.ones(1))[0].tolist()
    [4.0]
    """
    at = float(activation(jnp.zeros(1))[0])

    def pair(x: Numbers, k: Numbers, y: Numbers) -> Both:
        product, slope = found.pair(x, k, y)
        return product - at * (found.mean(x) + found.mean(y)) + at**2, slope

    CLOSED[activation] = found
    CLOSED[centred(activation)] = (
        found if at == 0 else Expectations(lambda k: found.mean(k) - at, pair)
    )


def root(x: Numbers) -> Numbers:
    r"""$\sqrt{x}$ for $x > 0$ and 0 below, with the derivative 0 there."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, jnp.ones_like(x))), jnp.zeros_like(x))


def _cosine(x: Numbers, k: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    r"""$\sqrt{k_{xx} k_{yy}}$ and $c$, which is exactly 1 where the three are one number, and 0
    where nothing is.
    """
    length = root(x * y)
    return length, jnp.where(
        length > 0, k / jnp.where(length > 0, length, jnp.ones_like(length)), jnp.zeros_like(k)
    )


def _arccos(c: Numbers) -> Numbers:
    r"""In float32 by $\sqrt{1 - c}$ times a polynomial (Abramowitz & Stegun 4.4.46), in half the
    time and as exact.
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
def _kappa0(c: Numbers) -> Numbers:
    return 1 - _arccos(jnp.clip(c, -1, 1)) / math.pi


@jax.custom_jvp
def _kappa1(c: Numbers) -> Numbers:
    c = jnp.clip(c, -1, 1)
    return jnp.sqrt((1 - c) * (1 + c)) / math.pi + c * _kappa0(c)


@_kappa0.defjvp
def _kappa0_jvp(primals: tuple[Numbers], tangents: tuple[Numbers]) -> Both:
    """Infinite at the ends: there the derivative is put to 0."""
    (c,), (dc,) = primals, tangents
    sine = root((1 - c) * (1 + c))
    inside = sine > 0
    return _kappa0(c), jnp.where(
        inside, dc / (math.pi * jnp.where(inside, sine, jnp.ones_like(sine))), 0 * dc
    )


@_kappa1.defjvp
def _kappa1_jvp(primals: tuple[Numbers], tangents: tuple[Numbers]) -> Both:
    r"""$\kappa_1' = \kappa_0$, finite everywhere."""
    (c,), (dc,) = primals, tangents
    return _kappa1(c), _kappa0(c) * dc


def _kinked(alpha: float, *, at_zero: float) -> Expectations:
    r"""$\varphi(z) = \max(0, z) + \alpha \min(0, z)$, which is
    $\alpha z + (1 - \alpha)\,\mathrm{ReLU}(z)$.

    Where $u$ is always 0, its slope is what the program says there, `at_zero`.
    """
    rest = (1 - alpha) ** 2 / 2

    def pair(x: Numbers, k: Numbers, y: Numbers) -> Both:
        length, c = _cosine(x, k, y)
        flat = jnp.where(
            (x > 0) | (y > 0),
            at_zero * (1 + alpha) / 2 * jnp.ones_like(k),
            at_zero**2 * jnp.ones_like(k),
        )
        slope = jnp.where(length > 0, alpha + rest * _kappa0(c), flat)
        return alpha * k + rest * length * _kappa1(c), slope

    return Expectations(lambda k: (1 - alpha) * root(k) / math.sqrt(2 * math.pi), pair)


def _stepped(low: float) -> Expectations:
    """1 above zero and `low` below, flat on both sides:
    $\\frac12(1 + low) + \\frac12(1 - low)\\,\\mathrm{sign}$.
    """

    def pair(x: Numbers, k: Numbers, y: Numbers) -> Both:
        signs = 2 * _kappa0(_cosine(x, k, y)[1]) - 1
        return ((1 + low) ** 2 + (1 - low) ** 2 * signs) / 4, jnp.zeros_like(signs)

    return Expectations(lambda k: jnp.full_like(k, (1 + low) / 2), pair)


def _erf_pair(x: Numbers, k: Numbers, y: Numbers) -> Both:
    p = (1 + 2 * x) * (1 + 2 * y)
    return 2 / math.pi * jnp.arcsin(2 * k / jnp.sqrt(p)), 4 / math.pi / jnp.sqrt(p - 4 * k**2)


def _waves(x: Numbers, k: Numbers, y: Numbers) -> Both:
    r"""$\mathbb{E} \cos(u - v)$ and $\mathbb{E} \cos(u + v)$, half of each."""
    return jnp.exp(k - (x + y) / 2) / 2, jnp.exp(-k - (x + y) / 2) / 2


def _sin_pair(x: Numbers, k: Numbers, y: Numbers) -> Both:
    apart, along = _waves(x, k, y)
    return apart - along, apart + along


def _cos_pair(x: Numbers, k: Numbers, y: Numbers) -> Both:
    apart, along = _waves(x, k, y)
    return apart + along, apart - along


def _gelu_pair(x: Numbers, k: Numbers, y: Numbers) -> Both:
    p = (1 + x) * (1 + y)
    delta = p - k**2
    D = 1 / (2 * math.pi * jnp.sqrt(delta))
    G = 1 / 4 + jnp.arcsin(k / jnp.sqrt(p)) / (2 * math.pi)
    s = 1 / (1 + x) + 1 / (1 + y)
    return k * G + D * (x * y - k**2 * (1 - s)), G + k * D * (s + 1 / delta)


@cache
def _hermite() -> tuple[np.ndarray, np.ndarray]:
    """Nodes, and for each polynomial its values there times the weights."""
    z, w = np.polynomial.hermite_e.hermegauss(NODES)
    h = [np.ones_like(z), z]
    for j in range(2, TERMS):
        h.append((z * h[-1] - math.sqrt(j - 1) * h[-2]) / math.sqrt(j))
    return z, np.stack(h) * (w / w.sum())


def _by_quadrature(activation: Activation) -> Expectations:
    def coefficients(k: Numbers) -> tuple[Numbers, Numbers]:
        z, weighed = (jnp.asarray(table, k.dtype) for table in _hermite())
        u = jnp.expand_dims(root(k), -1) * z.reshape((1,) * k.ndim + (-1,))
        value, slope = jax.jvp(activation, (u,), (jnp.ones_like(u),))
        return jnp.moveaxis(value @ weighed.T, -1, 0), jnp.moveaxis(slope @ weighed.T, -1, 0)

    def pair(x: Numbers, k: Numbers, y: Numbers) -> Both:
        c = jnp.clip(_cosine(x, k, y)[1], -1, 1)
        terms = (*coefficients(x), *coefficients(y))

        def horner(sums: Both, at: tuple[Numbers, ...]) -> tuple[Both, None]:
            a, da, b, db = at
            return (sums[0] * c + a * b, sums[1] * c + da * db), None

        return jax.lax.scan(horner, (jnp.zeros_like(c), jnp.zeros_like(c)), terms, reverse=True)[0]

    return Expectations(lambda k: coefficients(k)[0][0], pair)


_nothing = jnp.zeros_like
closed_form(relu, _kinked(0.0, at_zero=0.0))
closed_form(leaky_relu, _kinked(0.01, at_zero=1.0))
closed_form(jnp.abs, _kinked(-1.0, at_zero=1.0))
closed_form(identity, Expectations(_nothing, lambda x, k, y: (k, jnp.ones_like(k))))
closed_form(erf, Expectations(_nothing, _erf_pair))
closed_form(jax.lax.erf, CLOSED[erf])
closed_form(jnp.sin, Expectations(_nothing, _sin_pair))
closed_form(jnp.cos, Expectations(lambda k: jnp.exp(-k / 2), _cos_pair))
closed_form(gelu, Expectations(lambda k: k / jnp.sqrt(2 * math.pi * (1 + k)), _gelu_pair))
closed_form(heaviside, _stepped(0.0))
closed_form(sign, _stepped(-1.0))
closed_form(spin, _stepped(-1.0))
