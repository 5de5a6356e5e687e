r"""What a language model says by itself, and how surprised it is by what others wrote (§5.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ...core import Batch
from ...layers import unroll
from ...models import GPT, sample

BLOCK = 16  # texts whose logits are held at once


@dataclass(frozen=True)
class Speech:
    r"""Texts that were drawn, and $-\log_2 p(y_t)$ of given texts after $t$ tokens, on average over
    a stretch of them.

    `until` has the last $t$ of each stretch; the stretches double in length.
    """

    texts: tuple[str, ...]
    temperature: float
    until: Float[np.ndarray, " k"]
    bits: Float[np.ndarray, " k"]
    top_p: float | None = None


def speech(
    model: Any,
    data: Batch,
    names: Sequence[str],
    *,
    count: int = 3,
    length: int = 300,
    temperature: float = 0.7,
    top_p: float | None = None,
    first: int = 0,
    key: PRNGKeyArray,
) -> Speech:
    r"""Lets a cell that reads tokens, or a `GPT`, which makes one, speak `count` times from its
    start, after the token `first`, and listen to `data`. It draws from the fewest tokens that hold
    the `top_p`, or from all.

    `data` is a pair of tokens `n t` and of what follows each, -1 where nothing does; `names` are
    the tokens' own.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0], vocab_size=3, order=1, discount=0.0)
    >>> data = jnp.array([[0, 1, 2, 0]]), jnp.array([[1, 2, 0, 1]])
    >>> found = speech(cell, data, "abc", count=2, length=5, key=jr.key(0))
    >>> found.texts, found.bits.tolist(), found.until.tolist()
    (('bcabc', 'bcabc'), [0.0, 0.0, 0.0], [1.0, 2.0, 4.0])
    """
    if count < 1:
        raise ValueError(f"speech: count must be at least 1; got {count}.")
    cell, state = model.decoder(length=length) if isinstance(model, GPT) else (model, None)
    draw = partial(sample, first=first, length=length, temperature=temperature, top_p=top_p)
    said = np.asarray(
        jax.jit(jax.vmap(lambda key: draw(cell, state=state, key=key).tokens))(jr.split(key, count))
    )
    if said.max() >= len(names):
        raise ValueError(
            f"speech: the model says tokens up to {said.max()}, but only {len(names)} have names."
        )
    texts = tuple(
        "".join([str(names[token]) for token in row if token >= 0]) for row in said.tolist()
    )
    losses, there = (
        np.asarray(part, np.float64) for part in _surprise(model, *map(jnp.asarray, data))
    )
    ends = np.unique([*(2 ** np.arange(int(np.log2(losses.shape[1])) + 1)), losses.shape[1]])
    total = lambda a: np.diff(np.concatenate([[0.0], np.cumsum(a.sum(axis=0))])[[0, *ends]])
    return Speech(
        texts, temperature, ends.astype(float), total(losses) / np.maximum(total(there), 1), top_p
    )


@jax.jit
def _surprise(model: Any, xs: Any, ys: Any) -> Any:
    r"""$-\log_2 p$ of every target, 0 where there is none, and where there is one."""

    def one(text):
        x, y = text
        logits = model(x) if isinstance(model, GPT) else unroll(model, x, mask=x >= 0)[1]
        log_p = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(y, 0)[:, None], axis=1)[
            :, 0
        ]
        return jnp.where(y >= 0, -log_p / jnp.log(2.0), 0)

    return jax.lax.map(one, (xs, ys), batch_size=BLOCK), ys >= 0
