"""Corpora that are more than texts with labels: verses in two languages, sentences with the class
of every word.
"""

from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import brown as brown_corpus
from .dataset import strings
from .parallel_bible import BOOKS
from .store import load_arrays


class Verses(NamedTuple):
    """Verses of the Bible, n of them, in its order."""

    english: np.ndarray  # n strings
    german: np.ndarray  # n strings
    book: np.ndarray  # int32, the place of its name in `books`
    chapter: np.ndarray  # int32, counted from 1
    verse: np.ndarray  # int32, counted from 1
    same: (
        np.ndarray
    )  # bool: both Bibles divide this chapter alike, so that the two verses surely say the same
    books: tuple[str, ...] = BOOKS

    def select(self, which: np.ndarray) -> "Verses":
        """Those verses alone, by their places or a row of truth values.

        >>> few = Verses(
        ...     *(
        ...         np.array(column)
        ...         for column in (["a", "b"], ["c", "d"], [0, 7], [1, 1], [1, 1], [True] * 2)
        ...     )
        ... )
        >>> few.select(few.book == few.books.index("Ruth")).german.tolist()
        ['d']
        """
        return Verses(*(column[which] for column in self[:6]), books=self.books)


def load_verses(*, folder: str | Path | None = None) -> Verses:
    """The 30,968 verses that the King James Version and Luther's Bible of 1912 have under the same
    number.

    Hold out whole books to test on, for neighbouring verses share their words: with
    `verses.book == 7` apart, Ruth is never seen. 28,128 of the pairs are `same`; of the others,
    mostly psalms, many are off by a verse.
    """
    arrays = load_arrays("verses", folder=folder)
    book, chapter, verse = (arrays[name].astype(np.int32) for name in ("book", "chapter", "verse"))
    english, german = (
        strings(arrays[name], arrays[f"{name}_ends"]) for name in ("english", "german")
    )
    return Verses(english, german, book - 1, chapter, verse, arrays["same"])


class Brown(NamedTuple):
    """Sentences, n of them; the lists of a sentence are as long as it has words."""

    words: list[list[str]]
    tags: list[list[str]]  # as the corpus has them, such as "NP-TL"
    universal: list[list[str]]  # one of the twelve classes `UNIVERSAL`
    genre: np.ndarray  # int32, the place of its name in `genres`
    document: np.ndarray  # int32, which of the 500 texts it is from
    genres: tuple[str, ...] = brown_corpus.GENRES


def load_brown(*, folder: str | Path | None = None) -> Brown:
    """The Brown corpus: 57,340 sentences of 500 texts in 15 genres, 1,161,192 words with their
    parts of speech.

    `simple_tag` and `universal_tag` make fewer of the 472 tags. Hold out whole texts,
    `brown.document`, to test on.
    """
    arrays = load_arrays("brown", folder=folder)
    lines = arrays["words"].tobytes().decode().split("\n")
    tags = arrays["tag_names"].tobytes().decode().split("\n")
    coarse = [brown_corpus.universal_tag(tag) for tag in tags]
    numbers = arrays["tags"].tolist()
    spans = list(pairwise(accumulate(arrays["lengths"].tolist(), initial=0)))
    return Brown(
        words=[line.split(" ") for line in lines],
        tags=[[tags[i] for i in numbers[start:stop]] for start, stop in spans],
        universal=[[coarse[i] for i in numbers[start:stop]] for start, stop in spans],
        genre=arrays["genre"].astype(np.int32),
        document=arrays["document"].astype(np.int32),
    )
