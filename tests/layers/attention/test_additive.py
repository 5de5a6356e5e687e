"""Additive attention against its formula; masks and invariances."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import AdditiveAttention, Initialiser
from thetax.layers.attention.dot_product import masked_softmax

LAYER = AdditiveAttention.init(2, 3, 4, key=jr.key(0))
MEMORY = jr.normal(jr.key(1), (5, 3))
Z = jnp.array([0.3, -1.0])


def test_formula():
    W, M, v = (np.asarray(a) for a in (LAYER.W, LAYER.M, LAYER.v))
    scores = np.array([v @ np.tanh(W @ Z + M @ zeta) for zeta in np.asarray(MEMORY)])
    a = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(LAYER.weights(Z, MEMORY), a, atol=1e-6)
    np.testing.assert_allclose(LAYER(Z, MEMORY), a @ np.asarray(MEMORY), atol=1e-6)


def test_each_part_is_drawn_as_a_map_of_its_shape():
    """v is a map to one number: an initialiser that counts outputs sees one."""
    outputs = Initialiser(lambda key, shape: jnp.full(shape, float(shape[0])))
    layer = AdditiveAttention.init(2, 3, 4, initialiser=outputs, key=jr.key(0))
    assert layer.W.tolist() == np.full((4, 2), 4.0).tolist()
    assert layer.M.tolist() == np.full((4, 3), 4.0).tolist()
    assert layer.v.tolist() == [1.0, 1.0, 1.0, 1.0]


def test_order_of_the_memory_is_irrelevant():
    order = jnp.array([3, 0, 4, 1, 2])
    np.testing.assert_allclose(LAYER(Z, MEMORY[order]), LAYER(Z, MEMORY), atol=1e-6)
    np.testing.assert_allclose(
        LAYER.weights(Z, MEMORY[order]), LAYER.weights(Z, MEMORY)[order], atol=1e-6
    )


def test_masked_entries_are_ignored():
    mask = jnp.array([True, False, True, False, False])
    seen = LAYER(Z, MEMORY, mask=mask)
    np.testing.assert_allclose(seen, LAYER(Z, MEMORY[mask]), atol=1e-6)
    slope = jax.grad(lambda memory: LAYER(Z, memory, mask=mask).sum())(MEMORY)
    assert not slope[~mask].any()


def test_fully_masked_memory():
    nothing = jnp.zeros(5, bool)
    slope = jax.grad(lambda memory: LAYER(Z, memory, mask=nothing).sum())(MEMORY)
    assert not LAYER(Z, MEMORY, mask=nothing).any()
    assert np.isfinite(slope).all()


def test_large_scores():
    np.testing.assert_allclose(masked_softmax(jnp.array([1e4, 1e4, -1e4]), None), [0.5, 0.5, 0.0])
    there = jnp.array([True, True, False])
    np.testing.assert_allclose(masked_softmax(jnp.array([0.0, 0.0, 1e4]), there), [0.5, 0.5, 0.0])


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    with pytest.raises(ValueError, match=r"expected a memory of shape \(t, 3\), got \(5, 2\)"):
        LAYER(Z, jnp.ones((5, 2)))
    with pytest.raises(ValueError, match=r"expected one example of shape \(2,\)"):
        LAYER(jnp.ones(3), MEMORY)
    with pytest.raises(ValueError, match=r"W must be \(h, m\), M \(h, n\) and v \(h,\)"):
        AdditiveAttention(jnp.ones((4, 2)), jnp.ones((3, 3)), jnp.ones(4))
