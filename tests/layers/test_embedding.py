"""Embedding against the product with a one-hot vector, and errors."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import Embedding

LAYER = Embedding.init(5, 3, key=jr.key(0))
TOKENS = jnp.array([[4, 0, 0], [2, -1, 4]])


def test_product_with_a_one_hot_vector():
    expected = np.eye(5)[np.maximum(TOKENS, 0)] @ np.asarray(LAYER.E)
    expected[1, 1] = 0
    np.testing.assert_allclose(LAYER(TOKENS), expected, atol=1e-6)


def test_gradients_of_a_repeated_token_add_up():
    slope = jax.grad(lambda layer: (layer(TOKENS) * jnp.arange(6.0).reshape(2, 3, 1)).sum())(LAYER)
    np.testing.assert_allclose(slope.E[:, 0], [1 + 2, 0, 3, 0, 0 + 5])


@pytest.mark.parametrize("bad", [5, -2])
def test_token_outside_the_vocabulary(bad):
    with pytest.raises(ValueError, match=f"between 0 and 4, or be -1 for padding; got {bad}"):
        LAYER(jnp.array([0, bad]))
    inside = jax.jit(lambda layer, tokens: layer(tokens))(LAYER, jnp.array([0, bad]))
    assert np.isnan(inside[1]).all(), "never a silent guess"
    np.testing.assert_allclose(inside[0], LAYER.E[0])


def test_constant_tokens_inside_jit():
    assert jax.jit(lambda layer: layer(TOKENS))(LAYER).shape == (2, 3, 3)
    bad = jnp.array([5])
    with pytest.raises(ValueError, match="got 5"):
        jax.jit(lambda layer: layer(bad))(LAYER)


@pytest.mark.usefixtures("unchecked")
def test_invalid_arguments():
    with pytest.raises(ValueError, match=r"tokens must be integers; got float32\. Encode the text"):
        LAYER(jnp.ones(2))
    with pytest.raises(ValueError, match=r"E must be \(v, d\)"):
        Embedding(jnp.ones(3))
