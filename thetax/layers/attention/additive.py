r"""Attention by a small network (§5.3): a state asks every place of a memory, and the answer is a
weighted mean.

$$a = \mathrm{softmax}_j\, s(q, \zeta_j), \qquad c = \sum_j a_j \zeta_j$$
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, lecun
from ..linear import dense
from .dot_product import masked_softmax


class Additive(eqx.Module):
    r"""$s(z, \zeta_j) = v^\top \tanh(Wz + M\zeta_j)$: the score of a small network (§5.3; Bahdanau
    et al. 2015).

    Where the mask is false there is nothing to look at; where it is false everywhere the answer is
    0.

    >>> layer = Additive.init(2, 3, 4, key=jr.key(0))
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
        cls, m: int, n: int, width: int, *, initialiser: Initialiser = lecun, key: PRNGKeyArray
    ) -> "Additive":
        """For queries of size $m$ and a memory of vectors of size $n$; `width` is that of the
        hidden layer.
        """
        key_W, key_M, key_v = jr.split(key, 3)
        return cls(
            initialiser(key_W, (width, m)),
            initialiser(key_M, (width, n)),
            initialiser(key_v, (1, width))[0],
        )

    def __check_init__(self):
        h = len(self.v)
        if self.W.ndim != 2 or self.M.ndim != 2 or len(self.W) != h or len(self.M) != h:
            raise ValueError(
                f"Additive: W must be (h, m), M (h, n) and v (h,); got {self.W.shape}, "
                f"{self.M.shape} and {self.v.shape}."
            )

    def keys(self, memory: Float[Array, "t n"]) -> Float[Array, "t h"]:
        r"""$M\zeta_j$ for all $j$: what every query needs."""
        if memory.ndim != 2 or memory.shape[1] != self.M.shape[1]:
            raise ValueError(
                f"Additive: expected a memory (t, {self.M.shape[1]}), got {memory.shape}."
            )
        return jnp.tensordot(memory, self.M, axes=((1,), (1,)))

    def weigh(
        self,
        query: Float[Array, " h"],
        keys: Float[Array, "t h"],
        mask: Bool[Array, " t"] | None = None,
    ) -> Float[Array, " t"]:
        r"""$a$, from $Wz$ and the keys."""
        return masked_softmax(jnp.tanh(query[None] + keys) @ self.v, mask)

    def weights(
        self,
        z: Float[Array, " m"],
        memory: Float[Array, "t n"],
        *,
        mask: Bool[Array, " t"] | None = None,
    ) -> Float[Array, " t"]:
        r"""$a_j$: how much it looks at each place; they are not negative and sum to 1."""
        expect_shape("Additive", z, self.W.shape[1:])
        return self.weigh(dense(self.W, z), self.keys(memory), mask)

    def __call__(
        self,
        z: Float[Array, " m"],
        memory: Float[Array, "t n"],
        *,
        mask: Bool[Array, " t"] | None = None,
    ) -> Float[Array, " n"]:
        return self.weights(z, memory, mask=mask) @ memory
