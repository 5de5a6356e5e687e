"""Gaussian expectations of activations against integrals in two dimensions."""

import math
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf
from scipy.integrate import quad

from thetax.explain import DualActivation, dual_activation, register_dual_activation
from thetax.layers import centred, gelu, heaviside, identity, leaky_relu, relu, sign, silu, spin

PAIRS = [(1.0, 0.3, 0.7), (2.0, -1.2, 1.5), (0.4, 0.0, 2.0)]
SMOOTH = {
    "identity": identity,
    "erf": erf,
    "lax erf": jax.lax.erf,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "gelu": gelu,
    "centred cos": centred(jnp.cos),
    "centred gelu": centred(gelu),
    "silu": silu,
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "centred sigmoid": centred(jax.nn.sigmoid),
    "polynomial": lambda z: 1 + z**3 / 4,
}
KINKED = {  # the slopes on either side, and the value there for those that are flat
    "relu": (relu, lambda z: np.maximum(z, 0), lambda z: (z > 0) + 0.0),
    "centred relu": (centred(relu), lambda z: np.maximum(z, 0), lambda z: (z > 0) + 0.0),
    "leaky": (
        leaky_relu,
        lambda z: np.where(z > 0, z, 0.01 * z),
        lambda z: np.where(z > 0, 1, 0.01),
    ),
    "leakier": (
        partial(leaky_relu, negative_slope=0.3),
        lambda z: np.where(z > 0, z, 0.3 * z),
        lambda z: np.where(z > 0, 1, 0.3),
    ),
    "abs": (jnp.abs, np.abs, np.sign),
    "heaviside": (heaviside, lambda z: (z > 0) + 0.0, lambda z: 0 * z),
    "centred heaviside": (centred(heaviside), lambda z: (z > 0) - 1.0, lambda z: 0 * z),
    "sign": (sign, np.sign, lambda z: 0 * z),
    "spin": (spin, np.sign, lambda z: 0 * z),
}


def arrays(*numbers):
    return [jnp.array([number]) for number in numbers]


def found(activation, pair):
    return [float(e[0]) for e in dual_activation(activation).pair(*arrays(*pair))]


