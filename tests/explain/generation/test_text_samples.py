"""What a language model says, and its surprise, against plain loops over a counted text."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import speech
from thetax.explain.generation.text_samples import _surprise
from thetax.layers import Recurrent
from thetax.models import NextToken, NGram
from thetax.plot import draw
from thetax.recipes.engine.outcome import Outcome
from thetax.report.lenses.text import _told, speaks
from thetax.train import token_cross_entropy

TEXT = np.array([0, 1, 0, 2, 0, 1, 0, 1, 0, 2])


@pytest.mark.slow
def test_surprise_is_that_of_the_counts():
    """After 0 comes 1 three times of five and 2 twice; after 1 and 2 comes 0. A target of -1 does
    not count.
    """
    cell = NGram.fit([TEXT], vocab_size=3, order=1, discount=0.0)
    data = (
        jnp.array([[0, 1, 0, 2, 0], [0, 2, 0, 1, -1]]),
        jnp.array([[1, 0, 2, 0, 1], [2, 0, 1, -1, -1]]),
    )
    found = speech(cell, data, "abc", length=4, key=jr.key(0))
    one = -np.log2(3 / 5)
    two = -np.log2(2 / 5)
    np.testing.assert_allclose(found.bits, [(one + two) / 2, 0, (two + one) / 3, one], atol=1e-5)
    assert found.until.tolist() == [1, 2, 4, 5]
    assert len(draw(found).axes) == 1


def test_the_surprise_at_every_target():
    """As above, for each place by itself; 0 where there is no target."""
    cell = NGram.fit([TEXT], vocab_size=3, order=1, discount=0.0)
    losses, there = _surprise(cell, jnp.array([[0, 1, 0, 2]]), jnp.array([[1, 0, 2, -1]]))
    np.testing.assert_allclose(losses, [[-np.log2(3 / 5), 0, -np.log2(2 / 5), 0]], atol=1e-5)
    assert there.tolist() == [[True, True, True, False]]


@pytest.mark.slow
def test_samples_follow_the_model():
    """Only pairs that were counted are said; draws differ, and the same key says the same."""
    cell = NGram.fit([TEXT], vocab_size=3, order=1, discount=0.0)
    data = jnp.array([[0]]), jnp.array([[1]])
    found = speech(cell, data, "abc", count=4, length=40, temperature=1.0, key=jr.key(0))
    assert all(len(text) == 40 for text in found.texts)
    pairs = {text[i : i + 2] for text in found.texts for i in range(39)}
    assert pairs == {"ab", "ac", "ba", "ca"}
    assert len(set(found.texts)) == 4
    assert (
        speech(cell, data, "abc", count=4, length=40, temperature=1.0, key=jr.key(0)).texts
        == found.texts
    )
    assert "after 1 tokens" not in _told(found)


@pytest.mark.slow
def test_what_cannot_be_said():
    cell = NGram.fit([TEXT], vocab_size=3, order=1)
    data = (jnp.array([[0]]), jnp.array([[1]]))
    with pytest.raises(ValueError, match="count must be at least 1; got 0"):
        speech(cell, data, "abc", count=0, key=jr.key(0))
    with pytest.raises(ValueError, match="but only 1 have names"):
        speech(cell, data, "a", key=jr.key(0))


def test_the_lens_is_for_language_models():
    model = Recurrent(NextToken.init(3, 2, 2, key=jr.key(0)))
    data = np.zeros((2, 4), np.int32), np.zeros((2, 4), np.int32)
    outcome = lambda **names: Outcome(model, data, data, token_cross_entropy, **names)
    assert speaks(outcome(classes=("a", "b", "c"), tokens=("a", "b", "c")))
    assert not speaks(outcome(classes=("a", "b", "c")))
    assert not speaks(outcome(classes=("a", "b", "c"), tokens=("x", "y", "z")))
