r"""N-gram language models (L10 §A): $p(x_t \mid x_{t-N}, \dots, x_{t-1})$ from counts.

With $c$ the count of a context, $c_x$ that of the context followed by $x$, $k$ the number of
distinct tokens that followed, and $p'$ the same with the context one token shorter,

$$p(x) = \frac{\max(c_x - \delta, 0)}{c} + \frac{\delta k}{c}\, p'(x),$$

down to the uniform distribution; for a context without counts, $p = p'$. This is absolute
discounting: a part $\delta$ of every count goes to unseen tokens (Ney et al. 1994).
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...layers import expect_tokens

MAX_KEY = 2**31 - 1  # of the integers that encode a context and its next token


class NGram(eqx.Module):
    r"""A Markov model of order $N$ as a cell: it reads a token and returns $\log p$ of the next.

    The counts form a tree. `ngrams[k]` holds in increasing order, for each $(k+1)$-gram, the index
    of its context in `ngrams[k - 1]` times the vocabulary size plus its last token; `counts[k]` are
    their counts. A token outside the vocabulary raises `ValueError`, or gives NaN if it is traced.

    Departs: the lecture prints $N + 1$ tokens as the context of an order-$N$ model.

    >>> cell = NGram.fit([0, 1, 0, 1, 0, 2], vocab_size=3, order=1, discount=0.0)
    >>> _, log_p = cell(cell.start, jnp.array(0))
    >>> jnp.exp(log_p).round(3).tolist()
    [0.0, 0.667..., 0.333...]
    """

    ngrams: tuple[Int[Array, " _"], ...]
    counts: tuple[Float[Array, " _"], ...]
    vocab_size: int = eqx.field(static=True)
    discount: float = eqx.field(static=True, default=0.75)

    @classmethod
    def fit(cls, tokens: Any, *, vocab_size: int, order: int, discount: float = 0.75) -> "NGram":
        """Counts the n-grams of up to `order` + 1 tokens in one text or a list of texts."""
        texts = [np.asarray(text) for text in (tokens if _is_list_of_texts(tokens) else [tokens])]
        _check(texts, vocab_size, order, discount)
        ngrams = []
        counts = []
        contexts = [np.zeros(len(text), np.int64) for text in texts]  # index per token
        for k in range(order + 1):
            keys = [context * vocab_size + text[k:] for context, text in zip(contexts, texts)]
            unique, times = np.unique(np.concatenate(keys), return_counts=True)
            if unique[-1] > MAX_KEY:
                raise ValueError(
                    f"NGram.fit: order={order} gives too many contexts of {vocab_size} tokens. "
                    "Choose a lower order."
                )
            ngrams.append(jnp.asarray(unique, jnp.int32))
            counts.append(jnp.asarray(times, jnp.zeros(()).dtype))
            # the last n-gram of a text is not a context, as no token follows
            contexts = [np.searchsorted(unique, key)[:-1] for key in keys]
        return cls(tuple(ngrams), tuple(counts), vocab_size, discount)

    @property
    def order(self) -> int:
        """$N$, the number of tokens in a context."""
        return len(self.ngrams) - 1

    @property
    def start(self) -> Int[Array, " _"]:
        """The initial state: indices of the contexts of 0, 1, ... tokens, -1 if there is none."""
        return jnp.full(self.order + 1, -1, jnp.int32).at[0].set(0)

    def __call__(
        self, state: Int[Array, " _"], token: Int[Array, ""]
    ) -> tuple[Int[Array, " _"], Float[Array, " v"]]:
        expect_tokens("NGram", token, self.vocab_size)
        longer = [self._index(k, state[k], token) for k in range(self.order)]
        state = jnp.stack([jnp.zeros((), jnp.int32), *longer])
        p = jnp.full(self.vocab_size, 1 / self.vocab_size, self.counts[0].dtype)
        for k in range(self.order + 1):
            p = self._interpolate(k, state[k], p)
        return state, jnp.where((token >= -1) & (token < self.vocab_size), jnp.log(p), jnp.nan)

    def _index(self, k: int, context: Int[Array, ""], token: Int[Array, "*s"]) -> Int[Array, "*s"]:
        """The index of a context followed by a token among the $(k + 1)$-grams; -1 if unseen."""
        key = context * self.vocab_size + token
        index = jnp.searchsorted(self.ngrams[k], key).astype(jnp.int32)
        exists = (self.ngrams[k].at[index].get(mode="clip") == key) & (context >= 0) & (token >= 0)
        return jnp.where(exists, index, -1)

    def _interpolate(
        self, k: int, context: Int[Array, ""], shorter: Float[Array, " v"]
    ) -> Float[Array, " v"]:
        index = self._index(k, context, jnp.arange(self.vocab_size, dtype=jnp.int32))
        c = jnp.where(index >= 0, self.counts[k].at[index].get(mode="clip"), 0)
        total = c.sum()
        n_distinct = (c > 0).sum().astype(c.dtype)
        discounted = jnp.maximum(c - self.discount, 0) + self.discount * n_distinct * shorter
        return jnp.where(total > 0, discounted / jnp.maximum(total, 1), shorter)


def _is_list_of_texts(tokens: Any) -> bool:
    return isinstance(tokens, Sequence) and len(tokens) > 0 and np.ndim(tokens[0]) == 1


def _check(texts: list[np.ndarray], vocab_size: int, order: int, discount: float) -> None:
    if order < 0 or not 0 <= discount < 1:
        raise ValueError(
            f"NGram.fit: order must be >= 0 and discount in [0, 1); got {order} and {discount}."
        )
    for text in texts:
        if text.ndim != 1 or not np.issubdtype(text.dtype, np.integer):
            raise ValueError(
                f"NGram.fit: expected a row of integers; got {text.dtype}{text.shape}."
            )
        if len(text) <= order:
            raise ValueError(
                f"NGram.fit: every text needs at least order + 1 = {order + 1} tokens; got "
                f"{len(text)}."
            )
        if text.min() < 0 or text.max() >= vocab_size:
            raise ValueError(
                f"NGram.fit: tokens must lie between 0 and {vocab_size - 1}; got {text.min()} to "
                f"{text.max()}."
            )
