"""Models of tokens: step by step as by teacher forcing, gradients by a plain loop, alignments that
add up.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import filled

from thetax.layers import GRU, LRU, LSTM, Elman, Recurrent, unroll
from thetax.models import EncoderDecoder, LanguageModelCell, SequenceClassifier

TOKENS = jnp.array([2, 0, 4, 4])
SOURCE = jnp.array([1, 5, 0])


def test_next_tokens_by_numpy():
    """Tokens one after another through an Elman cell, and a linear readout of its state."""
    model = filled(partial(LanguageModelCell.init, 5, 3, 4, cell=Elman.init), 0)
    E, U, V, b, W, c = (np.asarray(leaf) for leaf in jax.tree.leaves(model))
    z = np.zeros(4)
    expected = []
    for token in TOKENS:
        z = np.tanh(U @ z + V @ E[token] + b)
        expected.append(W @ z + c)
    found = jax.jit(lambda model, tokens: Recurrent(model)(tokens))(model, TOKENS)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def step_by_step(cell, tokens, state):
    logits = []
    for token in tokens:
        state, y = cell(state, token)
        logits.append(y)
    return jnp.stack(logits)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "cell", [Elman.init, LSTM.init, GRU.init, lambda d, m, key: LRU.init(d, 8, m, key=key)]
)
def test_teacher_forcing_is_step_by_step(cell):
    model = LanguageModelCell.init(5, 3, 4, cell=cell, key=jr.key(0))
    expected = step_by_step(model, TOKENS, model.start)
    np.testing.assert_allclose(Recurrent(model)(TOKENS), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("attend", [None, 3])
@pytest.mark.parametrize("cell", [Elman.init, LSTM.init, GRU.init])
def test_values_and_gradients_of_a_pair(cell, attend):
    """The compiled pass, whose matrix gradients are gathered, against a Python loop over the
    cell.
    """
    model = EncoderDecoder.init(6, 5, 3, 2, attention_width=attend, cell=cell, key=jr.key(1))
    weights = jr.normal(jr.key(2), (4, 5))

    def loop(model):
        decoder, state = model.decoder(SOURCE)
        return (step_by_step(decoder, TOKENS, state) * weights).sum()

    value, slope = jax.value_and_grad(lambda model: (model((SOURCE, TOKENS)) * weights).sum())(
        model
    )
    expected, plain = jax.value_and_grad(loop)(model)
    assert float(value) == pytest.approx(float(expected), abs=1e-5)
    for got, want in zip(jax.tree.leaves(slope), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_without_attention_the_state_is_handed_on():
    model = EncoderDecoder.init(6, 5, 3, 2, cell=GRU.init, key=jr.key(0))
    read = unroll(model.encoder.backward, model.source(SOURCE), reverse=True)[0]
    expected = step_by_step(model.target, TOKENS, read)
    np.testing.assert_allclose(model((SOURCE, TOKENS)), expected, atol=1e-5)
    with pytest.raises(ValueError, match="alignment needs attention"):
        model.alignment(SOURCE, TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [LSTM.init, GRU.init])
def test_alignment(cell):
    """Rows are distributions over what is there, and they give what the cell saw."""
    model = EncoderDecoder.init(6, 5, 3, 2, attention_width=4, cell=cell, key=jr.key(3))
    padded = jnp.array([1, 5, 0, -1])
    a = model.alignment(padded, TOKENS)
    np.testing.assert_allclose(a.sum(axis=1), 1, atol=1e-6)
    assert not a[:, 3].any()
    np.testing.assert_allclose(a[:, :3], model.alignment(SOURCE, TOKENS), atol=1e-6)
    decoder, state = model.decoder(SOURCE)
    _, ys = unroll(decoder.cell, decoder.embed(TOKENS), state=state)
    np.testing.assert_allclose(ys[:, 2:], a[:, :3] @ model.encode(SOURCE)[1], atol=1e-6)


def test_padding_of_either_side_changes_nothing():
    model = EncoderDecoder.init(6, 5, 3, 2, attention_width=4, key=jr.key(4))
    short = model((SOURCE, TOKENS))
    long = model((jnp.append(SOURCE, -1), jnp.append(TOKENS, -1)))
    np.testing.assert_allclose(long[:4], short, atol=1e-5)


def test_a_classifier_reads_what_is_there():
    model = SequenceClassifier.init(4, 3, vocab_size=5, width=2, key=jr.key(0))
    filled = jnp.concatenate([TOKENS, jnp.full(3, -1, jnp.int32)])
    np.testing.assert_allclose(model(filled), model(TOKENS), atol=1e-6)
    _, ys = unroll(model.cell, model.embed(TOKENS))
    np.testing.assert_allclose(model(TOKENS), model.head(ys[-1]), atol=1e-6)
    assert np.isfinite(model(jnp.full(3, -1, jnp.int32))).all()
    plain = SequenceClassifier.init(4, 3, width=2, key=jr.key(0))
    assert plain(jnp.ones((7, 2))).shape == (3,)


def test_attention_and_its_matrix_come_together():
    model = EncoderDecoder.init(6, 5, 3, 2, attention_width=4, key=jr.key(4))
    with pytest.raises(ValueError, match="give both attention and C"):
        EncoderDecoder(model.source, model.encoder, model.target, model.attention)
