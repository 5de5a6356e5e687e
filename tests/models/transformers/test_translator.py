"""The encoder and decoder: reading a target is writing it, token for token, and padding is not
there.
"""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, filled, same_bits

from thetax.core import predict
from thetax.layers import CAUSAL, LearnedPositions
from thetax.models import Translator, beam_search, greedy

make = partial(Translator.init, 6, 5, 4, depth=2, heads=2, hidden=6)
SOURCE = jnp.array([2, 3, 5, 1], jnp.int32)
TARGET = jnp.array([0, 4, 1, 2, 2], jnp.int32)


def sharp(model):
    """With opinions, so that no rounding decides between two tokens."""
    return jax.tree.map(lambda a: 2 * a if a.ndim > 1 else a, model)


def test_what_does_not_matter_and_what_does():
    """In one compiled pass: what comes later in a target changes nothing, and each word that is
    there does.
    """
    model = filled(partial(Translator.init, 6, 5, 4, depth=1, heads=2, hidden=3), 0)
    sources = np.array([[2, 3, 5, -1], [2, 3, 5, -1], [2, 0, 5, -1], [2, 3, 5, 4]])
    targets = np.array([[0, 4, 1], [0, 4, 3], [0, 4, 1], [0, 4, 1]])
    plain, later, other, longer = np.asarray(jax.jit(predict)(model, (sources, targets)))
    np.testing.assert_array_equal(later[:2], plain[:2])
    for changed in (later[2:], other, longer):
        assert np.abs(changed - plain[-len(changed) :]).max(axis=1).min() > 1e-3


def test_embeddings_start_with_norm_one():
    """On average over 600 tokens, within five standard errors."""
    d = 16

    @jax.jit
    def tables(key):
        model = Translator.init(600, 600, d, depth=1, heads=1, hidden=1, key=key)
        return model.embed.E, model.source.E

    for E in tables(jr.key(0)):
        error = np.sqrt(2 / d / len(E))
        assert np.square(E).sum(axis=1).mean() == pytest.approx(1, abs=5 * error)


def test_what_fills_up_a_source_has_no_weight():
    model = filled(partial(Translator.init, 6, 5, 4, depth=1, heads=2, hidden=3), 0)
    weights = jax.jit(lambda model, *pair: model.attention_weights(*pair))(
        model, jnp.array([2, 3, -1]), TARGET[:2]
    )
    np.testing.assert_array_equal(weights[..., 2], 0)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.usefixtures("x64", "strict")
def test_it_is_its_parts(tied):
    model = make(tied=tied, key=jr.key(0))
    waves = np.asarray(model.positions.table(5, 4))
    memory = model.encoder(jnp.asarray(2 * np.asarray(model.source.E)[SOURCE] + waves[:4]))
    np.testing.assert_allclose(model.encode(SOURCE), memory, atol=1e-10)
    x = jnp.asarray(2 * np.asarray(model.embed.E)[TARGET] + waves)
    last = model.trunk(x, mask=CAUSAL, memory=memory)
    logits = last @ model.embed.E.T if tied else jax.vmap(model.readout)(last)
    np.testing.assert_allclose(model((SOURCE, TARGET)), logits, atol=1e-10)


@pytest.mark.slow
def test_one_table_for_both_languages():
    model = Translator.init(None, 6, 4, depth=1, heads=2, key=jr.key(0))
    assert model.source is None
    slope = jax.grad(lambda m: jnp.square(m((jnp.array([5]), jnp.array([0])))).sum())(model)
    assert slope.embed.E[5].any()


def test_the_future_changes_no_bit():
    model = make(key=jr.key(0))
    f = jax.jit(lambda source, target: model((source, target)))
    before = f(SOURCE, TARGET)
    after = f(SOURCE, TARGET.at[3].set(4))
    assert same_bits(before[:3], after[:3])
    assert (before[3] != after[3]).any()
    assert (f(SOURCE.at[3].set(0), TARGET)[0] != before[0]).any()


@pytest.mark.slow
def test_padding_changes_nothing():
    model = make(key=jr.key(0))
    alone = model((SOURCE, TARGET))
    padded = (
        jnp.pad(SOURCE, (0, 3), constant_values=-1),
        jnp.pad(TARGET, (0, 2), constant_values=-1),
    )
    np.testing.assert_allclose(model(padded)[:5], alone, rtol=1e-5, atol=1e-5)
    batch = tuple(jnp.stack([a, jnp.zeros_like(a)]) for a in padded)
    np.testing.assert_allclose(predict(model, batch)[0, :5], alone, rtol=1e-5, atol=1e-5)
    A = model.attention_weights(*padded)
    assert A.shape == (2, 2, 7, 7)
    assert not A[..., 4:].any()
    np.testing.assert_allclose(model.alignment(*padded), A.mean(axis=(0, 1)), atol=1e-6)
    np.testing.assert_allclose(model.alignment(*padded).sum(axis=1), 1, atol=1e-5)


