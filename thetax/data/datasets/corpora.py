"""Text corpora: parallel Bible verses, and the Brown corpus with part-of-speech tags."""

from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import brown as brown_corpus
from .dataset import strings
from .parallel_bible import BOOKS
from .store import load_arrays


class Verses(NamedTuple):
    """n verses of the Bible in English and German, in order."""

    english: np.ndarray  # n strings
    german: np.ndarray  # n strings
    book: np.ndarray  # int32, index into `books`
    chapter: np.ndarray  # int32, counted from 1
    verse: np.ndarray  # int32, counted from 1
    aligned: np.ndarray  # bool: both Bibles number the verses of this chapter alike
    books: tuple[str, ...] = BOOKS

    def select(self, index: np.ndarray) -> "Verses":
        """A subset of the verses, given by integer indices or a boolean mask.

        >>> verses = Verses(
        ...     *(
        ...         np.array(column)
        ...         for column in (["a", "b"], ["c", "d"], [0, 7], [1, 1], [1, 1], [True] * 2)
        ...     )
        ... )
        >>> verses.select(verses.book == verses.books.index("Ruth")).german.tolist()
        ['d']
        """
        return Verses(*(column[index] for column in self[:6]), books=self.books)


def load_verses(*, folder: str | Path | None = None) -> Verses:
    """30,968 verses with the same number in the King James Version and Luther's Bible of 1912.

    Hold out whole books for testing, as neighbouring verses share words, for instance Ruth with
    `verses.book == 7`. 28,128 of the pairs are `aligned`; many of the others, mostly psalms, are
    off by one verse.
    """
    arrays = load_arrays("verses", folder=folder)
    book, chapter, verse = (arrays[name].astype(np.int32) for name in ("book", "chapter", "verse"))
    english, german = (
        strings(arrays[name], arrays[f"{name}_ends"]) for name in ("english", "german")
    )
    return Verses(english, german, book - 1, chapter, verse, arrays["same"])


class Brown(NamedTuple):
    """n tagged sentences; the lists of a sentence have one entry per word."""

    words: list[list[str]]
    tags: list[list[str]]  # raw tags, such as "NP-TL"
    universal: list[list[str]]  # from `UNIVERSAL_TAGS`
    genre: np.ndarray  # int32, index into `genres`
    document: np.ndarray  # int32, index of one of the 500 texts
    genres: tuple[str, ...] = brown_corpus.GENRES


def load_brown(*, folder: str | Path | None = None) -> Brown:
    """The Brown corpus: 57,340 sentences of 500 texts in 15 genres, 1,161,192 tagged words.

    `base_tag` and `universal_tag` map the 472 raw tags to smaller sets. Hold out whole texts
    (`brown.document`) for testing.
    """
    arrays = load_arrays("brown", folder=folder)
    lines = arrays["words"].tobytes().decode().split("\n")
    tags = arrays["tag_names"].tobytes().decode().split("\n")
    universal = [brown_corpus.universal_tag(tag) for tag in tags]
    tag_ids = arrays["tags"].tolist()
    spans = list(pairwise(accumulate(arrays["lengths"].tolist(), initial=0)))
    return Brown(
        words=[line.split(" ") for line in lines],
        tags=[[tags[i] for i in tag_ids[start:stop]] for start, stop in spans],
        universal=[[universal[i] for i in tag_ids[start:stop]] for start, stop in spans],
        genre=arrays["genre"].astype(np.int32),
        document=arrays["document"].astype(np.int32),
    )
