r"""Sentence splitting, sentence pairs, and the input format of BERT (§6.5).

[CLS] first [SEP]                 segments 0 … 0
[CLS] first [SEP] second [SEP]    segments 0 … 0 1 … 1
"""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from .words import PADDING

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_END = re.compile(r"[.!?]+[\"'”’)\]_]*\s+(?=[\"'“‘(\[_]*[A-Z0-9])|[.!?]+--\s*(?=[\"'“‘]*[A-Z])")
_ABBREVIATIONS = {
    "Mr",
    "Mrs",
    "Ms",
    "Messrs",
    "Mme",
    "Mlle",
    "Dr",
    "Prof",
    "St",
    "Rev",
    "Hon",
    "Capt",
    "Col",
    "Gen",
    "Lieut",
    "Lt",
    "Sergt",
    "Jr",
    "Sr",
    "No",
    "Vol",
    "Chap",
    "viz",
}
_LAST_WORD = re.compile(r"([^\W\d_]+)\.$")


def split_sentences(text: str) -> list[str]:
    r"""The sentences of English prose, in order, each on one line.

    A sentence ends at a blank line, or at . ! or ? before a capital letter or a digit, except after
    an abbreviation such as Mr. or an initial.

    >>> split_sentences('Mr. E. Gray came\nin. "Who is it?" she said. "Nobody."\n\nIt rained')
    ['Mr. E. Gray came in.', '"Who is it?" she said.', '"Nobody."', 'It rained']
    """
    sentences = []
    for paragraph in _PARAGRAPH.split(text):
        paragraph = " ".join(paragraph.split())
        start = 0
        for end in _END.finditer(paragraph):
            word = _LAST_WORD.search(paragraph[start : end.start() + 1]) if end[0] == ". " else None
            if word and (word[1] in _ABBREVIATIONS or (len(word[1]) == 1 and word[1] != "I")):
                continue
            sentences.append(paragraph[start : end.end()].strip())
            start = end.end()
        sentences.append(paragraph[start:].strip())
    return [sentence for sentence in sentences if sentence]


class SentencePairs(NamedTuple):
    """Pairs of sentences as indices into the flattened documents, and whether the second sentence
    follows the first.
    """

    first: Int[np.ndarray, " n"]
    second: Int[np.ndarray, " n"]
    follows: Bool[np.ndarray, " n"]


def sentence_pairs(documents: Sequence[Sequence[Any]], *, key: PRNGKeyArray) -> SentencePairs:
    r"""Pairs for next-sentence prediction: half with the true next sentence, half random (§6.5).

    Every sentence that has a successor in its document is paired, with probability 1/2 with this
    successor, and otherwise with a uniformly random sentence of all documents whose content differs
    from it. A sentence is a string or a row of tokens. The indices refer to
    `list(chain.from_iterable(documents))`. (Devlin et al. 2019)

    >>> pairs = sentence_pairs([["a", "b", "c"], ["d", "e"]], key=jr.key(0))
    >>> pairs.first.tolist()
    [0, 1, 3]
    >>> bool(np.all((pairs.second == pairs.first + 1) == pairs.follows))
    True
    """
    flat = [_hashable(sentence) for sentence in chain.from_iterable(documents)]
    id_of: dict[Any, int] = {}
    content = np.array([id_of.setdefault(sentence, len(id_of)) for sentence in flat], np.int64)
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    first = np.setdiff1d(np.arange(len(flat)), ends - 1)
    if not len(first) or len(id_of) < 2:
        raise ValueError(
            "sentence_pairs: expected a document of at least two sentences and at least two "
            f"distinct sentences; got {len(flat)} sentences ({len(id_of)} distinct) in {len(ends)} "
            "documents."
        )
    rng = np.random.Generator(np.random.Philox(seed=np.asarray(jr.key_data(key)).ravel().tolist()))
    follows = rng.random(len(first)) < 0.5
    second = np.where(follows, first + 1, rng.integers(len(flat), size=len(first)))
    while len(same := np.flatnonzero(~follows & (content[second] == content[first + 1]))):
        second[same] = rng.integers(len(flat), size=len(same))
    return SentencePairs(first, second, follows)


