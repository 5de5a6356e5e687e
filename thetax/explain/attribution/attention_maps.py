r"""Where a transformer looks (§6.1): the weights $A$ of every layer and head, on one example.

The **entropy** of a head, $-\sum_j A_{ij} \log A_{ij}$ on average over the queries $i$, says how
widely it looks; $e^{\text{entropy}}$ counts places. The **rollout**
$\prod_\ell \frac12 (\bar A_\ell + I)$ follows what flows from the input to each place through all
layers, with $\bar A_\ell$ the mean of a layer's heads and $I$ for what passes by them (Abnar &
Zuidema 2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .attention_alignment import words


@dataclass(frozen=True)
class AttentionMaps:
    """$A$ of each layer and head, and what the tokens are called; with `grid`, they are a first one
    and the patches of an image of so many rows and columns.
    """

    weights: Float[np.ndarray, "l h t t"]
    tokens: tuple[str, ...]
    grid: tuple[int, int] | None = None

    @property
    def places(self) -> Float[np.ndarray, "l h"]:
        """$e^{\\text{entropy}}$: at how many places a head looks at once."""
        entropy = -(self.weights * np.log(np.maximum(self.weights, 1e-30))).sum(axis=3)
        return np.exp(entropy.mean(axis=2))

    @property
    def rollout(self) -> Float[np.ndarray, "t t"]:
        """How much of each input arrives at each place; rows sum to 1."""
        found = np.eye(len(self.tokens))
        for layer in self.weights.mean(axis=1):
            found = (layer + np.eye(len(found))) / 2 @ found
        return found


def attends_to_itself(model: Any) -> bool:
    """Whether the model, or the encoder in it, has attention weights of one sequence to show."""
    return _seeing(model) is not None


def attention_maps(model: Any, x: Any, *, names: Sequence[str] = ()) -> AttentionMaps:
    r"""The weights of all heads on one example: tokens, a pair of tokens and segments, or an image.

    `names` are the words of the tokens, which are called by their numbers otherwise; the -1 that
    fills a sequence up is left out.

    >>> import jax.random as jr
    >>> from thetax.models import GPT
    >>> model = GPT.init(5, 8, depth=2, heads=2, max_length=6, key=jr.key(0))
    >>> found = attention_maps(model, jnp.array([1, 3, 4, -1]), names="abcde")
    >>> found.weights.shape, found.tokens, found.rollout.sum(axis=1).round(4).tolist()
    ((2, 2, 3, 3), ('b', 'd', 'e'), [1.0, 1.0, 1.0])
    """
    seeing = _seeing(model)
    if seeing is None:
        raise ValueError(
            f"attention_maps: {type(model).__name__} has no attention to one sequence; give a "
            "transformer."
        )
    x = jax.tree.map(jnp.asarray, x)
    weights = np.asarray(
        jax.jit(lambda model, x: model.attention_weights(x))(seeing, x), np.float64
    )
    tokens = x[0] if isinstance(x, tuple) else x
    if jnp.issubdtype(tokens.dtype, jnp.integer):
        there = np.asarray(tokens) >= 0
        return AttentionMaps(
            weights[:, :, there][:, :, :, there], words("attention_maps", "text", tokens, names)
        )
    height, width = (
        side // patch for side, patch in zip(tokens.shape[1:], seeing.stem.W.shape[2:])
    )
    called = (
        "class",
        *(f"{row + 1}, {column + 1}" for row in range(height) for column in range(width)),
    )
    return AttentionMaps(weights, called, (height, width))


def _seeing(model: Any) -> Any:
    """What has the weights: the model, or the encoder below a head."""
    found = getattr(model, "bert", model)
    return (
        found if hasattr(found, "attention_weights") and not hasattr(found, "alignment") else None
    )
