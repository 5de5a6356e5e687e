"""Initial weights (§8.1). Statistical tests use fixed keys and 4 standard errors: a false alarm in
16,000.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from scipy import stats

from thetax.layers import (
    Convolution,
    Linear,
    fan_in,
    fan_out,
    gaussian,
    glorot,
    he,
    lecun,
    ntk_parametrisation,
    orthogonal,
    relu,
    uniform,
)
from thetax.models import MLP

pytestmark = pytest.mark.usefixtures("strict")
SHAPE = (400, 25, 3, 3)  # 400 outputs, fan-in 225, fan-out 3600, 90,000 numbers

LAWS = [
    ("gaussian", gaussian(0.3), 0.3, 2.0),
    ("uniform", uniform(0.3), 0.3, 0.8),
    ("lecun", lecun, 1 / math.sqrt(225), 2.0),
    ("glorot", glorot, math.sqrt(2 / (225 + 3600)), 2.0),
    ("he", he, math.sqrt(2 / 225), 2.0),
]


@pytest.mark.parametrize(
    ("initialiser", "sigma", "spread"), [row[1:] for row in LAWS], ids=[row[0] for row in LAWS]
)
def test_mean_and_variance(initialiser, sigma, spread):
    """Mean 0 and variance σ² within 4 s.e.; Var(s²) = spread σ⁴/n with spread 2 (normal) or 0.8
    (uniform).
    """
    W = np.asarray(initialiser(jr.key(0), SHAPE), np.float64).ravel()
    assert abs(W.mean()) < 4 * sigma / math.sqrt(W.size)
    assert abs(W.var() - sigma**2) < 4 * sigma**2 * math.sqrt(spread / W.size)


def test_distributions():
    """Kolmogorov–Smirnov with p > 1e-3; the uniform distribution fills its support."""
    edge = math.sqrt(3) * 0.3
    flat = np.asarray(uniform(0.3)(jr.key(1), SHAPE)).ravel()
    assert np.abs(flat).max() <= np.float32(edge)
    assert np.abs(flat).max() > 0.999 * edge
    assert stats.kstest(flat, stats.uniform(-edge, 2 * edge).cdf).pvalue > 1e-3
    assert (
        stats.kstest(
            np.asarray(gaussian(0.3)(jr.key(1), SHAPE)).ravel(), stats.norm(0, 0.3).cdf
        ).pvalue
        > 1e-3
    )


def test_fan_in_and_fan_out():
    """The products over a window: the inputs of a unit, the outputs of an input."""
    assert (fan_in((4, 3)), fan_out((4, 3))) == (3, 4)
    assert (fan_in(SHAPE), fan_out(SHAPE)) == (225, 3600)


@pytest.mark.parametrize("shape", [(6, 6), (9, 4), (4, 9), (8, 2, 3), (4, 3, 2, 2)])
@pytest.mark.usefixtures("x64")
def test_orthogonal(shape):
    """‖WᵀW − I‖ ≤ 1e-12 for tall, ‖WWᵀ − I‖ for wide, windows flattened."""
    W = np.asarray(orthogonal(jr.key(0), shape)).reshape(shape[0], -1)
    gram = W.T @ W if W.shape[0] >= W.shape[1] else W @ W.T
    assert np.abs(gram - np.eye(len(gram))).max() < 1e-12
    assert not np.array_equal(W, np.asarray(orthogonal(jr.key(1), shape)).reshape(W.shape))


@pytest.mark.usefixtures("x64")
def test_orthogonal_is_haar_distributed():
    """E W = 0 and E W₁₁² = 1/n within 4 s.e. over 2,000 draws: QR without the sign of R fails the
    first.
    """
    W = jax.vmap(lambda key: orthogonal(key, (3, 3)))(jr.split(jr.key(0), 2000))
    assert np.abs(W.mean(axis=0)).max() < 4 / math.sqrt(3 * 2000)
    assert np.abs((W**2).mean(axis=0) - 1 / 3).max() < 4 * math.sqrt((3 / 15 - 1 / 9) / 2000)
    assert np.abs(np.abs(np.linalg.eigvals(W)) - 1).max() < 1e-12
    assert (
        np.abs(np.linalg.eigvals(W).imag).max() > 0.01
    )  # on the circle, not only at ±1 as the notes have it


def test_forward_variance():
    """lecun preserves the variance with linear units, he the second moment with ReLU units
    (8.1-lecun, 8.1-kaiming).
    """
    n, m = 300, 4000
    x = normal(0, n)
    for initialiser, activation in ((lecun, lambda z: z), (he, relu)):
        h = activation(Linear.init(n, m, initialiser=initialiser, key=jr.key(0))(x))
        moment = np.asarray(h, np.float64) ** 2
        assert abs(moment.mean() - float(x @ x) / n) < 4 * moment.std() / math.sqrt(m)


@pytest.mark.usefixtures("x64")
def test_samples_are_scaled_jax_samples():
    """Uniform weights are √3σ times a sample from [−1, 1] with the same key, normal ones σ times a
    standard normal.
    """
    unit = jr.uniform(jr.key(2), (50, 4), minval=-1.0, maxval=1.0)
    assert np.allclose(uniform(0.7)(jr.key(2), (50, 4)), math.sqrt(3) * 0.7 * unit, rtol=1e-12)
    assert np.allclose(
        gaussian(0.7)(jr.key(2), (50, 4)), 0.7 * jr.normal(jr.key(2), (50, 4)), rtol=1e-12
    )


def test_glorot_is_between_forward_and_backward():
    """nσ² = 1/2 forward and mσ² = 3/2 backward for m = 3n, within 4 s.e.; their mean is 1."""
    n, m = 200, 600
    layer = Linear.init(n, m, initialiser=glorot, bias=False, key=jr.key(0))
    x = normal(3, n)
    delta = normal(4, m)
    y, back = jax.vjp(layer, x)
    for out, came, expected in ((y, x, 2 * n / (n + m)), (back(delta)[0], delta, 2 * m / (n + m))):
        moment = np.asarray(out, np.float64) ** 2 / np.mean(np.asarray(came, np.float64) ** 2)
        assert abs(moment.mean() - expected) < 4 * moment.std() / math.sqrt(len(moment))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_orthogonal_layers_keep_norms_both_ways():
    """A tall layer preserves norms forward, a wide one backward, a square one both."""
    for n, m in ((4, 9), (9, 4), (6, 6)):
        layer = Linear.init(n, m, initialiser=orthogonal, bias=False, key=jr.key(0))
        x = jr.normal(jr.key(1), (n,), float)
        delta = jr.normal(jr.key(2), (m,), float)
        y, back = jax.vjp(layer, x)
        kept = [
            jnp.linalg.norm(y) / jnp.linalg.norm(x),
            jnp.linalg.norm(back(delta)[0]) / jnp.linalg.norm(delta),
        ]
        assert (abs(kept[0] - 1) < 1e-12) == (m >= n)
        assert (abs(kept[1] - 1) < 1e-12) == (m <= n)


def test_network_uses_the_given_initialiser():
    """Each layer of an MLP is drawn with its own fan-in and its own key."""
    net = MLP.init(100, 400, 300, 50, initialiser=lecun, key=jr.key(0))
    held = [layer for layer in net.body.layers if isinstance(layer, Linear)]
    for layer, n in zip(held, (100, 400, 300), strict=True):
        assert abs(float(layer.W.std()) * math.sqrt(n) - 1) < 4 / math.sqrt(2 * layer.W.size)
    assert jnp.array_equal(he(jr.key(3), (4, 5)), he(jr.key(3), (4, 5)))
    assert not jnp.array_equal(he(jr.key(3), (4, 5)), he(jr.key(4), (4, 5)))


def test_standard_bias_is_zero():
    assert Linear.init(3, 4, key=jr.key(0)).b.tolist() == [0, 0, 0, 0]


def test_ntk_parametrisation_has_the_standard_distribution():
    """(σ_W/√n) W with W standard normal is gaussian(σ_W/√n), and its bias has variance σ_b², within
    4 s.e.
    """
    n, m = 200, 5000
    layer = Linear.init(n, m, initialiser=ntk_parametrisation(weight=1.5, bias=0.5), key=jr.key(0))
    standard = np.asarray(layer.W, np.float64)
    assert abs(standard.var() - 1) < 4 * math.sqrt(2 / (n * m))
    x = normal(1, n)
    out = np.asarray(layer(x), np.float64)
    expected = 1.5**2 * float(x @ x) / n + 0.5**2
    assert abs(out.var() - expected) < 4 * expected * math.sqrt(2 / m)
    plain = Linear(layer.scale_W * layer.W, layer.scale_b * layer.b)
    assert jnp.allclose(plain(x), layer(x), rtol=1e-4, atol=1e-5)


def test_ntk_parametrisation_scales_the_gradients():
    """For the same function, ∂/∂W and ∂/∂b are the standard ones times s_W and s_b."""
    layer = Linear.init(4, 3, initialiser=ntk_parametrisation(weight=1.5, bias=0.5), key=jr.key(0))
    plain = Linear(layer.scale_W * layer.W, layer.scale_b * layer.b)
    x = normal(2, 4)
    loss = lambda layer: jnp.sin(layer(x)).sum()
    scaled = jax.grad(loss)(layer)
    standard = jax.grad(loss)(plain)
    assert layer.scale_W == 1.5 / 2
    assert jnp.allclose(scaled.W, 0.75 * standard.W, rtol=1e-5)
    assert jnp.allclose(scaled.b, 0.5 * standard.b, rtol=1e-5)


def test_ntk_parametrised_convolution_has_scaled_weights():
    layer = Convolution.init(
        2, 3, (3, 3), initialiser=ntk_parametrisation(weight=1.5, bias=0.5), key=jr.key(0)
    )
    plain = Convolution(layer.scale_W * layer.W, layer.scale_b * layer.b)
    x = normal(2, 2, 4, 5)
    assert math.isclose(layer.scale_W, 1.5 / math.sqrt(2 * 3 * 3))
    assert layer.scale_b == 0.5
    assert jnp.allclose(plain(x), layer(x), rtol=1e-4, atol=1e-5)
    loss = lambda layer: jnp.sin(layer(x)).sum()
    scaled = jax.grad(loss)(layer)
    standard = jax.grad(loss)(plain)
    assert jnp.allclose(scaled.W, layer.scale_W * standard.W, rtol=1e-4, atol=1e-5)
    assert jnp.allclose(scaled.b, 0.5 * standard.b, rtol=1e-4, atol=1e-5)