def _hashable(sentence: Any) -> Any:
    return sentence if isinstance(sentence, str) else tuple(np.asarray(sentence).tolist())


class PackedSentences(NamedTuple):
    """The input of a model such as BERT: the tokens, and the sentence (0 or 1) of each; -1 is
    padding.
    """

    tokens: Int[np.ndarray, " t"]
    segments: Int[np.ndarray, " t"]


def pack_sentences(
    first: Any, second: Any = None, *, cls_id: int, sep_id: int, length: int
) -> PackedSentences:
    r"""$[\mathrm{CLS}]\ s_1\ [\mathrm{SEP}]\ (s_2\ [\mathrm{SEP}])$, padded with -1 to `length`
    (§6.5).

    `first` and `second` are rows of tokens. If both do not fit, tokens are dropped one at a time
    from the end of the longer one (the second if they are equally long). (Devlin et al. 2019)

    >>> row = pack_sentences([5, 6, 7], [8], cls_id=1, sep_id=2, length=8)
    >>> row.tokens.tolist(), row.segments.tolist()
    ([1, 5, 6, 7, 2, 8, 2, -1], [0, 0, 0, 0, 0, 1, 1, -1])
    >>> pack_sentences([5, 6, 7], [8, 9], cls_id=1, sep_id=2, length=6).tokens.tolist()
    [1, 5, 6, 2, 8, 2]
    """
    rows = [_check_row(row, cls_id, sep_id) for row in (first, second) if row is not None]
    room = length - 1 - len(rows)
    if room < len(rows):
        raise ValueError(
            f"pack_sentences: length must be at least {2 * len(rows) + 1} for {len(rows)} "
            f"sentences with [CLS] and [SEP]; got {length}."
        )
    tokens = np.full(length, PADDING, np.int32)
    segments = np.full(length, PADDING, np.int32)
    tokens[0] = cls_id
    segments[0] = 0
    start = 1
    for i, (row, n) in enumerate(zip(rows, _truncated_lengths([len(row) for row in rows], room))):
        tokens[start : start + n] = row[:n]
        tokens[start + n] = sep_id
        segments[start : start + n + 1] = i
        start += n + 1
    return PackedSentences(tokens, segments)


def _truncated_lengths(lengths: list[int], room: int) -> list[int]:
    """The lengths after the longer row has lost its last token until all rows fit."""
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    if second <= room // 2:
        return [room - second, second]
    if first <= room - room // 2:
        return [first, room - first]
    return [room - room // 2, room // 2]


def unpack_sentences(
    tokens: Any, *, cls_id: int, sep_id: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """The inverse of `pack_sentences`: the first sentence, and the second or None.

    >>> first, second = unpack_sentences([1, 5, 6, 7, 2, 8, 2, -1], cls_id=1, sep_id=2)
    >>> first.tolist(), second.tolist()
    ([5, 6, 7], [8])
    """
    row = np.asarray(tokens, np.int32)
    row = row[row != PADDING]
    ends = np.flatnonzero(row == sep_id)
    if not len(row) or row[0] != cls_id or len(ends) not in (1, 2) or ends[-1] != len(row) - 1:
        raise ValueError(
            f"unpack_sentences: expected {cls_id} … {sep_id} or {cls_id} … {sep_id} … {sep_id}; "
            f"got {row.tolist()}."
        )
    return row[1 : ends[0]], row[ends[0] + 1 : ends[1]] if len(ends) == 2 else None


def _check_row(tokens: Any, cls_id: int, sep_id: int) -> np.ndarray:
    """One sentence as a row of tokens without padding."""
    row = np.asarray(tokens, np.int32)
    if row.ndim != 1 or (row < PADDING).any():
        raise ValueError(
            "pack_sentences: each sentence must be one row of token ids; got shape "
            f"{row.shape} with smallest value {row.min(initial=0)}."
        )
    if np.isin(row, (cls_id, sep_id)).any():
        raise ValueError(
            f"pack_sentences: a sentence contains cls_id={cls_id} or sep_id={sep_id} itself. "
            "Encode it with parse_special=False."
        )
    return row[row != PADDING]
