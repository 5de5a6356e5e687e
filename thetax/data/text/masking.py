r"""Gaps in a text, for a model to fill (§6.5): some tokens are hidden, and what stood there is the
target.

Of the chosen tokens most become the mark for a gap, some another token and some stay, so that a
model cannot tell from the input alone which tokens it will be asked for.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

HIDDEN, REPLACED = 0.8, 0.1  # of the chosen tokens; the rest stay as they are


def cloze(
    tokens: Int[Array, "*s"],
    *,
    mask: int,
    size: int,
    special: Sequence[int],
    share: float = 0.15,
    key: PRNGKeyArray,
) -> tuple[Int[Array, "*s"], Int[Array, "*s"]]:
    r"""A text with gaps, and the targets: the token that stood at each chosen place, -1 at all
    others (§6.5).

    Each token is chosen with probability `share`, but no special one and no -1. A chosen one
    becomes `mask` with probability 0.8, with 0.1 any of the $V - |\mathrm{special}|$ ordinary
    tokens, all alike, and else it stays. `size` is $V$; with a vocabulary v:
    `mask=v.number("[MASK]"), size=len(v), special=v.special`. (Devlin et al. 2019)

    Departs: every token is chosen by itself, so that the number of gaps varies; Devlin et al. fix
    it.

    >>> tokens = jnp.array([2, 7, 8, 9, 5, 6, 3, -1])
    >>> inputs, targets = cloze(
    ...     tokens, mask=4, size=10, special=(0, 1, 2, 3, 4), share=0.5, key=jr.key(1)
    ... )
    >>> bool(jnp.all((targets == -1) | (targets == tokens))), targets[jnp.array([0, 6, 7])].tolist()
    (True, [-1, -1, -1])
    """
    marks = np.unique(np.asarray(special, np.int32))
    _check(marks, mask, size, share)
    key_chosen, key_fate, key_other = jr.split(key, 3)
    ordinary = (tokens >= 0) & ~jnp.isin(tokens, marks)
    chosen = ordinary & jr.bernoulli(key_chosen, share, tokens.shape)
    fate = jr.uniform(key_fate, tokens.shape)
    other = _spread(jr.randint(key_other, tokens.shape, 0, size - len(marks), tokens.dtype), marks)
    changed = jnp.where(
        fate < HIDDEN, mask, jnp.where(fate < HIDDEN + REPLACED, other, tokens)
    ).astype(tokens.dtype)
    return jnp.where(chosen, changed, tokens), jnp.where(chosen, tokens, -1)


def _spread(rank: Int[Array, "*s"], marks: np.ndarray) -> Int[Array, "*s"]:
    """The ordinary token of each rank: marks that lie at or below it push it up."""
    pushes = jnp.asarray(
        marks - np.arange(len(marks)), rank.dtype
    )  # the rank from which a mark is below
    return rank + jnp.searchsorted(pushes, rank, side="right").astype(rank.dtype)


def _check(marks: np.ndarray, mask: int, size: int, share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"cloze: share is a probability; got {share}.")
    if mask not in marks:
        raise ValueError(
            f"cloze: the mask {mask} must be one of the special tokens {marks.tolist()}."
        )
    if marks[0] < 0 or marks[-1] >= size or len(marks) == size:
        raise ValueError(
            f"cloze: special tokens must lie between 0 and {size - 1} and leave an ordinary one; "
            f"got {marks.tolist()}."
        )
