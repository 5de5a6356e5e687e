"""Where a transformer looks, which words a judgement hangs on, how vectors lie: each number by a
second route.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain, plot
from thetax.layers import CAUSAL, Embedding
from thetax.models import BERT, GPT, MLP, SentenceClassifier, ViT


@pytest.fixture(scope="module")
def model():
    return jax.tree.map(
        lambda a: 6 * a, GPT.init(9, 8, depth=2, heads=2, max_length=8, key=jr.key(0))
    )


TEXT = jnp.array([1, 4, 2, 7, -1, -1])


@pytest.mark.slow
def test_weights_are_those_of_each_block(model):
    """Block by block, with what the blocks below put out; the filling is left out."""
    found = explain.attention_maps(model, TEXT, vocab="abcdefghi")
    assert found.tokens == ("b", "e", "c", "h")
    x = model.positions(model.embed(TEXT[:4]))
    for at in range(2):
        block = jax.tree.map(lambda a, at=at: a[at], model.trunk.blocks.layers)
        q, k = (
            np.asarray(jax.vmap(part)(jax.vmap(block.norm)(x)), np.float64)
            for part in (block.attention.Q, block.attention.K)
        )
        for head in range(2):
            mine = slice(4 * head, 4 * head + 4)
            scores = q[:, mine] @ k[:, mine].T / 2
            e = np.where(np.tri(4), np.exp(scores - scores.max()), 0)
            np.testing.assert_allclose(
                found.weights[at, head], e / e.sum(axis=1, keepdims=True), atol=1e-5
            )
        x = block(x, mask=CAUSAL)


def test_attention_perplexity_and_rollout():
    """Uniform weights look everywhere, one-hot ones at one place; what flows is a product of
    stochastic matrices.
    """
    even = np.full((3, 3), 1 / 3)
    sharp = np.eye(3)[[1, 0, 2]]
    found = explain.attribution.AttentionMaps(
        np.array([[even, sharp], [sharp, sharp]]), ("a", "b", "c")
    )
    np.testing.assert_allclose(found.perplexity, [[3, 1], [1, 1]])
    one = (even + sharp) / 2
    two = sharp
    np.testing.assert_allclose(found.rollout, (two + np.eye(3)) / 2 @ (one + np.eye(3)) / 2)
    np.testing.assert_allclose(found.rollout.sum(axis=1), 1)


def test_an_image_has_a_grid():
    net = ViT.init(
        3, image_size=(4, 6), channels=1, patch_size=2, d=4, depth=1, heads=2, key=jr.key(0)
    )
    found = explain.attention_maps(net, jnp.ones((1, 4, 6)))
    assert found.grid == (2, 3)
    assert found.tokens[:3] == ("class", "1, 1", "1, 2")
    assert found.weights.shape == (1, 2, 7, 7)


@pytest.mark.slow
def test_saliency_by_finite_differences(model, x64):
    """Of the largest logit at the last position, changing one token's vector at a time."""
    wide = jax.tree.map(lambda a: a.astype(jnp.float64), model)
    found = explain.token_saliency(wide, TEXT, vocab="abcdefghi", classes="abcdefghi")
    vectors = wide.embed(TEXT[:4])
    logits = lambda v: wide.unembed(wide.trunk(wide.positions(v), mask=CAUSAL))[3]
    chosen = int(logits(vectors).argmax())
    assert found.predicted == "abcdefghi"[chosen]
    slope = np.zeros((4, 8))
    for i in range(4):
        for j in range(8):
            move = 1e-6 * jnp.zeros((4, 8)).at[i, j].set(1)
            slope[i, j] = (logits(vectors + move) - logits(vectors - move))[chosen] / 2e-6
    np.testing.assert_allclose(found.gradient_norm, np.linalg.norm(slope, axis=1), rtol=1e-5)
    np.testing.assert_allclose(
        found.gradient_times_input, (slope * np.asarray(vectors)).sum(axis=1), rtol=1e-4, atol=1e-8
    )


