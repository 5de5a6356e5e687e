"""`SparseLinear` equals `Linear` on multi-hot vectors: values, gradients, padding."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.core import predict
from thetax.data import Vocabulary
from thetax.layers import Linear, SparseLinear
from thetax.train import binary_cross_entropy

SIZE, M = 7, 3


def multi_hot(bags: np.ndarray) -> jax.Array:
    """The multi-hot vectors of bags of words."""
    return jnp.asarray([[float(j in bag) for j in range(SIZE)] for bag in bags.tolist()])


@pytest.mark.slow
@given(st.lists(st.sets(st.integers(0, SIZE - 1)), min_size=1, max_size=5), st.integers(0, 3))
def test_equals_linear_on_multi_hot_vectors(sets, more):
    """Value and gradient, for any bags and any padding."""
    width = max(map(len, sets)) + more
    if not width:
        return
    bags = np.array([[*chosen, *[-1] * (width - len(chosen))] for chosen in sets], np.int32)
    layer = SparseLinear.init(SIZE, M, key=jr.key(0))
    peer = Linear(layer.W, layer.b)
    total = lambda layer, xs: jnp.sin(predict(layer, xs)).sum()
    np.testing.assert_allclose(predict(layer, bags), predict(peer, multi_hot(bags)), atol=1e-5)
    mine = jax.grad(total)(layer, bags)
    other = jax.grad(total)(peer, multi_hot(bags))
    np.testing.assert_allclose(mine.W, other.W, atol=1e-5)
    np.testing.assert_allclose(mine.b, other.b, atol=1e-5)


def test_invalid_indices_are_ignored():
    layer = SparseLinear(jnp.arange(1.0, 7.0).reshape(2, 3))
    assert layer(jnp.array([-1, -1])).tolist() == [0.0, 0.0]
    assert layer(jnp.array([1, 3, -7, 99])).tolist() == [2.0, 5.0]
    assert layer(jnp.array([2])).tolist() == layer.W[:, 2].tolist()  # its embedding


def test_with_a_vocabulary():
    """From texts to logits, with a gradient only for the words that occur."""
    texts = ["good fine film", "bad dull film", "good film"]
    known = Vocabulary.fit([*texts, "never seen"])
    model = SparseLinear(jnp.zeros((1, len(known))), jnp.zeros(1))
    slope = jax.grad(binary_cross_entropy)(model, (known.bag(texts), jnp.array([1, 0, 1]))).W[0]
    by_word = dict(zip(known.words, slope.tolist()))
    assert by_word["good"] < 0 < by_word["bad"]
    assert by_word["never"] == by_word["seen"] == 0


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    layer = SparseLinear.init(4, 2, key=jr.key(0))
    with pytest.raises(ValueError, match=r"integers of shape \(k,\); got float32\(3,\)"):
        layer(jnp.ones(3))
    with pytest.raises(ValueError, match=r"got int32\(2, 3\)\. Map over a batch with jax.vmap"):
        layer(jnp.ones((2, 3), jnp.int32))
    with pytest.raises(
        ValueError, match=r"W must be \(m, V\), a column for each word, and b \(m,\)"
    ):
        SparseLinear(jnp.ones((2, 3)), jnp.ones(3))
    assert SparseLinear.init(4, 2, bias=False, key=jr.key(0)).b is None
