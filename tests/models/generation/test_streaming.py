"""Tokens as they come are those of the loops that say all at once; a sentence is the mean of its
tokens.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.models import BERT, GPT, SentenceEncoder, greedy, sample, stream
from thetax.models.generation.streaming import _chunk

PROMPT = [3, 1, 4]


def drawn(make):
    """Sure enough of itself that no two tokens are about as likely."""
    like = jax.eval_shape(partial(make, key=jr.key(0)))
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), like)


@pytest.fixture(scope="module")
def llama() -> GPT:
    return drawn(partial(GPT.llama, 11, 8, depth=2, heads=2, groups=1, hidden=8))


@pytest.fixture(scope="module")
def gpt2() -> GPT:
    return drawn(partial(GPT.init, 11, 8, depth=1, heads=2, max_length=12))


def at_once(model, say, length: int, **options) -> list[int]:
    cell, state = jax.jit(partial(GPT.decoder, length=12))(model, jnp.array(PROMPT[:-1]))
    return say(cell, state=state, first=PROMPT[-1], length=length, **options).tokens.tolist()


@pytest.mark.slow
def test_they_are_those_said_at_once(llama):
    said = at_once(llama, greedy, 7)
    assert list(stream(llama, PROMPT, length=7, chunk=3)) == said
    end = said[4]
    assert list(stream(llama, PROMPT, length=7, chunk=3, end=(end,))) == said[: said.index(end) + 1]
    never = tuple(set(range(11)) - set(said))[:2]
    count = _chunk._cache_size()
    assert list(stream(llama, PROMPT, length=7, chunk=3, end=never)) == said
    list(stream(llama, [2, 7], length=6, chunk=3))
    assert _chunk._cache_size() == count  # another prompt, length or end needs no other program


def test_drawn_they_are_those_of_sample_up_to_the_last_place(gpt2):
    """The last chunk reaches beyond the places of the model, but not what is said."""
    options = {"temperature": 3.0, "top_k": 5, "top_p": 0.9, "key": jr.key(7)}
    said = list(stream(gpt2, PROMPT, length=9, chunk=4, **options))
    assert said == at_once(gpt2, sample, 9, **options)
    assert said != list(stream(gpt2, PROMPT, length=9, chunk=4, **options | {"key": jr.key(8)}))
    with pytest.raises(
        ValueError,
        match="the model has 12 places, but the prompt has 3 tokens and 10 more are asked",
    ):
        stream(gpt2, PROMPT, length=10)


@pytest.mark.parametrize(
    ("prompt", "options", "says"),
    [
        ([], {}, "the prompt must be tokens from 0 to 10, at least one"),
        ([11], {}, "the prompt must be tokens from 0 to 10"),
        ([-1], {}, "the prompt must be tokens from 0 to 10"),
        ([1], {"length": 0}, "length, chunk and temperature must be more than 0; got 0, 4 and 1.0"),
        ([1], {"temperature": 0.0}, "must be more than 0; got 3, 4 and 0.0"),
        ([1], {"top_p": 1.5}, "top_p is a probability, more than 0 and at most 1; got 1.5"),
    ],
)
def test_what_cannot_be_said_is_refused(gpt2, prompt, options, says):
    with pytest.raises(ValueError, match=says):
        stream(gpt2, prompt, **{"length": 3, **options})


def test_a_sentence_is_the_mean_of_its_tokens():
    bert = drawn(partial(BERT.init, 11, 8, depth=1, heads=2, max_length=6))
    mean = np.asarray(jax.jit(BERT.__call__)(bert, jnp.array([1, 4, 2]))).mean(axis=0)
    found = jax.jit(SentenceEncoder.__call__)(SentenceEncoder(bert), jnp.array([1, 4, 2, -1, -1]))
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-5)
