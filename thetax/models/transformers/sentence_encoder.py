r"""A sentence as one vector: the mean of what an encoder makes of its tokens (Reimers & Gurevych
2019).

Sentences that mean alike point the same way, so that the cosine of the angle between them tells how
near they are.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import wide
from .bert import BERT, BERTInput


class SentenceEncoder(eqx.Module):
    r"""Tokens $(t,)$ to the unit vector along $\frac1n \sum_{i \le n} \xi_i$, the mean over the
    tokens there are.

    >>> import jax.random as jr
    >>> model = SentenceEncoder(BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0)))
    >>> v = model(jnp.array([1, 4, 2, -1]))
    >>> v.shape, round(float(jnp.linalg.norm(v)), 4)
    ((8,), 1.0)
    """

    bert: BERT

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, " d"]:
        tokens: Int[Array, " t"] = x[0] if isinstance(x, tuple) else x
        there = (tokens >= 0)[:, None]
        vectors = wide(self.bert(x, key=key))
        total = jnp.where(there, vectors, 0).sum(axis=0)  # the length is divided out
        return (total / jnp.maximum(jnp.linalg.norm(total), 1e-9)).astype(vectors.dtype)
