r"""Streaming: a language model continues a prompt, a few tokens at a time, with a KV cache (§6.4).

The prompt is read in one pass and its keys and values are cached, so no token is computed twice.
Lengths are rounded up to multiples of `BLOCK`, so that a longer prompt or another number of tokens
rarely needs another compiled program.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ...check import expect_count
from ...core import upcast
from ..transformers.gpt import GPT, Decoder
from ..transformers.transformer import KVCache
from .decoding import check_sampling, filter_logits

BLOCK = 128  # cache lengths are multiples of it


def stream(
    model: GPT,
    prompt: Any,
    *,
    max_new_tokens: int,
    end_tokens: tuple[int, ...] = (),
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    chunk_size: int = 4,
    key: PRNGKeyArray | None = None,
) -> Iterator[int]:
    """Yields at most `max_new_tokens` tokens after the prompt, up to the first of `end_tokens`.

    With a key the tokens are those of `sample`, without one those of `greedy`. They are computed in
    chunks of `chunk_size` while the caller consumes them. An end token is yielded too.

    >>> model = GPT.init(11, 8, depth=1, heads=2, max_length=12, key=jr.key(0))
    >>> tokens = list(stream(model, [3, 1, 4], max_new_tokens=5))
    >>> len(tokens), set(tokens) <= set(range(11))
    (5, True)
    """
    prompt = np.asarray(prompt, np.int32)
    vocab_size = len(model.embed.E)
    if prompt.ndim != 1 or not len(prompt) or prompt.min() < 0 or prompt.max() >= vocab_size:
        raise ValueError(
            f"stream: prompt must be a non-empty row of tokens from 0 to {vocab_size - 1}; got "
            f"{np.array2string(prompt, threshold=8, separator=', ')}."
        )
    expect_count("stream", max_new_tokens=max_new_tokens, chunk_size=chunk_size)
    check_sampling("stream", temperature, top_k, top_p)
    length = len(prompt) + max_new_tokens
    max_length = length if model.positions is None else len(model.positions.P)
    if length > max_length:
        raise ValueError(
            f"stream: the model has {max_length} positions; got a prompt of {len(prompt)} tokens "
            f"and max_new_tokens={max_new_tokens}. Shorten one of them."
        )
    cache_length = -(-(length + chunk_size) // BLOCK) * BLOCK
    if model.positions is not None:
        cache_length = min(cache_length, max_length)
    return _stream_chunks(
        model,
        prompt,
        cache_length,
        max_new_tokens,
        end_tokens,
        key,
        temperature,
        top_k,
        top_p,
        chunk_size,
    )


def _stream_chunks(
    model,
    prompt,
    cache_length,
    max_new_tokens,
    end_tokens,
    key,
    temperature,
    top_k,
    top_p,
    chunk_size,
) -> Iterator[int]:
    padded = np.full(min(-(-len(prompt) // BLOCK) * BLOCK, cache_length), -1, np.int32)
    padded[: len(prompt) - 1] = prompt[:-1]
    cache = _read_prompt(model, jnp.asarray(padded), len(prompt) - 1, cache_length=cache_length)
    last = jnp.asarray(prompt[-1])
    # padded to four, so that the number of end tokens rarely changes the compiled program
    end_tokens = jnp.asarray([*end_tokens, *[-1] * (4 - len(end_tokens))], jnp.int32)
    for start in range(0, max_new_tokens, chunk_size):
        tokens, cache, last, ended = _generate_chunk(
            Decoder(model, cache_length),
            cache,
            last,
            start,
            end_tokens,
            key,
            temperature,
            top_p,
            chunk_size=chunk_size,
            top_k=top_k,
        )
        for token in np.asarray(tokens).tolist()[: max_new_tokens - start]:
            if token >= 0:
                yield token
        if ended:
            return


@partial(jax.jit, static_argnames="cache_length")
def _read_prompt(model: GPT, tokens: Int[Array, " t"], n: Any, *, cache_length: int) -> KVCache:
    """The KV cache after the first `n` tokens.

    Padding is written to the cache too, but overwritten before it is attended to.
    """
    cache = model._extend(tokens, model.trunk.empty_cache(cache_length))[1]
    return cache._replace(count=jnp.asarray(n, cache.count.dtype))


@partial(jax.jit, static_argnames=("chunk_size", "top_k"), donate_argnums=1)
def _generate_chunk(
    cell: Decoder,
    cache: KVCache,
    last: Any,
    start: Any,
    end_tokens: Any,
    key: Any,
    temperature: Any,
    top_p: Any,
    *,
    chunk_size: int,
    top_k: Any,
) -> tuple[Int[Array, " n"], KVCache, Int[Array, ""], Any]:
    """The next `chunk_size` tokens, padded with -1 after an end token."""

    def unfinished(carry):
        i, _, _, _, ended = carry
        return (i < chunk_size) & ~ended

    def step(carry):
        i, cache, tokens, last, _ = carry
        cache, logits = cell(cache, last)
        if key is None:
            token = jnp.argmax(logits)
        else:
            scaled = filter_logits(upcast(logits) / temperature, top_k, top_p)
            token = jr.categorical(jr.fold_in(key, start + i), scaled)
        token = token.astype(jnp.int32)
        return i + 1, cache, tokens.at[i].set(token), token, (token == end_tokens).any()

    carry = (0, cache, jnp.full(chunk_size, -1, jnp.int32), last, jnp.array(False))
    _, cache, tokens, last, ended = jax.lax.while_loop(unfinished, step, carry)
    return tokens, cache, last, ended
