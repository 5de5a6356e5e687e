"""BERT's objectives: each against all logits at once, and their slopes where nothing is asked."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.core import predict
from thetax.data import mask_tokens
from thetax.models import BERT, BERTPretraining, SpanPredictor
from thetax.train import (
    bert_pretraining,
    masked_cross_entropy,
    masked_error_rate,
    next_sentence_error_rate,
    span_cross_entropy,
    span_error_rate,
    span_loss,
)
from thetax.train.objectives import bert_objectives as pretrain

GAPS = {"mask_id": 4, "special_ids": (0, 1, 2, 3, 4), "mask_rate": 0.3}


@pytest.fixture(scope="module")
def model() -> BERTPretraining:
    return BERTPretraining.init(
        BERT.init(12, 4, depth=1, heads=1, hidden=5, max_length=8, key=jr.key(0)), key=jr.key(1)
    )


@pytest.fixture(scope="module")
def batch():
    tokens = (
        jr.randint(jr.key(2), (5, 8), 5, 12)
        .at[:, 0]
        .set(2)
        .at[:, 4]
        .set(3)
        .at[:, 6]
        .set(3)
        .at[:, 7]
        .set(-1)
    )
    segments = jnp.tile(jnp.array([0, 0, 0, 0, 0, 1, 1, -1]), (5, 1))
    return (tokens, segments), jnp.array([0, 1, 1, 0, 1])


def by_hand(model, batch, key):
    """Log-probabilities of all tokens at all places, and what stood in the gaps."""
    (tokens, segments), _ = batch
    inputs, targets = mask_tokens(tokens, vocab_size=12, **GAPS, key=key)
    guesses = jax.jit(lambda model, xs: predict(model, xs))(model, (inputs, segments))
    return (
        jax.nn.log_softmax(guesses.tokens),
        jax.nn.log_softmax(guesses.next_sentence),
        np.asarray(targets),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 3])
def test_all_of_it_is_what_the_whole_logits_give(model, batch, seed):
    """With a key the gaps are those of its first half; without one those of a fixed key."""
    key = None if seed is None else jr.key(seed)
    log_p, follows, targets = by_hand(model, batch, jr.key(0) if key is None else jr.split(key)[0])
    asked = np.argwhere(targets >= 0)
    assert 3 < len(asked) < 25
    fill = -np.mean([log_p[i, t, targets[i, t]] for i, t in asked])
    wrong = np.mean([np.argmax(log_p[i, t]) != targets[i, t] for i, t in asked])
    follow = -np.mean([follows[i, y] for i, y in enumerate(batch[1])])
    lost = np.mean(np.argmax(follows, axis=1) != batch[1])
    found = [
        jax.jit(make(**GAPS))(model, batch, key=key)
        for make in (masked_cross_entropy, masked_error_rate)
    ]
    np.testing.assert_allclose(found, [fill, wrong], rtol=1e-5)
    np.testing.assert_allclose(
        jax.jit(bert_pretraining(**GAPS))(model, batch, key=key), fill + follow, rtol=1e-5
    )
    np.testing.assert_allclose(
        jax.jit(next_sentence_error_rate(**GAPS))(model, batch, key=key), lost, rtol=1e-6
    )


def test_each_objective_is_one_number():
    """Traced, not run."""
    bert = lambda: BERT.init(12, 4, depth=1, heads=1, hidden=5, max_length=8, key=jr.key(0))
    model = jax.eval_shape(lambda: BERTPretraining.init(bert(), key=jr.key(1)))
    batch = jax.eval_shape(
        lambda: ((jnp.zeros((5, 8), int), jnp.zeros((5, 8), int)), jnp.zeros(5, int))
    )
    for make in (
        masked_cross_entropy,
        masked_error_rate,
        bert_pretraining,
        next_sentence_error_rate,
    ):
        found = jax.eval_shape(make(**GAPS), model, batch)
        assert (found.shape, found.dtype) == ((), jnp.float32)


def test_gaps_are_new_with_every_key_and_fixed_without(model, batch):
    objective = jax.jit(bert_pretraining(**GAPS))
    values = [float(objective(model, batch, key=jr.key(seed))) for seed in range(4)]
    assert len(set(values)) == 4
    assert objective(model, batch) == objective(model, batch)


def test_a_place_that_is_not_asked_for_has_no_slope(model, batch):
    """Exactly none, in the last vectors, and those that are asked for have one."""
    (tokens, _), _ = batch
    _, targets = mask_tokens(tokens, vocab_size=12, **GAPS, key=jr.key(5))
    vectors = jr.normal(jr.key(6), (*tokens.shape, 4))
    loss = lambda vectors: pretrain._mean(
        pretrain._losses_at_masks(pretrain.log_loss, model, vectors, targets, 0.3)
    )
    slopes = np.asarray(jax.jit(jax.grad(loss))(vectors))
    assert not slopes[np.asarray(targets) < 0].any()
    assert (np.abs(slopes[np.asarray(targets) >= 0]).sum(axis=1) > 0).all()


@pytest.mark.slow
def test_no_gap_at_all_costs_nothing(model, batch):
    (tokens, segments), follows = batch
    empty = (jnp.where(tokens > 4, 3, tokens), segments), follows
    value, slopes = jax.jit(jax.value_and_grad(masked_cross_entropy(**GAPS)))(model, empty)
    assert value == 0
    assert all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(slopes))


def test_gaps_beyond_the_room_are_left_out(model, monkeypatch):
    """Room for the mean alone: of what was chosen the first places are judged, and the mean is over
    these.
    """
    monkeypatch.setattr(pretrain, "SPARE_DEVIATIONS", 0)
    targets = jnp.full((2, 5), -1).at[0].set(jnp.arange(5, 10)).at[1, 0].set(7)
    vectors = jr.normal(jr.key(7), (2, 5, 4))
    losses, asked = pretrain._losses_at_masks(pretrain.log_loss, model, vectors, targets, 0.3)
    assert asked.tolist() == [5, 6, 7]
    np.testing.assert_allclose(
        losses, -jax.nn.log_softmax(model.fill(vectors[0, :3]))[np.arange(3), [5, 6, 7]], rtol=1e-5
    )


@pytest.mark.slow
def test_spans(x64):
    """Half the sum of both, and finite with its slopes though no score is, outside of the
    passage.
    """
    model = SpanPredictor.init(
        BERT.init(12, 4, depth=1, heads=1, hidden=5, max_length=6, key=jr.key(0)), key=jr.key(1)
    )
    xs = (
        jnp.array([[2, 5, 3, 6, 7, 3], [2, 5, 3, 8, 3, -1]]),
        jnp.array([[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, -1]]),
    )
    ys = jnp.array([[3, 4], [3, 3]])
    scores = np.asarray(jax.jit(lambda model: predict(model, xs))(model))
    inside = [[3, 4], [3]]
    log_p = lambda i, end: (
        scores[i, end, ys[i, end]] - np.log(np.exp(scores[i, end, inside[i]]).sum())
    )
    expected = -np.mean([log_p(i, end) for i in range(2) for end in range(2)])
    value, slopes = jax.jit(jax.value_and_grad(span_cross_entropy))(model, (xs, ys))
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    step = jax.jit(
        lambda e: span_cross_entropy(jax.tree.map(lambda a, s: a + e * s, model, slopes), (xs, ys))
    )
    length = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(slopes))
    np.testing.assert_allclose((step(1e-6) - step(-1e-6)) / 2e-6, length, rtol=1e-6)


def test_a_span_is_right_only_at_both_ends():
    scores = jnp.zeros((2, 4)).at[0, 1].set(3.0).at[1, 2].set(3.0)
    always = lambda x: scores
    rate = lambda *span: float(span_error_rate(always, (jnp.zeros((1, 4)), jnp.array([span]))))
    assert (rate(1, 2), rate(1, 1), rate(2, 2)) == (0, 1, 1)


def test_spans_of_another_shape_are_refused(unchecked):
    with pytest.raises(
        ValueError,
        match=r"expected scores of shape \(2, t\) and a span of shape \(2,\); got \(3, 4\)",
    ):
        span_loss(jnp.zeros((3, 4)), jnp.array([0, 1]))
