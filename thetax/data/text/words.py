"""Word and character vocabularies: texts as sequences of token ids or as bags of words.

The j-th most frequent word has id j, from 0 to V - 1; a word outside the vocabulary has id V, and
-1 is padding. With characters it is the same.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int

from ...check import expect_count

Texts: TypeAlias = Iterable[Any]  # strings, or an array of them

PADDING = -1
REPLACEMENT_CHARACTER = "\ufffd"  # decoded from an unknown token


class _CharacterTable(dict[int, str]):
    """For `str.translate`: all characters but letters, digits and ' become spaces."""

    def __missing__(self, code: int) -> str:
        self[code] = chr(code) if chr(code).isalnum() else "'" if chr(code) in "'’" else " "
        return self[code]


_CHARACTERS = _CharacterTable()
_BREAK = re.compile(r"<br\s*/?>")


def split_words(text: str) -> list[str]:
    """The words of a text in lower case: runs of letters and digits, with inner apostrophes.

    >>> split_words("I don't like it.<br /><br />'Awful' -- 2/10 stars!")
    ['i', "don't", 'like', 'it', 'awful', '2', '10', 'stars']
    """
    text = text.lower()
    if "<br" in text:
        text = _BREAK.sub(" ", text)
    text = f" {text.translate(_CHARACTERS)} "
    if "'" in text:  # inside a word an apostrophe stands between two letters
        text = text.replace("''", " ").replace("' ", " ").replace(" '", " ")
    return text.split()


class Vocabulary:
    """A vocabulary of words, the most frequent first.

    >>> vocabulary = Vocabulary.fit(["the cat and the dog", "the end"], vocab_size=2)
    >>> vocabulary.words, len(vocabulary)
    (('the', 'and'), 2)
    >>> vocabulary.encode(["And the end", "the"], length=3).tolist()
    [[1, 0, 2], [0, -1, -1]]
    >>> vocabulary.bag(["the end, the and of the and", "cat"]).tolist()
    [[0, 1], [-1, -1]]
    """

    words: tuple[str, ...]

    def __init__(self, words: Iterable[str]):
        self.words = tuple(words)
        if len(set(self.words)) != len(self.words):
            raise ValueError("Vocabulary: words must be distinct; a word is given twice.")

    @classmethod
    def fit(cls, texts: Texts, *, vocab_size: int = 10_000) -> "Vocabulary":
        """The `vocab_size` most frequent words of the texts (or all words if there are fewer).

        Words of equal frequency are in alphabetical order.
        """
        expect_count("Vocabulary.fit", vocab_size=vocab_size)
        counts = Counter(chain.from_iterable(map(split_words, as_list(texts))))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls(word for word, _ in ranked[:vocab_size])

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """The id of each word."""
        return {word: i for i, word in enumerate(self.words)}

    def encode(self, texts: Texts, *, length: int) -> Int[np.ndarray, "n {length}"]:
        """The ids of the first `length` words of each text, padded at the end with -1."""
        expect_count("Vocabulary.encode", length=length)
        unknown = len(self)
        id_of = lambda word: self.word_ids.get(word, unknown)
        rows = ([id_of(word) for word in split_words(text)[:length]] for text in as_list(texts))
        return pad_to(rows, length)

    def bag(self, texts: Texts, *, length: int | None = None) -> Int[np.ndarray, "n k"]:
        """Bags of words: the sorted ids of the distinct known words of each text, padded with -1.

        With `length` a bag keeps at most that many words, the rarest ones, as frequent words carry
        the least information.
        """
        if length is not None:
            expect_count("Vocabulary.bag", length=length)
        ids = self.word_ids
        bags = [
            sorted([ids[word] for word in set(split_words(text)) if word in ids])
            for text in as_list(texts)
        ]
        largest = max((len(bag) for bag in bags), default=0)
        width = max(1, largest if length is None else min(length, largest))
        return pad_to((bag[-width:] for bag in bags), width)


class Characters:
    """A vocabulary of characters, the most frequent first: a character-level tokeniser.

    >>> vocabulary = Characters.fit(["banana"], vocab_size=2)
    >>> vocabulary.letters, len(vocabulary)
    ('an', 2)
    >>> vocabulary.tokens("nab").tolist()
    [1, 0, 2]
    >>> vocabulary.encode(["nab", "a"], length=2).tolist()
    [[1, 0], [0, -1]]
    >>> vocabulary.decode(np.array([1, 0, -1]))
    'na'
    """

    letters: str

    def __init__(self, letters: str):
        self.letters = letters
        if len(set(letters)) != len(letters):
            raise ValueError("Characters: letters must be distinct; a character is given twice.")

    @classmethod
    def fit(cls, texts: Texts, *, vocab_size: int | None = None) -> "Characters":
        """The `vocab_size` most frequent characters of the texts, or all of them.

        Characters of equal frequency are in the order of their code points.
        """
        if vocab_size is not None:
            expect_count("Characters.fit", vocab_size=vocab_size)
        counts = sum(map(Counter, as_list(texts)), Counter())
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls("".join(letter for letter, _ in ranked[:vocab_size]))

    def __len__(self) -> int:
        return len(self.letters)

    @cached_property
    def _sorted_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """The code points of the letters in increasing order, and the id of each."""
        codes = _code_points(self.letters)
        return np.sort(codes), np.argsort(codes).astype(np.int32)

    def tokens(self, text: str) -> Int[np.ndarray, " t"]:
        """The id of each character of one text."""
        codes = _code_points(text)
        known_codes, ids = self._sorted_codes
        if not len(known_codes):
            return np.zeros(len(codes), np.int32)
        index = np.minimum(np.searchsorted(known_codes, codes), len(known_codes) - 1)
        return np.where(known_codes[index] == codes, ids[index], np.int32(len(self)))

    def encode(self, texts: Texts, *, length: int) -> Int[np.ndarray, "n {length}"]:
        """The ids of the first `length` characters of each text, padded at the end with -1."""
        expect_count("Characters.encode", length=length)
        return pad_to((self.tokens(text[:length]).tolist() for text in as_list(texts)), length)

    def decode(self, tokens: Any) -> str:
        """The text of a row of token ids; padding is skipped, unknown ids become
        `REPLACEMENT_CHARACTER`.
        """
        row = np.asarray(tokens)
        if row.ndim != 1:
            raise ValueError(
                f"Characters.decode: expected one row of token ids; got shape {row.shape}. "
                "Decode row by row."
            )
        row = row[row != PADDING].tolist()
        return "".join(
            self.letters[token] if 0 <= token < len(self) else REPLACEMENT_CHARACTER
            for token in row
        )


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def as_list(texts: Texts) -> list[str]:
    """Texts as a list; raises `ValueError` for a single string."""
    if isinstance(texts, str):
        raise ValueError("texts: expected a list of texts; got one string. Put it into a list.")
    return texts.tolist() if isinstance(texts, np.ndarray) else list(texts)


def pad_to(rows: Iterable[list[int]], width: int) -> np.ndarray:
    """Rows of different length as a matrix of the given width, padded with -1."""
    rows = list(rows)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    matrix = np.full((len(rows), width), PADDING, np.int32)
    matrix[np.arange(width)[None] < lengths[:, None]] = np.fromiter(
        chain.from_iterable(rows), np.int32
    )
    return matrix
