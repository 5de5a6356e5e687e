r"""Pieces of words learned from text: starting with letters, the best pair of neighbours becomes a
piece (§6.5).

What is best is a score of three counts, of the pair $ab$ and of $a$ and $b$ alone: `frequency` is
byte-pair encoding (Sennrich et al. 2016), `association` is WordPiece (Schuster and Nakajima 2012).
Counts are kept up to date word by word, so that a merge costs as much as the words it changes;
equal scores are settled by the alphabet.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

Merge: TypeAlias = tuple[str, str]
Words: TypeAlias = (
    Mapping[str, int] | Mapping[tuple[str, ...], int]
)  # how often each occurs, by its letters
Score: TypeAlias = Callable[
    [np.ndarray, np.ndarray, np.ndarray], np.ndarray
]  # counts of ab, a, b -> the score


def frequency(ab: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""The score $n(ab)$ of byte-pair encoding: the pair met most often (Sennrich et al. 2016).

    >>> frequency(np.array([6, 2]), np.array([10, 2]), np.array([10, 2])).tolist()
    [6.0, 2.0]
    """
    return ab.astype(float)


def association(ab: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""The score $n(ab) / (n(a)\,n(b))$ of WordPiece (§6.5): the pair whose parts are seldom met
    apart.

    >>> association(np.array([6, 2]), np.array([10, 2]), np.array([10, 2])).tolist()
    [0.06, 0.5]
    """
    return ab / (a * b)


class Merges(NamedTuple):
    """What was learned: the pieces, letters first, then each as it was made; and the pairs that
    were merged.
    """

    pieces: list[str]
    merges: list[Merge]


def learn_merges(
    words: Words,
    *,
    size: int,
    score: Score,
    join: Callable[[str, str], str],
    letters: Sequence[str] = (),
    least: int = 1,
) -> Merges:
    r"""Merges the pair of the highest score everywhere, again and again, until there are `size`
    pieces.

    `words` counts words by their letters; `letters` are pieces whether they occur or not. A pair
    that is met fewer than `least` times is never merged. Of equal scores the pair that comes first
    by its parts is taken.

    >>> words = {tuple("low"): 5, tuple("lot"): 2, tuple("new"): 6}
    >>> learn_merges(words, size=8, score=frequency, join=str.__add__)
    Merges(pieces=['e', 'l', 'n', 'o', 't', 'w', 'lo', 'ew'], merges=[('l', 'o'), ('e', 'w')])
    >>> learn_merges(words, size=7, score=association, join=str.__add__).merges
    [('n', 'e')]
    """
    corpus = _Corpus(words, letters)
    merges = []
    while len(corpus.pieces) < size:
        best = corpus.best(score, least)
        if best is None:
            break
        a, b = best
        merges.append((corpus.pieces[a], corpus.pieces[b]))
        corpus.merge(a, b, join(*merges[-1]))
    return Merges(corpus.pieces, merges)


class _Corpus:
    """The distinct words as rows of piece numbers, and the counts of pieces and of pairs in
    them.
    """

    def __init__(self, words: Words, letters: Sequence[str]):
        self.pieces = sorted({*letters, *(letter for word in words for letter in word)})
        self.number = {piece: i for i, piece in enumerate(self.pieces)}
        self.order = list(self.pieces)  # by the alphabet
        self.rank = np.arange(len(self.pieces))  # of each piece in it
        self.count = np.zeros(len(self.pieces), np.int64)
        self.words = [[self.number[letter] for letter in word] for word in words]
        self.weight = list(words.values())
        self.slot: dict[tuple[int, int], int] = {}
        self.pairs = np.zeros(
            (3, 1024), np.int64
        )  # a, b and the count of ab, a column for each pair
        self.where: defaultdict[tuple[int, int], set[int]] = defaultdict(
            set
        )  # the words in which a pair is or was
        found: defaultdict[tuple[int, int], int] = defaultdict(int)
        for i, (word, weight) in enumerate(zip(self.words, self.weight)):
            np.add.at(self.count, word, weight)
            for pair in pairwise(word):
                found[pair] += weight
                self.where[pair].add(i)
        self._add(found)

    def best(self, score: Score, least: int) -> tuple[int, int] | None:
        """The pair of the highest score, of equals the first by the alphabet; None if none is
        left.
        """
        a, b, ab = self.pairs[:, : len(self.slot)]
        live = np.flatnonzero(ab >= least)
        if not len(live):
            return None
        a = a[live]
        b = b[live]
        scores = score(ab[live], self.count[a], self.count[b])
        equal = np.flatnonzero(scores == scores.max())
        chosen = equal[np.argmin(self.rank[a[equal]] * len(self.rank) + self.rank[b[equal]])]
        return int(a[chosen]), int(b[chosen])

    def merge(self, a: int, b: int, name: str) -> None:
        """Writes every a b as one piece, from left to right."""
        new = self._named(name)
        changed = defaultdict(int)
        made = 0
        for i in self.where.pop((a, b)):
            old = self.words[i]
            weight = self.weight[i]
            word = _merged(old, a, b, new)
            if len(word) == len(old):
                continue
            made += weight * (len(old) - len(word))
            for pair in pairwise(old):
                changed[pair] -= weight
            for pair in pairwise(word):
                changed[pair] += weight
                self.where[pair].add(i)
            self.words[i] = word
        self.count[[a, b]] -= made if a != b else 2 * made
        self.count[new] += made
        self._add(changed)

    def _named(self, name: str) -> int:
        """The number of a piece, new or known (two pairs may join to the same)."""
        if name not in self.number:
            place = bisect_left(self.order, name)
            self.order.insert(place, name)
            self.rank[self.rank >= place] += 1
            self.rank = np.append(self.rank, place)
            self.count = np.append(self.count, 0)
            self.number[name] = len(self.pieces)
            self.pieces.append(name)
        return self.number[name]

    def _add(self, changed: Mapping[tuple[int, int], int]) -> None:
        for pair, change in changed.items():
            if change:
                slot = self.slot.setdefault(pair, len(self.slot))
                if slot == self.pairs.shape[1]:
                    self.pairs = np.concatenate([self.pairs, np.zeros_like(self.pairs)], axis=1)
                self.pairs[0, slot], self.pairs[1, slot] = pair
                self.pairs[2, slot] += change


def _merged(word: list[int], a: int, b: int, new: int) -> list[int]:
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
