"""Sampled texts and surprisal of a language model, against loops over a counted text."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import text_samples
from thetax.explain.generation.text_samples import _surprisal
from thetax.layers import Recurrent
from thetax.models import LanguageModelCell, NGram
from thetax.plot import draw
from thetax.recipes.engine.outcome import Outcome
from thetax.report.lenses.text import _sample_metrics, is_language_model
from thetax.train import token_cross_entropy

TEXT = np.array([0, 1, 0, 2, 0, 1, 0, 1, 0, 2])


@pytest.mark.slow
def test_surprisal_is_that_of_the_counts():
    """After 0 comes 1 three times of five and 2 twice; after 1 and 2 comes 0. A target of -1 does
    not count.
    """
    cell = NGram.fit([TEXT], vocab_size=3, order=1, discount=0.0)
    data = (
        jnp.array([[0, 1, 0, 2, 0], [0, 2, 0, 1, -1]]),
        jnp.array([[1, 0, 2, 0, 1], [2, 0, 1, -1, -1]]),
    )
    found = text_samples(cell, data, "abc", max_new_tokens=4, key=jr.key(0))
    one = -np.log2(3 / 5)
    two = -np.log2(2 / 5)
    np.testing.assert_allclose(found.bits, [(one + two) / 2, 0, (two + one) / 3, one], atol=1e-5)
    assert found.positions.tolist() == [1, 2, 4, 5]
    assert len(draw(found).axes) == 1


def test_surprisal_at_every_target():
    """As above, for each position; 0 where there is no target."""
    cell = NGram.fit([TEXT], vocab_size=3, order=1, discount=0.0)
    losses, there = _surprisal(cell, jnp.array([[0, 1, 0, 2]]), jnp.array([[1, 0, 2, -1]]))
    np.testing.assert_allclose(losses, [[-np.log2(3 / 5), 0, -np.log2(2 / 5), 0]], atol=1e-5)
    assert there.tolist() == [[True, True, True, False]]


@pytest.mark.slow
def test_samples_follow_the_model():
    """Only bigrams of the text are sampled; samples differ, and the same key repeats them."""
    cell = NGram.fit([TEXT], vocab_size=3, order=1, discount=0.0)
    data = jnp.array([[0]]), jnp.array([[1]])
    found = text_samples(
        cell, data, "abc", n_texts=4, max_new_tokens=40, temperature=1.0, key=jr.key(0)
    )
    assert all(len(text) == 40 for text in found.texts)
    pairs = {text[i : i + 2] for text in found.texts for i in range(39)}
    assert pairs == {"ab", "ac", "ba", "ca"}
    assert len(set(found.texts)) == 4
    assert (
        text_samples(
            cell, data, "abc", n_texts=4, max_new_tokens=40, temperature=1.0, key=jr.key(0)
        ).texts
        == found.texts
    )
    assert "after 1 tokens" not in _sample_metrics(found)


@pytest.mark.slow
def test_invalid_text_sample_arguments_are_rejected():
    cell = NGram.fit([TEXT], vocab_size=3, order=1)
    data = (jnp.array([[0]]), jnp.array([[1]]))
    with pytest.raises(ValueError, match="n_texts must be an integer >= 1; got 0"):
        text_samples(cell, data, "abc", n_texts=0, key=jr.key(0))
    with pytest.raises(
        ValueError, match="the model generates tokens up to 2, but vocab has only 1 strings"
    ):
        text_samples(cell, data, "a", key=jr.key(0))


def test_the_lens_is_for_language_models():
    model = Recurrent(LanguageModelCell.init(3, 2, 2, key=jr.key(0)))
    data = np.zeros((2, 4), np.int32), np.zeros((2, 4), np.int32)
    outcome = lambda **names: Outcome(model, data, data, token_cross_entropy, **names)
    assert is_language_model(outcome(classes=("a", "b", "c"), tokens=("a", "b", "c")))
    assert not is_language_model(outcome(classes=("a", "b", "c")))
    assert not is_language_model(outcome(classes=("a", "b", "c"), tokens=("x", "y", "z")))
