r"""Additive (Bahdanau) attention (§5.3): a small network scores the entries of a memory, and the
output is their weighted mean.

$$a = \mathrm{softmax}_j\, s(z, m_j), \qquad c = \sum_j a_j m_j$$
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, lecun
from ..linear import matvec
from .dot_product import masked_softmax


class AdditiveAttention(eqx.Module):
    r"""Additive attention with scores $s(z, m_j) = v^\top \tanh(Wz + M m_j)$ (§5.3; Bahdanau
    et al. 2015).

    Entries where the mask is false get weight 0; if it is false everywhere the output is 0.

    >>> layer = AdditiveAttention.init(2, 3, 4, key=jr.key(0))
    >>> memory = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> layer(jnp.ones(2), memory).shape
    (3,)
    >>> layer(jnp.ones(2), memory, mask=jnp.array([False, True])).tolist()
    [0.0, 1.0, 0.0]
    """

    W: Float[Array, "h m"]
    M: Float[Array, "h n"]
    v: Float[Array, " h"]

    @classmethod
    def init(
        cls, m: int, n: int, hidden: int, *, initialiser: Initialiser = lecun, key: PRNGKeyArray
    ) -> "AdditiveAttention":
        """For queries of width `m`, memory vectors of width `n` and a hidden layer of width
        `hidden`.
        """
        key_W, key_M, key_v = jr.split(key, 3)
        return cls(
            initialiser(key_W, (hidden, m)),
            initialiser(key_M, (hidden, n)),
            initialiser(key_v, (1, hidden))[0],
        )

    def __check_init__(self):
        h = len(self.v)
        if self.W.ndim != 2 or self.M.ndim != 2 or len(self.W) != h or len(self.M) != h:
            raise ValueError(
                f"AdditiveAttention: W must be (h, m), M (h, n) and v (h,); got {self.W.shape}, "
                f"{self.M.shape} and {self.v.shape}."
            )

    def keys(self, memory: Float[Array, "t n"]) -> Float[Array, "t h"]:
        r"""The keys $M m_j$ for all $j$, which all queries share."""
        if memory.ndim != 2 or memory.shape[1] != self.M.shape[1]:
            raise ValueError(
                f"AdditiveAttention: expected a memory of shape (t, {self.M.shape[1]}), got "
                f"{memory.shape}."
            )
        return jnp.tensordot(memory, self.M, axes=((1,), (1,)))

    def weights_from_keys(
        self,
        query: Float[Array, " h"],
        keys: Float[Array, "t h"],
        mask: Bool[Array, " t"] | None = None,
    ) -> Float[Array, " t"]:
        r"""The attention weights $a$, from the projected query $Wz$ and the keys."""
        return masked_softmax(jnp.tanh(query[None] + keys) @ self.v, mask)

    def weights(
        self,
        z: Float[Array, " m"],
        memory: Float[Array, "t n"],
        *,
        mask: Bool[Array, " t"] | None = None,
    ) -> Float[Array, " t"]:
        r"""The attention weights $a_j$, non-negative with sum 1."""
        expect_shape("AdditiveAttention", z, self.W.shape[1:])
        return self.weights_from_keys(matvec(self.W, z), self.keys(memory), mask)

    def __call__(
        self,
        z: Float[Array, " m"],
        memory: Float[Array, "t n"],
        *,
        mask: Bool[Array, " t"] | None = None,
    ) -> Float[Array, " n"]:
        return self.weights(z, memory, mask=mask) @ memory
