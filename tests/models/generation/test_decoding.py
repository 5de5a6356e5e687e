"""Decoding against brute force over all sequences, and against the law it draws from."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from thetax.layers import Recurrent, unroll
from thetax.models import EncoderDecoder, NextToken, beam_search, greedy, sample

V, END = 3, 2
CELL = NextToken.init(V, 2, 4, key=jr.key(3))
CELL = jax.tree.map(lambda a: 2 * a, CELL)  # sharper
LENGTH = 3


def log_p(cell, tokens, first=0, state=None):
    """By teacher forcing."""
    given = jnp.array([first, *tokens[:-1]])
    logits = unroll(cell, given, state=state)[1]
    return float(jax.nn.log_softmax(logits)[jnp.arange(len(tokens)), jnp.array(tokens)].sum())


def all_sequences():
    """What can be said in at most three tokens: END ends it."""
    for tokens in itertools.product(range(V), repeat=LENGTH):
        stop = tokens.index(END) + 1 if END in tokens else LENGTH
        if all(token == END for token in tokens[stop:]):
            yield tokens[:stop]


@pytest.fixture(scope="module")
def table():
    return {tokens: log_p(CELL, tokens) for tokens in all_sequences()}


def spoken(tokens):
    return tuple(int(token) for token in tokens if token >= 0)


@pytest.mark.slow
def test_probabilities_sum_to_one(table):
    assert np.exp(list(table.values())).sum() == pytest.approx(1, abs=1e-5)


def test_greedy_takes_the_likeliest_each_time():
    said = greedy(CELL, first=0, length=LENGTH)
    tokens = []
    for _ in range(LENGTH):
        logits = unroll(CELL, jnp.array([0, *tokens]))[1][-1]
        tokens.append(int(logits.argmax()))
    assert said.tokens.tolist() == tokens
    assert float(said.log_p) == pytest.approx(log_p(CELL, tokens), abs=1e-5)


def test_a_wide_beam_is_the_exhaustive_search(table):
    said = beam_search(CELL, first=0, length=LENGTH, beam_width=len(table), end=END)
    best = sorted(table, key=table.get, reverse=True)
    assert [spoken(tokens) for tokens in said.tokens] == best
    np.testing.assert_allclose(said.log_p, [table[tokens] for tokens in best], atol=1e-5)


def test_a_beam_of_one_is_greedy():
    for end in (None, END):
        one = beam_search(CELL, first=1, length=5, beam_width=1, end=end)
        walk = greedy(CELL, first=1, length=5, end=end)
        assert one.tokens[0].tolist() == walk.tokens.tolist()
        assert float(one.log_p[0]) == pytest.approx(float(walk.log_p), abs=1e-5)


def test_the_penalty_orders_by_length(table):
    said = beam_search(
        CELL, first=0, length=LENGTH, beam_width=len(table), end=END, length_penalty=1.0
    )
    scores = [table[spoken(tokens)] / len(spoken(tokens)) for tokens in said.tokens]
    assert scores == sorted(scores, reverse=True)


def drawn(count=4000, **how):
    one = lambda key: sample(CELL, first=0, length=LENGTH, end=END, key=key, **how)
    return jax.vmap(one)(jr.split(jr.key(0), count))


def test_samples_have_the_law_of_the_cell(table):
    said = drawn()
    counts = dict.fromkeys(table, 0)
    for tokens in np.asarray(said.tokens):
        counts[spoken(tokens)] += 1
    expected = np.exp(list(table.values()))
    assert 4000 * expected.min() > 5  # enough of each for the test
    test = stats.chisquare(np.array(list(counts.values())), 4000 * expected / expected.sum())
    assert test.pvalue > 1e-3  # the rate of false alarms
    np.testing.assert_allclose(
        said.log_p[:20], [table[spoken(t)] for t in said.tokens[:20]], atol=1e-5
    )


@pytest.mark.slow
def test_what_may_be_drawn():
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
def test_it_goes_on_from_a_source():
    """The same sentence by one search as by teacher forcing, and padding of the source changes
    nothing.
    """
    model = EncoderDecoder.init(5, V, 2, 3, attention_width=4, key=jr.key(0))
    source = jnp.array([1, 4, 2])
    cell, state = model.decoder(source)
    said = greedy(cell, state=state, first=0, length=4)
    padded, start = model.decoder(jnp.array([1, 4, 2, -1, -1]))
    assert said.tokens.tolist() == greedy(padded, state=start, first=0, length=4).tokens.tolist()
    assert float(said.log_p) == pytest.approx(
        log_p(cell, said.tokens.tolist(), state=state), abs=1e-5
    )
    assert (
        beam_search(cell, state=state, first=0, length=4, beam_width=3).log_p[0]
        >= said.log_p - 1e-6
    )


def test_a_model_speaks_by_its_cell():
    assert (
        greedy(Recurrent(CELL), first=1, length=4).tokens.tolist()
        == greedy(CELL, first=1, length=4).tokens.tolist()
    )


def test_settings_may_be_traced():
    drawn = jax.jit(
        lambda heat: (
            sample(CELL, first=0, length=2, temperature=heat, top_p=heat, key=jr.key(0)).tokens
        )
    )
    assert drawn(1e-3).tolist() == greedy(CELL, first=0, length=2).tokens.tolist()


@pytest.mark.parametrize(
    "speak", [greedy, partial(sample, key=jr.key(0)), partial(beam_search, beam_width=2)]
)
def test_tokens_of_another_vocabulary(speak):
    with pytest.raises(ValueError, match="first must be a token from 0 to 2; got 9"):
        speak(CELL, first=9, length=2)
    with pytest.raises(ValueError, match="end must be a token from 0 to 2; got 3"):
        speak(CELL, first=0, length=2, end=3)


def test_bad_settings():
    with pytest.raises(ValueError, match="length must be more than 0; got 0"):
        greedy(CELL, first=0, length=0)
    with pytest.raises(ValueError, match="beam_width must be more than 0"):
        beam_search(CELL, first=0, length=2, beam_width=0)
    with pytest.raises(ValueError, match="temperature must be more than 0"):
        sample(CELL, first=0, length=2, temperature=0.0, key=jr.key(0))
    with pytest.raises(ValueError, match="top_p is a probability"):
        sample(CELL, first=0, length=2, top_p=1.5, key=jr.key(0))
