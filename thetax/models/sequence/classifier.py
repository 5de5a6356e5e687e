r"""Sequence classification (§5): a linear readout of the last output of a recurrent cell."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...layers import LSTM, Embedding, Initialiser, Linear, lecun, unroll


class SequenceClassifier(eqx.Module):
    r"""$x_{1:T} \mapsto Wy_T + b$ with $y_T$ the output of a cell after the last input (§5).

    The inputs are vectors, or tokens if there is an embedding. Tokens may be padded with -1 at the
    end; padding is skipped.

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
        """Initialises `cell(width, m, key=key)` for inputs of that width and `k` classes.

        With `vocab_size` the inputs are tokens, embedded in `width` dimensions.
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
        is_token = x >= 0
        _, ys = unroll(self.cell, self.embed(x), mask=is_token)
        return self.head(ys[jnp.maximum(is_token.sum(), 1) - 1])
