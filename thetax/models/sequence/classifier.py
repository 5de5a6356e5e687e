r"""Sequences to answers (§5): a cell reads all of it, and what it put out last is judged."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...layers import LSTM, Embedding, Initialiser, Linear, lecun, unroll


class SequenceClassifier(eqx.Module):
    r"""$x_{1:T} \mapsto Wy_T + b$, with $y_T$ what a cell puts out after the last input (§5).

    The inputs are vectors, or tokens if there is a table for them; tokens may be filled up with -1
    at the end, and these are not read.

    >>> model = SequenceClassifier.init(4, 3, vocab_size=7, width=5, key=jr.key(0))
    >>> import jax
    >>> logits = model(jnp.array([2, 6, 0]))
    >>> bool(jnp.allclose(logits, model(jnp.array([2, 6, 0, -1, -1])), atol=1e-6))
    True
    """

    cell: Any
    head: Linear
    embed: Embedding | None = None

    @classmethod
    def init(
        cls,
        m: int,
        k: int,
        *,
        width: int,
        vocab_size: int | None = None,
        cell: Callable[..., Any] = LSTM.init,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "SequenceClassifier":
        """Draws `cell(width, m, key=key)`, for inputs or vectors of `vocab_size` of that width, and
        $k$ answers.
        """
        key_cell, key_head, key_embed = jr.split(key, 3)
        embed = None if vocab_size is None else Embedding.init(vocab_size, width, key=key_embed)
        return cls(
            cell(width, m, key=key_cell),
            Linear.init(m, k, initialiser=initialiser, key=key_head),
            embed,
        )

    def __call__(self, x: Float[Array, "t n"] | Int[Array, " t"]) -> Float[Array, " k"]:
        if self.embed is None:
            return self.head(unroll(self.cell, x)[1][-1])
        there = x >= 0
        _, ys = unroll(self.cell, self.embed(x), mask=there)
        return self.head(ys[jnp.maximum(there.sum(), 1) - 1])
