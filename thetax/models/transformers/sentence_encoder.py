r"""Sentence embeddings: the mean of the hidden states of an encoder (Reimers & Gurevych 2019).

Similar sentences have embeddings with a large cosine similarity.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import upcast
from .bert import BERT, BERTInput


class SentenceEncoder(eqx.Module):
    r"""Maps tokens $(t,)$ to the normalised mean $\frac1n \sum_{i \le n} \xi_i$ of the hidden
    states of the $n$ tokens without padding.

    >>> import jax.random as jr
    >>> model = SentenceEncoder(BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0)))
    >>> v = model(jnp.array([1, 4, 2, -1]))
    >>> v.shape, round(float(jnp.linalg.norm(v)), 4)
    ((8,), 1.0)
    """

    bert: BERT

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, " d"]:
        tokens: Int[Array, " t"] = x[0] if isinstance(x, tuple) else x
        is_token = (tokens >= 0)[:, None]
        vectors = upcast(self.bert(x, key=key))
        total = jnp.where(is_token, vectors, 0).sum(axis=0)  # n cancels
        return (total / jnp.maximum(jnp.linalg.norm(total), 1e-9)).astype(vectors.dtype)
