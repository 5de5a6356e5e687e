r"""Which words a translation looked at (§5.3; Bahdanau et al. 2015): $a_{ij}$, writing $i$, of
source $j$.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


@dataclass(frozen=True)
class Alignment:
    r"""$a_{ij}$, whose rows sum to 1, and the tokens in words: of the source, and written with each
    row in view.
    """

    weights: Float[np.ndarray, "s t"]
    source: tuple[str, ...]
    written: tuple[str, ...]


def alignment(
    model: Any,
    source: Int[Array | np.ndarray, " t"],
    target: Int[Array | np.ndarray, " s"],
    *,
    names: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Alignment:
    r"""What the model looks at in the source before it writes each token: `model.alignment` (§5.3).

    `target` is what the model reads. Having read its token $i$ it writes the next, by which row $i$
    is called; after the last it writes what it finds likeliest.

    `names` are the words of the source's tokens and of the target's; without them tokens are called
    by their numbers. The -1 by which a sequence is filled up is left out.

    >>> import jax.numpy as jnp
    >>> import jax.random as jr
    >>> from thetax.models import EncoderDecoder
    >>> model = EncoderDecoder.init(7, 5, 3, 4, attention_width=6, key=jr.key(0))
    >>> found = alignment(
    ...     model,
    ...     jnp.array([2, 3, -1]),
    ...     jnp.array([0, 4, 3]),
    ...     names=((), ("go", "a", "b", "c", "d")),
    ... )
    >>> found.source, found.written[:2], found.weights.sum(axis=1).round(4).tolist()
    (('2', '3'), ('d', 'c'), [1.0, 1.0, 1.0])
    """
    if not hasattr(model, "alignment"):
        raise ValueError(
            f"alignment: {type(model).__name__} does not attend; give a model that has `alignment`."
        )
    look = jax.jit(lambda model, pair: (model.alignment(*pair), model(pair).argmax(axis=1)))
    weights, guess = (
        np.asarray(part) for part in look(model, (jnp.asarray(source), jnp.asarray(target)))
    )
    rows = np.asarray(target) >= 0
    columns = np.asarray(source) >= 0
    written = [*np.asarray(target)[rows][1:], *guess[rows][-1:]]
    said = [
        words("alignment", *side)
        for side in (("source", source, names[0]), ("target", written, names[1]))
    ]
    return Alignment(weights[np.ix_(rows, columns)].astype(np.float64), *said)


def words(lens: str, side: str, tokens: Any, names: Sequence[str]) -> tuple[str, ...]:
    """What tokens are called, but for -1; by their numbers without names."""
    given = [int(token) for token in np.asarray(tokens) if token >= 0]
    if names and max(given, default=0) >= len(names):
        raise ValueError(
            f"{lens}: token {max(given)} of the {side} has no name among the {len(names)} given."
        )
    return tuple(str(names[token]) if names else str(token) for token in given)