@pytest.mark.slow
def test_saliency_at_a_position_is_zero_for_later_tokens(model):
    found = explain.token_saliency(model, TEXT, position=1)
    assert (found.gradient_norm[:2] > 0).all()
    np.testing.assert_array_equal(found.gradient_norm[2:], 0)
    alone = explain.token_saliency(model, TEXT[:2])
    np.testing.assert_allclose(found.gradient_norm[:2], alone.gradient_norm, rtol=1e-5)
    for position in (-1, 4):
        with pytest.raises(
            ValueError, match=f"position must be between 0 and 3 for 4 tokens; got {position}"
        ):
            explain.token_saliency(model, TEXT, position=position)


@pytest.mark.slow
def test_saliency_of_a_classifier_with_segments():
    """A head on an encoder with three embeddings: only that of the tokens is differentiated."""
    bert = BERT.init(9, 8, depth=1, heads=2, max_length=8, key=jr.key(0))
    found = explain.token_saliency(
        SentenceClassifier.init(bert, 2, key=jr.key(1)),
        (TEXT, jnp.where(TEXT >= 0, 0, -1)),
        classes=("bad", "good"),
    )
    assert found.gradient_norm.shape == (4,)
    assert (found.gradient_norm > 0).all()
    assert found.predicted in ("bad", "good")


def test_embedding_map_is_the_best_projection_to_two_dimensions():
    """Points in a plane keep their distances."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(6, 2)) @ np.linalg.qr(rng.normal(size=(5, 2)))[0].T + 3
    found = explain.embedding_map(
        Embedding(jnp.asarray(flat, jnp.float32)), vocab="abcdef", indices=[5, 0, 2]
    )
    assert found.tokens == ("f", "a", "c")
    apart = lambda p: np.linalg.norm(p[:, None] - p[None], axis=2)
    np.testing.assert_allclose(apart(found.points), apart(flat[[5, 0, 2]]), atol=1e-5)
    assert found.explained_variance.sum() == pytest.approx(1)


def test_models_without_feature_maps_are_rejected():
    net = MLP.init(3, 4, 2, key=jr.key(0))
    with pytest.raises(ValueError, match="MLP has no self-attention; give a transformer"):
        explain.attention_maps(net, jnp.ones(3))
    with pytest.raises(
        ValueError, match="MLP has no Embedding layer; give a model that takes tokens"
    ):
        explain.embedding_map(net)
    with pytest.raises(
        ValueError, match="token 7 of the text is outside the vocabulary of 3 strings"
    ):
        explain.attention_maps(
            GPT.init(9, 8, depth=1, heads=2, max_length=8, key=jr.key(0)), TEXT, vocab="abc"
        )


@pytest.mark.parametrize("kind", ["maps", "image", "saliency", "table"])
def test_each_result_is_plotted(model, kind):
    letters = "abcdefghi"
    result = {
        "maps": lambda: explain.attribution.AttentionMaps(
            np.full((9, 3, 4, 4), 0.25), (" a", "b\n", "c", "incomprehensibilities")
        ),
        "image": lambda: explain.attribution.AttentionMaps(
            np.full((1, 1, 7, 7), 1 / 7), ("class", *"123456"), (2, 3)
        ),
        "saliency": lambda: explain.attribution.TokenSaliency(
            np.ones(3), np.array([1.0, -1.0, 0.0]), tuple("abc"), "d"
        ),
        "table": lambda: explain.embedding_map(model, vocab=letters),
    }[kind]()
    figure = plot.draw(result)
    texts = [
        text.get_text() for axes in figure.axes for text in (*axes.texts, *axes.get_xticklabels())
    ]
    if kind == "maps":
        assert len(figure.axes) == 6 * 3 + 2
        assert "␣a" in texts
        assert "incomprehensi…" in texts
    if kind == "table":
        assert set(letters) <= set(texts)
