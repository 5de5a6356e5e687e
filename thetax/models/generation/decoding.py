r"""Decoding: greedy, sampling with temperature, top-k and top-p, and beam search (§5.3).

Each method is one compiled loop that stops when every sequence has ended. The cell reads a token
and returns the logits of the next: a `LanguageModelCell` or the `Recurrent` made of it, an `NGram`,
or the decoder of a model for one source, `cell, state = model.decoder(source)`. A sequence ends
with `end_token` and is padded with -1.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...check import expect_count
from ...core import upcast
from ...layers import Recurrent


class GeneratedTokens(NamedTuple):
    """Generated tokens, padded with -1, and their log probability under the cell.

    `beam_search` gives one row per beam, the best first.
    """

    tokens: Int[Array, "*w t"]
    log_p: Float[Array, "*w"]


def greedy(
    cell: Any,
    *,
    start_token: int,
    max_new_tokens: int,
    end_token: int | None = None,
    state: Any = None,
) -> GeneratedTokens:
    """Greedy decoding: each token is the most likely one.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0, 1, 2], vocab_size=3, order=2)
    >>> greedy(cell, start_token=0, max_new_tokens=5).tokens.tolist()
    [1, 2, 0, 1, 2]
    >>> greedy(cell, start_token=0, max_new_tokens=5, end_token=2).tokens.tolist()
    [1, 2, -1, -1, -1]
    """
    expect_count("greedy", max_new_tokens=max_new_tokens)
    cell, state = _initial_state("greedy", cell, state, start_token, end_token)
    return _generate(
        cell,
        state,
        start_token,
        end_token,
        None,
        1.0,
        None,
        max_new_tokens=max_new_tokens,
        top_k=None,
    )


def sample(
    cell: Any,
    *,
    start_token: int,
    max_new_tokens: int,
    end_token: int | None = None,
    state: Any = None,
    temperature: Any = 1.0,
    top_k: int | None = None,
    top_p: Any = None,
    key: PRNGKeyArray,
) -> GeneratedTokens:
    r"""Samples each token from $\mathrm{softmax}(z / T)$ with temperature $T$.

    `top_k` restricts the choice to the `top_k` most likely tokens, `top_p` to the smallest set of
    most likely tokens with total probability of at least `top_p` (Holtzman et al. 2020). `log_p` is
    under the cell itself, without temperature or restriction.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0, 1, 2], vocab_size=3, order=2)
    >>> sample(cell, start_token=0, max_new_tokens=4, top_k=1, key=jr.key(0)).tokens.tolist()
    [1, 2, 0, 1]
    """
    expect_count("sample", max_new_tokens=max_new_tokens)
    check_sampling("sample", temperature, top_k, top_p)
    cell, state = _initial_state("sample", cell, state, start_token, end_token)
    return _generate(
        cell,
        state,
        start_token,
        end_token,
        key,
        temperature,
        top_p,
        max_new_tokens=max_new_tokens,
        top_k=top_k,
    )


def beam_search(
    cell: Any,
    *,
    start_token: int,
    max_new_tokens: int,
    beam_width: int,
    end_token: int | None = None,
    state: Any = None,
    length_penalty: int | float = 0.0,
) -> GeneratedTokens:
    r"""Beam search: keeps the `beam_width` most likely prefixes at every step.

    The result is exact if no prefix had to be dropped. The sequences are sorted by
    $\log p\, / \,n^{\text{length\_penalty}}$ with $n$ generated tokens; 0 favours short sequences.
    If fewer than `beam_width` sequences exist, the remaining rows have $\log p = -\infty$.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0, 1, 2], vocab_size=3, order=2)
    >>> beams = beam_search(cell, start_token=0, max_new_tokens=3, beam_width=2, end_token=2)
    >>> beams.tokens.tolist()[0]
    [1, 2, -1]
    """
    expect_count("beam_search", max_new_tokens=max_new_tokens, beam_width=beam_width)
    cell, state = _initial_state("beam_search", cell, state, start_token, end_token)
    return _beam_search(
        cell,
        state,
        start_token,
        end_token,
        length_penalty,
        max_new_tokens=max_new_tokens,
        beam_width=beam_width,
    )


def check_sampling(where: str, temperature: Any, top_k: int | None, top_p: Any) -> None:
    """Raises `ValueError` unless the sampling settings are valid; traced values are not checked."""
    if not isinstance(temperature, Tracer) and not temperature > 0:
        raise ValueError(f"{where}: temperature must be > 0; got {temperature}.")
    if top_k is not None:
        expect_count(where, top_k=top_k)
    if top_p is not None and not isinstance(top_p, Tracer) and not 0 < top_p <= 1:
        raise ValueError(f"{where}: top_p must be a probability, 0 < top_p <= 1; got {top_p}.")


def _initial_state(
    where: str, cell: Any, state: Any, start_token: Any, end_token: Any
) -> tuple[Any, Any]:
    """The cell (the one inside a `Recurrent`) and its initial state; checks both tokens."""
    cell = cell.cell if isinstance(cell, Recurrent) else cell
    state = cell.start if state is None else state
    vocab_size = jax.eval_shape(lambda: cell(state, jnp.zeros((), jnp.int32))[1]).shape[-1]
    for name, token in {"start_token": start_token, "end_token": end_token}.items():
        if token is None or isinstance(token, Tracer):
            continue
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"{where}: {name} must be a token from 0 to {vocab_size - 1}; got {token}."
            )
    return cell, state


@partial(jax.jit, static_argnames=("max_new_tokens", "top_k"))
def _generate(
    cell: Any,
    state: Any,
    start_token: Any,
    end_token: Any,
    key: Any,
    temperature: Any,
    top_p: Any,
    *,
    max_new_tokens: int,
    top_k: int | None,
) -> GeneratedTokens:
    """Samples with the key; greedy if the key is None."""

    def unfinished(carry):
        i, _, _, _, ended = carry
        return (i < max_new_tokens) & ~ended

    def step(carry):
        i, state, tokens, log_p, _ = carry
        state, logits = cell(state, jnp.where(i == 0, start_token, tokens[i - 1]))
        if key is None:
            token = jnp.argmax(logits)
        else:
            scaled = filter_logits(upcast(logits) / temperature, top_k, top_p)
            token = jr.categorical(jr.fold_in(key, i), scaled)
        token = token.astype(jnp.int32)
        tokens = tokens.at[i].set(token)
        log_p = log_p + jax.nn.log_softmax(upcast(logits))[token]
        ended = jnp.array(False) if end_token is None else token == end_token
        return i + 1, state, tokens, log_p, ended

    tokens = jnp.full(max_new_tokens, -1, jnp.int32)
    log_p = jnp.zeros((), _log_p_dtype(cell, state))
    carry = (0, state, tokens, log_p, jnp.array(False))
    _, _, tokens, log_p, _ = jax.lax.while_loop(unfinished, step, carry)
    return GeneratedTokens(tokens, log_p)


def filter_logits(logits: Float[Array, " v"], top_k: int | None, top_p: Any) -> Float[Array, " v"]:
    """The logits of the tokens allowed by `top_k` and `top_p`; minus infinity for the others."""
    if top_k is not None:
        smallest = jax.lax.top_k(logits, min(top_k, len(logits)))[0][-1]
        logits = jnp.where(logits >= smallest, logits, -jnp.inf)
    if top_p is not None:
        descending = jnp.sort(logits, descending=True)
        p = jax.nn.softmax(descending)
        smallest = jnp.where(jnp.cumsum(p) - p < top_p, descending, jnp.inf).min()
        logits = jnp.where(logits >= smallest, logits, -jnp.inf)
    return logits


@partial(jax.jit, static_argnames=("max_new_tokens", "beam_width"))
def _beam_search(
    cell: Any,
    state: Any,
    start_token: Any,
    end_token: Any,
    length_penalty: Any,
    *,
    max_new_tokens: int,
    beam_width: int,
) -> GeneratedTokens:
    def unfinished(carry):
        i, _, _, _, ended = carry
        return (i < max_new_tokens) & ~ended.all()

    def step(carry):
        i, states, tokens, log_p, ended = carry
        states, logits = jax.vmap(lambda state, token: cell(state, token))(
            states, jnp.where(i == 0, start_token, tokens[:, i - 1])
        )
        token_log_p = jax.nn.log_softmax(upcast(logits))
        vocab_size = token_log_p.shape[1]
        # an ended sequence has a single continuation, which leaves its probability unchanged
        padding = jnp.full(vocab_size, -jnp.inf, token_log_p.dtype).at[0].set(0)
        totals = log_p[:, None] + jnp.where(ended[:, None], padding, token_log_p)
        log_p, best = jax.lax.top_k(totals.ravel(), beam_width)
        parent = best // vocab_size
        token = (best % vocab_size).astype(jnp.int32)
        states, tokens, ended = jax.tree.map(lambda a: a[parent], (states, tokens, ended))
        tokens = tokens.at[:, i].set(jnp.where(ended, -1, token))
        if end_token is not None:
            ended = ended | (token == end_token)
        return i + 1, states, tokens, log_p, ended

    states = jax.tree.map(lambda a: jnp.broadcast_to(a, (beam_width, *a.shape)), state)
    # only the first beam has probability at the start, so the copies are not duplicates
    log_p = jnp.full(beam_width, -jnp.inf, _log_p_dtype(cell, state)).at[0].set(0)
    tokens = jnp.full((beam_width, max_new_tokens), -1, jnp.int32)
    carry = (0, states, tokens, log_p, jnp.zeros(beam_width, bool))
    _, _, tokens, log_p, _ = jax.lax.while_loop(unfinished, step, carry)
    lengths = (tokens >= 0).sum(axis=1).astype(log_p.dtype)
    order = jnp.argsort(-log_p / lengths**length_penalty)
    return GeneratedTokens(tokens[order], log_p[order])


def _log_p_dtype(cell: Any, state: Any) -> Any:
    """The dtype in which log probabilities are summed."""
    return jax.eval_shape(lambda: upcast(cell(state, jnp.zeros((), jnp.int32))[1])).dtype
