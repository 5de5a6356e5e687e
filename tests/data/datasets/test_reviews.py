"""Reviews: both ways in give the same arrays, texts come back as they were, and bad files are
named.
"""

import io
import json
import tarfile

import jax.random as jr
import numpy as np
import pytest

from thetax.data import load, split
from thetax.data.datasets import reviews, store
from thetax.data.datasets.dataset import Dataset, fingerprint
from thetax.data.io.bounded_read import Blob
from thetax.data.io.sources import Form

TRAIN = [
    ("A fine film; I'd see it twice.", 1),
    ("Dull\nand long. Où est le café ?", 0),
    ("ok", 1),
    ("bad", 0),
]
TEST = [("Wonderful", 1), ("Never again \x96 dreadful", 0), ("", 0), ("中文", 1)]


def archive() -> bytes:
    """The reviews as the Stanford archive has them, among files that are none."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for part, rows in (("train", TRAIN), ("test", TEST)):
            for i, (text, label) in enumerate(rows):
                add(tar, f"aclImdb/{part}/{'pos' if label else 'neg'}/{i}_7.txt", text.encode())
        add(tar, "aclImdb/train/unsup/0_0.txt", b"not labelled")
        add(tar, "aclImdb/train/pos/notes/0_0.txt", b"too deep")
        add(tar, "aclImdb/README", b"read me")
    return buffer.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def listed() -> bytes:
    """The reviews as the package has them: blame and praise, of each the half to test on first."""
    rows = [(t, s) for label in (0, 1) for half in (TEST, TRAIN) for t, s in half if s == label]
    return json.dumps([{"t": text, "s": label} for text, label in rows]).encode()


def test_a_tar_archive_gives_its_labelled_splits():
    found = reviews.read_splits(Blob("reviews.tar", archive()))
    assert {part: sorted(rows) for part, rows in found.items()} == {
        "train": sorted(TRAIN),
        "test": sorted(TEST),
    }
    with pytest.raises(ValueError, match=r"a.tar: not readable as a tar archive of reviews"):
        reviews.read_splits(Blob("a.tar", b"no archive"))


def test_order_is_of_the_text_alone():
    """However a source orders them, the arrays are the same to the last bit."""
    first = reviews._to_arrays(TRAIN, TEST)
    second = reviews._to_arrays(TRAIN[::-1], TEST[::-1])
    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(first) != fingerprint(reviews._to_arrays(TEST, TRAIN))


def test_both_forms_agree(monkeypatch):
    monkeypatch.setattr(reviews, "_N_PER_CLASS", 2)
    by_list = reviews._from_json({"reviews.json": Blob("reviews.json", listed())})
    by_file = reviews._from_stanford({"aclImdb_v1.tar": Blob("aclImdb_v1.tar", archive())})
    assert fingerprint(by_list) == fingerprint(by_file)


@pytest.mark.parametrize("data", [b"{", b"[1, 2]", b'[{"t": "x"}]'])
def test_a_list_that_is_none(data):
    with pytest.raises(ValueError, match=r"reviews.json: not readable as a list of reviews"):
        reviews._from_json({"reviews.json": Blob("reviews.json", data)})


def test_a_list_of_other_reviews():
    with pytest.raises(
        ValueError, match="expected 25,000 reviews of label 0, then as many of label 1"
    ):
        reviews._from_json({"reviews.json": Blob("reviews.json", listed())})


def test_texts_through_the_store(monkeypatch, tmp_path):
    """From a folder, through the cache, to strings that can be divided like any array."""
    arrays = reviews._to_arrays(TRAIN, TEST)
    form = Form(("aclImdb_v1.tar",), reviews._from_stanford, 1 << 20)
    toy = Dataset(
        "toy", "a toy", "CC0", 500, ("negative", "positive"), (), fingerprint(arrays), forms=(form,)
    )
    monkeypatch.setattr(store, "_DATASETS", (toy,))
    (tmp_path / "aclImdb_v1.tar").write_bytes(archive())
    for folder in (tmp_path, None):  # the second time from the cache
        data = load("toy", folder=folder)
        assert data.test is not None
        for (xs, ys), rows in ((data.train, TRAIN), (data.test, TEST)):
            assert isinstance(xs.dtype, np.dtypes.StringDType)
            assert ys.dtype == np.int32
            assert sorted(zip(xs.tolist(), ys.tolist())) == sorted(rows)
    (first, _), (rest, _) = split(data.train, 0.5, key=jr.key(0))
    assert sorted([*first, *rest]) == sorted(text for text, _ in TRAIN)
