r"""Token embeddings: a vector for each token of a vocabulary (L10 §A; Bengio et al. 2003).

A token is an integer from 0 to $V - 1$; -1 is padding.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..core import expect_shape
from .initialise import Initialiser, gaussian

UNIT = gaussian(1.0)
MAX_ROWS_FOR_MATMUL = 64  # on an accelerator, smaller tables are looked up by a matrix product
TILE_SIZE = 128  # accelerators multiply matrices much faster if their sizes are multiples of this


class Embedding(eqx.Module):
    r"""Embedding layer: token $t$ is mapped to $f[E](t) = E^\top e_t$, row $t$ of
    $E \in \mathbb{R}^{V \times d}$, and padding (-1) to the zero vector. Tokens may have any shape.

    A token outside the vocabulary raises an error; inside `jit`, where its value is unknown, its
    vector is NaN.

    >>> layer = Embedding(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> layer(jnp.array([1, 0, -1])).tolist()
    [[3.0, 4.0], [1.0, 2.0], [0.0, 0.0]]
    >>> layer(jnp.array([2]))
    Traceback (most recent call last):
    ValueError: Embedding: the tokens must lie between 0 and 1, or be -1 for padding; got 2. ...
    """

    E: Float[Array, "v d"]

    @classmethod
    def init(
        cls, vocab_size: int, d: int, *, initialiser: Initialiser = UNIT, key: PRNGKeyArray
    ) -> "Embedding":
        """Draws vectors of width `d` for a vocabulary of `vocab_size` tokens."""
        return cls(initialiser(key, (vocab_size, d)))

    def __check_init__(self):
        if self.E.ndim != 2:
            raise ValueError(
                f"Embedding: E must be (v, d), one row for each token; got {self.E.shape}."
            )

    def __call__(self, tokens: Int[Array, "*s"]) -> Float[Array, "*s d"]:
        if not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise ValueError(
                f"Embedding: tokens must be integers; got {tokens.dtype}. Encode the text with a "
                "tokeniser."
            )
        expect_tokens("Embedding", tokens, len(self.E))
        if len(self.E) <= MAX_ROWS_FOR_MATMUL and jax.default_backend() != "cpu":
            return self._lookup_by_matmul(tokens)
        rows = self.E.at[tokens].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        return jnp.where((tokens == -1)[..., None], jnp.zeros_like(rows), rows)

    def _lookup_by_matmul(self, tokens: Int[Array, "*s"]) -> Float[Array, "*s d"]:
        """The lookup as a product with one-hot vectors, so its gradient is a product too: a
        scatter-add of many tokens into few rows is slow on an accelerator.
        """
        rows = jnp.arange(len(self.E), dtype=jnp.int32).reshape(*[1] * tokens.ndim, -1)
        one_hot = (tokens[..., None].astype(jnp.int32) == rows).astype(self.E.dtype)
        invalid = (tokens < -1) | (tokens >= len(self.E))
        return jnp.where(
            invalid[..., None], jnp.nan, jnp.matmul(one_hot, self.E, precision="highest")
        )

    def logits(self, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
        r"""$xE^\top$, the logits of all tokens for each vector: an output layer that shares its
        weights with the embedding (weight tying; Press & Wolf 2017).

        >>> Embedding(jnp.array([[1.0, 2.0], [3.0, 4.0]])).logits(jnp.array([[1.0, 0.0]])).tolist()
        [[1.0, 3.0]]
        """
        v, d = self.E.shape
        expect_shape("Embedding", x, ("t", d))
        padding = 0 if jax.default_backend() == "cpu" else -v % TILE_SIZE
        E = jnp.pad(self.E, ((0, padding), (0, 0)))
        return jnp.tensordot(x, E, axes=((1,), (1,)))[:, :v]


def expect_tokens(name: str, tokens: Int[Array, "*s"], vocab_size: int) -> None:
    """Raises `ValueError` unless every token is in the vocabulary or -1.

    Traced tokens, whose values are unknown, are not checked.

    >>> expect_tokens("Embedding", jnp.array([0, 7]), 5)
    Traceback (most recent call last):
    ValueError: Embedding: the tokens must lie between 0 and 4, or be -1 for padding; got 7. ...
    """
    if isinstance(tokens, Tracer) or not tokens.size:
        return
    values = np.asarray(tokens)  # NumPy, since inside jit the results of JAX would be traced
    low = int(values.min())
    high = int(values.max())
    if low < -1 or high >= vocab_size:
        raise ValueError(
            f"{name}: the tokens must lie between 0 and {vocab_size - 1}, or be -1 for padding; "
            f"got {low if low < -1 else high}. Encode the text with the tokeniser of this model."
        )
