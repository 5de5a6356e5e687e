"""Tests of lenses on sequence models: layers inside a cell are not recorded, and token targets at
every step are not classes.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain
from thetax.layers import (
    LSTM,
    Bidirectional,
    Chain,
    LayerNorm,
    Linear,
    MinGRU,
    Recurrent,
    ResidualCell,
)
from thetax.models import EncoderDecoder, LanguageModelCell, SequenceClassifier
from thetax.plot import as_images
from thetax.recipes.engine.outcome import Outcome
from thetax.report.page import Section, page
from thetax.report.registry import is_classifier, subsample
from thetax.train import cross_entropy, token_cross_entropy

TOKENS = jr.randint(jr.key(0), (3, 5), 0, 4)


def block(n, m, *, key):
    """A cell with layers that are applied to all time steps at once."""
    return ResidualCell(
        LayerNorm.init(m), MinGRU.init(m, m, key=key), Chain(jnp.tanh, Linear.init(m, m, key=key))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "heard"),
    [
        (
            SequenceClassifier.init(3, 2, width=3, vocab_size=4, cell=block, key=jr.key(1)),
            ("Embedding 1", "Linear 2"),
        ),
        (Recurrent(LanguageModelCell.init(4, 3, 3, cell=block, key=jr.key(1))), ("Recurrent 1",)),
    ],
    ids=["classifier", "language model"],
)
def test_recorded_layers_of_a_model_with_a_cell(model, heard):
    found = explain.activation_statistics(model, TOKENS)
    assert found.layers == heard
    h = jax.vmap(model)(TOKENS)
    np.testing.assert_allclose(found.mean[-1], h.mean(), rtol=1e-5)
    targets = TOKENS % 2 if isinstance(model, Recurrent) else TOKENS[:, 0] % 2
    objective = token_cross_entropy if isinstance(model, Recurrent) else cross_entropy
    through = explain.gradient_norms(objective, model, (TOKENS, targets))
    assert through.layers == heard
    logits = jax.grad(
        lambda e: objective(lambda pair: model(pair[0]) + pair[1], ((TOKENS, e), targets))
    )(0 * h)
    np.testing.assert_allclose(through.outputs[-1], np.sqrt(3) * np.linalg.norm(logits), rtol=1e-4)


def test_recorded_layers_of_an_encoder_decoder():
    model = EncoderDecoder.init(4, 4, 2, 2, attention_width=2, key=jr.key(0))
    assert explain.activation_statistics(model, (TOKENS, TOKENS)).layers == ("Embedding 1",)
    both = Bidirectional(LSTM.init(2, 3, key=jr.key(1)), LSTM.init(2, 3, key=jr.key(2)))
    assert explain.activation_statistics(Chain(both, jnp.tanh), jnp.ones((3, 4, 2))).layers == (
        "Bidirectional 1",
        "tanh 1",
    )


def test_long_sequences_count_by_their_targets():
    xs = np.zeros((500, 100), np.int32)
    assert len(subsample((xs, xs), 400)[0]) == 40
    assert len(subsample((xs, xs), 4)[0]) == 4  # a few are always afforded
    assert len(subsample((xs, xs[:, 0]), 400)[0]) == 400  # one target each
    assert len(subsample((np.zeros((500, 100)), np.zeros((500, 100))), 400)[0]) == 400  # no tokens


def test_a_token_target_per_step_is_not_a_class():
    model = Recurrent(LanguageModelCell.init(4, 2, 2, key=jr.key(0)))
    whole = Outcome(
        model,
        (TOKENS, TOKENS),
        (TOKENS, TOKENS),
        token_cross_entropy,
        classes=tuple("abcd"),
        tokens=("x",),
    )
    assert not is_classifier(whole)
    one = Outcome(
        model,
        (TOKENS, TOKENS[:, 0]),
        (TOKENS, TOKENS[:, 0]),
        cross_entropy,
        classes=("a", "b"),
        tokens=("x",),
    )
    assert is_classifier(one)


def test_tokens_are_not_an_image():
    assert as_images(np.zeros((2, 64), np.int32)) is None
    assert as_images(np.zeros((2, 64), np.uint8)) is not None


def test_text_keeps_its_line_breaks():
    section = Section(
        "s", "t", "says", rows=[{"text": "one\n<two>", "plain": "word", "long": "word " * 20}]
    )
    text = page(title="t", summary={}, table={}, facts={}, sections=[section])
    assert '<td class="text">one\n&lt;two&gt;</td><td>word</td><td class="text">word word' in text
    assert '<th class="text">text</th><th>plain</th><th class="text">long</th>' in text
