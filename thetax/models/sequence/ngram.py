r"""Counting (L10 §A): the next token given the last few, $p(x_t \mid x_{t-N}, \dots, x_{t-1})$,
from how often it came.

With $c$ the count of a context, $c_x$ that of the context followed by $x$, $k$ the number of
different tokens that followed, and $p'$ the same with the context one token shorter,

$$p(x) = \frac{\max(c_x - \delta, 0)}{c} + \frac{\delta k}{c}\, p'(x),$$

down to the uniform law; where the context never came, $p = p'$. So a part $\delta$ of every count
goes to what was not seen (Ney et al. 1994).
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...layers import expect_tokens

LARGEST = 2**31 - 1  # of the numbers by which a context and its next token are found


class NGram(eqx.Module):
    r"""A Markov model of order $N$ - the last $N$ tokens decide - as a cell: it reads a token and
    puts out $\log p$.

    The counts are a tree: `found[k]` holds, rising, the number of each $k$-gram's context times the
    vocabulary plus its last token, and `counts[k]` how often it came; its place there is its own
    number.

    A token that is not in the vocabulary is refused, or makes NaN where its value is not known yet.

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
        """Counts the runs of up to `order` + 1 tokens in one text, or in each of several (a list of
        texts).
        """
        texts = [np.asarray(text) for text in (tokens if _many(tokens) else [tokens])]
        _check(texts, vocab_size, order, discount)
        found = []
        counts = []
        before = [
            np.zeros(len(text), np.int64) for text in texts
        ]  # the number of the context of each token
        for k in range(order + 1):
            keys = [number * vocab_size + text[k:] for number, text in zip(before, texts)]
            unique, times = np.unique(np.concatenate(keys), return_counts=True)
            if unique[-1] > LARGEST:
                raise ValueError(
                    f"NGram.fit: order {order} makes too many contexts of {vocab_size} "
                    "tokens; choose a lower order."
                )
            found.append(jnp.asarray(unique, jnp.int32))
            counts.append(jnp.asarray(times, jnp.zeros(()).dtype))
            before = [
                np.searchsorted(unique, key)[:-1] for key in keys
            ]  # a context needs a token after it
        return cls(tuple(found), tuple(counts), vocab_size, discount)

    @property
    def order(self) -> int:
        """$N$, how many tokens it remembers."""
        return len(self.ngrams) - 1

    @property
    def start(self) -> Int[Array, " _"]:
        """The numbers of the contexts of 0, 1, ... tokens, -1 where there is none: nothing was
        read.
        """
        return jnp.full(self.order + 1, -1, jnp.int32).at[0].set(0)

    def __call__(
        self, state: Int[Array, " _"], token: Int[Array, ""]
    ) -> tuple[Int[Array, " _"], Float[Array, " v"]]:
        expect_tokens("NGram", token, self.vocab_size)
        longer = [self._number(k, state[k], token) for k in range(self.order)]
        state = jnp.stack([jnp.zeros((), jnp.int32), *longer])
        p = jnp.full(self.vocab_size, 1 / self.vocab_size, self.counts[0].dtype)
        for k in range(self.order + 1):
            p = self._mixed(k, state[k], p)
        return state, jnp.where((token >= -1) & (token < self.vocab_size), jnp.log(p), jnp.nan)

    def _number(self, k: int, context: Int[Array, ""], token: Int[Array, "*s"]) -> Int[Array, "*s"]:
        """The place of a context with a token after it among the $(k + 1)$-grams, -1 if it never
        came.
        """
        key = context * self.vocab_size + token
        place = jnp.searchsorted(self.ngrams[k], key).astype(jnp.int32)
        there = (self.ngrams[k].at[place].get(mode="clip") == key) & (context >= 0) & (token >= 0)
        return jnp.where(there, place, -1)

    def _mixed(
        self, k: int, context: Int[Array, ""], shorter: Float[Array, " v"]
    ) -> Float[Array, " v"]:
        place = self._number(k, context, jnp.arange(self.vocab_size, dtype=jnp.int32))
        c = jnp.where(place >= 0, self.counts[k].at[place].get(mode="clip"), 0)
        total = c.sum()
        kinds = (c > 0).sum().astype(c.dtype)
        seen = (jnp.maximum(c - self.discount, 0) + self.discount * kinds * shorter) / jnp.maximum(
            total, 1
        )
        return jnp.where(total > 0, seen, shorter)


def _many(tokens: Any) -> bool:
    return isinstance(tokens, Sequence) and len(tokens) > 0 and np.ndim(tokens[0]) == 1


def _check(texts: list[np.ndarray], size: int, order: int, discount: float) -> None:
    if order < 0 or not 0 <= discount < 1:
        raise ValueError(
            f"NGram.fit: order must not be negative and 0 <= discount < 1; got {order} and "
            f"{discount}."
        )
    for text in texts:
        if text.ndim != 1 or not np.issubdtype(text.dtype, np.integer):
            raise ValueError(
                f"NGram.fit: expected whole numbers in a row, got {text.dtype}{text.shape}."
            )
        if len(text) <= order:
            raise ValueError(
                f"NGram.fit: a text of {len(text)} tokens has no run of order + 1 = {order + 1}."
            )
        if text.min() < 0 or text.max() >= size:
            raise ValueError(
                f"NGram.fit: tokens must lie between 0 and {size - 1}; got {text.min()} to "
                f"{text.max()}."
            )
