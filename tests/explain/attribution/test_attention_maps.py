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
    found = explain.attention_maps(model, TEXT, names="abcdefghi")
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


def test_places_count_and_rollout_flows():
    """Uniform weights look everywhere, one-hot ones at one place; what flows is a product of
    stochastic matrices.
    """
    even = np.full((3, 3), 1 / 3)
    sharp = np.eye(3)[[1, 0, 2]]
    found = explain.AttentionMaps(np.array([[even, sharp], [sharp, sharp]]), ("a", "b", "c"))
    np.testing.assert_allclose(found.places, [[3, 1], [1, 1]])
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
def test_saliency_is_the_slope_by_differences(model, x64):
    """Of the likeliest logit at the last place, moving one token's vector at a time."""
    wide = jax.tree.map(lambda a: a.astype(jnp.float64), model)
    found = explain.token_saliency(wide, TEXT, names="abcdefghi", classes="abcdefghi")
    vectors = wide.embed(TEXT[:4])
    logits = lambda v: wide.unembed(wide.trunk(wide.positions(v), mask=CAUSAL))[3]
    chosen = int(logits(vectors).argmax())
    assert found.about == "abcdefghi"[chosen]
    slope = np.zeros((4, 8))
    for i in range(4):
        for j in range(8):
            move = 1e-6 * jnp.zeros((4, 8)).at[i, j].set(1)
            slope[i, j] = (logits(vectors + move) - logits(vectors - move))[chosen] / 2e-6
    np.testing.assert_allclose(found.size, np.linalg.norm(slope, axis=1), rtol=1e-5)
    np.testing.assert_allclose(
        found.owed, (slope * np.asarray(vectors)).sum(axis=1), rtol=1e-4, atol=1e-8
    )


@pytest.mark.slow
def test_saliency_at_a_place_knows_nothing_of_what_comes_after(model):
    found = explain.token_saliency(model, TEXT, place=1)
    assert (found.size[:2] > 0).all()
    np.testing.assert_array_equal(found.size[2:], 0)
    alone = explain.token_saliency(model, TEXT[:2])
    np.testing.assert_allclose(found.size[:2], alone.size, rtol=1e-5)
    for place in (-1, 4):
        with pytest.raises(
            ValueError, match=f"place is that of one of 4 tokens, from 0 on; got {place}"
        ):
            explain.token_saliency(model, TEXT, place=place)


@pytest.mark.slow
def test_saliency_of_a_judgement_with_segments():
    """A head on an encoder, which has three tables: it is the tokens' that is moved."""
    bert = BERT.init(9, 8, depth=1, heads=2, max_length=8, key=jr.key(0))
    found = explain.token_saliency(
        SentenceClassifier.init(bert, 2, key=jr.key(1)),
        (TEXT, jnp.where(TEXT >= 0, 0, -1)),
        classes=("bad", "good"),
    )
    assert found.size.shape == (4,)
    assert (found.size > 0).all()
    assert found.about in ("bad", "good")


def test_the_map_keeps_what_two_directions_can():
    """Points in a plane keep their distances."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(6, 2)) @ np.linalg.qr(rng.normal(size=(5, 2)))[0].T + 3
    found = explain.embedding_map(
        Embedding(jnp.asarray(flat, jnp.float32)), names="abcdef", which=[5, 0, 2]
    )
    assert found.tokens == ("f", "a", "c")
    apart = lambda p: np.linalg.norm(p[:, None] - p[None], axis=2)
    np.testing.assert_allclose(apart(found.points), apart(flat[[5, 0, 2]]), atol=1e-5)
    assert found.share.sum() == pytest.approx(1)


def test_what_has_nothing_to_show_says_so():
    net = MLP.init(3, 4, 2, key=jr.key(0))
    with pytest.raises(ValueError, match="MLP has no attention"):
        explain.attention_maps(net, jnp.ones(3))
    with pytest.raises(ValueError, match="MLP has no table of tokens"):
        explain.embedding_map(net)
    with pytest.raises(ValueError, match="token 7 of the text has no name"):
        explain.attention_maps(
            GPT.init(9, 8, depth=1, heads=2, max_length=8, key=jr.key(0)), TEXT, names="abc"
        )


@pytest.mark.parametrize("kind", ["maps", "image", "saliency", "table"])
def test_each_is_drawn(model, kind):
    letters = "abcdefghi"
    result = {
        "maps": lambda: explain.AttentionMaps(
            np.full((9, 3, 4, 4), 0.25), (" a", "b\n", "c", "incomprehensibilities")
        ),
        "image": lambda: explain.AttentionMaps(
            np.full((1, 1, 7, 7), 1 / 7), ("class", *"123456"), (2, 3)
        ),
        "saliency": lambda: explain.TokenSaliency(
            np.ones(3), np.array([1.0, -1.0, 0.0]), tuple("abc"), "d"
        ),
        "table": lambda: explain.embedding_map(model, names=letters),
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