def by_nodes(f, pair, nodes=180):
    """Gauss-Hermite quadrature in the plane, of φφ and of φ'φ'."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = np.outer(w, w) / w.sum() ** 2
    L = np.linalg.cholesky([[pair[0], pair[1]], [pair[1], pair[2]]])
    u, v = np.meshgrid(z, z, indexing="ij")
    u, v = jnp.asarray(L[0, 0] * u), jnp.asarray(L[1, 0] * u + L[1, 1] * v)
    slope = lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]
    return [float((w * f(u) * f(v)).sum()), float((w * slope(u) * slope(v)).sum())]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_ones_are_the_quadrature_in_the_plane(name, x64):
    for pair in PAIRS:
        assert np.allclose(
            found(SMOOTH[name], pair), by_nodes(SMOOTH[name], pair), rtol=0, atol=1e-8
        ), pair


def around(f, pair, power):
    """The integral over the angle, split at the kinks; over the radius it is known, for f
    homogeneous of that power.
    """
    (a, b), (c, d) = np.linalg.cholesky([[pair[0], pair[1]], [pair[1], pair[2]]])
    kinks = sorted(
        (math.atan2(-x, y) + half) % (2 * math.pi)
        for x, y in ((a, b), (c, d))
        for half in (0, math.pi)
    )
    at = lambda t: float(f(a * np.cos(t) + b * np.sin(t)) * f(c * np.cos(t) + d * np.sin(t)))
    edges = [0.0, *kinks, 2 * math.pi]
    total = sum(quad(at, low, high, epsabs=1e-12)[0] for low, high in pairwise(edges))
    return total * 2**power / (2 * math.pi)


@pytest.mark.parametrize("name", KINKED)
def test_kinked_ones_are_integrals_over_the_angle(name, x64):
    activation, f, slope = KINKED[name]
    power = 0 if name.endswith(("heaviside", "sign", "spin")) else 1
    for pair in PAIRS:
        expected = [around(f, pair, power), around(slope, pair, 0)]
        assert np.allclose(found(activation, pair), expected, rtol=0, atol=1e-8), pair


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*SMOOTH, *KINKED])
def test_means(name, x64):
    activation = SMOOTH.get(name) or KINKED[name][0]
    for k in (0.3, 1.0, 2.5):
        density = lambda z, k=k: math.exp(-(z**2) / (2 * k)) / math.sqrt(2 * math.pi * k)
        at = lambda z, density=density: float(activation(jnp.array([z]))[0]) * density(z)
        expected = sum(quad(at, *ends, epsabs=1e-9, limit=30)[0] for ends in ((-15, 0), (0, 15)))
        assert abs(float(dual_activation(activation).mean(jnp.array([k]))[0]) - expected) < 1e-8


def test_relu_of_equal_and_opposite_numbers(x64):
    assert np.allclose(found(relu, (3.0, 3.0, 3.0)), [1.5, 0.5], atol=1e-12)
    assert np.allclose(found(relu, (3.0, -3.0, 3.0)), [0, 0], atol=1e-12)


@pytest.mark.parametrize("activation", [relu, leaky_relu, jnp.abs, jnp.tanh, gelu])
def test_zero_variance_uses_the_derivative_at_zero(activation, x64):
    """E φ'(0)φ'(v) = φ'(0) E φ'(v)."""
    at_zero = jax.grad(activation)(0.0)
    for other in (0.0, 2.0):
        mean = float(at_zero) if other == 0 else (found(activation, (2.0, 1e-14, 2.0))[1]) ** 0.5
        value, slope = found(activation, (0.0, 0.0, other))
        assert abs(value) < 1e-12
        assert abs(slope - float(at_zero) * mean) < 1e-6


@pytest.mark.slow
def test_in_float32_angles_are_as_exact_as_float32(x64):
    c = np.linspace(-1, 1, 4001)
    exact = dual_activation(relu).pair(jnp.ones(4001), jnp.asarray(c), jnp.ones(4001))
    single = [jnp.asarray(a, jnp.float32) for a in (np.ones(4001), c, np.ones(4001))]
    of_rounded = dual_activation(relu).pair(
        jnp.ones(4001), jnp.asarray(single[1], float), jnp.ones(4001)
    )
    for ours, rounded, full in zip(dual_activation(relu).pair(*single), of_rounded, exact):
        assert ours.dtype == jnp.float32
        assert np.abs(np.asarray(ours, float) - rounded).max() < 2e-7
        assert np.abs(rounded - full).max() < 1e-4  # what is lost is lost by rounding the cosine


@pytest.mark.slow
def test_derivatives_at_the_ends_are_finite_and_those_of_the_product_exact(x64):
    """d/dk E φφ = E φ'φ' (Price's theorem), also where k² = k_xx k_yy."""
    for k in (-1.0, 0.2, 1.0):
        product = lambda k: dual_activation(relu).pair(jnp.ones(1), k[None], jnp.ones(1))[0][0]
        slope = lambda k: dual_activation(relu).pair(jnp.ones(1), k[None], jnp.ones(1))[1][0]
        assert abs(jax.grad(product)(jnp.array(k)) - slope(jnp.array(k))) < 1e-12
        assert np.isfinite(jax.grad(slope)(jnp.array(k)))
    inside = lambda k: float(dual_activation(relu).pair(*arrays(1.0, k, 1.0))[1][0])
    slope = lambda k: dual_activation(relu).pair(jnp.ones(1), k[None], jnp.ones(1))[1][0]
    assert (
        abs(jax.grad(slope)(jnp.array(0.2)) - (inside(0.2 + 1e-6) - inside(0.2 - 1e-6)) / 2e-6)
        < 1e-8
    )


def test_closed_form_can_be_registered(x64):
    cube = lambda z: z**3 + 1
    pair = lambda x, k, y: (1 + 9 * x * k * y + 6 * k**3, 9 * (x * y + 2 * k**2))
    by_quadrature = [found(f, (1.0, 0.3, 0.7)) for f in (cube, centred(cube))]
    register_dual_activation(cube, DualActivation(jnp.ones_like, pair))
    closed = [found(f, (1.0, 0.3, 0.7)) for f in (cube, centred(cube))]
    assert np.allclose(by_quadrature, closed, atol=1e-10)
    assert closed[0][0] != closed[1][0]