KINDS = {
    "plain": {},
    "norms after": {"norms": "after", "tied": False},
    "learned places": {"positions": "learned"},
}


def of(options):
    if options.get("positions") == "learned":
        options = {**options, "positions": LearnedPositions.init(8, 4, key=jr.key(7))}
    return sharp(make(key=jr.key(0), **options))


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS.values(), ids=list(KINDS))
@pytest.mark.usefixtures("x64")
def test_one_token_at_a_time(options):
    model = of(options)
    whole = model((SOURCE, TARGET))
    cell, state = model.decoder(jnp.pad(SOURCE, (0, 2), constant_values=-1), max_length=6)
    step = jax.jit(lambda state, token: cell(state, token))
    for at in range(5):
        state, logits = step(state, TARGET[at])
        np.testing.assert_allclose(logits, whole[at], atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_greedy_writes_what_reading_anew_gives():
    model = of({})
    cell, state = model.decoder(SOURCE, max_length=5)
    said = greedy(cell, state=state, start_token=0, max_new_tokens=5)
    tokens = [0]
    log_p = 0.0
    for _ in range(5):
        logits = model((SOURCE, jnp.array(tokens, jnp.int32)))[-1]
        tokens.append(int(logits.argmax()))
        log_p += float(jax.nn.log_softmax(logits)[tokens[-1]])
    assert said.tokens.tolist() == tokens[1:]
    assert float(said.log_p) == pytest.approx(log_p, abs=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_beam_is_the_search_of_all():
    """Of all texts of at most two tokens, ended by 1, the likeliest first."""
    model = of({})
    cell, state = model.decoder(SOURCE, max_length=2)
    texts = [(a, b) for a, b in itertools.product(range(5), repeat=2) if a != 1] + [(1, -1)]
    given = jnp.array([[0, a] for a, _ in texts], jnp.int32)
    log_p = jax.nn.log_softmax(jax.vmap(lambda target: model((SOURCE, target)))(given))
    totals = np.array(
        [log_p[i, 0, a] + (0 if b < 0 else log_p[i, 1, b]) for i, (a, b) in enumerate(texts)]
    )
    order = np.argsort(-totals)
    said = beam_search(
        cell, state=state, start_token=0, max_new_tokens=2, beam_width=len(texts), end_token=1
    )
    assert said.tokens.tolist() == [list(texts[at]) for at in order]
    np.testing.assert_allclose(said.log_p, totals[order], atol=1e-10)


@pytest.mark.slow
def test_dropout_draws_by_the_key():
    model = make(dropout=0.5, key=jr.key(0))
    f = jax.jit(lambda key: model((SOURCE, TARGET), key=key))
    assert same_bits(f(jr.key(0)), f(jr.key(0)))
    assert not close(f(jr.key(0)), f(jr.key(1)), atol=1e-2)
    assert same_bits(model((SOURCE, TARGET)), make(key=jr.key(0))((SOURCE, TARGET)))


@pytest.mark.slow
def test_remat_recomputes_activations():
    slope = jax.jit(jax.grad(lambda model: jnp.square(model((SOURCE, TARGET))).sum()))
    one, two = (slope(make(remat=remat, key=jr.key(0))) for remat in (False, True))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_no_room():
    model = of({"positions": "learned"})
    with pytest.raises(ValueError, match="the table has 8 positions, but the sequence has 9"):
        model((jnp.zeros(9, jnp.int32), TARGET))
    with pytest.raises(ValueError, match="max_length must be an integer >= 1; got 0"):
        model.decoder(SOURCE, max_length=0)
    with pytest.raises(ValueError, match=r"max_length must be at most 8, .*; got 9"):
        model.decoder(SOURCE, max_length=9)
    cell, state = make(key=jr.key(0)).decoder(SOURCE, max_length=2)
    assert np.isfinite(greedy(cell, state=state, start_token=0, max_new_tokens=2).log_p)
    assert np.isnan(greedy(cell, state=state, start_token=0, max_new_tokens=3).log_p)


def test_without_a_source_nothing_is_written():
    cell, _ = make(key=jr.key(0)).decoder(SOURCE, max_length=3)
    with pytest.raises(ValueError, match="needs memory="):
        greedy(cell, start_token=0, max_new_tokens=2)
