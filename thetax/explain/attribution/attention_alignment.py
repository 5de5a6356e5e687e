r"""Attention alignment of a translation (§5.3; Bahdanau et al. 2015): the cross-attention weights
$a_{ij}$ on source token $j$ when target token $i$ is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


@dataclass(frozen=True)
class AttentionAlignment:
    r"""Cross-attention weights $a_{ij}$, whose rows sum to 1, with the source tokens and the target
    token written at each row.
    """

    weights: Float[np.ndarray, "s t"]
    source: tuple[str, ...]
    target: tuple[str, ...]


def attention_alignment(
    model: Any,
    source: Int[Array | np.ndarray, " t"],
    target: Int[Array | np.ndarray, " s"],
    *,
    vocabs: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> AttentionAlignment:
    r"""Attention alignment between source and target tokens, from `model.alignment` (§5.3).

    `target` is the decoder's input. Row $i$ is labelled with the token written after reading
    `target[i]`: the next token of `target`, and for the last row the most probable one. `vocabs`
    are the token strings of source and target; without them tokens are shown as integers. Padding
    (-1) is left out.

    >>> import jax.numpy as jnp
    >>> import jax.random as jr
    >>> from thetax.models import EncoderDecoder
    >>> model = EncoderDecoder.init(7, 5, 3, 4, attention_width=6, key=jr.key(0))
    >>> source, target = jnp.array([2, 3, -1]), jnp.array([0, 4, 3])
    >>> result = attention_alignment(model, source, target, vocabs=((), ("go", "a", "b", "c", "d")))
    >>> result.source, result.target[:2], result.weights.sum(axis=1).round(4).tolist()
    (('2', '3'), ('d', 'c'), [1.0, 1.0, 1.0])
    """
    if not hasattr(model, "alignment"):
        raise ValueError(
            f"attention_alignment: {type(model).__name__} has no cross-attention; give a model "
            "with a method `alignment`."
        )
    run = jax.jit(lambda model, pair: (model.alignment(*pair), model(pair).argmax(axis=1)))
    weights, predicted = (
        np.asarray(part) for part in run(model, (jnp.asarray(source), jnp.asarray(target)))
    )
    rows = np.asarray(target) >= 0
    columns = np.asarray(source) >= 0
    written = [*np.asarray(target)[rows][1:], *predicted[rows][-1:]]
    return AttentionAlignment(
        weights[np.ix_(rows, columns)].astype(np.float64),
        token_strings("attention_alignment", "source", source, vocabs[0]),
        token_strings("attention_alignment", "target", written, vocabs[1]),
    )


def token_strings(lens: str, side: str, tokens: Any, vocab: Sequence[str]) -> tuple[str, ...]:
    """The strings of tokens, without padding (-1); integers as strings if `vocab` is empty."""
    valid = [int(token) for token in np.asarray(tokens) if token >= 0]
    if vocab and max(valid, default=0) >= len(vocab):
        raise ValueError(
            f"{lens}: token {max(valid)} of the {side} is outside the vocabulary of {len(vocab)} "
            "strings. Give a string for every token."
        )
    return tuple(str(vocab[token]) if vocab else str(token) for token in valid)
