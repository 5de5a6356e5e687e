"""GPT: causal to the last bit, and writing with what is kept is reading all anew."""

from functools import partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, same_bits

from thetax.core import predict
from thetax.layers import FULL, Linear
from thetax.models import GPT, beam_search, greedy, sample
from thetax.models.transformers.gpt import Decoder
from thetax.models.transformers.transformer import KVCache

V = 5
MODELS = {
    "GPT": partial(GPT.init, V, 4, depth=2, heads=2, max_length=9),
    "llama": partial(GPT.llama, V, 4, depth=2, heads=2, kv_heads=1, hidden=6),
    "untied": partial(GPT.init, V, 4, depth=1, heads=2, max_length=9, tied=False),
}
models = pytest.mark.parametrize("make", MODELS.values(), ids=list(MODELS))
TOKENS = jnp.array([3, 1, 4, 1, 0, 2], jnp.int32)


def sharp(make):
    """A model with opinions: the weights of init are small, and ties would be decided by
    rounding.
    """
    return jax.tree.map(
        lambda a: a * 30 if a.ndim > 1 and a.shape[-1] > 1 else a, make(key=jr.key(1))
    )


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.usefixtures("x64", "strict")
def test_it_is_the_formula(tied):
    model = GPT.init(V, 4, depth=1, heads=2, max_length=9, tied=tied, key=jr.key(0))
    x = model.embed.E[TOKENS] + model.positions.P[:6]
    block = jax.tree.map(lambda a: a[0], model.trunk.blocks.layers)
    normed = lambda norm, x: jax.vmap(norm)(x)
    q, k, v = (
        jax.vmap(part)(normed(block.norm, x)).reshape(6, 2, 2)
        for part in (block.attention.Q, block.attention.K, block.attention.V)
    )
    scores = np.where(np.tri(6), np.einsum("ihd,jhd->hij", q, k) / np.sqrt(2), -np.inf)
    A = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    x = x + jax.vmap(block.attention.O)(jnp.einsum("hij,jhd->ihd", A, v).reshape(6, 4))
    u = np.asarray(jax.vmap(block.feed.up)(normed(block.feed_norm, x)))
    x = x + jax.vmap(block.feed.down)(
        jnp.asarray(u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3))) / 2)
    )
    last = np.asarray(normed(model.trunk.last, x))
    W = model.embed.E if tied else model.readout.W
    np.testing.assert_allclose(model(TOKENS), last @ np.asarray(W).T, atol=1e-12)


@pytest.mark.slow
def test_tied_logits_learn_the_table_twice():
    """The gradient of the table is that of reading and that of writing."""
    model = MODELS["GPT"](key=jr.key(0))
    apart = eqx.tree_at(
        lambda m: m.readout, model, Linear(model.embed.E), is_leaf=lambda leaf: leaf is None
    )
    loss = lambda model: jnp.square(model(TOKENS)).sum()
    one = jax.grad(loss)(model)
    two = jax.grad(loss)(apart)
    assert close(model(TOKENS), apart(TOKENS), rtol=1e-5)
    np.testing.assert_allclose(one.embed.E, two.embed.E + two.readout.W, rtol=1e-4, atol=1e-6)
    assert len(jax.tree.leaves(apart)) == len(jax.tree.leaves(model)) + 1


@pytest.mark.slow
@models
def test_the_future_changes_no_bit(make):
    model = sharp(make)
    f = jax.jit(lambda tokens: model(tokens))
    before = f(TOKENS)
    for s in (1, 4):
        after = f(TOKENS.at[s].set(4 - TOKENS[s]))
        assert same_bits(before[:s], after[:s])
        assert (before[s] != after[s]).any()
    padded = f(TOKENS.at[4:].set(-1))
    assert same_bits(before[:4], padded[:4])
    assert np.isfinite(padded).all()


