"""Tests of examples as text in tables."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain
from thetax.layers import Linear
from thetax.models import BERT, BERTPretraining
from thetax.recipes.engine.outcome import Outcome
from thetax.report.lenses.attention import target_position
from thetax.report.lenses.examples import MAX_CHARACTERS, example_rows, join_tokens
from thetax.report.registry import LENSES, LensUnavailable
from thetax.train import cross_entropy

PIECES = ("[CLS]", "un", "##able", "film", "[SEP]")


def test_join_tokens_joins_word_pieces():
    assert join_tokens([0, 1, 2, 3, 4, -1, -1], PIECES) == "[CLS] unable film [SEP]"
    assert join_tokens([], PIECES) == ""
    long = join_tokens([3] * 200, PIECES)
    assert long.startswith("film film")
    assert long.endswith("film film")
    assert " … " in long
    assert len(long) == MAX_CHARACTERS + 3


def test_a_mistake_on_a_text_shows_the_text():
    net = Linear(jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), jnp.zeros(2))
    found = explain.confident_mistakes(
        net, (jnp.array([[3.0, 1.0, 2.0]]), jnp.array([1])), classes=("bad", "good"), vocab=PIECES
    )
    assert found.vocab == PIECES
    (row,) = example_rows(found)
    assert {name: row[name] for name in ("true class", "predicted", "x1", "x3")} == {
        "true class": "good",
        "predicted": "bad",
        "x1": "3",
        "x3": "2",
    }
    (row,) = example_rows(replace(found, x=np.array([[1, 2, -1]])))
    assert row["text"] == "unable"
    assert "x1" not in row


def test_target_position_of_taggers_and_language_models():
    xs = np.array([[1, 5, 6, 7, 2, -1]])
    outcome = lambda ys: Outcome(None, (xs, ys), (xs, ys), cross_entropy)
    assert target_position(outcome(np.array([[-1, 3, -1, 4, -1, -1]]))) == 3
    assert target_position(outcome(np.array([[-1, 3, 1, 4, -1, -1]]))) == 2
    assert target_position(outcome(np.array([[5, 6, 7, 2, 0, -1]]))) is None
    assert target_position(outcome(np.array([1]))) is None


def test_gradient_norms_are_unavailable_for_bert_pretraining():
    bert = BERT.init(5, 4, depth=1, heads=1, max_length=4, key=jr.key(0))
    outcome = Outcome(BERTPretraining.init(bert, key=jr.key(1)), ((), ()), ((), ()), cross_entropy)
    (probe,) = (lens for lens in LENSES if lens.title == "Gradient norms by layer")
    with pytest.raises(LensUnavailable, match="calls parts of the network separately"):
        probe.compute(outcome)
