"""Attention with many heads: by its formula, head by head, and its laws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, normal, same_bits

from thetax.core import predict
from thetax.layers import CAUSAL, ALiBi, Attention, Linear, Mask, Rotary, attend, linear_attention


def by_hand(layer, x, memory, mask):
    """Every head in NumPy, from its own rows of the matrices."""
    of = lambda part, x: (
        np.asarray(x) @ np.asarray(part.W).T + (0 if part.b is None else np.asarray(part.b))
    )
    q = of(layer.Q, x)
    k = of(layer.K, memory)
    v = of(layer.V, memory)
    size = q.shape[1] // layer.heads
    heads = []
    e = v.shape[1] // layer.groups
    seen = np.asarray(mask.table(len(x), len(memory)))
    for h in range(layer.heads):
        g = h * layer.groups // layer.heads
        scores = q[:, h * size : (h + 1) * size] @ k[:, g * size : (g + 1) * size].T / np.sqrt(size)
        A = np.where(seen, np.exp(scores), 0)
        heads.append(A / A.sum(axis=1, keepdims=True) @ v[:, g * e : (g + 1) * e])
    return of(layer.O, np.concatenate(heads, axis=1))


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.usefixtures("x64", "strict")
def test_it_is_the_formula(groups, bias):
    layer = Attention.init(8, 4, groups=groups, size=3, memory=5, bias=bias, key=jr.key(0))
    x = normal(0, 3, 8)
    memory = normal(1, 4, 5)
    for mask in (Mask(), Mask(there=jnp.array([True, False, True, True])), Mask(before=1, after=1)):
        np.testing.assert_allclose(
            layer(x, memory, mask=mask), by_hand(layer, x, memory, mask), atol=1e-12
        )


def test_one_head_per_group_is_repeated():
    """Grouped attention is plain attention whose heads have the same keys and values."""
    layer = Attention.init(8, 4, groups=2, key=jr.key(0))
    x = normal(0, 5, 8)
    again = lambda part: Linear(
        *(
            jnp.repeat(a.reshape(2, 2, *a.shape[1:]), 2, axis=0).reshape(8, *a.shape[1:])
            for a in (part.W, part.b)
        )
    )
    plain = Attention(layer.Q, again(layer.K), again(layer.V), layer.O, heads=4, groups=4)
    np.testing.assert_allclose(layer(x, mask=CAUSAL), plain(x, mask=CAUSAL), atol=1e-6)


def test_order_does_not_matter_without_places():
    layer = Attention.init(4, 2, key=jr.key(0))
    x = normal(0, 5, 4)
    order = jnp.array([3, 0, 4, 1, 2])
    np.testing.assert_allclose(layer(x[order]), layer(x)[order], atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_rotary_knows_differences_alone():
    layer = Attention.init(8, 2, relative=Rotary(), key=jr.key(0))
    x = normal(0, 5, 8)
    here = layer(x)
    far = layer.answer(layer.ask(x, first=300), layer.show(x, first=300))
    np.testing.assert_allclose(far, here, atol=1e-10)
    assert not close(layer(x[::-1])[::-1], here, rtol=1e-3, atol=1e-3)
    assert not close(layer.answer(layer.ask(x, first=1), layer.show(x)), here, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("x64", "strict")
def test_alibi_lowers_what_is_far():
    layer = Attention.init(4, 2, relative=ALiBi(), key=jr.key(0))
    x = normal(0, 5, 4)
    q = layer.ask(x)
    shown = layer.show(x)
    fade = np.array([2.0**-4, 2.0**-8])
    away = np.abs(np.arange(5)[:, None] - np.arange(5)[None])
    scores = np.einsum("thd,shd->hts", q, shown.keys) / np.sqrt(2) - fade[:, None, None] * away
    A = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(layer.weights(x), A, atol=1e-12)
    found = np.einsum("hts,shd->thd", A, shown.values).reshape(5, 4)
    np.testing.assert_allclose(layer(x), jax.vmap(layer.O)(jnp.asarray(found)), atol=1e-12)
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(layer))
    assert len(jax.tree.leaves(layer)) == 8


def test_weights_are_what_is_used():
    layer = Attention.init(4, 2, groups=1, relative=Rotary(), key=jr.key(0))
    x = normal(0, 5, 4)
    A = layer.weights(x, mask=CAUSAL)
    np.testing.assert_allclose(A.sum(axis=2), 1, atol=1e-6)
    assert not np.triu(A, k=1).any()
    values = layer.show(x).values[:, 0]
    found = jnp.concatenate([A[0] @ values, A[1] @ values], axis=1)
    np.testing.assert_allclose(layer(x, mask=CAUSAL), jax.vmap(layer.O)(found), atol=1e-6)


def test_another_kernel():
    heard = []

    def kernel(q, k, v, mask):
        heard.append(mask.after)
        return 2 * attend(q, k, v, mask)

    layer = Attention.init(4, 2, bias=False, kernel=kernel, key=jr.key(0))
    plain = Attention.init(4, 2, bias=False, key=jr.key(0))
    x = normal(0, 3, 4)
    np.testing.assert_allclose(layer(x, mask=CAUSAL), 2 * plain(x, mask=CAUSAL), atol=1e-6)
    assert heard == [0]


@pytest.mark.parametrize("relative", [None, Rotary(), ALiBi()], ids=["none", "rotary", "alibi"])
def test_the_future_changes_no_bit(relative):
    layer = Attention.init(4, 2, relative=relative, key=jr.key(0))
    x = normal(0, 6, 4)
    f = jax.jit(lambda x: layer(x, mask=CAUSAL))
    before = f(x)
    after = f(x.at[3].add(1))
    assert same_bits(before[:3], after[:3])
    assert (before[3:] != after[3:]).any(axis=1).all()


def test_a_batch_is_its_items():
    layer = Attention.init(4, 2, key=jr.key(0))
    xs = normal(0, 3, 5, 4)
    np.testing.assert_allclose(predict(layer, xs)[1], layer(xs[1]), atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    with pytest.raises(ValueError, match="3 heads do not divide a width of 8"):
        Attention.init(8, 3, key=jr.key(0))
    for heads, groups in ((4, 3), (4, 0), (0, 1)):
        with pytest.raises(
            ValueError, match=f"heads must be a multiple of groups; got {heads} and {groups}"
        ):
            Attention.init(8, heads, groups=groups, key=jr.key(0))
    layer = Attention.init(4, 2, memory=3, key=jr.key(0))
    with pytest.raises(ValueError, match=r"expected one example of shape \(s, 3\), got \(5, 4\)"):
        layer(jnp.ones((5, 4)))
    with pytest.raises(ValueError, match=r"one entry for each of the 2 keys.* got \(5,\)"):
        layer(jnp.ones((5, 4)), jnp.ones((2, 3)), mask=Mask(there=jnp.ones(5, bool)))
    with pytest.raises(ValueError, match="Q of 4 rows must be whole heads, 3 of them"):
        Attention(layer.Q, layer.K, layer.V, layer.O, heads=3, groups=1)


def test_only_softmax_has_weights_to_show():
    layer = Attention.init(4, 2, kernel=linear_attention, key=jr.key(0))
    with pytest.raises(ValueError, match="only attend has weights to show"):
        layer.weights(jnp.ones((3, 4)))
