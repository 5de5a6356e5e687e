"""Layers for sets: padding is invisible, order irrelevant, and the blocks equal their formulas."""

from functools import partial
from itertools import permutations

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import tree
from thetax.core import predict
from thetax.data import PointSet
from thetax.layers import (
    BatchNorm,
    InducedSetAttentionBlock,
    LayerNorm,
    MultiheadAttentionBlock,
    PoolingMultiheadAttention,
    SetAbstraction,
    SetAttentionBlock,
    SharedMLP,
    TNet,
    attention_weights,
    fold_batch_norm,
    orthogonality_penalty,
)

LAYERS = {  # whether the output has a row for each element, in its order
    "SharedMLP": (partial(SharedMLP.init, 4, 5, 3, normalise=LayerNorm.init), True),
    "SetAttentionBlock": (partial(SetAttentionBlock.init, 4, 2), True),
    "InducedSetAttentionBlock": (partial(InducedSetAttentionBlock.init, 4, 2, n_inducing=3), True),
    "PoolingMultiheadAttention": (partial(PoolingMultiheadAttention.init, 4, 2, n_seeds=2), False),
    "TNet": (partial(TNet.init, 4, widths=(5, 6), head_widths=(4,)), False),
    "SetAbstraction": (
        partial(SetAbstraction.init, 4, 5, n_centres=3, radius=2.0, k=3, dim=3),
        False,
    ),
}


def generic(init, seed=0):
    layer = init(key=jr.key(seed))
    return tree.axpy(0.3, tree.normal_like(jr.key(seed + 1), layer), layer)


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def rows(x):
    return x.points if isinstance(x, PointSet) else x


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LAYERS)
def test_the_order_does_not_matter(name):
    init, is_equivariant = LAYERS[name]
    layer = generic(init)
    x = normal(5, 4)
    orders = np.array(list(permutations(range(5))))
    outputs = jax.jit(jax.vmap(layer.__call__))(x[orders])
    y = layer(x)
    expected = y[orders] if is_equivariant else jnp.broadcast_to(y, outputs.shape)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    assert float(jnp.abs(y).max()) > 0.1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LAYERS)
def test_padding_is_invisible(name):
    init, is_equivariant = LAYERS[name]
    layer = generic(init)
    x = normal(5, 4)
    padded = PointSet.pad(x, size=8)
    garbage = PointSet(padded.points.at[5:].set(1e4), padded.mask)
    y = layer(x)
    for given in (padded, garbage):
        found = layer(given)
        np.testing.assert_allclose(rows(found)[: len(y)], y, rtol=1e-5, atol=1e-5)
        if is_equivariant:
            assert isinstance(found, PointSet)
            assert (np.asarray(found.points)[5:] == 0).all()
    slope = jax.grad(lambda points: rows(layer(garbage.with_points(points))).sum())(garbage.points)
    assert (np.asarray(slope)[5:] == 0).all()
    assert np.isfinite(slope).all()


def test_shared_mlp_is_the_mlp_of_every_element():
    layer = generic(partial(SharedMLP.init, 3, 4, 2, activate_last=False))
    x = np.asarray(normal(6, 3))
    (W, b), (V, c) = ((np.asarray(f.W), np.asarray(f.b)) for f in layer.layers)
    expected = [V @ np.maximum(W @ row + b, 0) + c for row in x]
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-6)
    assert layer(jnp.zeros((0, 3))).shape == (0, 2)


def test_batch_norm_counts_all_elements_of_the_batch():
    layer = SharedMLP.init(3, 4, normalise=BatchNorm.init, key=jr.key(0))
    xs = normal(6, 5, 3)
    h = np.asarray(xs).reshape(30, 3) @ np.asarray(layer.layers[0].W).T
    expected = np.maximum((h - h.mean(axis=0)) / np.sqrt(h.var(axis=0) + 1e-5), 0)
    found = predict(layer, xs)
    np.testing.assert_allclose(found.reshape(30, 4), expected, rtol=1e-4, atol=1e-5)
    folded = fold_batch_norm(layer, xs)
    np.testing.assert_allclose(predict(folded, xs), found, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="padding of a PointSet"):
        predict(layer, PointSet(xs, jnp.ones((6, 5), bool)))


def test_attention_block_is_its_formula():
    block = generic(partial(MultiheadAttentionBlock.init, 4, 1))
    x, y = normal(3, 4), normal(5, 4, seed=1)
    at = block.attention
    of = lambda layer, a: a @ layer.W.T + layer.b[None]
    A = attention_weights(of(at.Q, x)[:, None], of(at.K, y)[:, None])[0]
    h = jax.vmap(block.norms[0])(x + of(at.O, A @ of(at.V, y)))
    up, down = block.feed_forward.up, block.feed_forward.down
    expected = jax.vmap(block.norms[1])(h + of(down, jax.nn.relu(of(up, h))))
    np.testing.assert_allclose(block(x, y), expected, rtol=1e-4, atol=1e-5)


def test_induced_attention_needs_both_blocks():
    """Without inducing points that see the set, the elements do not see each other."""
    layer = generic(partial(InducedSetAttentionBlock.init, 4, 2, n_inducing=3))
    x = normal(5, 4)
    slope = jax.jacobian(layer.__call__)(x)
    assert float(jnp.abs(slope[0, :, 1]).max()) > 1e-6
    cut = eqx.tree_at(lambda m: m.spread.attention.V.W, layer, jnp.zeros((4, 4)))
    assert float(jnp.abs(jax.jacobian(cut.__call__)(x)[0, :, 1]).max()) < 1e-7


@pytest.mark.usefixtures("x64")
def test_penalty_and_its_gradient():
    T = np.random.default_rng(0).normal(size=(4, 4))
    gram = np.eye(4) - T @ T.T
    slope = jax.grad(orthogonality_penalty)(jnp.asarray(T))
    assert float(orthogonality_penalty(jnp.asarray(T))) == pytest.approx((gram**2).sum())
    np.testing.assert_allclose(slope, -4 * gram @ T, rtol=1e-10)


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="batch normalisation inside"):
        MultiheadAttentionBlock.init(4, 2, normalise=BatchNorm.init, key=jr.key(0))
    with pytest.raises(ValueError, match="all positive"):
        SharedMLP.init(3, key=jr.key(0))
    with pytest.raises(ValueError, match="n_seeds"):
        PoolingMultiheadAttention.init(4, 2, n_seeds=0, key=jr.key(0))
