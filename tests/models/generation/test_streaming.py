"""Streamed tokens equal those of `greedy` and `sample`; a sentence vector is the mean of its
tokens.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.models import BERT, GPT, SentenceEncoder, greedy, sample, stream
from thetax.models.generation.streaming import _generate_chunk

PROMPT = [3, 1, 4]


def drawn(make):
    """A model with large random weights, so that no two tokens are about equally likely."""
    like = jax.eval_shape(partial(make, key=jr.key(0)))
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), like)


@pytest.fixture(scope="module")
def llama() -> GPT:
    return drawn(partial(GPT.llama, 11, 8, depth=2, heads=2, kv_heads=1, hidden=8))


@pytest.fixture(scope="module")
def gpt2() -> GPT:
    return drawn(partial(GPT.init, 11, 8, depth=1, heads=2, max_length=12))


def at_once(model, generate, max_new_tokens: int, **options) -> list[int]:
    cell, state = jax.jit(partial(GPT.decoder, max_length=12))(model, jnp.array(PROMPT[:-1]))
    options |= {"start_token": PROMPT[-1], "max_new_tokens": max_new_tokens}
    return generate(cell, state=state, **options).tokens.tolist()


@pytest.mark.slow
def test_streamed_tokens_are_those_of_greedy(llama):
    tokens = at_once(llama, greedy, 7)
    assert list(stream(llama, PROMPT, max_new_tokens=7, chunk_size=3)) == tokens
    end = tokens[4]
    assert (
        list(stream(llama, PROMPT, max_new_tokens=7, chunk_size=3, end_tokens=(end,)))
        == tokens[: tokens.index(end) + 1]
    )
    never = tuple(set(range(11)) - set(tokens))[:2]
    count = _generate_chunk._cache_size()
    assert list(stream(llama, PROMPT, max_new_tokens=7, chunk_size=3, end_tokens=never)) == tokens
    list(stream(llama, [2, 7], max_new_tokens=6, chunk_size=3))
    assert (
        _generate_chunk._cache_size() == count
    )  # another prompt, length or end token needs no new program


def test_streamed_samples_are_those_of_sample_up_to_the_last_position(gpt2):
    """The last chunk goes beyond the positions of the model, but the yielded tokens do not."""
    options = {"temperature": 3.0, "top_k": 5, "top_p": 0.9, "key": jr.key(7)}
    tokens = list(stream(gpt2, PROMPT, max_new_tokens=9, chunk_size=4, **options))
    assert tokens == at_once(gpt2, sample, 9, **options)
    assert tokens != list(
        stream(gpt2, PROMPT, max_new_tokens=9, chunk_size=4, **options | {"key": jr.key(8)})
    )
    with pytest.raises(
        ValueError,
        match="the model has 12 positions; got a prompt of 3 tokens and max_new_tokens=10",
    ):
        stream(gpt2, PROMPT, max_new_tokens=10)


@pytest.mark.parametrize(
    ("prompt", "options", "says"),
    [
        ([], {}, r"prompt must be a non-empty row of tokens from 0 to 10; got \[\]"),
        ([11], {}, r"tokens from 0 to 10; got \[11\]"),
        ([-1], {}, r"tokens from 0 to 10; got \[-1\]"),
        ([1], {"max_new_tokens": 0}, "max_new_tokens must be an integer >= 1; got 0"),
        ([1], {"temperature": 0.0}, "temperature must be > 0; got 0.0"),
        ([1], {"top_p": 1.5}, "top_p must be a probability, 0 < top_p <= 1; got 1.5"),
    ],
)
def test_bad_settings_are_refused(gpt2, prompt, options, says):
    with pytest.raises(ValueError, match=says):
        stream(gpt2, prompt, **{"max_new_tokens": 3, **options})


def test_a_sentence_is_the_mean_of_its_tokens():
    bert = drawn(partial(BERT.init, 11, 8, depth=1, heads=2, max_length=6))
    mean = np.asarray(jax.jit(BERT.__call__)(bert, jnp.array([1, 4, 2]))).mean(axis=0)
    found = jax.jit(SentenceEncoder.__call__)(SentenceEncoder(bert), jnp.array([1, 4, 2, -1, -1]))
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-5)
