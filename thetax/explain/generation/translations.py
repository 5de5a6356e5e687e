r"""What a model that reads one sequence and writes another makes of some (§6.4), beside what was
meant.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ...core import Batch
from ...models import EncoderDecoder, Translator, greedy

BLOCK = 16  # sequences translated at once
LONGEST_RUN = 4


@dataclass(frozen=True)
class Translations:
    """Texts: given, said and meant; and which share of the runs of 1, 2, ... tokens said were also
    meant, each counted at most as often as it is meant: the $p_n$ of BLEU, but of tokens.
    """

    source: tuple[str, ...]
    said: tuple[str, ...]
    meant: tuple[str, ...]
    precision: Float[np.ndarray, " k"]


def translations(
    model: Any, data: Batch, *, names: tuple[Sequence[str], Sequence[str]]
) -> Translations:
    """The likeliest token again and again, for every source of `data`:
    `((sources, targets), next)`.

    A target begins with the token that says so, and the commonest last token of `next` is taken for
    the one that ends. `names` are the words of the source's tokens and of the target's.

    >>> import jax.random as jr
    >>> model = Translator.init(3, 4, 8, depth=1, heads=2, key=jr.key(0))
    >>> pair = jnp.array([[0, 1, 2]]), jnp.array([[0, 3, 2]])
    >>> translations(model, (pair, jnp.array([[3, 2, 1]])), names=("abc", "<>xy")).meant
    ('yx',)
    """
    (sources, targets), meant = (jax.tree.map(np.asarray, part) for part in data)
    begin = int(targets[0, 0])
    end = _last(meant)

    def answer(model, source):
        length = meant.shape[1]
        cell, state = (
            model.decoder(source, length=length)
            if isinstance(model, Translator)
            else model.decoder(source)
        )
        return greedy(cell, first=begin, end=end, length=length, state=state).tokens

    if not isinstance(model, Translator | EncoderDecoder):
        raise ValueError(
            f"translations: expected a Translator or an EncoderDecoder, got {type(model).__name__}."
        )
    every = jax.jit(lambda model, xs: jax.lax.map(lambda x: answer(model, x), xs, batch_size=BLOCK))
    said = np.asarray(every(model, jnp.asarray(sources)))
    spell = lambda rows, words: tuple(
        "".join(str(words[t]) for t in row if t >= 0) for row in rows.tolist()
    )
    told = lambda rows: spell(np.where(rows == end, -1, rows), names[1])
    return Translations(spell(sources, names[0]), told(said), told(meant), _matched(said, meant))


def _last(rows: Int[np.ndarray, "n t"]) -> int:
    """The token with which most rows end."""
    ends = np.maximum((rows >= 0).sum(axis=1) - 1, 0)
    return int(np.bincount(np.maximum(rows[np.arange(len(rows)), ends], 0)).argmax())


def _matched(
    said: Int[np.ndarray, "n t"], meant: Int[np.ndarray, "n t"]
) -> Float[np.ndarray, " k"]:
    shares = []
    for n in range(1, LONGEST_RUN + 1):
        pairs = [(_runs(one, n), _runs(other, n)) for one, other in zip(said, meant)]
        right = sum((one & other).total() for one, other in pairs)
        shares.append(right / max(1, sum(one.total() for one, _ in pairs)))
    return np.array(shares)


def _runs(row: Int[np.ndarray, " t"], n: int) -> Counter[tuple[int, ...]]:
    tokens = [int(token) for token in row if token >= 0]
    return Counter(zip(*(tokens[i:] for i in range(n))))
