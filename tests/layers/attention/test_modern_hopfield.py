"""The modern Hopfield layer: gradient of its energy, equivalence to attention, training (§1.4)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import normal
from scipy.special import logsumexp, softmax

from thetax.core import predict
from thetax.layers import Chain, Linear, ModernHopfield
from thetax.train import Silent, descend, fit, squared_error

exact = pytest.mark.usefixtures("x64", "strict")


@exact
def test_energy_and_update_are_the_formulas():
    """SciPy's softmax and logsumexp; the update is a gradient step of length 1."""
    X = normal(0, 7, 4)
    x = normal(1, 4)
    beta = 1.7
    layer = ModernHopfield(X, beta)
    inner = beta * np.asarray(X) @ np.asarray(x)
    largest = max(float(row @ row) for row in X)
    expected = -logsumexp(inner) / beta + x @ x / 2 + np.log(7) / beta + largest / 2
    assert np.isclose(layer.energy(x), expected, rtol=1e-13)
    assert np.allclose(layer.update(x), softmax(inner) @ np.asarray(X), atol=1e-13)
    assert np.allclose(layer.update(x), x - jax.grad(layer.energy)(x), atol=1e-13)


@exact
def test_steps_repeat_the_update_and_never_increase_the_energy():
    X = normal(0, 6, 3)
    x = 3 * normal(1, 3)
    energies = []
    point = x
    for steps in range(1, 6):
        point = ModernHopfield(X, 2.0).update(point)
        assert np.allclose(ModernHopfield(X, 2.0, steps)(x), point, atol=1e-13)
        energies.append(float(ModernHopfield(X, 2.0).energy(point)))
    assert (np.diff([float(ModernHopfield(X, 2.0).energy(x)), *energies]) <= 1e-12).all()


def test_a_step_is_attention():
    """`jax.nn.dot_product_attention` with the keys as values, and with a linear map for the
    values.
    """
    Q = normal(0, 5, 8)
    K = normal(1, 9, 8)
    W = normal(2, 3, 8)
    memory = ModernHopfield(K, beta=8**-0.5)
    heads = lambda a: a[:, None]
    assert np.allclose(
        predict(memory, Q), jax.nn.dot_product_attention(*map(heads, (Q, K, K)))[:, 0], atol=1e-5
    )
    values = jax.nn.dot_product_attention(
        *map(heads, (Q, K)), jnp.pad(K @ W.T, ((0, 0), (0, 5)))[:, None]
    )[:, 0, :3]
    assert np.allclose(predict(Chain(memory, Linear(W)), Q), values, atol=1e-5)


def test_half_precision_keeps_its_dtype():
    memory = ModernHopfield(normal(0, 9, 8).astype(jnp.bfloat16), beta=1.0)
    assert memory(normal(1, 8).astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.slow
def test_patterns_can_be_trained():
    """Trained to denoise copies of three prototypes, the patterns of the layer become the
    prototypes.
    """
    prototypes = jnp.array([[3.0, 0.0, 0.0, 1.0], [0.0, 3.0, 0.0, -1.0], [0.0, 0.0, -3.0, 0.0]])
    which = jnp.arange(300) % 3
    clean = prototypes[which]
    noisy = clean + 0.4 * normal(0, 300, 4)
    start = ModernHopfield.init(3, 4, beta=1.0, key=jr.key(0))
    data = (noisy, clean)
    found = fit(
        descend(squared_error, optax.adam(0.05)),
        start,
        data,
        epochs=30,
        batch_size=30,
        key=jr.key(1),
        progress=Silent(),
    )
    assert squared_error(found.model, data) < 0.05 < squared_error(start, data)
    gaps = jnp.linalg.norm(found.model.X[:, None] - prototypes[None], axis=2)
    assert sorted(gaps.argmin(axis=1).tolist()) == [0, 1, 2]
    assert gaps.min(axis=1).max() < 0.3


@pytest.mark.usefixtures("unchecked")
def test_invalid_arguments():
    for X in (jnp.ones(3), jnp.ones((0, 3))):
        with pytest.raises(ValueError, match=r"patterns as rows, \(n, d\); got"):
            ModernHopfield(X, 1.0)
    for beta, steps in ((0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0)):
        with pytest.raises(ValueError, match="beta must be positive and steps >= 1"):
            ModernHopfield(jnp.ones((2, 3)), beta, steps)
    for use in (
        ModernHopfield(jnp.ones((2, 3)), 1.0),
        ModernHopfield(jnp.ones((2, 3)), 1.0).energy,
    ):
        with pytest.raises(ValueError, match=r"expected one example of shape \(3,\), got \(2,\)"):
            use(jnp.ones(2))


@pytest.mark.parametrize("kind", [int, np.float64])
def test_numpy_patterns(kind):
    with jax.enable_x64(False):
        memory = ModernHopfield(np.array([[1, 1], [-1, 1]], kind), beta=10.0)
        assert memory(jnp.array([0.8, 0.3], jnp.float32)).dtype == jnp.float32
