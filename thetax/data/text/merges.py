r"""Learning subword vocabularies: adjacent pieces with the best score are merged, repeatedly
(§6.5).

The score of a pair $ab$ is a function of three counts, $n(ab)$, $n(a)$ and $n(b)$: `pair_frequency`
gives byte-pair encoding (Sennrich et al. 2016), `pair_association` gives WordPiece (Schuster and
Nakajima 2012). A merge updates only the counts of the words it changes. Ties are broken
alphabetically.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

Merge: TypeAlias = tuple[str, str]
# the count of each word, given as its letters
WordCounts: TypeAlias = Mapping[str, int] | Mapping[tuple[str, ...], int]
# counts of ab, a, b -> score
Score: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def pair_frequency(ab: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""The score $n(ab)$ of byte-pair encoding (Sennrich et al. 2016).

    >>> pair_frequency(np.array([6, 2]), np.array([10, 2]), np.array([10, 2])).tolist()
    [6.0, 2.0]
    """
    return ab.astype(float)


def pair_association(ab: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""The score $n(ab) / (n(a)\,n(b))$ of WordPiece (§6.5).

    It is high for pieces that rarely occur apart.

    >>> pair_association(np.array([6, 2]), np.array([10, 2]), np.array([10, 2])).tolist()
    [0.06, 0.5]
    """
    return ab / (a * b)


class Merges(NamedTuple):
    """A learned vocabulary: the pieces (letters first, then in the order of the merges), and the
    merged pairs.
    """

    pieces: list[str]
    merges: list[Merge]


def learn_merges(
    words: WordCounts,
    *,
    vocab_size: int,
    score: Score,
    join: Callable[[str, str], str],
    letters: Sequence[str] = (),
    min_frequency: int = 1,
) -> Merges:
    r"""Merges the pair with the highest score in all words, until there are `vocab_size` pieces.

    `words` maps each word, given as its letters, to its count. `letters` are pieces even if they do
    not occur. `join(a, b)` names the piece that a merge creates. Learning stops early when no pair
    occurs at least `min_frequency` times. Ties are broken alphabetically, first by the first piece
    of the pair.

    >>> words = {tuple("low"): 5, tuple("lot"): 2, tuple("new"): 6}
    >>> learn_merges(words, vocab_size=8, score=pair_frequency, join=str.__add__)
    Merges(pieces=['e', 'l', 'n', 'o', 't', 'w', 'lo', 'ew'], merges=[('l', 'o'), ('e', 'w')])
    >>> learn_merges(words, vocab_size=7, score=pair_association, join=str.__add__).merges
    [('n', 'e')]
    """
    corpus = _Corpus(words, letters)
    merges = []
    while len(corpus.pieces) < vocab_size:
        best = corpus.best_pair(score, min_frequency)
        if best is None:
            break
        a, b = best
        merges.append((corpus.pieces[a], corpus.pieces[b]))
        corpus.merge(a, b, join(*merges[-1]))
    return Merges(corpus.pieces, merges)


class _Corpus:
    """The distinct words as lists of piece ids, with the counts of pieces and of adjacent pairs."""

    def __init__(self, words: WordCounts, letters: Sequence[str]):
        self.pieces = sorted({*letters, *(letter for word in words for letter in word)})
        self.piece_ids = {piece: i for i, piece in enumerate(self.pieces)}
        self.sorted_pieces = list(self.pieces)
        self.rank = np.arange(len(self.pieces))  # the position of each id in `sorted_pieces`
        self.count = np.zeros(len(self.pieces), np.int64)
        self.words = [[self.piece_ids[letter] for letter in word] for word in words]
        self.word_counts = list(words.values())
        self.column: dict[tuple[int, int], int] = {}  # the column of each pair in `pairs`
        self.pairs = np.zeros((3, 1024), np.int64)  # rows: a, b, the count of ab
        # indices of the words that contain a pair, or contained it before a merge
        self.words_with_pair: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        pair_counts: defaultdict[tuple[int, int], int] = defaultdict(int)
        for i, (word, count) in enumerate(zip(self.words, self.word_counts)):
            np.add.at(self.count, word, count)
            for pair in pairwise(word):
                pair_counts[pair] += count
                self.words_with_pair[pair].add(i)
        self._add_pair_counts(pair_counts)

    def best_pair(self, score: Score, min_frequency: int) -> tuple[int, int] | None:
        """The pair with the highest score, ties broken alphabetically; None if no pair is left."""
        a, b, ab = self.pairs[:, : len(self.column)]
        frequent = np.flatnonzero(ab >= min_frequency)
        if not len(frequent):
            return None
        a = a[frequent]
        b = b[frequent]
        scores = score(ab[frequent], self.count[a], self.count[b])
        ties = np.flatnonzero(scores == scores.max())
        best = ties[np.argmin(self.rank[a[ties]] * len(self.rank) + self.rank[b[ties]])]
        return int(a[best]), int(b[best])

    def merge(self, a: int, b: int, name: str) -> None:
        """Replaces every adjacent a, b by the piece `name`, from left to right in each word."""
        new = self._add_piece(name)
        changes = defaultdict(int)
        n_merged = 0
        for i in self.words_with_pair.pop((a, b)):
            old = self.words[i]
            count = self.word_counts[i]
            word = _merge_pair(old, a, b, new)
            if len(word) == len(old):
                continue
            n_merged += count * (len(old) - len(word))
            for pair in pairwise(old):
                changes[pair] -= count
            for pair in pairwise(word):
                changes[pair] += count
                self.words_with_pair[pair].add(i)
            self.words[i] = word
        self.count[[a, b]] -= n_merged if a != b else 2 * n_merged
        self.count[new] += n_merged
        self._add_pair_counts(changes)

    def _add_piece(self, name: str) -> int:
        """The id of a piece, which is added unless it exists (two merges can give one piece)."""
        if name not in self.piece_ids:
            position = bisect_left(self.sorted_pieces, name)
            self.sorted_pieces.insert(position, name)
            self.rank[self.rank >= position] += 1
            self.rank = np.append(self.rank, position)
            self.count = np.append(self.count, 0)
            self.piece_ids[name] = len(self.pieces)
            self.pieces.append(name)
        return self.piece_ids[name]

    def _add_pair_counts(self, changes: Mapping[tuple[int, int], int]) -> None:
        for pair, change in changes.items():
            if change:
                column = self.column.setdefault(pair, len(self.column))
                if column == self.pairs.shape[1]:
                    self.pairs = np.concatenate([self.pairs, np.zeros_like(self.pairs)], axis=1)
                self.pairs[0, column], self.pairs[1, column] = pair
                self.pairs[2, column] += change


def _merge_pair(word: list[int], a: int, b: int, new: int) -> list[int]:
    merged = []
    i = 0
    while i < len(word):
        if word[i] == a and i + 1 < len(word) and word[i + 1] == b:
            merged.append(new)
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return merged
