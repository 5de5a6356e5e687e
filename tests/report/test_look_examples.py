"""Examples in words: a text as it is read, never as the numbers of its tokens."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain
from thetax.layers import Linear
from thetax.models import BERT, BERTPretraining
from thetax.recipes.engine.outcome import Outcome
from thetax.report.lenses.attention import asked
from thetax.report.lenses.examples import MAX_LETTERS, example_rows, join_tokens
from thetax.report.registry import LENSES, LensUnavailable
from thetax.train import cross_entropy

PIECES = ("[CLS]", "un", "##able", "film", "[SEP]")


def test_pieces_are_put_together_and_words_apart():
    assert join_tokens([0, 1, 2, 3, 4, -1, -1], PIECES) == "[CLS] unable film [SEP]"
    assert join_tokens([], PIECES) == ""
    long = join_tokens([3] * 200, PIECES)
    assert long.startswith("film film")
    assert long.endswith("film film")
    assert " … " in long
    assert len(long) == MAX_LETTERS + 3


def test_a_mistake_on_a_text_is_told_by_the_text():
    net = Linear(jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), jnp.zeros(2))
    found = explain.worst(
        net, (jnp.array([[3.0, 1.0, 2.0]]), jnp.array([1])), classes=("bad", "good"), tokens=PIECES
    )
    assert found.tokens == PIECES
    (row,) = example_rows(found)
    assert {name: row[name] for name in ("truth", "guess", "x1", "x3")} == {
        "truth": "good",
        "guess": "bad",
        "x1": "3",
        "x3": "2",
    }
    (row,) = example_rows(replace(found, x=np.array([[1, 2, -1]])))
    assert row["text"] == "unable"
    assert "x1" not in row


def test_a_tagger_is_asked_about_a_word_and_a_writer_about_the_end():
    xs = np.array([[1, 5, 6, 7, 2, -1]])
    outcome = lambda ys: Outcome(None, (xs, ys), (xs, ys), cross_entropy)
    assert asked(outcome(np.array([[-1, 3, -1, 4, -1, -1]]))) == 3
    assert asked(outcome(np.array([[-1, 3, 1, 4, -1, -1]]))) == 2
    assert asked(outcome(np.array([[5, 6, 7, 2, 0, -1]]))) is None
    assert asked(outcome(np.array([1]))) is None


def test_a_lens_says_why_it_cannot_probe_a_network_that_is_taken_apart():
    bert = BERT.init(5, 4, depth=1, heads=1, max_length=4, key=jr.key(0))
    outcome = Outcome(BERTPretraining.init(bert, key=jr.key(1)), ((), ()), ((), ()), cross_entropy)
    (probe,) = (lens for lens in LENSES if lens.title == "Gradient signal through depth")
    with pytest.raises(LensUnavailable, match="takes the network apart"):
        probe.compute(outcome)
