"""Blocks and trunks: put together by hand from their parts, and what is kept of the past against
computing anew.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, filled, normal, same_bits

from thetax.layers import (
    CAUSAL,
    FULL,
    ALiBi,
    GatedFeedForward,
    KeysValues,
    Mask,
    RMSNorm,
    Rotary,
)
from thetax.models import TransformerBlock, Trunk

x64 = pytest.mark.usefixtures("x64", "strict")
small = partial(TransformerBlock.init, 4, 2, 6)


def block_of(trunk, at):
    return jax.tree.map(lambda a: a[at], trunk.blocks.layers)


def looked(Q, K, V):
    """Causal attention of one head."""
    scores = np.where(np.tri(len(Q), dtype=bool), Q @ K.T / np.sqrt(Q.shape[1]), -np.inf)
    A = np.exp(scores - scores.max(axis=1, keepdims=True))
    return A / A.sum(axis=1, keepdims=True) @ V


@pytest.mark.parametrize("norms", ["before", "after"])
def test_a_block_by_numpy(norms):
    block = filled(partial(small, norms=norms), 0)
    x = np.asarray(normal(1, 5, 4))
    affine = lambda layer, x: x @ np.asarray(layer.W).T + np.asarray(layer.b)

    def standard(norm, x):
        z = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        return np.asarray(norm.gamma) * z + np.asarray(norm.mu)

    def attention(x):
        parts = [
            affine(layer, x) for layer in (block.attention.Q, block.attention.K, block.attention.V)
        ]
        heads = [looked(*[part[:, at : at + 2] for part in parts]) for at in (0, 2)]
        return affine(block.attention.O, np.concatenate(heads, axis=1))

    y = x
    feed = lambda x: affine(block.feed.down, np.maximum(affine(block.feed.up, x), 0))
    for norm, part in ((block.norm, attention), (block.feed_norm, feed)):
        y = y + part(standard(norm, y)) if norms == "before" else standard(norm, y + part(y))
    found = jax.jit(lambda block, x: block(x, mask=CAUSAL))(block, x)
    np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norms", ["before", "after"])
@x64
def test_a_block_is_its_parts(norms):
    block = small(memory_dim=3, norms=norms, key=jr.key(0))
    x = normal(0, 5, 4)
    memory = normal(1, 3, 3)
    seen = Mask(length=jnp.array(2, jnp.int32))
    norm = lambda layer, x: jax.vmap(layer)(x)
    add = {
        "before": lambda n, f, x: x + f(norm(n, x)),
        "after": lambda n, f, x: norm(n, x + f(x)),
    }[norms]
    y = add(block.norm, lambda x: block.attention(x, mask=CAUSAL), x)
    y = add(block.cross_norm, lambda x: block.cross(x, memory, mask=seen), y)
    y = add(block.feed_norm, block.feed, y)
    np.testing.assert_allclose(
        block(x, mask=CAUSAL, memory=memory, memory_mask=seen), y, atol=1e-12
    )


@x64
def test_the_norm_is_that_of_each_token():
    x = normal(0, 5, 4)
    block = small(norms="after", key=jr.key(0))
    y = block(x)
    np.testing.assert_allclose(y.mean(axis=1), 0, atol=1e-10)
    np.testing.assert_allclose(y.var(axis=1), 1, atol=1e-4)


def zeroed(block):
    parts = lambda b: [b.attention.O.W, b.attention.O.b, b.feed.down.W, b.feed.down.b]
    return eqx.tree_at(parts, block, [jnp.zeros_like(part) for part in parts(block)])


def test_with_zero_outputs_it_is_the_identity():
    x = normal(0, 5, 4)
    assert same_bits(zeroed(small(key=jr.key(0)))(x), x)
    assert not close(zeroed(small(norms="after", key=jr.key(0)))(x), x, atol=1e-2)


@x64
def test_a_trunk_is_its_blocks():
    for norms in ("before", "after"):
        trunk = Trunk.init(3, 4, 2, 6, norms=norms, key=jr.key(0))
        x = normal(0, 5, 4)
        y = x
        for at in range(3):
            y = block_of(trunk, at)(y, mask=CAUSAL)
        assert (trunk.last is None) == (norms == "after")
        y = y if trunk.last is None else jax.vmap(trunk.last)(y)
        np.testing.assert_allclose(trunk(x, mask=CAUSAL), y, atol=1e-12)


def test_remat_recomputes_activations():
    one, two = (Trunk.init(2, 4, 2, 6, remat=remat, key=jr.key(0)) for remat in (False, True))
    x = normal(0, 5, 4)
    slope = jax.jit(
        jax.grad(lambda trunk, x: jnp.square(trunk(x, mask=CAUSAL)).sum(), argnums=(0, 1))
    )
    for a, b in zip(jax.tree.leaves(slope(one, x)), jax.tree.leaves(slope(two, x))):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    inside = [
        str(jax.make_jaxpr(lambda x, trunk=trunk: jax.grad(lambda x: trunk(x).sum())(x))(x))
        for trunk in (one, two)
    ]
    assert ["remat" in text or "checkpoint" in text for text in inside] == [False, True]


@pytest.mark.slow
def test_memory_on_the_way_back():
    """With `remat` an additional layer stores only its input, not its activations."""

    def spent(depth, remat):
        trunk = jax.eval_shape(lambda: Trunk.init(depth, 4, 2, 64, remat=remat, key=jr.key(0)))
        f = jax.grad(lambda trunk, x: jnp.square(trunk(x)).sum())
        shape = jax.ShapeDtypeStruct((64, 4), jnp.float32)
        return jax.jit(f).lower(trunk, shape).compile().memory_analysis().temp_size_in_bytes

    grows = [spent(9, remat) - spent(5, remat) for remat in (False, True)]
    assert grows[1] < grows[0] / 4


KINDS = {
    "plain": {},
    "rotary, grouped": {
        "position_encoding": Rotary(),
        "kv_heads": 1,
        "bias": False,
        "norm": RMSNorm.init,
        "feed": GatedFeedForward.init,
    },
    "ALiBi": {"position_encoding": ALiBi()},
    "norms after": {"norms": "after"},
}


def test_a_block_goes_on_from_its_cache():
    """Two tokens and then two more are as four at once; the rest of the cache is left as it is."""
    block = filled(small, 0)
    x = normal(1, 4, 4)
    past = KeysValues(jnp.full((5, 2, 2), 7.0), jnp.full((5, 2, 2), 7.0))
    extend = jax.jit(partial(TransformerBlock.extend, memory=None, memory_mask=FULL))
    first, past = extend(block, x[:2], past, jnp.array(0))
    last, past = extend(block, x[2:], past, jnp.array(2))
    whole = jax.jit(lambda block, x: block(x, mask=CAUSAL))(block, x)
    np.testing.assert_allclose(jnp.concatenate([first, last]), whole, rtol=1e-4, atol=1e-4)
    assert (past.keys[4] == 7).all()
    assert (past.values[4] == 7).all()


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS.values(), ids=list(KINDS))
@x64
def test_going_on_is_computing_anew(options):
    """Some tokens at once, then one by one, then several: as if all had been read together."""
    trunk = Trunk.init(2, 4, 2, 6, **options, key=jr.key(0))
    x = normal(0, 7, 4)
    whole = trunk(x, mask=CAUSAL)
    past = trunk.empty_cache(9)
    found = []
    extend = jax.jit(lambda x, past: trunk.extend(x, past))
    for part in (x[:3], x[3:4], x[4:5], x[5:]):
        y, past = extend(part, past)
        found.append(y)
    np.testing.assert_allclose(jnp.concatenate(found), whole, atol=1e-10)
    assert int(past.count) == 7
    assert not past.tokens.keys[:, 7:].any()


@pytest.mark.slow
@x64
def test_going_on_with_a_memory():
    trunk = Trunk.init(2, 4, 2, 6, memory_dim=3, key=jr.key(0))
    x = normal(0, 4, 4)
    memory = normal(1, 5, 3)
    seen = Mask(length=jnp.array(3, jnp.int32))
    whole = trunk(x, mask=CAUSAL, memory=memory, memory_mask=seen)
    past = trunk.empty_cache(4, memory=memory, memory_mask=seen)
    found = []
    for at in range(4):
        y, past = trunk.extend(x[at : at + 1], past)
        found.append(y)
    np.testing.assert_allclose(jnp.concatenate(found), whole, atol=1e-10)
    np.testing.assert_allclose(trunk(x, mask=CAUSAL, memory=memory[:3]), whole, atol=1e-12)


@pytest.mark.slow
@x64
def test_weights_are_those_of_each_block():
    trunk = Trunk.init(2, 4, 2, 6, key=jr.key(0))
    x = normal(0, 5, 4)
    A = trunk.attention_weights(x, mask=CAUSAL)
    first = block_of(trunk, 0)
    second = block_of(trunk, 1)
    y = first(x, mask=CAUSAL)
    for found, block, z in ((A[0], first, x), (A[1], second, y)):
        np.testing.assert_allclose(
            found, block.attention.weights(jax.vmap(block.norm)(z), mask=CAUSAL), atol=1e-12
        )
    deep = Trunk.init(1, 4, 2, 6, memory_dim=3, key=jr.key(0))
    memory = normal(1, 6, 3)
    to_memory = deep.attention_weights(x, memory=memory, memory_mask=Mask(length=jnp.array(4)))
    assert to_memory.shape == (1, 2, 5, 6)
    np.testing.assert_allclose(to_memory.sum(axis=3), 1, atol=1e-12)
    assert not to_memory[..., 4:].any()


def test_dropout_draws_by_the_key():
    """In each part of each block anew; a mean over draws is near the call without a key."""
    trunk = Trunk.init(2, 4, 2, 6, dropout=0.3, key=jr.key(0))
    x = normal(0, 5, 4)
    f = jax.jit(lambda key: trunk(x, key=key))
    assert same_bits(f(jr.key(0)), f(jr.key(0)))
    assert not close(f(jr.key(0)), f(jr.key(1)), atol=1e-2)
    assert same_bits(
        trunk(x),
        eqx.tree_at(lambda t: t.blocks.layers.drop, trunk, type(trunk.blocks.layers.drop)(0.0))(x),
    )
    block = TransformerBlock.init(64, 1, 2, dropout=0.5, key=jr.key(0))
    heard = []

    class Ones(eqx.Module):
        def __call__(self, x):
            heard.append(x)
            return jnp.ones_like(x)

    block = eqx.tree_at(lambda b: b.feed, block, Ones())
    ones = lambda x, key: jnp.ones_like(x)
    y = block.apply_parts(jnp.zeros((1, 64)), ones, ones, key=jr.key(1))
    assert set(np.unique(y)) == {0.0, 2.0, 4.0}  # two draws, each 0 or 2
    assert set(np.unique(heard[0].round(3))) != {0.0}


def test_memory_is_asked_for():
    block = small(memory_dim=3, key=jr.key(0))
    with pytest.raises(ValueError, match="cross-attention needs memory=; got None"):
        block(jnp.ones((5, 4)))
    with pytest.raises(ValueError, match="needs memory="):
        Trunk.init(1, 4, 2, 6, memory_dim=3, key=jr.key(0))(jnp.ones((5, 4)))


@pytest.mark.usefixtures("unchecked")
def test_bad_settings():
    with pytest.raises(ValueError, match="norms must be 'before' or 'after'; got 'within'"):
        small(norms="within", key=jr.key(0))
    with pytest.raises(ValueError, match="divisible by heads; got d=4, heads=3"):
        TransformerBlock.init(4, 3, 6, key=jr.key(0))
    with pytest.raises(ValueError, match=r"mask\.allowed must have shape \(5,\)"):
        small(key=jr.key(0))(jnp.ones((5, 4)), mask=Mask(allowed=jnp.ones(4, bool)))
    with pytest.raises(ValueError, match=r"expected one example of shape \(4,\), got \(3,\)"):
        small(key=jr.key(0))(jnp.ones((5, 3)), mask=FULL)


def test_residual_output_layers_start_smaller():
    """As in GPT-2, by the square root of the number of residual branches; all other weights are
    the same.
    """
    depth = 3
    plain, scaled = (
        Trunk.init(depth, 4, 2, 6, scale_residual=scale, key=jr.key(0)) for scale in (False, True)
    )
    outputs = lambda trunk: (trunk.blocks.layers.attention.O.W, trunk.blocks.layers.feed.down.W)
    for a, b in zip(outputs(plain), outputs(scaled), strict=True):
        np.testing.assert_allclose(b, a / np.sqrt(2 * depth), rtol=1e-6)
    assert same_bits(eqx.tree_at(outputs, scaled, outputs(plain)), plain)


def test_attention_dropout_draws_by_the_key():
    trunk = Trunk.init(2, 4, 2, 6, attention_dropout=0.5, key=jr.key(0))
    plain = Trunk.init(2, 4, 2, 6, key=jr.key(0))
    x = normal(0, 5, 4)
    f = jax.jit(lambda trunk, key: trunk(x, key=key))
    assert same_bits(trunk(x), plain(x))
    assert same_bits(f(trunk, jr.key(0)), f(trunk, jr.key(0)))
    assert not close(f(trunk, jr.key(0)), f(trunk, jr.key(1)), atol=1e-2)
    assert close(f(plain, jr.key(0)), plain(x))
