r"""Token masking for masked language modelling (§6.5).

Most of the selected tokens are replaced by [MASK], some by a random token and some are kept, so
that a model cannot tell from the input alone which tokens it must predict.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

MASKED, RANDOM = 0.8, 0.1  # fractions of the selected tokens; the rest are kept


def mask_tokens(
    tokens: Int[Array, "*s"],
    *,
    mask_id: int,
    vocab_size: int,
    special_ids: Sequence[int],
    mask_rate: float = 0.15,
    key: PRNGKeyArray,
) -> tuple[Int[Array, "*s"], Int[Array, "*s"]]:
    r"""Masks random tokens as BERT does; returns the inputs and the targets (§6.5).

    A target is the original token at a selected position, and -1 elsewhere. Each token is selected
    with probability `mask_rate`, except special tokens and padding (-1). A selected token becomes
    `mask_id` with probability 0.8, a uniformly random ordinary (not special) token with probability
    0.1, and is kept otherwise. With a tokeniser `t`: `mask_id=t.piece_id("[MASK]"),
    vocab_size=len(t), special_ids=t.special_ids`. (Devlin et al. 2019)

    Departs: tokens are selected independently, so their number varies; Devlin et al. fix it.

    >>> tokens = jnp.array([2, 7, 8, 9, 5, 6, 3, -1])
    >>> inputs, targets = mask_tokens(
    ...     tokens,
    ...     mask_id=4,
    ...     vocab_size=10,
    ...     special_ids=(0, 1, 2, 3, 4),
    ...     mask_rate=0.5,
    ...     key=jr.key(1),
    ... )
    >>> bool(jnp.all((targets == -1) | (targets == tokens))), targets[jnp.array([0, 6, 7])].tolist()
    (True, [-1, -1, -1])
    """
    special = np.unique(np.asarray(special_ids, np.int32))
    _check_masking(special, mask_id, vocab_size, mask_rate)
    key_selected, key_action, key_random = jr.split(key, 3)
    ordinary = (tokens >= 0) & ~jnp.isin(tokens, special)
    selected = ordinary & jr.bernoulli(key_selected, mask_rate, tokens.shape)
    rank = jr.randint(key_random, tokens.shape, 0, vocab_size - len(special), tokens.dtype)
    random_token = _ordinary_token(rank, special)
    u = jr.uniform(key_action, tokens.shape)
    replaced = jnp.where(u < MASKED, mask_id, jnp.where(u < MASKED + RANDOM, random_token, tokens))
    inputs = jnp.where(selected, replaced.astype(tokens.dtype), tokens)
    targets = jnp.where(selected, tokens, -1)
    return inputs, targets


def _ordinary_token(rank: Int[Array, "*s"], special: np.ndarray) -> Int[Array, "*s"]:
    """The id of the ordinary token with the given rank among the ordinary tokens."""
    # special[i] lies below the ordinary token of rank r exactly when special[i] - i <= r
    ranks_above = jnp.asarray(special - np.arange(len(special)), rank.dtype)
    return rank + jnp.searchsorted(ranks_above, rank, side="right").astype(rank.dtype)


def _check_masking(special: np.ndarray, mask_id: int, vocab_size: int, mask_rate: float) -> None:
    if not 0 <= mask_rate <= 1:
        raise ValueError(f"mask_tokens: mask_rate must be a probability; got {mask_rate}.")
    if mask_id not in special:
        raise ValueError(
            f"mask_tokens: mask_id must be one of special_ids; got mask_id={mask_id}, "
            f"special_ids={special.tolist()}."
        )
    if special[0] < 0 or special[-1] >= vocab_size or len(special) == vocab_size:
        raise ValueError(
            f"mask_tokens: special_ids must lie between 0 and {vocab_size - 1} and leave at least "
            f"one ordinary token; got {special.tolist()}."
        )
