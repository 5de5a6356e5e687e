r"""Attention maps of a transformer (§6.1): the weights $A$ of every layer and head on one example,
and attention rollout.

The **entropy** of a head is $-\sum_j A_{ij} \log A_{ij}$, averaged over the queries $i$; its
exponential, the perplexity, is the effective number of positions that the head attends to.
**Attention rollout** $\prod_\ell \frac12 (\bar A_\ell + I)$ estimates how much of each input token
reaches each position through all layers, with $\bar A_\ell$ the mean over the heads of a layer and
$I$ for the residual connection (Abnar & Zuidema 2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .attention_alignment import token_strings


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights $A$ of each layer and head, with the token strings.

    For an image, `grid` is the number of rows and columns of patches; the first token is the class
    token.
    """

    weights: Float[np.ndarray, "l h t t"]
    tokens: tuple[str, ...]
    grid: tuple[int, int] | None = None

    @property
    def perplexity(self) -> Float[np.ndarray, "l h"]:
        """$e^{\\text{entropy}}$: the effective number of positions each head attends to."""
        entropy = -(self.weights * np.log(np.maximum(self.weights, 1e-30))).sum(axis=3)
        return np.exp(entropy.mean(axis=2))

    @property
    def rollout(self) -> Float[np.ndarray, "t t"]:
        """Attention rollout: the contribution of each input to each position; rows sum to 1."""
        rollout = np.eye(len(self.tokens))
        for layer in self.weights.mean(axis=1):
            rollout = (layer + np.eye(len(rollout))) / 2 @ rollout
        return rollout


def has_self_attention(model: Any) -> bool:
    """Whether the model, or its encoder, has self-attention weights over one sequence."""
    return _encoder(model) is not None


def attention_maps(model: Any, x: Any, *, vocab: Sequence[str] = ()) -> AttentionMaps:
    r"""Self-attention weights of all layers and heads on one example: tokens, a pair of tokens and
    segments, or an image.

    `vocab` are the token strings; without them tokens are shown as integers. Padding (-1) is left
    out.

    >>> import jax.random as jr
    >>> from thetax.models import GPT
    >>> model = GPT.init(5, 8, depth=2, heads=2, max_length=6, key=jr.key(0))
    >>> maps = attention_maps(model, jnp.array([1, 3, 4, -1]), vocab="abcde")
    >>> maps.weights.shape, maps.tokens, maps.rollout.sum(axis=1).round(4).tolist()
    ((2, 2, 3, 3), ('b', 'd', 'e'), [1.0, 1.0, 1.0])
    """
    encoder = _encoder(model)
    if encoder is None:
        raise ValueError(
            f"attention_maps: {type(model).__name__} has no self-attention; give a transformer."
        )
    x = jax.tree.map(jnp.asarray, x)
    weights = np.asarray(
        jax.jit(lambda model, x: model.attention_weights(x))(encoder, x), np.float64
    )
    tokens = x[0] if isinstance(x, tuple) else x
    if jnp.issubdtype(tokens.dtype, jnp.integer):
        valid = np.asarray(tokens) >= 0
        return AttentionMaps(
            weights[:, :, valid][:, :, :, valid],
            token_strings("attention_maps", "text", tokens, vocab),
        )
    height, width = (
        side // patch for side, patch in zip(tokens.shape[1:], encoder.stem.W.shape[2:])
    )
    patches = (f"{row + 1}, {column + 1}" for row in range(height) for column in range(width))
    return AttentionMaps(weights, ("class", *patches), (height, width))


def _encoder(model: Any) -> Any:
    """The module with self-attention weights: the model, or the encoder below a head."""
    encoder = getattr(model, "bert", model)
    has_weights = hasattr(encoder, "attention_weights") and not hasattr(encoder, "alignment")
    return encoder if has_weights else None
