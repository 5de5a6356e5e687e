"""Counts by hand, the smoothing by its formula, and the order of a Markov chain found."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import unroll
from thetax.models import NGram, greedy, sample

TEXT = np.random.default_rng(0).integers(0, 4, 60)


def by_hand(text, context, order, discount, size=4):
    """The recursion over contexts, with counters."""
    p = np.full(size, 1 / size)
    for k in range(min(order, len(context)) + 1):
        ending = tuple(context[len(context) - k :])
        grams = Counter(tuple(text[i : i + k + 1]) for i in range(len(text) - k))
        c = np.array([grams[(*ending, x)] for x in range(size)], float)
        if c.sum():
            p = (np.maximum(c - discount, 0) + discount * (c > 0).sum() * p) / c.sum()
    return p


@pytest.mark.parametrize(("order", "discount"), [(0, 0.5), (1, 0.0), (2, 0.75), (3, 0.4)])
def test_it_is_the_recursion(order, discount):
    cell = NGram.fit(TEXT, vocab_size=4, order=order, discount=discount)
    read = [1, 3, 0, 0, 2]
    _, logits = unroll(cell, jnp.array(read))
    expected = [by_hand(TEXT, read[: t + 1], order, discount) for t in range(len(read))]
    np.testing.assert_allclose(jnp.exp(logits), expected, atol=1e-6)
    np.testing.assert_allclose(jnp.exp(logits).sum(axis=1), 1, atol=1e-5)


def test_several_texts_are_counted_apart():
    both = NGram.fit([[0, 1], [2, 3]], vocab_size=4, order=1, discount=0.0)
    _, log_p = both(both.start, jnp.array(1))
    np.testing.assert_allclose(jnp.exp(log_p), 0.25)  # nothing followed 1, not even 2
    _, log_p = both(both.start, jnp.array(0))
    assert jnp.exp(log_p).tolist() == [0, 1, 0, 0]


@pytest.mark.slow
def test_the_order_of_a_chain_is_found():
    """Text of a chain of order 2: bits fall up to order 2 and no further."""
    rng = np.random.default_rng(1)
    law = rng.dirichlet(np.full(3, 0.2), (3, 3))
    text = [0, 1]
    for _ in range(20_000):
        text.append(rng.choice(3, p=law[text[-2], text[-1]]))
    text = np.array(text)
    held = text[-4000:]

    def bits(order):
        cell = NGram.fit(text[:-4000], vocab_size=3, order=order)
        logits = jax.jit(lambda cell, xs: unroll(cell, xs)[1])(
            cell, jnp.asarray(held[:-1], jnp.int32)
        )
        return -np.mean(np.asarray(logits)[np.arange(len(held) - 1), held[1:]]) / np.log(2)

    found = [bits(order) for order in range(5)]
    assert found[0] > found[1] > found[2]
    assert found[2] < min(found[3:]) + 0.005
    chain = -np.mean(np.log2([law[a, b, c] for a, b, c in zip(held, held[1:], held[2:])]))
    assert found[2] == pytest.approx(chain, abs=0.02)


def test_it_speaks():
    cell = NGram.fit(
        list(itertools.islice(itertools.cycle([0, 1, 1, 2]), 40)),
        vocab_size=3,
        order=2,
        discount=0.1,
    )
    assert greedy(cell, start_token=0, max_new_tokens=6).tokens.tolist() == [1, 1, 2, 0, 1, 1]
    assert sample(cell, start_token=0, max_new_tokens=6, key=jr.key(0)).tokens.shape == (6,)


def test_a_token_of_another_vocabulary():
    cell = NGram.fit(TEXT, vocab_size=4, order=1)
    with pytest.raises(
        ValueError, match="NGram: the tokens must lie between 0 and 3, or be -1 for padding; got 9"
    ):
        cell(cell.start, jnp.array(9))
    _, logits = unroll(cell, jnp.array([0, 9, -1]))
    assert np.isnan(logits[1]).all(), "never a silent guess"
    assert np.isfinite(logits[jnp.array([0, 2])]).all()


def test_bad_input():
    with pytest.raises(ValueError, match="between 0 and 2; got 0 to 3"):
        NGram.fit(TEXT, vocab_size=3, order=1)
    with pytest.raises(ValueError, match=r"at least order \+ 1 = 3 tokens; got 2"):
        NGram.fit([0, 1], vocab_size=2, order=2)
    with pytest.raises(ValueError, match="discount in"):
        NGram.fit(TEXT, vocab_size=4, order=1, discount=1.0)
    with pytest.raises(ValueError, match="expected a row of integers"):
        NGram.fit(np.ones(4), vocab_size=4, order=1)
    with pytest.raises(ValueError, match="gives too many contexts"):
        NGram.fit(np.arange(50_000), vocab_size=50_000, order=1)
