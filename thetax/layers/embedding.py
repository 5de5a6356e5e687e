r"""Words as vectors: the row of a table for each token (L10 §A; Bengio et al. 2003).

A token is a whole number from 0 to $V - 1$, and -1 stands for nothing, where a short sequence is
filled up.
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
FEW = 64
TILE = 128  # an accelerator multiplies matrices of whole tiles much faster


class Embedding(eqx.Module):
    r"""$f[E](t) = E^\top e_t$, the $t$-th row of $E \in \mathbb{R}^{V \times d}$, for each of the
    tokens of any shape; the zero vector where there is none.

    A token that is no row is refused, or becomes NaN where its value is not known yet (inside
    `jit`).

    >>> layer = Embedding(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> layer(jnp.array([1, 0, -1])).tolist()
    [[3.0, 4.0], [1.0, 2.0], [0.0, 0.0]]
    >>> layer(jnp.array([2]))
    Traceback (most recent call last):
    ValueError: Embedding: the tokens must lie between 0 and 1, or be -1 for none; got 2. ...
    """

    E: Float[Array, "v d"]

    @classmethod
    def init(
        cls, size: int, d: int, *, initialiser: Initialiser = UNIT, key: PRNGKeyArray
    ) -> "Embedding":
        """Draws the vectors of `size` tokens."""
        return cls(initialiser(key, (size, d)))

    def __check_init__(self):
        if self.E.ndim != 2:
            raise ValueError(
                f"Embedding: E must be (v, d), a row for each token; got {self.E.shape}."
            )

    def __call__(self, tokens: Int[Array, "*s"]) -> Float[Array, "*s d"]:
        if not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise ValueError(
                f"Embedding: tokens must be whole numbers, got {tokens.dtype}; turn words into "
                "numbers."
            )
        expect_tokens("Embedding", tokens, len(self.E))
        if len(self.E) <= FEW and jax.default_backend() != "cpu":
            return self._few(tokens)
        rows = self.E.at[tokens].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        return jnp.where((tokens == -1)[..., None], jnp.zeros_like(rows), rows)

    def _few(self, tokens: Int[Array, "*s"]) -> Float[Array, "*s d"]:
        """As a product, whose gradient is one too: an accelerator that scatters to few rows waits
        for itself.
        """
        rows = jnp.arange(len(self.E), dtype=jnp.int32).reshape(*[1] * tokens.ndim, -1)
        chosen = (tokens[..., None].astype(jnp.int32) == rows).astype(self.E.dtype)
        strange = (tokens < -1) | (tokens >= len(self.E))
        return jnp.where(
            strange[..., None], jnp.nan, jnp.matmul(chosen, self.E, precision="highest")
        )

    def read(self, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
        r"""$xE^\top$: how well each vector matches each token's; the logits of a model whose
        readout is tied to its table (Press & Wolf 2017).

        >>> Embedding(jnp.array([[1.0, 2.0], [3.0, 4.0]])).read(jnp.array([[1.0, 0.0]])).tolist()
        [[1.0, 3.0]]
        """
        v, d = self.E.shape
        expect_shape("Embedding", x, ("t", d))
        more = 0 if jax.default_backend() == "cpu" else -v % TILE
        return jnp.tensordot(x, jnp.pad(self.E, ((0, more), (0, 0))), axes=((1,), (1,)))[:, :v]


def expect_tokens(name: str, tokens: Int[Array, "*s"], size: int) -> None:
    """Refuses tokens that are neither in a vocabulary of `size` nor -1, where their values are
    known.

    >>> expect_tokens("Embedding", jnp.array([0, 7]), 5)
    Traceback (most recent call last):
    ValueError: Embedding: the tokens must lie between 0 and 4, or be -1 for none; got 7. ...
    """
    if isinstance(tokens, Tracer) or not tokens.size:
        return
    known = np.asarray(tokens)  # what is computed with them inside a jit would not be known
    low = int(known.min())
    high = int(known.max())
    if low < -1 or high >= size:
        raise ValueError(
            f"{name}: the tokens must lie between 0 and {size - 1}, or be -1 for none; got "
            f"{low if low < -1 else high}. Encode the text with the vocabulary it was made for."
        )
