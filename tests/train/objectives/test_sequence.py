"""Objectives along sequences: each target counts once, and tokens out of range are refused before
training.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax.layers import Recurrent
from thetax.models import EncoderDecoder, LanguageModelCell
from thetax.train import (
    Silent,
    descend,
    fit,
    sequence_error_rate,
    token_cross_entropy,
    token_error_rate,
)

MODEL = Recurrent(LanguageModelCell.init(4, 3, 5, key=jr.key(0)))
XS = jnp.array([[0, 1, 2], [3, 1, -1], [2, 2, 2]])
YS = jnp.array([[1, 2, 3], [1, -1, -1], [2, 2, -1]])


def logits():
    return np.asarray(jax.vmap(MODEL)(XS))


@pytest.mark.slow
def test_each_target_counts_once():
    scores = logits() - np.log(np.exp(logits()).sum(axis=-1, keepdims=True))
    losses = [-scores[i, t, YS[i, t]] for i in range(3) for t in range(3) if YS[i, t] >= 0]
    assert len(losses) == 6
    assert float(token_cross_entropy(MODEL, (XS, YS))) == pytest.approx(np.mean(losses), abs=1e-5)


@pytest.mark.slow
def test_mistakes():
    guess = logits().argmax(axis=-1)
    wrong = [guess[i, t] != YS[i, t] for i in range(3) for t in range(3) if YS[i, t] >= 0]
    assert float(token_error_rate(MODEL, (XS, YS))) == pytest.approx(np.mean(wrong))
    right = jnp.where(YS >= 0, jnp.asarray(guess), -1)
    assert float(sequence_error_rate(MODEL, (XS, right))) == 0
    assert float(
        sequence_error_rate(MODEL, (XS, right.at[0, 2].set((right[0, 2] + 1) % 4)))
    ) == pytest.approx(1 / 3)


def test_mistakes_by_hand():
    """The model predicts its input: wrong at a target 0 and at a target 1, and where there is
    none.
    """
    repeats = lambda tokens: jnp.eye(3)[tokens]
    xs = jnp.array([[1, 2], [1, 2], [0, 0]])
    ys = jnp.array([[0, 2], [1, -1], [0, 1]])
    assert float(sequence_error_rate(repeats, (xs, ys))) == pytest.approx(2 / 3)
    assert float(token_error_rate(repeats, (xs, ys))) == pytest.approx(2 / 5)


@pytest.mark.slow
def test_no_target_at_all():
    value, slope = jax.value_and_grad(token_cross_entropy)(MODEL, (XS, jnp.full_like(YS, -1)))
    assert float(value) == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def train(model, xs, ys):
    return fit(
        descend(token_cross_entropy, optax.adam(1e-2)),
        model,
        (xs, ys),
        epochs=1,
        batch_size=1,
        key=jr.key(0),
        progress=Silent(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("bad", [4, -2])
def test_tokens_out_of_range(bad):
    with pytest.raises(
        ValueError, match=rf"data\[0\]: Embedding: the tokens must lie between 0 and 3.*got {bad}"
    ):
        train(MODEL, XS.at[2, 1].set(bad), YS)
    with pytest.raises(
        ValueError,
        match=rf"data\[1\]: expected targets from 0 to 3, or -1 for no target; got {bad}",
    ):
        train(MODEL, XS, YS.at[0, 0].set(bad))


@pytest.mark.slow
def test_pairs_are_trained_and_checked():
    model = EncoderDecoder.init(4, 4, 2, 3, attention_width=2, key=jr.key(0))
    found = train(model, (XS, XS), YS)
    assert np.isfinite(found.history["train loss"]).all()
    with pytest.raises(ValueError, match="got 4"):
        train(model, (XS.at[0, 0].set(4), XS), YS)


@pytest.mark.slow
def test_a_target_out_of_range():
    with pytest.raises(
        ValueError, match=r"targets: the tokens must lie between 0 and 3, or be -1 .*; got 4"
    ):
        token_cross_entropy(MODEL, (XS, YS.at[0, 0].set(4)))


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    with pytest.raises(
        ValueError,
        match=r"expected logits of shape \(n, t, v\) and integer targets of shape \(n, t\)",
    ):
        token_cross_entropy(MODEL, (XS, YS[:, 0]))
