r"""A cell that speaks: each token is chosen by the logits it gave, and read by it next (§5.3).

Each way is one compiled loop that ends when all has been said. The cell is any that reads a token
and puts out the logits of the next: a `NextToken` or the `Recurrent` made of it, an `NGram`, or
what a model makes of a source, `cell, state = model.decoder(source)`. What is said ends with the
token `end`, and -1 follows.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import wide
from ...layers import Recurrent


class GeneratedTokens(NamedTuple):
    """Tokens, and the logarithm of their probability under the cell; of a `beam_search` several,
    the best first.
    """

    tokens: Int[Array, "*w t"]
    log_p: Float[Array, "*w"]


def greedy(
    cell: Any, *, first: int, length: int, end: int | None = None, state: Any = None
) -> GeneratedTokens:
    """The likeliest token, again and again.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0, 1, 2], vocab_size=3, order=2)
    >>> greedy(cell, first=0, length=5).tokens.tolist()
    [1, 2, 0, 1, 2]
    >>> greedy(cell, first=0, length=5, end=2).tokens.tolist()
    [1, 2, -1, -1, -1]
    """
    _check("greedy", length=length)
    cell, state = _begin("greedy", cell, state, first, end)
    return _speak(cell, state, first, end, None, 1.0, None, length=length, top_k=None)


def sample(
    cell: Any,
    *,
    first: int,
    length: int,
    end: int | None = None,
    state: Any = None,
    temperature: Any = 1.0,
    top_k: int | None = None,
    top_p: Any = None,
    key: PRNGKeyArray,
) -> GeneratedTokens:
    r"""Tokens drawn from $\mathrm{softmax}(z / T)$: of all, of the `top_k` likeliest, or of the
    fewest that hold the `top_p` (Holtzman et al. 2020). The probability told is that of the cell
    itself.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0, 1, 2], vocab_size=3, order=2)
    >>> sample(cell, first=0, length=4, top_k=1, key=jr.key(0)).tokens.tolist()
    [1, 2, 0, 1]
    """
    _check("sample", length=length, temperature=temperature, top_k=1 if top_k is None else top_k)
    if top_p is not None and not isinstance(top_p, Tracer) and not 0 < top_p <= 1:
        raise ValueError(f"sample: top_p is a probability, more than 0 and at most 1; got {top_p}.")
    cell, state = _begin("sample", cell, state, first, end)
    return _speak(cell, state, first, end, key, temperature, top_p, length=length, top_k=top_k)


def beam_search(
    cell: Any,
    *,
    first: int,
    length: int,
    beam_width: int,
    end: int | None = None,
    state: Any = None,
    length_penalty: int | float = 0.0,
) -> GeneratedTokens:
    r"""The best `beam_width` beginnings are carried on together, and the best of their
    continuations kept: a search for the likeliest sequence, which is exact if nothing had to be
    dropped.

    They are told in the order of $\log p\, / \,n^{\text{penalty}}$ with $n$ tokens said; 0 favours
    short ones. Where there are fewer sequences than the beam is wide, the rest have
    $\log p = -\infty$.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0, 1, 2], vocab_size=3, order=2)
    >>> beam_search(cell, first=0, length=3, beam_width=2, end=2).tokens.tolist()[0]
    [1, 2, -1]
    """
    _check("beam_search", length=length, beam_width=beam_width)
    cell, state = _begin("beam_search", cell, state, first, end)
    return _search(cell, state, first, end, length_penalty, length=length, beam_width=beam_width)


def _check(name: str, **least: Any) -> None:
    for argument, value in least.items():
        if not isinstance(value, Tracer) and not value > 0:
            raise ValueError(f"{name}: {argument} must be more than 0; got {value}.")


def _begin(name: str, cell: Any, state: Any, first: Any, end: Any) -> tuple[Any, Any]:
    """The cell (of a `Recurrent`, that within) and the state it begins in, once both tokens are
    known to be its own.
    """
    cell = cell.cell if isinstance(cell, Recurrent) else cell
    state = cell.start if state is None else state
    size = jax.eval_shape(lambda: cell(state, jnp.zeros((), jnp.int32))[1]).shape[-1]
    for argument, token in {"first": first, "end": first if end is None else end}.items():
        if not isinstance(token, Tracer) and not 0 <= token < size:
            raise ValueError(
                f"{name}: {argument} must be a token from 0 to {size - 1}; got {token}."
            )
    return cell, state


@partial(jax.jit, static_argnames=("length", "top_k"))
def _speak(
    cell: Any,
    state: Any,
    first: Any,
    end: Any,
    key: Any,
    temperature: Any,
    top_p: Any,
    *,
    length: int,
    top_k: int | None,
) -> GeneratedTokens:
    """Greedy without a key."""

    def going(carry):
        at, _, _, _, over = carry
        return (at < length) & ~over

    def step(carry):
        at, state, said, log_p, _ = carry
        state, logits = cell(state, jnp.where(at == 0, first, said[at - 1]))
        chance = wide(logits) / temperature
        if key is None:
            token = jnp.argmax(logits).astype(jnp.int32)
        else:
            token = jr.categorical(jr.fold_in(key, at), filter_logits(chance, top_k, top_p)).astype(
                jnp.int32
            )
        over = jnp.array(False) if end is None else token == end
        return (
            at + 1,
            state,
            said.at[at].set(token),
            log_p + jax.nn.log_softmax(wide(logits))[token],
            over,
        )

    said = jnp.full(length, -1, jnp.int32)
    _, _, said, log_p, _ = jax.lax.while_loop(
        going, step, (0, state, said, jnp.zeros((), _kind(cell, state)), jnp.array(False))
    )
    return GeneratedTokens(said, log_p)


def filter_logits(logits: Float[Array, " v"], top_k: int | None, top_p: Any) -> Float[Array, " v"]:
    """The logits of those that may be drawn, minus infinity for the others."""
    if top_k is not None:
        logits = jnp.where(
            logits >= jax.lax.top_k(logits, min(top_k, len(logits)))[0][-1], logits, -jnp.inf
        )
    if top_p is not None:
        falling = jnp.sort(logits, descending=True)
        p = jax.nn.softmax(falling)
        least = jnp.where(jnp.cumsum(p) - p < top_p, falling, jnp.inf).min()
        logits = jnp.where(logits >= least, logits, -jnp.inf)
    return logits


@partial(jax.jit, static_argnames=("length", "beam_width"))
def _search(
    cell: Any,
    state: Any,
    first: Any,
    end: Any,
    length_penalty: Any,
    *,
    length: int,
    beam_width: int,
) -> GeneratedTokens:
    def going(carry):
        at, _, _, _, over = carry
        return (at < length) & ~over.all()

    def step(carry):
        at, states, said, log_p, over = carry
        states, logits = jax.vmap(lambda state, token: cell(state, token))(
            states, jnp.where(at == 0, first, said[:, at - 1])
        )
        gains = jax.nn.log_softmax(wide(logits))
        done = (
            jnp.full(gains.shape[1], -jnp.inf, gains.dtype).at[0].set(0)
        )  # what is over goes on in one way
        totals = log_p[:, None] + jnp.where(over[:, None], done, gains)
        log_p, best = jax.lax.top_k(totals.ravel(), beam_width)
        parent = best // gains.shape[1]
        token = (best % gains.shape[1]).astype(jnp.int32)
        states, said, over = jax.tree.map(lambda a: a[parent], (states, said, over))
        said = said.at[:, at].set(jnp.where(over, -1, token))
        return at + 1, states, said, log_p, over if end is None else over | (token == end)

    copies = jax.tree.map(lambda a: jnp.broadcast_to(a, (beam_width, *a.shape)), state)
    log_p = (
        jnp.full(beam_width, -jnp.inf, _kind(cell, state)).at[0].set(0)
    )  # one beginning, and no copy of it
    said = jnp.full((beam_width, length), -1, jnp.int32)
    _, _, said, log_p, _ = jax.lax.while_loop(
        going, step, (0, copies, said, log_p, jnp.zeros(beam_width, bool))
    )
    order = jnp.argsort(-log_p / (said >= 0).sum(axis=1).astype(log_p.dtype) ** length_penalty)
    return GeneratedTokens(said[order], log_p[order])


def _kind(cell: Any, state: Any) -> Any:
    """The type in which probabilities are summed."""
    return jax.eval_shape(lambda: wide(cell(state, jnp.zeros((), jnp.int32))[1])).dtype
