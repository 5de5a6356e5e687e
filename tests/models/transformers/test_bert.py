"""BERT and its heads: by their formulas, and what is padding is not there."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, same_bits

from thetax.core import predict
from thetax.models import (
    BERT,
    BERTPretraining,
    SentenceClassifier,
    SpanPredictor,
    TokenClassifier,
    best_span,
)

TOKENS = jnp.array([1, 4, 2, 5, 6], jnp.int32)
SEGMENTS = jnp.array([0, 0, 0, 1, 1], jnp.int32)


def bert(**options):
    return BERT.init(
        7, 4, depth=2, heads=2, hidden=6, max_length=8, eps=1e-5, key=jr.key(0), **options
    )


def loud(model):
    """The weights of init are small, and tokens would hardly hear one another."""
    return jax.tree.map(lambda a: 20 * a if a.ndim > 1 else a, model)


@pytest.mark.slow
@pytest.mark.usefixtures("x64", "strict")
def test_what_goes_in_is_the_sum_of_three():
    model = loud(bert())
    total = model.embed.E[TOKENS] + model.positions.P[:5] + model.segments.E[SEGMENTS]
    normed = (total - total.mean(axis=1, keepdims=True)) / jnp.sqrt(
        total.var(axis=1, keepdims=True) + 1e-5
    )
    np.testing.assert_allclose(model.input_embeddings((TOKENS, SEGMENTS)), normed, atol=1e-10)
    np.testing.assert_allclose(model((TOKENS, SEGMENTS)), model.trunk(normed), atol=1e-10)
    np.testing.assert_allclose(model(TOKENS), model((TOKENS, jnp.zeros_like(TOKENS))), atol=1e-12)
    assert not close(model(TOKENS), model((TOKENS, SEGMENTS)), atol=1e-2)


def heads(model):
    key = jr.key(1)
    return {
        "BERT": model,
        "BERTPretraining": BERTPretraining.init(model, key=key),
        "SentenceClassifier": SentenceClassifier.init(model, 3, key=key),
        "TokenClassifier": TokenClassifier.init(model, 3, key=key),
        "SpanPredictor": SpanPredictor.init(model, key=key),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["BERT", "BERTPretraining", "SentenceClassifier", "TokenClassifier", "SpanPredictor"]
)
def test_padding_changes_nothing(name):
    """However long, alone or in a batch."""
    model = loud(heads(bert())[name])
    f = jax.jit(lambda x: model(x))
    alone = f((TOKENS, SEGMENTS))
    for segment in (0, 1):
        padded = f(
            (
                jnp.pad(TOKENS, (0, 3), constant_values=-1),
                jnp.pad(SEGMENTS, (0, 3), constant_values=segment),
            )
        )
        cut = jax.tree.map(lambda a, b: b[tuple(slice(n) for n in a.shape)], alone, padded)
        assert close(cut, alone, rtol=1e-5, atol=1e-5)
    if name == "SpanPredictor":
        assert np.isneginf(padded[:, 5:]).all()
    batch = tuple(jnp.stack([a, jnp.flip(a)]) for a in (TOKENS, SEGMENTS))
    first = jax.tree.map(lambda a: a[0], predict(model, batch))
    assert close(first, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_every_token_sees_all_others():
    model = loud(bert())
    slope = jax.jacobian(lambda E: eqx.tree_at(lambda m: m.embed.E, model, E)(TOKENS))(
        model.embed.E
    )
    assert (jnp.abs(slope[:, :, TOKENS]).sum(axis=(1, 3)) > 0).all()
    A = model.attention_weights(jnp.array([1, 4, 2, -1]))
    assert A.shape == (2, 2, 4, 4)
    assert not A[..., 3].any()
    np.testing.assert_allclose(A.sum(axis=3), 1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("x64", "strict")
def test_the_heads_are_their_formulas():
    model = loud(bert())
    x = (TOKENS, SEGMENTS)
    found = np.asarray(model(x))
    affine = lambda layer, x: x @ np.asarray(layer.W).T + np.asarray(layer.b)
    named = {name: loud(head) if name != "BERT" else head for name, head in heads(bert()).items()}
    classifier = named["SentenceClassifier"]
    tagger = named["TokenClassifier"]
    span = named["SpanPredictor"]
    pooled = np.tanh(affine(classifier.pool, found[0]))
    np.testing.assert_allclose(classifier(x), affine(classifier.head, pooled), atol=1e-10)
    np.testing.assert_allclose(tagger(x), affine(tagger.head, found), atol=1e-10)
    scores = affine(span.head, found).T
    passage = (np.asarray(SEGMENTS) == 1) & (
        np.arange(len(TOKENS)) < len(TOKENS) - 1
    )  # the last is the closing mark
    np.testing.assert_allclose(span(x), np.where(passage, scores, -np.inf), atol=1e-10)
    pre = named["BERTPretraining"]
    guesses = pre(x)
    np.testing.assert_allclose(
        guesses.next_sentence,
        affine(pre.next_sentence, np.tanh(affine(pre.pool, found[0]))),
        atol=1e-10,
    )
    turned = jax.vmap(pre.norm)(
        jax.nn.gelu(jnp.asarray(affine(pre.transform, found)), approximate=False)
    )
    np.testing.assert_allclose(
        guesses.tokens, turned @ pre.bert.embed.E.T + pre.b[None], atol=1e-10
    )


def test_the_best_span_of_all():
    for seed in range(4):
        scores = np.random.default_rng(seed).normal(size=(2, 7)).astype(np.float32)
        for longest in (1, 3, 9):
            spans = [
                (i, j) for i, j in itertools.product(range(7), repeat=2) if i <= j < i + longest
            ]
            best = max(spans, key=lambda span: scores[0, span[0]] + scores[1, span[1]])
            assert tuple(int(a) for a in best_span(jnp.asarray(scores), max_length=longest)) == best
    outside = jnp.asarray(scores).at[:, :3].set(-jnp.inf)
    assert int(best_span(outside, max_length=3)[0]) >= 3
    with pytest.raises(ValueError, match="max_length must be an integer >= 1; got 0"):
        best_span(outside, max_length=0)


@pytest.mark.slow
def test_dropout_draws_by_the_key():
    model = bert(dropout=0.5)
    f = jax.jit(lambda key: model(TOKENS, key=key))
    assert same_bits(f(jr.key(0)), f(jr.key(0)))
    assert not close(f(jr.key(0)), f(jr.key(1)), atol=1e-2)
    assert same_bits(model(TOKENS), bert()(TOKENS))
    for head in (SentenceClassifier, TokenClassifier):
        one = head.init(bert(), 8, dropout=0.5, key=jr.key(2))
        assert not close(one(TOKENS, key=jr.key(0)), one(TOKENS, key=jr.key(1)), atol=1e-3)


def test_a_pool_that_has_learned_is_kept():
    pre = BERTPretraining.init(bert(), key=jr.key(3))
    assert SentenceClassifier.init(pre.bert, 3, pool=pre.pool, key=jr.key(4)).pool is pre.pool


def test_sizes_of_bert_base():
    """As published, with the pooling layer: 109 482 240."""
    model = jax.eval_shape(lambda: BERT.init(30522, key=jr.key(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) + 768 * 769 == 109_482_240


@pytest.mark.usefixtures("unchecked")
def test_bad_sentences():
    with pytest.raises(ValueError, match="the table has 8 positions, but the sequence has 9"):
        bert()(jnp.zeros(9, jnp.int32))
    with pytest.raises(
        ValueError, match=r"expected one segment per token; got shapes \(5,\) and \(4,\)"
    ):
        bert()((TOKENS, SEGMENTS[:4]))
    with pytest.raises(ValueError, match="must lie between 0 and 6"):
        bert()(jnp.array([7]))
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        bert()((TOKENS, SEGMENTS + 1))
