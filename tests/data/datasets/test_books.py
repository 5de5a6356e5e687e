"""Books: files in either encoding give plain text, and characters come back as they were."""

import numpy as np
import pytest

from thetax.data import Characters, load
from thetax.data.datasets import books, store
from thetax.data.datasets.dataset import Dataset, fingerprint
from thetax.data.io.bounded_read import Blob
from thetax.data.io.sources import Form


def files(**texts: bytes):
    whole = {
        f"{book}.txt": Blob(f"{book}.txt", f"a book called {book}\n".encode())
        for book in books.BOOKS
    }
    return whole | {f"{name}.txt": Blob(f"{name}.txt", data) for name, data in texts.items()}


def test_line_ends_and_encodings():
    arrays = books._from_texts(
        files(
            **{
                "austen-emma": "Où?\r\nlà\r\n".encode(),
                "whitman-leaves": "Cæsar\n\x1a".encode("latin-1"),
            }
        )
    )
    xs, ys = books.gutenberg.data(arrays).train
    assert xs[0] == "Où?\nlà\n"
    assert xs[-1] == "Cæsar\n"
    assert xs[1] == "a book called austen-persuasion\n"
    assert ys.tolist() == list(range(18))
    assert len(books.gutenberg.classes) == 18


def test_through_the_store(monkeypatch, tmp_path):
    """From a folder of files, through the cache, to strings."""
    arrays = books._from_texts(files())
    form = Form(tuple(files()), books._from_texts, 1 << 20)
    toy = Dataset("toy", "a toy", "CC0", 2000, books.BOOKS, (), fingerprint(arrays), forms=(form,))
    monkeypatch.setattr(store, "_DATASETS", (toy,))
    for name, blob in files().items():
        (tmp_path / name).write_bytes(blob.data)
    for folder in (tmp_path, None):  # the second time from the cache
        assert str(load("toy", folder=folder).train[0][3]) == "a book called bible-kjv\n"


def test_characters_by_frequency():
    known = Characters.fit(["banana", "cab"])
    assert known.letters == "abnc"  # four a's, two b's and n's, in the order of the alphabet, one c
    assert Characters.fit(["banana"], vocab_size=1).letters == "a"


@pytest.mark.parametrize("text", ["", "a", "Où est\nle café ?", "中文 and 😀"])
def test_characters_there_and_back(text):
    known = Characters.fit([text, "a"])
    tokens = known.tokens(text)
    assert tokens.dtype == np.int32
    assert [known.letters[token] for token in tokens] == list(text)
    assert known.decode(tokens) == text


def test_characters_that_are_not_known():
    known = Characters("xy")
    assert known.tokens("yzx").tolist() == [1, 2, 0]
    assert known.decode([1, 2, -1, 0]) == "y\ufffdx"
    assert known.encode(["yzx", "x", ""], length=2).tolist() == [[1, 2], [0, -1], [-1, -1]]
    assert Characters("").tokens("ab").tolist() == [0, 0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Characters("aa"), "letters must be distinct; a character is given twice"),
        (
            lambda: Characters.fit(["a"], vocab_size=0),
            "vocab_size must be an integer >= 1; got 0",
        ),
        (lambda: Characters("a").encode(["a"], length=0), "length must be an integer >= 1; got 0"),
        (
            lambda: Characters("a").decode(np.zeros((1, 1), int)),
            r"expected one row of token ids; got shape \(1, 1\)",
        ),
        (lambda: Characters.fit("one string"), "got one string. Put it into a list"),
    ],
)
def test_what_characters_refuse(call, says):
    with pytest.raises(ValueError, match=says):
        call()
