"""Activations against SciPy and closed forms, at ±0 and at extreme values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from thetax import layers
from thetax.layers import (
    centred,
    gelu,
    heaviside,
    relu,
    sigmoid,
    sign,
    softmax,
    softplus,
    spin,
    tanh,
)

pytestmark = pytest.mark.usefixtures("x64", "strict")
z = np.concatenate([np.linspace(-50, 50, 401), [-0.0, 0.0, -800.0, 800.0, 1e-300]])

REFERENCES = {
    "identity": lambda z: z,
    "sigmoid": special.expit,
    "tanh": np.tanh,
    "relu": lambda z: (z + np.abs(z)) / 2,
    "leaky_relu": lambda z: np.where(z >= 0, z, 0.01 * z),
    "softplus": lambda z: np.logaddexp(0, z),
    "gelu": lambda z: z * stats.norm.cdf(z),
    "gelu_tanh": lambda z: z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z * special.expit(z),
    "heaviside": lambda z: np.heaviside(z, 1.0),
    "sign": np.sign,
    "spin": lambda z: 2 * np.heaviside(z, 1.0) - 1,
}


@pytest.mark.parametrize("name", [name for name in layers.ACTIVATIONS if name != "softmax"])
def test_values(name):
    """Equal to the reference in double precision, also at ±0 and ±800, and finite there."""
    found = layers.ACTIVATIONS[name](jnp.asarray(z))
    assert np.isfinite(found).all()
    atol = 1e-14 if name == "gelu_tanh" else 1e-15  # 1 + tanh loses digits by cancellation
    assert np.allclose(found, REFERENCES[name](z), rtol=1e-13, atol=atol)


@pytest.mark.parametrize("name", [name for name in layers.ACTIVATIONS if name != "softmax"])
def test_gradient_is_finite_everywhere(name):
    """No NaN in a gradient, at kinks and extreme values."""
    assert np.isfinite(jax.vmap(jax.grad(layers.ACTIVATIONS[name]))(jnp.asarray(z))).all()


def test_two_signs():
    """`sign` is 0 at 0; `spin` and `heaviside` are not; −0 counts as 0."""
    zeros = jnp.array([0.0, -0.0])
    assert sign(zeros).tolist() == [0, 0]
    assert spin(zeros).tolist() == [1, 1]
    assert heaviside(zeros).tolist() == [1, 1]
    away = jnp.array([-1e-300, 1e-300])
    assert sign(away).tolist() == spin(away).tolist() == [-1, 1]
    assert heaviside(away).tolist() == [0, 1]


def test_identities():
    """σ(−z) = 1 − σ(z); tanh z = 2σ(2z) − 1; relu(z) − relu(−z) = z; σ' = σ(1 − σ) ≤ ¼; softplus' =
    σ.
    """
    x = jnp.asarray(z)
    assert np.allclose(sigmoid(-x), 1 - sigmoid(x), atol=1e-15)
    assert np.allclose(tanh(x), 2 * sigmoid(2 * x) - 1, atol=1e-15)
    assert np.array_equal(relu(x) - relu(-x), x)
    slope = jax.vmap(jax.grad(sigmoid))(x)
    assert np.allclose(slope, sigmoid(x) * (1 - sigmoid(x)), atol=1e-15)
    assert slope.max() == 0.25
    assert np.allclose(jax.vmap(jax.grad(softplus))(x), sigmoid(x), atol=1e-15)


def test_softmax():
    """Scipy's values, sum 1, shift-invariant, Jacobian diag(s) − ssᵀ, finite at logits of 1e4."""
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)) * 3)
    s = softmax(logits)
    assert np.allclose(s, special.softmax(logits, axis=-1), atol=1e-15)
    assert np.allclose(s.sum(axis=-1), 1, atol=1e-15)
    assert np.allclose(softmax(logits + 7), s, atol=1e-14)
    assert np.allclose(
        jax.jacobian(softmax)(logits[0]), np.diag(s[0]) - np.outer(s[0], s[0]), atol=1e-15
    )
    assert softmax(jnp.array([1e4, 0.0, -1e4])).tolist() == [1, 0, 0]


def test_extremes_in_float32():
    """Single precision saturates and does not overflow."""
    edge = jnp.array([-800.0, 800.0], jnp.float32)
    assert sigmoid(edge).tolist() == [0, 1]
    assert softplus(edge).tolist() == [0, 800]
    assert gelu(edge).tolist() == [0, 800]


def test_centred_is_zero_at_zero_and_cached():
    """φ(z) − φ(0); two calls return the same function, so equal networks have equal tree
    structure.
    """
    x = jnp.asarray(z)
    assert centred(sigmoid)(jnp.zeros(3)).tolist() == [0, 0, 0]
    assert np.allclose(centred(softplus)(x), np.logaddexp(0, z) - np.log(2), atol=1e-14)
    assert centred(sigmoid) is centred(sigmoid)
