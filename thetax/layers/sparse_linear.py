r"""The affine layer for sparse binary inputs, given by the indices of their ones."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .initialise import Initialiser, lecun


class SparseLinear(eqx.Module):
    r"""Affine layer for sparse binary inputs (bag of words), $f[W, b](S) = \sum_{j \in S} W_j + b$:
    the output for the $x \in \{0, 1\}^V$ with $x_j = 1$ for $j \in S$ (L10 §6.1).

    $S$ is an array of distinct indices, padded with -1; indices outside $0, \dots, V - 1$ are
    ignored. The column $W_j$ of $W$ is the embedding of word $j$. The cost is proportional to
    $|S|$, not to $V$.

    >>> layer = SparseLinear(jnp.array([[1.0, 2.0, 4.0]]), jnp.array([0.5]))
    >>> layer(jnp.array([2, 0, -1])).tolist()
    [5.5]
    """

    W: Float[Array, "m V"]
    b: Float[Array, " m"] | None = None

    @classmethod
    def init(
        cls,
        vocab_size: int,
        m: int,
        *,
        initialiser: Initialiser = lecun,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "SparseLinear":
        """Initialises the layer for a vocabulary of `vocab_size` words and `m` outputs."""
        key_W, key_b = jr.split(key)
        b = initialiser.bias(key_b, m) if bias else None
        return cls(initialiser(key_W, (m, vocab_size)), b)

    def __check_init__(self):
        if self.W.ndim != 2 or (self.b is not None and self.b.shape != self.W.shape[:1]):
            raise ValueError(
                "SparseLinear: W must be (m, V), a column for each word, and b (m,); got W "
                f"{self.W.shape} and b {None if self.b is None else self.b.shape}."
            )

    def __call__(self, x: Int[Array, " k"]) -> Float[Array, " m"]:
        if x.ndim != 1 or not jnp.issubdtype(x.dtype, jnp.integer):
            raise ValueError(
                "SparseLinear: the input must be the indices of the words of one example, integers "
                f"of shape (k,); got {x.dtype}{x.shape}. Map over a batch with jax.vmap."
            )
        columns = self.W.T.at[x].get(mode="fill", fill_value=0, wrap_negative_indices=False)
        y = columns.sum(axis=0)
        return y if self.b is None else y + self.b
