r"""Translations by a sequence-to-sequence model (§6.4), compared with the references."""

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

MAX_BATCH_SIZE = 16  # sequences translated at once
MAX_ORDER = 4  # longest n-gram


@dataclass(frozen=True)
class Translations:
    """Source, predicted and reference texts, with the clipped n-gram precision $p_n$ of BLEU for
    $n = 1, 2, ...$, computed on tokens.
    """

    source: tuple[str, ...]
    predicted: tuple[str, ...]
    reference: tuple[str, ...]
    precision: Float[np.ndarray, " k"]


def translations(
    model: Any, data: Batch, *, vocabs: tuple[Sequence[str], Sequence[str]]
) -> Translations:
    """Translates every source of `data`, `((sources, targets), next)`, by greedy decoding.

    Targets begin with a start token; the most common last token of `next` is taken as the end
    token. `vocabs` are the token strings of source and target.

    >>> import jax.random as jr
    >>> model = Translator.init(3, 4, 8, depth=1, heads=2, key=jr.key(0))
    >>> pair = jnp.array([[0, 1, 2]]), jnp.array([[0, 3, 2]])
    >>> data = pair, jnp.array([[3, 2, 1]])
    >>> translations(model, data, vocabs=("abc", "<>xy")).reference
    ('yx',)
    """
    (sources, targets), references = (jax.tree.map(np.asarray, part) for part in data)
    start_token = int(targets[0, 0])
    end_token = _most_common_last(references)

    def translate(model, source):
        length = references.shape[1]
        cell, state = (
            model.decoder(source, max_length=length)
            if isinstance(model, Translator)
            else model.decoder(source)
        )
        return greedy(
            cell, start_token=start_token, end_token=end_token, max_new_tokens=length, state=state
        ).tokens

    if not isinstance(model, Translator | EncoderDecoder):
        raise ValueError(
            "translations: model must be a Translator or an EncoderDecoder; got "
            f"{type(model).__name__}."
        )
    translate_all = jax.jit(
        lambda model, xs: jax.lax.map(lambda x: translate(model, x), xs, batch_size=MAX_BATCH_SIZE)
    )
    predicted = np.asarray(translate_all(model, jnp.asarray(sources)))
    decode = lambda rows, vocab: tuple(
        "".join(str(vocab[token]) for token in row if token >= 0) for row in rows.tolist()
    )
    decode_target = lambda rows: decode(np.where(rows == end_token, -1, rows), vocabs[1])
    return Translations(
        decode(sources, vocabs[0]),
        decode_target(predicted),
        decode_target(references),
        _ngram_precision(predicted, references),
    )


def _most_common_last(rows: Int[np.ndarray, "n t"]) -> int:
    """The most common last token of the rows; padding is -1."""
    last = np.maximum((rows >= 0).sum(axis=1) - 1, 0)
    return int(np.bincount(np.maximum(rows[np.arange(len(rows)), last], 0)).argmax())


def _ngram_precision(
    predicted: Int[np.ndarray, "n t"], references: Int[np.ndarray, "n t"]
) -> Float[np.ndarray, " k"]:
    precisions = []
    for n in range(1, MAX_ORDER + 1):
        pairs = [(_ngrams(one, n), _ngrams(other, n)) for one, other in zip(predicted, references)]
        matches = sum((one & other).total() for one, other in pairs)
        precisions.append(matches / max(1, sum(one.total() for one, _ in pairs)))
    return np.array(precisions)


def _ngrams(row: Int[np.ndarray, " t"], n: int) -> Counter[tuple[int, ...]]:
    tokens = [int(token) for token in row if token >= 0]
    return Counter(zip(*(tokens[i:] for i in range(n))))
