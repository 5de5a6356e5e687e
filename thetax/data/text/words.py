"""Texts as numbers: words, a vocabulary of the most frequent, and each text as a sequence or a bag
of them; or character by character.

The j-th most frequent word is the number j, from 0 to V - 1; a word that is not in the vocabulary
is V, and -1 stands for no word, where a short text is filled up. With characters it is the same.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int

Texts: TypeAlias = Iterable[Any]  # strings, or an array of them

NOTHING = -1  # the number that stands for no word
STRANGE = "\ufffd"  # how a character that is not known is written


class _Letters(dict[int, str]):
    """What becomes of each character, decided when it is first met: all but letters, digits and '
    are blanks.
    """

    def __missing__(self, code: int) -> str:
        self[code] = chr(code) if chr(code).isalnum() else "'" if chr(code) in "'’" else " "
        return self[code]


_LETTERS = _Letters()
_BREAK = re.compile(r"<br\s*/?>")


def words(text: str) -> list[str]:
    """The words of a text: runs of letters and digits in lower case, apostrophes inside them kept.

    >>> words("I don't like it.<br /><br />'Awful' -- 2/10 stars!")
    ['i', "don't", 'like', 'it', 'awful', '2', '10', 'stars']
    """
    text = text.lower()
    if "<br" in text:
        text = _BREAK.sub(" ", text)
    text = f" {text.translate(_LETTERS)} "
    if "'" in text:  # inside a word an apostrophe stands between two letters
        text = text.replace("''", " ").replace("' ", " ").replace(" '", " ")
    return text.split()


class Vocabulary:
    """Words by number, the most frequent first.

    >>> known = Vocabulary.fit(["the cat and the dog", "the end"], size=2)
    >>> known.words, len(known)
    (('the', 'and'), 2)
    >>> known.encode(["And the end", "the"], length=3).tolist()
    [[1, 0, 2], [0, -1, -1]]
    >>> known.bag(["the end, the and of the and", "cat"]).tolist()
    [[0, 1], [-1, -1]]
    """

    words: tuple[str, ...]

    def __init__(self, words: Iterable[str]):
        self.words = tuple(words)
        if len(set(self.words)) != len(self.words):
            raise ValueError("Vocabulary: a word is given twice; every word has one number.")

    @classmethod
    def fit(cls, texts: Texts, *, size: int = 10_000) -> "Vocabulary":
        """The `size` most frequent words of the texts (or all there are); of equals the first in
        the alphabet.
        """
        if size < 1:
            raise ValueError(
                f"Vocabulary.fit: size counts words and must be at least 1; got {size}."
            )
        counts = Counter(chain.from_iterable(map(words, listed(texts))))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls(word for word, _ in ranked[:size])

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def encode(self, texts: Texts, *, length: int) -> Int[np.ndarray, "n {length}"]:
        """The first `length` words of each text, in order; what is shorter is filled up at the end
        with -1.
        """
        if length < 1:
            raise ValueError(
                f"Vocabulary.encode: length counts words and must be at least 1; got {length}."
            )
        number = self.numbers.get
        unknown = len(self)
        return filled(
            ([number(word, unknown) for word in words(text)[:length]] for text in listed(texts)),
            length,
        )

    def bag(self, texts: Texts, *, length: int | None = None) -> Int[np.ndarray, "n k"]:
        """The distinct known words of each text, rising, filled up with -1 to the largest bag's
        size.

        With `length` a bag keeps that many words at most, its rarest, for those that every text has
        tell least.
        """
        if length is not None and length < 1:
            raise ValueError(
                f"Vocabulary.bag: length counts words and must be at least 1; got {length}."
            )
        known = self.numbers
        bags = [
            sorted([known[word] for word in set(words(text)) if word in known])
            for text in listed(texts)
        ]
        largest = max((len(bag) for bag in bags), default=0)
        width = max(1, largest if length is None else min(length, largest))
        return filled((bag[-width:] for bag in bags), width)


class Characters:
    """Characters by number, the most frequent first.

    >>> known = Characters.fit(["banana"], size=2)
    >>> known.letters, len(known)
    ('an', 2)
    >>> known.tokens("nab").tolist()
    [1, 0, 2]
    >>> known.encode(["nab", "a"], length=2).tolist()
    [[1, 0], [0, -1]]
    >>> known.decode(np.array([1, 0, -1]))
    'na'
    """

    letters: str

    def __init__(self, letters: str):
        self.letters = letters
        if len(set(letters)) != len(letters):
            raise ValueError(
                "Characters: a character is given twice; every character has one number."
            )

    @classmethod
    def fit(cls, texts: Texts, *, size: int | None = None) -> "Characters":
        """The `size` most frequent characters of the texts, or all; of equals the first in
        Unicode's order.
        """
        if size is not None and size < 1:
            raise ValueError(
                f"Characters.fit: size counts characters and must be at least 1; got {size}."
            )
        counts = sum(map(Counter, listed(texts)), Counter())
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls("".join(letter for letter, _ in ranked[:size]))

    def __len__(self) -> int:
        return len(self.letters)

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """The codes of the letters, rising, and the number of each."""
        codes = _codes(self.letters)
        return np.sort(codes), np.argsort(codes).astype(np.int32)

    def tokens(self, text: str) -> Int[np.ndarray, " t"]:
        """The number of each character of one text."""
        codes, (known, numbers) = _codes(text), self._order
        if not len(known):
            return np.zeros(len(codes), np.int32)
        place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[place] == codes, numbers[place], np.int32(len(self)))

    def encode(self, texts: Texts, *, length: int) -> Int[np.ndarray, "n {length}"]:
        """The first `length` characters of each text; what is shorter is filled up at the end with
        -1.
        """
        if length < 1:
            raise ValueError(
                f"Characters.encode: length counts characters and must be at least 1; got {length}."
            )
        return filled((self.tokens(text[:length]).tolist() for text in listed(texts)), length)

    def decode(self, tokens: Any) -> str:
        """The text of a row of numbers; -1 is nothing, and any other that is no character's is
        `STRANGE`.
        """
        row = np.asarray(tokens)
        if row.ndim != 1:
            raise ValueError(
                f"Characters.decode: expected one row of numbers, got {row.shape}; decode row by "
                "row."
            )
        row = row[row != NOTHING].tolist()
        return "".join(self.letters[token] if 0 <= token < len(self) else STRANGE for token in row)


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def listed(texts: Texts) -> list[str]:
    """Several texts as a list; one text alone is refused."""
    if isinstance(texts, str):
        raise ValueError("texts: expected several texts, got one string; put it into a list.")
    return texts.tolist() if isinstance(texts, np.ndarray) else list(texts)


def filled(rows: Iterable[list[int]], width: int) -> np.ndarray:
    """Rows of different length as a matrix, -1 where a row has ended."""
    rows = list(rows)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    matrix = np.full((len(rows), width), NOTHING, np.int32)
    matrix[np.arange(width)[None] < lengths[:, None]] = np.fromiter(
        chain.from_iterable(rows), np.int32
    )
    return matrix
