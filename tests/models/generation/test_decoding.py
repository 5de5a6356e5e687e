"""Decoding against brute force over all sequences; samples against the distribution of the cell."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from thetax.layers import Recurrent, unroll
from thetax.models import EncoderDecoder, LanguageModelCell, beam_search, greedy, sample

V, END = 3, 2
CELL = LanguageModelCell.init(V, 2, 4, key=jr.key(3))
CELL = jax.tree.map(lambda a: 2 * a, CELL)  # sharper
LENGTH = 3


def log_p(cell, tokens, start_token=0, state=None):
    """By teacher forcing."""
    given = jnp.array([start_token, *tokens[:-1]])
    logits = unroll(cell, given, state=state)[1]
    return float(jax.nn.log_softmax(logits)[jnp.arange(len(tokens)), jnp.array(tokens)].sum())


def all_sequences():
    """All sequences of at most three tokens; END ends a sequence."""
    for tokens in itertools.product(range(V), repeat=LENGTH):
        stop = tokens.index(END) + 1 if END in tokens else LENGTH
        if all(token == END for token in tokens[stop:]):
            yield tokens[:stop]


@pytest.fixture(scope="module")
def table():
    return {tokens: log_p(CELL, tokens) for tokens in all_sequences()}


def without_padding(tokens):
    return tuple(int(token) for token in tokens if token >= 0)


@pytest.mark.slow
def test_probabilities_sum_to_one(table):
    assert np.exp(list(table.values())).sum() == pytest.approx(1, abs=1e-5)


def test_greedy_takes_the_most_likely_token_at_every_step():
    generated = greedy(CELL, start_token=0, max_new_tokens=LENGTH)
    tokens = []
    for _ in range(LENGTH):
        logits = unroll(CELL, jnp.array([0, *tokens]))[1][-1]
        tokens.append(int(logits.argmax()))
    assert generated.tokens.tolist() == tokens
    assert float(generated.log_p) == pytest.approx(log_p(CELL, tokens), abs=1e-5)


def test_a_wide_beam_is_the_exhaustive_search(table):
    generated = beam_search(
        CELL, start_token=0, max_new_tokens=LENGTH, beam_width=len(table), end_token=END
    )
    best = sorted(table, key=table.get, reverse=True)
    assert [without_padding(tokens) for tokens in generated.tokens] == best
    np.testing.assert_allclose(generated.log_p, [table[tokens] for tokens in best], atol=1e-5)


def test_a_beam_of_one_is_greedy():
    for end in (None, END):
        one = beam_search(CELL, start_token=1, max_new_tokens=5, beam_width=1, end_token=end)
        walk = greedy(CELL, start_token=1, max_new_tokens=5, end_token=end)
        assert one.tokens[0].tolist() == walk.tokens.tolist()
        assert float(one.log_p[0]) == pytest.approx(float(walk.log_p), abs=1e-5)


def test_the_penalty_orders_by_length(table):
    generated = beam_search(
        CELL,
        start_token=0,
        max_new_tokens=LENGTH,
        beam_width=len(table),
        end_token=END,
        length_penalty=1.0,
    )
    scores = [
        table[without_padding(tokens)] / len(without_padding(tokens)) for tokens in generated.tokens
    ]
    assert scores == sorted(scores, reverse=True)


def drawn(count=4000, **how):
    one = lambda key: sample(
        CELL, start_token=0, max_new_tokens=LENGTH, end_token=END, key=key, **how
    )
    return jax.vmap(one)(jr.split(jr.key(0), count))


def test_samples_have_the_distribution_of_the_cell(table):
    generated = drawn()
    counts = dict.fromkeys(table, 0)
    for tokens in np.asarray(generated.tokens):
        counts[without_padding(tokens)] += 1
    expected = np.exp(list(table.values()))
    assert 4000 * expected.min() > 5  # enough samples of each sequence
    test = stats.chisquare(np.array(list(counts.values())), 4000 * expected / expected.sum())
    assert test.pvalue > 1e-3  # the rate of false positives
    np.testing.assert_allclose(
        generated.log_p[:20], [table[without_padding(t)] for t in generated.tokens[:20]], atol=1e-5
    )


@pytest.mark.slow
def test_top_k_and_top_p_restrict_the_tokens():
    logits = unroll(CELL, jnp.array([0]))[1][0]
    p = np.asarray(jax.nn.softmax(logits))
    order = np.argsort(-p)
    assert set(np.unique(drawn(200, top_k=1).tokens[:, 0])) == {order[0]}
    assert set(np.unique(drawn(400, top_k=2).tokens[:, 0])) == set(order[:2])
    just = float(p[order[0]])
    assert set(np.unique(drawn(400, top_p=0.99 * just).tokens[:, 0])) == {order[0]}
    assert set(np.unique(drawn(400, top_p=just + 0.9 * float(p[order[1]])).tokens[:, 0])) == set(
        order[:2]
    )
    cold = drawn(50, temperature=1e-3).tokens[:, 0]
    assert set(np.unique(cold)) == {order[0]}
    hot = np.bincount(drawn(2000, temperature=100.0).tokens[:, 0], minlength=V) / 2000
    np.testing.assert_allclose(hot, 1 / V, atol=0.06)


@pytest.mark.slow
def test_decoding_from_a_source():
    """The log probability is that of teacher forcing; padding of the source changes nothing."""
    model = EncoderDecoder.init(5, V, 2, 3, attention_width=4, key=jr.key(0))
    source = jnp.array([1, 4, 2])
    cell, state = model.decoder(source)
    generated = greedy(cell, state=state, start_token=0, max_new_tokens=4)
    padded, start = model.decoder(jnp.array([1, 4, 2, -1, -1]))
    assert (
        generated.tokens.tolist()
        == greedy(padded, state=start, start_token=0, max_new_tokens=4).tokens.tolist()
    )
    assert float(generated.log_p) == pytest.approx(
        log_p(cell, generated.tokens.tolist(), state=state), abs=1e-5
    )
    assert (
        beam_search(cell, state=state, start_token=0, max_new_tokens=4, beam_width=3).log_p[0]
        >= generated.log_p - 1e-6
    )


def test_a_recurrent_model_is_decoded_by_its_cell():
    assert (
        greedy(Recurrent(CELL), start_token=1, max_new_tokens=4).tokens.tolist()
        == greedy(CELL, start_token=1, max_new_tokens=4).tokens.tolist()
    )


def test_settings_may_be_traced():
    drawn = jax.jit(
        lambda heat: (
            sample(
                CELL, start_token=0, max_new_tokens=2, temperature=heat, top_p=heat, key=jr.key(0)
            ).tokens
        )
    )
    assert drawn(1e-3).tolist() == greedy(CELL, start_token=0, max_new_tokens=2).tokens.tolist()


@pytest.mark.parametrize(
    "generate", [greedy, partial(sample, key=jr.key(0)), partial(beam_search, beam_width=2)]
)
def test_tokens_outside_the_vocabulary_are_refused(generate):
    with pytest.raises(ValueError, match="start_token must be a token from 0 to 2; got 9"):
        generate(CELL, start_token=9, max_new_tokens=2)
    with pytest.raises(ValueError, match="end_token must be a token from 0 to 2; got 3"):
        generate(CELL, start_token=0, max_new_tokens=2, end_token=3)


def test_bad_settings():
    with pytest.raises(ValueError, match="max_new_tokens must be an integer >= 1; got 0"):
        greedy(CELL, start_token=0, max_new_tokens=0)
    with pytest.raises(ValueError, match="beam_width must be an integer >= 1; got 0"):
        beam_search(CELL, start_token=0, max_new_tokens=2, beam_width=0)
    with pytest.raises(ValueError, match=r"temperature must be > 0; got 0\.0"):
        sample(CELL, start_token=0, max_new_tokens=2, temperature=0.0, key=jr.key(0))
    with pytest.raises(ValueError, match="top_p must be a probability"):
        sample(CELL, start_token=0, max_new_tokens=2, top_p=1.5, key=jr.key(0))