@pytest.mark.slow
@models
def test_a_batch_is_its_items(make):
    model = sharp(make)
    batch = jnp.stack([TOKENS, TOKENS[::-1]])
    np.testing.assert_allclose(predict(model, batch)[1], model(batch[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@models
@pytest.mark.usefixtures("x64")
def test_one_token_at_a_time(make):
    """With a prompt, and without one."""
    model = sharp(make)
    whole = model(TOKENS)
    step = jax.jit(lambda cell, state, token: cell(state, token))
    for n in (0, 1, 4):
        cell, state = model.decoder(TOKENS[:n] if n else None, max_length=9)
        for at in range(n, 6):
            state, logits = step(cell, state, TOKENS[at])
            np.testing.assert_allclose(logits, whole[at], atol=1e-10)


def anew(model, prompt, count):
    """Greedy, reading all again for each token."""
    tokens = list(prompt)
    log_p = 0.0
    for _ in range(count):
        logits = model(jnp.array(tokens, jnp.int32))[-1]
        tokens.append(int(logits.argmax()))
        log_p += float(jax.nn.log_softmax(logits)[tokens[-1]])
    return tokens[len(prompt) :], log_p


@pytest.mark.slow
@models
@pytest.mark.usefixtures("x64")
def test_greedy_writes_the_same(make):
    model = sharp(make)
    prompt = [3, 1, 4]
    cell, state = model.decoder(jnp.array(prompt[:-1]), max_length=9)
    said = greedy(cell, state=state, start_token=prompt[-1], max_new_tokens=5)
    tokens, log_p = anew(model, prompt, 5)
    assert said.tokens.tolist() == tokens
    assert float(said.log_p) == pytest.approx(log_p, abs=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_beam_is_the_search_of_all():
    """As wide as there are texts of two tokens, in the order of their probability."""
    model = sharp(MODELS["llama"])
    prompt = [3, 1]
    cell, state = model.decoder(jnp.array(prompt[:-1]), max_length=6)
    said = beam_search(
        cell, state=state, start_token=prompt[-1], max_new_tokens=2, beam_width=V * V
    )
    texts = jnp.array([[*prompt, a, b] for a in range(V) for b in range(V)], jnp.int32)
    log_p = jax.nn.log_softmax(predict(model, texts))
    totals = np.array(
        [log_p[i, 1, a] + log_p[i, 2, b] for i, (_, _, a, b) in enumerate(texts.tolist())]
    )
    order = np.argsort(-totals)
    assert said.tokens.tolist() == [list(divmod(int(at), V)) for at in order]
    np.testing.assert_allclose(said.log_p, totals[order], atol=1e-10)


@pytest.mark.slow
def test_it_can_be_sampled():
    cell, state = MODELS["GPT"](key=jr.key(0)).decoder(TOKENS[:2], max_length=9)
    said = sample(cell, state=state, start_token=2, max_new_tokens=4, key=jr.key(0)).tokens
    assert said.shape == (4,)
    assert ((said >= 0) & (said < V)).all()


def test_dropout_draws_by_the_key():
    model = GPT.init(V, 4, depth=1, heads=2, max_length=9, dropout=0.5, key=jr.key(0))
    f = jax.jit(lambda key: model(TOKENS, key=key))
    assert same_bits(f(jr.key(0)), f(jr.key(0)))
    assert not close(f(jr.key(0)), f(jr.key(1)), rtol=1e-2, atol=1e-6)
    plain = GPT.init(V, 4, depth=1, heads=2, max_length=9, key=jr.key(0))
    assert same_bits(model(TOKENS), plain(TOKENS))


def test_it_is_initialised_as_gpt_2():
    """Weights are N(0, 0.02²), those of the residual outputs smaller by √(2 depth)."""
    model = GPT.init(60, 64, depth=8, heads=2, max_length=32, dropout=0.2, key=jr.key(0))
    block = model.trunk.blocks.layers
    inputs = (model.embed.E, block.attention.Q.W, block.attention.K.W, block.feed.up.W)
    outputs = (block.attention.O.W, block.feed.down.W)
    for W, std in [(W, 0.02) for W in inputs] + [(W, 0.02 / 4) for W in outputs]:
        assert abs(W.std() / std - 1) < 4 / np.sqrt(2 * W.size)
    assert (block.attention.dropout, block.drop.p, model.drop.p) == (0.2, 0.2, 0.2)


def test_remat_recomputes_activations():
    slope = jax.grad(lambda model: jnp.square(model(TOKENS)).sum())
    one, two = (
        slope(GPT.init(V, 4, depth=2, heads=2, max_length=9, remat=r, key=jr.key(0)))
        for r in (False, True)
    )
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)


def test_sizes_of_gpt_2():
    """124 million parameters, as published."""
    model = jax.eval_shape(lambda: GPT.init(50257, key=jr.key(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == 124_439_808


@pytest.mark.usefixtures("unchecked")
def test_without_room_the_logits_of_a_compiled_step_are_nan():
    """Three tokens have room: the fourth, read after three, has none."""
    model = SimpleNamespace(_extend=lambda tokens, past: (jnp.ones((1, 2)), past), unembed=jnp.copy)
    cell = Decoder(model, max_length=3)
    count = lambda n: KVCache(None, n, None, FULL)
    logits = jax.vmap(lambda n: cell(count(n), jnp.array(0))[1])(jnp.arange(5))
    assert np.isnan(logits).tolist() == [[n >= 3] * 2 for n in range(5)]


@pytest.mark.slow
def test_no_room():
    model = MODELS["GPT"](key=jr.key(0))
    with pytest.raises(ValueError, match="the table has 9 positions, but the sequence has 10"):
        model(jnp.zeros(10, jnp.int32))
    with pytest.raises(
        ValueError, match="must be more than the 6 tokens of the prompt and at most 9; got 6"
    ):
        model.decoder(TOKENS, max_length=6)
    with pytest.raises(ValueError, match="and at most 9; got 10"):
        model.decoder(max_length=10)
    with pytest.raises(ValueError, match="must be more than the 6 tokens of the prompt; got 4"):
        MODELS["llama"](key=jr.key(0)).decoder(TOKENS, max_length=4)
    cell, state = model.decoder(TOKENS, max_length=7)
    assert np.isfinite(greedy(cell, state=state, start_token=0, max_new_tokens=1).log_p)
    assert np.isnan(greedy(cell, state=state, start_token=0, max_new_tokens=2).log_p)
    state, _ = cell(state, jnp.array(0))
    with pytest.raises(ValueError, match="the KV cache of 7 tokens is full"):
        cell(state, jnp.array(0))


def test_tokens_that_are_none():
    with pytest.raises(ValueError, match="must lie between 0 and 4"):
        MODELS["GPT"](key=jr.key(0))(jnp.array([0, 5]))
