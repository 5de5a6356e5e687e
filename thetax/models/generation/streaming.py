r"""Tokens as they come: a language model that goes on after a prompt, a few tokens at a time
(§6.4).

The prompt is read at once, and its keys and values are kept, so that no token is computed twice.
Lengths are rounded up to whole blocks of places: a longer prompt, or another number of tokens,
seldom needs another compiled program.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ...core import wide
from ..transformers.gpt import GPT, Decoder
from ..transformers.transformer import KVCache
from .decoding import filter_logits

BLOCK = 128  # places


def stream(
    model: GPT,
    prompt: Any,
    *,
    length: int,
    end: tuple[int, ...] = (),
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    chunk: int = 4,
    key: PRNGKeyArray | None = None,
) -> Iterator[int]:
    """At most `length` tokens after the prompt, the likeliest ones without a key, and the last
    of them if it is one of `end`. They are those of `greedy` and `sample`, computed `chunk` at a
    time while the caller reads.

    >>> model = GPT.init(11, 8, depth=1, heads=2, max_length=12, key=jr.key(0))
    >>> said = list(stream(model, [3, 1, 4], length=5))
    >>> len(said), set(said) <= set(range(11))
    (5, True)
    """
    tokens = np.asarray(prompt, np.int32)
    _check(tokens, len(model.embed.E), length, chunk, temperature, top_p)
    total = len(tokens) + length
    most = total if model.positions is None else len(model.positions.P)
    if total > most:
        raise ValueError(
            f"stream: the model has {most} places, but the prompt has {len(tokens)} tokens and "
            f"{length} more are asked for; shorten one of them."
        )
    room = -(-(total + chunk) // BLOCK) * BLOCK
    room = room if model.positions is None else min(room, most)
    return _chunks(model, tokens, room, length, end, key, temperature, top_k, top_p, chunk)


def _check(
    tokens: np.ndarray, size: int, length: int, chunk: int, temperature: float, top_p: float | None
) -> None:
    if tokens.ndim != 1 or not len(tokens) or tokens.min() < 0 or tokens.max() >= size:
        raise ValueError(
            f"stream: the prompt must be tokens from 0 to {size - 1}, at least one of them."
        )
    if length < 1 or chunk < 1 or not temperature > 0:
        raise ValueError(
            f"stream: length, chunk and temperature must be more than 0; got {length}, {chunk} "
            f"and {temperature}."
        )
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"stream: mass is a probability, more than 0 and at most 1; got {top_p}.")


def _chunks(
    model, tokens, room, length, end, key, temperature, top_k, top_p, chunk
) -> Iterator[int]:
    filled = np.full(min(-(-len(tokens) // BLOCK) * BLOCK, room), -1, np.int32)
    filled[: len(tokens) - 1] = tokens[:-1]
    past = _begun(model, jnp.asarray(filled), len(tokens) - 1, room=room)
    last = jnp.asarray(tokens[-1])
    stops = jnp.asarray([*end, *[-1] * (4 - len(end))], jnp.int32)
    for at in range(0, length, chunk):
        said, past, last, over = _chunk(
            Decoder(model, room),
            past,
            last,
            at,
            stops,
            key,
            temperature,
            top_p,
            size=chunk,
            top_k=top_k,
        )
        for token in np.asarray(said).tolist()[: length - at]:
            if token >= 0:
                yield token
        if over:
            return


@partial(jax.jit, static_argnames="room")
def _begun(model: GPT, tokens: Int[Array, " t"], count: Any, *, room: int) -> KVCache:
    """All of the prompt but its last token is read. What is filled up is written too, and written
    over before anything looks at it.
    """
    past = model._extend(tokens, model.trunk.start(room))[1]
    return past._replace(count=jnp.asarray(count, past.count.dtype))


@partial(jax.jit, static_argnames=("size", "top_k"), donate_argnums=1)
def _chunk(
    cell: Decoder,
    past: KVCache,
    last: Any,
    at: Any,
    stops: Any,
    key: Any,
    temperature: Any,
    top_p: Any,
    *,
    size: int,
    top_k: Any,
) -> tuple[Int[Array, " n"], KVCache, Int[Array, ""], Any]:
    """The next `size` tokens; once one of `stops` is said, -1."""

    def going(carry):
        n, _, _, _, over = carry
        return (n < size) & ~over

    def step(carry):
        n, past, said, last, _ = carry
        past, logits = cell(past, last)
        if key is None:
            token = jnp.argmax(logits).astype(jnp.int32)
        else:
            chance = filter_logits(wide(logits) / temperature, top_k, top_p)
            token = jr.categorical(jr.fold_in(key, at + n), chance).astype(jnp.int32)
        return n + 1, past, said.at[n].set(token), token, (token == stops).any()

    begin = (0, past, jnp.full(size, -1, jnp.int32), last, jnp.array(False))
    _, past, said, last, over = jax.lax.while_loop(going, step, begin)
    return said, past, last, over
