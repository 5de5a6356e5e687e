"""Lenses on transformers against loops: greedy translations, the surprisal of a GPT, the dropout
penalty of stacked layers.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import activation_statistics, dropout_penalty, text_samples, translations
from thetax.explain.generation.translations import _most_common_last, _ngram_precision
from thetax.layers import Chain, Dropout, Linear, Stacked
from thetax.models import GPT, EncoderDecoder, Translator
from thetax.train import squared_error

NAMES = ("abcd", "<>xyz")


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        Translator.init(4, 5, 4, depth=1, heads=1, key=jr.key(3)),
        EncoderDecoder.init(4, 5, 3, 4, attention_width=3, key=jr.key(1)),
    ],
    ids=["attention alone", "recurrent"],
)
def test_translation_is_greedy_decoding(model):
    """Against decoding that evaluates the whole sequence for each token."""
    sources = np.array([[0, 1, 2, -1], [3, 3, -1, -1], [2, 0, 1, 3]])
    meant = np.array([[2, 3, 1, -1], [4, 1, -1, -1], [2, 2, 4, 1]])
    targets = np.array([[0, 2, 3, -1], [0, 4, -1, -1], [0, 2, 2, 4]])
    found = translations(model, ((sources, targets), meant), vocabs=NAMES)
    assert found.source == ("abc", "dd", "cabd")
    assert found.reference == ("xy", "z", "xxz")
    for source, text in zip(sources, found.predicted):
        said = [0]
        while len(said) < 5 and (len(said) == 1 or said[-1] != 1):
            said.append(int(model((jnp.asarray(source), jnp.array(said)))[-1].argmax()))
        assert text == "".join(NAMES[1][token] for token in said[1:] if token != 1)


def test_ngram_counts_are_clipped_by_the_reference():
    said = np.array([[2, 2, 2, 3, -1], [4, 1, -1, -1, -1]])
    meant = np.array([[2, 2, 3, 1, -1], [4, 1, -1, -1, -1]])
    np.testing.assert_allclose(_ngram_precision(said, meant), [5 / 6, 3 / 4, 1 / 2, 0.0])
    assert _most_common_last(meant) == 1
    assert _most_common_last(np.array([[2, 3], [4, 3], [1, -1]])) == 3  # most, not all, end with it


@pytest.mark.slow
def test_only_models_of_pairs_translate():
    data = (np.zeros((1, 2), int), np.zeros((1, 2), int)), np.zeros((1, 2), int)
    with pytest.raises(
        ValueError, match="model must be a Translator or an EncoderDecoder; got GPT"
    ):
        translations(
            GPT.init(3, 4, depth=1, heads=1, max_length=4, key=jr.key(0)),
            data,
            vocabs=("abc", "abc"),
        )


@pytest.mark.slow
def test_surprisal_of_a_gpt_is_that_of_its_logits():
    model = GPT.init(3, 4, depth=1, heads=1, max_length=6, key=jr.key(0))
    xs = jnp.array([[0, 1, 2, 1]])
    ys = jnp.array([[1, 2, 1, -1]])
    found = text_samples(
        model, (xs, ys), "abc", n_texts=2, max_new_tokens=6, top_p=0.5, key=jr.key(1)
    )
    p = np.exp(np.asarray(model(xs[0]), np.float64))
    bits = [-np.log2(p[t, y] / p[t].sum()) for t, y in enumerate([1, 2, 1])]
    np.testing.assert_allclose(found.bits, [bits[0], bits[1], bits[2]], rtol=1e-4)
    assert [len(text) for text in found.texts] == [6, 6]
    assert found.top_p == 0.5


@pytest.mark.slow
def test_dropout_in_stacked_layers_costs_what_it_costs_in_a_chain():
    draw = lambda key: Chain(Dropout(0.3), Linear.init(2, 2, key=key), jnp.tanh)
    stack = Stacked.init(lambda *, key: draw(key), 3, key=jr.key(0))
    chain = Chain(*(jax.tree.map(lambda a, i=i: a[i], stack.layers) for i in range(3)))
    data = jr.normal(jr.key(1), (4, 2)), jnp.zeros((4, 2))
    one, two = (
        dropout_penalty(squared_error, net, data, n_samples=5, key=jr.key(2))
        for net in (stack, chain)
    )
    np.testing.assert_allclose([one.value, one.quadratic], [two.value, two.quadratic], rtol=1e-4)
    assert one.value > 0


@pytest.mark.slow
def test_position_embeddings_of_a_gpt_are_recorded():
    model = GPT.init(3, 4, depth=1, heads=1, max_length=6, key=jr.key(0))
    found = activation_statistics(model, jnp.array([[0, 1, 2], [2, 2, 1]]))
    assert any("Learned" in name for name in found.layers)
