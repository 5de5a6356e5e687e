"""Multi-head attention against its formula, head by head; invariances and position encodings."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, normal, same_bits

from thetax.core import predict
from thetax.layers import (
    CAUSAL,
    ALiBi,
    Attention,
    Linear,
    Mask,
    Rotary,
    dot_product_attention,
    linear_attention,
)


def attention_in_numpy(layer, x, memory, mask):
    """Every head in NumPy, from its own rows of the matrices."""
    of = lambda part, x: (
        np.asarray(x) @ np.asarray(part.W).T + (0 if part.b is None else np.asarray(part.b))
    )
    q = of(layer.Q, x)
    k = of(layer.K, memory)
    v = of(layer.V, memory)
    size = q.shape[1] // layer.heads
    heads = []
    e = v.shape[1] // layer.kv_heads
    seen = np.asarray(mask.table(len(x), len(memory)))
    for h in range(layer.heads):
        g = h * layer.kv_heads // layer.heads
        scores = q[:, h * size : (h + 1) * size] @ k[:, g * size : (g + 1) * size].T / np.sqrt(size)
        A = np.where(seen, np.exp(scores), 0)
        heads.append(A / A.sum(axis=1, keepdims=True) @ v[:, g * e : (g + 1) * e])
    return of(layer.O, np.concatenate(heads, axis=1))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.usefixtures("x64", "strict")
def test_formula(kv_heads, bias):
    layer = Attention.init(
        8, 4, kv_heads=kv_heads, head_dim=3, memory_dim=5, bias=bias, key=jr.key(0)
    )
    x = normal(0, 3, 8)
    memory = normal(1, 4, 5)
    for mask in (
        Mask(),
        Mask(allowed=jnp.array([True, False, True, True])),
        Mask(before=1, after=1),
    ):
        np.testing.assert_allclose(
            layer(x, memory, mask=mask), attention_in_numpy(layer, x, memory, mask), atol=1e-12
        )


@pytest.mark.parametrize("max_pairs", [2**20, 32])
def test_attention_dropout_zeroes_weights_and_rescales_the_others(max_pairs, monkeypatch):
    """With the identity as values the output of a head is its dropped weights."""
    monkeypatch.setattr("thetax.layers.attention.dot_product.MAX_PAIRS", max_pairs)
    q, k = normal(0, 40, 2, 3), normal(1, 40, 2, 3)
    v = jnp.broadcast_to(jnp.eye(40)[:, None], (40, 2, 40))
    attend = partial(dot_product_attention, q, k, v, CAUSAL, dropout=0.25)
    A, dropped = attend(), attend(key=jr.key(0))
    kept = np.asarray(dropped != 0)
    np.testing.assert_allclose(dropped, jnp.where(kept, A / 0.75, 0), rtol=1e-5)
    visible = np.asarray(A) > 0
    error = np.sqrt(0.25 * 0.75 / visible.sum())
    assert abs(kept[visible].mean() - 0.75) < 4 * error
    assert np.any(kept[:32] != kept[8:])  # the rows do not share a mask


def test_attention_dropout_needs_a_key_and_the_default_kernel():
    layer = Attention.init(8, 2, dropout=0.5, key=jr.key(0))
    x = normal(0, 5, 8)
    plain = Attention.init(8, 2, key=jr.key(0))
    assert same_bits(layer(x), plain(x))
    assert same_bits(plain(x), plain(x, key=jr.key(1)))
    assert np.any(layer(x, key=jr.key(1)) != layer(x))
    assert np.any(layer(x, key=jr.key(1)) != layer(x, key=jr.key(2)))
    with pytest.raises(ValueError, match="dropout needs kernel=dot_product_attention"):
        Attention.init(8, 2, dropout=0.5, kernel=linear_attention, key=jr.key(0))
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\); got 1.5"):
        Attention.init(8, 2, dropout=1.5, key=jr.key(0))


def test_one_head_per_group_is_repeated():
    """Grouped-query attention equals multi-head attention with repeated key and value heads."""
    layer = Attention.init(8, 4, kv_heads=2, key=jr.key(0))
    x = normal(0, 5, 8)
    again = lambda part: Linear(
        *(
            jnp.repeat(a.reshape(2, 2, *a.shape[1:]), 2, axis=0).reshape(8, *a.shape[1:])
            for a in (part.W, part.b)
        )
    )
    plain = Attention(layer.Q, again(layer.K), again(layer.V), layer.O, heads=4, kv_heads=4)
    np.testing.assert_allclose(layer(x, mask=CAUSAL), plain(x, mask=CAUSAL), atol=1e-6)


def test_permutation_equivariant_without_positions():
    layer = Attention.init(4, 2, key=jr.key(0))
    x = normal(0, 5, 4)
    order = jnp.array([3, 0, 4, 1, 2])
    np.testing.assert_allclose(layer(x[order]), layer(x)[order], atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_rotary_depends_on_position_differences():
    layer = Attention.init(8, 2, position_encoding=Rotary(), key=jr.key(0))
    x = normal(0, 5, 8)
    here = layer(x)
    far = layer.attend(layer.queries(x, offset=300), layer.keys_values(x, offset=300))
    np.testing.assert_allclose(far, here, atol=1e-10)
    assert not close(layer(x[::-1])[::-1], here, rtol=1e-3, atol=1e-3)
    assert not close(
        layer.attend(layer.queries(x, offset=1), layer.keys_values(x)), here, rtol=1e-3, atol=1e-3
    )


@pytest.mark.usefixtures("x64", "strict")
def test_alibi_penalises_distance():
    layer = Attention.init(4, 2, position_encoding=ALiBi(), key=jr.key(0))
    x = normal(0, 5, 4)
    q = layer.queries(x)
    shown = layer.keys_values(x)
    fade = np.array([2.0**-4, 2.0**-8])
    away = np.abs(np.arange(5)[:, None] - np.arange(5)[None])
    scores = np.einsum("thd,shd->hts", q, shown.keys) / np.sqrt(2) - fade[:, None, None] * away
    A = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(layer.weights(x), A, atol=1e-12)
    found = np.einsum("hts,shd->thd", A, shown.values).reshape(5, 4)
    np.testing.assert_allclose(layer(x), jax.vmap(layer.O)(jnp.asarray(found)), atol=1e-12)
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(layer))
    assert len(jax.tree.leaves(layer)) == 8


def test_weights_give_the_output():
    layer = Attention.init(4, 2, kv_heads=1, position_encoding=Rotary(), key=jr.key(0))
    x = normal(0, 5, 4)
    A = layer.weights(x, mask=CAUSAL)
    np.testing.assert_allclose(A.sum(axis=2), 1, atol=1e-6)
    assert not np.triu(A, k=1).any()
    values = layer.keys_values(x).values[:, 0]
    found = jnp.concatenate([A[0] @ values, A[1] @ values], axis=1)
    np.testing.assert_allclose(layer(x, mask=CAUSAL), jax.vmap(layer.O)(found), atol=1e-6)


def test_another_kernel():
    heard = []

    def kernel(q, k, v, mask):
        heard.append(mask.after)
        return 2 * dot_product_attention(q, k, v, mask)

    layer = Attention.init(4, 2, bias=False, kernel=kernel, key=jr.key(0))
    plain = Attention.init(4, 2, bias=False, key=jr.key(0))
    x = normal(0, 3, 4)
    np.testing.assert_allclose(layer(x, mask=CAUSAL), 2 * plain(x, mask=CAUSAL), atol=1e-6)
    assert heard == [0]


@pytest.mark.parametrize(
    "position_encoding", [None, Rotary(), ALiBi()], ids=["none", "rotary", "alibi"]
)
def test_causal_mask_hides_the_future(position_encoding):
    layer = Attention.init(4, 2, position_encoding=position_encoding, key=jr.key(0))
    x = normal(0, 6, 4)
    f = jax.jit(lambda x: layer(x, mask=CAUSAL))
    before = f(x)
    after = f(x.at[3].add(1))
    assert same_bits(before[:3], after[:3])
    assert (before[3:] != after[3:]).any(axis=1).all()


def test_batch_equals_single_calls():
    layer = Attention.init(4, 2, key=jr.key(0))
    xs = normal(0, 3, 5, 4)
    np.testing.assert_allclose(predict(layer, xs)[1], layer(xs[1]), atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    with pytest.raises(ValueError, match="must be divisible by heads; got d=8, heads=3"):
        Attention.init(8, 3, key=jr.key(0))
    for heads, kv_heads in ((4, 3), (4, 0), (0, 1)):
        with pytest.raises(
            ValueError, match=f"heads must be a multiple of kv_heads; got {heads} and {kv_heads}"
        ):
            Attention.init(8, heads, kv_heads=kv_heads, key=jr.key(0))
    layer = Attention.init(4, 2, memory_dim=3, key=jr.key(0))
    with pytest.raises(ValueError, match=r"expected one example of shape \(s, 3\), got \(5, 4\)"):
        layer(jnp.ones((5, 4)))
    with pytest.raises(ValueError, match=r"must have shape \(2,\).* got \(5,\)"):
        layer(jnp.ones((5, 4)), jnp.ones((2, 3)), mask=Mask(allowed=jnp.ones(5, bool)))
    with pytest.raises(ValueError, match="rows of Q must be divisible by heads"):
        Attention(layer.Q, layer.K, layer.V, layer.O, heads=3, kv_heads=1)


def test_weights_need_the_default_kernel():
    layer = Attention.init(4, 2, kernel=linear_attention, key=jr.key(0))
    with pytest.raises(
        ValueError, match="weights are defined for kernel=dot_product_attention only"
    ):
        layer.weights(jnp.ones((3, 4)))
