r"""What a language model says by itself, and how surprised it is by what others wrote (§5.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..core import Batch
from ..layers import unroll
from ..models import sample


@dataclass(frozen=True)
class Speech:
    r"""Texts that were drawn, and $-\log_2 p(y_t)$ of given texts after $t$ tokens, on average over a stretch of them.

    `until` has the last $t$ of each stretch; the stretches double in length.
    """

    texts: tuple[str, ...]
    temperature: float
    until: Float[np.ndarray, " k"]
    bits: Float[np.ndarray, " k"]


def speech(
    cell: Any,
    data: Batch,
    names: Sequence[str],
    *,
    count: int = 3,
    length: int = 300,
    temperature: float = 0.7,
    first: int = 0,
    key: PRNGKeyArray,
) -> Speech:
    r"""Lets a cell that reads tokens speak `count` times from its start, after the token `first`, and listen to `data`.

    `data` is a pair of tokens `n t` and of what follows each, -1 where nothing does; `names` are the tokens' own.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0], size=3, order=1, discount=0.0)
    >>> data = jnp.array([[0, 1, 2, 0]]), jnp.array([[1, 2, 0, 1]])
    >>> found = speech(cell, data, "abc", count=2, length=5, key=jr.key(0))
    >>> found.texts, found.bits.tolist(), found.until.tolist()
    (('bcabc', 'bcabc'), [0.0, 0.0, 0.0], [1.0, 2.0, 4.0])
    """
    if count < 1:
        raise ValueError(f"speech: count must be at least 1; got {count}.")
    one = lambda key: sample(cell, first=first, length=length, temperature=temperature, key=key).tokens
    said = np.asarray(jax.jit(jax.vmap(one))(jr.split(key, count)))
    if said.max() >= len(names):
        raise ValueError(f"speech: the model says tokens up to {said.max()}, but only {len(names)} have names.")
    texts = tuple("".join([str(names[token]) for token in row if token >= 0]) for row in said.tolist())
    losses, there = (np.asarray(part, np.float64) for part in _surprise(cell, *map(jnp.asarray, data)))
    ends = np.unique([*(2 ** np.arange(int(np.log2(losses.shape[1])) + 1)), losses.shape[1]])
    total = lambda a: np.diff(np.concatenate([[0.0], np.cumsum(a.sum(axis=0))])[[0, *ends]])
    return Speech(texts, temperature, ends.astype(float), total(losses) / np.maximum(total(there), 1))


@jax.jit
def _surprise(cell: Any, xs: Any, ys: Any) -> Any:
    r"""$-\log_2 p$ of every target, 0 where there is none, and where there is one."""
    logits = jax.vmap(lambda x: unroll(cell, x, mask=x >= 0)[1])(xs)
    log_p = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(ys, 0)[..., None], axis=2)[..., 0]
    return jnp.where(ys >= 0, -log_p / jnp.log(2.0), 0), ys >= 0
