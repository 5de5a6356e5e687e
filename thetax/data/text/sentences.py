r"""Sentences, pairs of them, and the form in which a model such as BERT reads them (§6.5).

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

from .words import NOTHING

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_END = re.compile(r"[.!?]+[\"'”’)\]_]*\s+(?=[\"'“‘(\[_]*[A-Z0-9])|[.!?]+--\s*(?=[\"'“‘]*[A-Z])")
_SHORT = {
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


def sentences(text: str) -> list[str]:
    r"""The sentences of plain English prose, in order, each on one line.

    A blank line ends a paragraph and so a sentence; else a sentence ends with . ! or ? where a
    capital follows, but not after Mr. and its kin or after an initial.

    >>> sentences('Mr. E. Gray came\nin. "Who is it?" she said. "Nobody."\n\nIt rained')
    ['Mr. E. Gray came in.', '"Who is it?" she said.', '"Nobody."', 'It rained']
    """
    found = []
    for paragraph in _PARAGRAPH.split(text):
        paragraph = " ".join(paragraph.split())
        start = 0
        for end in _END.finditer(paragraph):
            word = _LAST_WORD.search(paragraph[start : end.start() + 1]) if end[0] == ". " else None
            if word and (word[1] in _SHORT or (len(word[1]) == 1 and word[1] != "I")):
                continue
            found.append(paragraph[start : end.end()].strip())
            start = end.end()
        found.append(paragraph[start:].strip())
    return [sentence for sentence in found if sentence]


class Pairs(NamedTuple):
    """Pairs of sentences, by their places in the chain of all documents, and whether the second
    follows the first.
    """

    first: Int[np.ndarray, " n"]
    second: Int[np.ndarray, " n"]
    follows: Bool[np.ndarray, " n"]


def sentence_pairs(documents: Sequence[Sequence[Any]], *, key: PRNGKeyArray) -> Pairs:
    r"""Each sentence that has a successor in its document, and with it the successor or, as often,
    another (§6.5).

    The other is any sentence of all documents that does not read the same as the true successor,
    all places alike. A sentence is a text or a row of tokens. The numbers are places in
    `list(chain.from_iterable(documents))`. (Devlin et al. 2019)

    >>> pairs = sentence_pairs([["a", "b", "c"], ["d", "e"]], key=jr.key(0))
    >>> pairs.first.tolist()
    [0, 1, 3]
    >>> bool(np.all((pairs.second == pairs.first + 1) == pairs.follows))
    True
    """
    flat = [_readable(sentence) for sentence in chain.from_iterable(documents)]
    number: dict[Any, int] = {}
    reads = np.array([number.setdefault(sentence, len(number)) for sentence in flat], np.int64)
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    first = np.setdiff1d(np.arange(len(flat)), ends - 1)
    if not len(first) or len(number) < 2:
        raise ValueError(
            f"sentence_pairs: {len(flat)} sentences in {len(ends)} documents, {len(number)} of "
            "them different, give no "
            "pair; a document needs two sentences, and all documents two that differ."
        )
    draw = np.random.Generator(np.random.Philox(seed=np.asarray(jr.key_data(key)).ravel().tolist()))
    follows = draw.random(len(first)) < 0.5
    second = np.where(follows, first + 1, draw.integers(len(flat), size=len(first)))
    while len(same := np.flatnonzero(~follows & (reads[second] == reads[first + 1]))):
        second[same] = draw.integers(len(flat), size=len(same))
    return Pairs(first, second, follows)


def _readable(sentence: Any) -> Any:
    return sentence if isinstance(sentence, str) else tuple(np.asarray(sentence).tolist())


class Input(NamedTuple):
    """What a model reads: the tokens, and for each the number of the sentence it belongs to; -1 is
    nothing.
    """

    tokens: Int[np.ndarray, " t"]
    segments: Int[np.ndarray, " t"]


def join_sentences(first: Any, second: Any = None, *, cls: int, sep: int, length: int) -> Input:
    r"""$[\mathrm{CLS}]\ s_1\ [\mathrm{SEP}]\ (s_2\ [\mathrm{SEP}])$, filled up with -1 to `length`
    (§6.5).

    `first` and `second` are rows of tokens. Where both do not fit, tokens are taken off the end of
    the longer one (of equals the second), one after the other. (Devlin et al. 2019)

    >>> row = join_sentences([5, 6, 7], [8], cls=1, sep=2, length=8)
    >>> row.tokens.tolist(), row.segments.tolist()
    ([1, 5, 6, 7, 2, 8, 2, -1], [0, 0, 0, 0, 0, 1, 1, -1])
    >>> join_sentences([5, 6, 7], [8, 9], cls=1, sep=2, length=6).tokens.tolist()
    [1, 5, 6, 2, 8, 2]
    """
    parts = [_row(part, (cls, sep)) for part in (first, second) if part is not None]
    room = length - 1 - len(parts)
    if room < len(parts):
        raise ValueError(
            f"join_sentences: length={length} has no room for {len(parts)} sentences and their "
            "marks."
        )
    kept = _kept([len(part) for part in parts], room)
    tokens = np.full(length, NOTHING, np.int32)
    segments = np.full(length, NOTHING, np.int32)
    tokens[0], segments[0], place = cls, 0, 1
    for i, (part, n) in enumerate(zip(parts, kept)):
        tokens[place : place + n], tokens[place + n] = part[:n], sep
        segments[place : place + n + 1] = i
        place += n + 1
    return Input(tokens, segments)


def _kept(lengths: list[int], room: int) -> list[int]:
    """How many tokens of each part are kept, if the longer one loses its last until all fit."""
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


def part_sentences(tokens: Any, *, cls: int, sep: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The sentences out of a row that `join_sentences` made: the first, and the second or None.

    >>> first, second = part_sentences([1, 5, 6, 7, 2, 8, 2, -1], cls=1, sep=2)
    >>> first.tolist(), second.tolist()
    ([5, 6, 7], [8])
    """
    row = np.asarray(tokens, np.int32)
    row = row[row != NOTHING]
    ends = np.flatnonzero(row == sep)
    if not len(row) or row[0] != cls or len(ends) not in (1, 2) or ends[-1] != len(row) - 1:
        raise ValueError(
            f"part_sentences: expected {cls} … {sep} or {cls} … {sep} … {sep}, got {row.tolist()}."
        )
    return row[1 : ends[0]], row[ends[0] + 1 : ends[1]] if len(ends) == 2 else None


def _row(tokens: Any, marks: tuple[int, int]) -> np.ndarray:
    row = np.asarray(tokens, np.int32)
    if row.ndim != 1 or np.isin(row, marks).any() or (row < NOTHING).any():
        raise ValueError(
            f"join_sentences: a sentence is a row of tokens other than the marks {marks}; got "
            f"{row.shape} with "
            f"{row[np.isin(row, marks)].tolist()[:3]} in it. Encode it with special=False."
        )
    return row[row != NOTHING]
