r"""A dictionary out of sentence pairs alone: IBM's model 1 (Brown, Della Pietra, Della Pietra &
Mercer 1993).

Each word $g_i$ of the target comes from one word $e_j$ of the source, any with the same chance, or
from none ($e_0$):

$$p(g_{1:m} \mid e_{1:l}) = \prod_{i=1}^m \frac{1}{l + 1} \sum_{j=0}^l t(g_i \mid e_j).$$

EM knows nothing but which sentences belong together. Its E-step shares each $g_i$ out among the
words it may come from, $c(g, e) = \sum_{i, j} t(g_i \mid e_j) / \sum_k t(g_i \mid e_k)$, its M-step
is $t(g \mid e) = c(g, e) / \sum_{g'} c(g', e)$. The likelihood is concave in $t$, so that no start
is a bad one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

NONE = ""  # the word from which comes what no word of the source explains
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def words_as_written(text: str) -> list[str]:
    """The words of a text with their capitals, without its marks.

    >>> words_as_written("And he said, What's that?")
    ['And', 'he', 'said', "What's", 'that']
    """
    return _WORD.findall(text)


@dataclass(frozen=True)
class Dictionary:
    r"""$\arg\max_g t(g \mid e)$ for each word $e$, that maximum, and $\log p$ a word of the target
    after each round.
    """

    meaning: Mapping[str, str]
    chance: Mapping[str, float]
    likelihood: tuple[float, ...]

    @classmethod
    def fit(
        cls, sources: Sequence[str], targets: Sequence[str], *, rounds: int = 5
    ) -> "Dictionary":
        """Learns from texts and their translations by so many rounds of EM.

        >>> found = Dictionary.fit(
        ...     ["the house", "the book", "a book"], ["das Haus", "das Buch", "ein Buch"], rounds=20
        ... )
        >>> found.translate("a house")
        'ein Haus'
        """
        if len(sources) != len(targets) or not len(sources):
            raise ValueError(
                f"Dictionary: expected a target for each source, got {len(targets)} for "
                f"{len(sources)}."
            )
        if rounds < 1:
            raise ValueError(f"Dictionary: rounds of EM must be at least 1; got {rounds}.")
        known, sides = zip(*(_numbered(texts) for texts in (sources, targets)))
        e, g, place, odds = _pairs([np.append(row, len(known[0])) for row in sides[0]], sides[1])
        pairs, which = np.unique(e * len(known[1]) + g, return_inverse=True)
        e = pairs // len(known[1])
        t = np.full(len(pairs), 1 / len(known[1]))
        told = []
        for _ in range(rounds):
            share = t[which]
            total = np.bincount(place, share)
            told.append(float(np.mean(np.log(total) - np.log(odds))))
            count = np.bincount(which, share / total[place])
            t = count / np.bincount(e, count)[e]
        best = _best(e, t)
        names = [(*known[0], NONE)[e[at]] for at in best]
        meaning = {name: known[1][pairs[at] % len(known[1])] for name, at in zip(names, best)}
        return cls(meaning, {name: float(t[at]) for name, at in zip(names, best)}, tuple(told))

    def translate(self, text: str) -> str:
        """Each word by its likeliest translation, in the order of the source; marks and what is not
        known stay.
        """
        return _WORD.sub(lambda found: self.meaning.get(found[0], found[0]), text)


def _numbered(texts: Sequence[str]) -> tuple[list[str], list[np.ndarray]]:
    """All words, in the order of the alphabet, and each text in their numbers."""
    rows = [words_as_written(str(text)) for text in texts]
    if not all(rows):
        raise ValueError(
            f"Dictionary: text {next(i for i, row in enumerate(rows) if not row)} has no words; "
            "leave it out."
        )
    known, numbers = np.unique(np.array(list(chain.from_iterable(rows))), return_inverse=True)
    return known.tolist(), np.split(numbers, np.cumsum([len(row) for row in rows])[:-1])


def _pairs(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every word of a source with every word of its target: their numbers, and which of all the
    words of targets it is; and how many words each of these may come from.
    """
    sizes = np.array([len(row) for row in sources])
    lengths = np.array([len(row) for row in targets])
    odds = np.repeat(sizes, lengths)
    e = np.concatenate([np.tile(source, len(target)) for source, target in zip(sources, targets)])
    place = np.repeat(np.arange(lengths.sum()), odds)
    return e, np.concatenate(targets)[place], place, odds


def _best(e: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Of each run of equal numbers `e` the place of the largest `t`, the first of equals."""
    order = np.lexsort((-t, e))
    return order[np.unique(e[order], return_index=True)[1]]
