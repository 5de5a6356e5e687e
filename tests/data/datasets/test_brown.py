"""The Brown corpus: words and tags as they are written, tags made fewer, and files that are
none.
"""

import dataclasses
import io
import zipfile

import numpy as np
import pytest

from thetax.data import UNIVERSAL_TAGS, base_tag, load_brown, universal_tag
from thetax.data.datasets import brown, store
from thetax.data.datasets.dataset import fingerprint
from thetax.data.io.bounded_read import Blob

FIRST = b"\n\n\tThe/at Fulton/np-tl and/or/cc he's/pps+bez ./.\n\n\n\tNo/rb --/--\n"


def files(**data: bytes) -> dict[str, Blob]:
    return {name: Blob(name, data.get(name, f"A/at {name}/nn\n".encode())) for name in brown._NAMES}


def test_words_and_tags():
    arrays = brown._read_tagged(files(ca01=FIRST))
    assert arrays["words"].tobytes().startswith(b"The Fulton and/or he's .\nNo --\nA ca02\n")
    names = arrays["tag_names"].tobytes().decode().split("\n")
    assert [names[i] for i in arrays["tags"][:7]] == [
        "AT",
        "NP-TL",
        "CC",
        "PPS+BEZ",
        ".",
        "RB",
        "--",
    ]
    assert arrays["lengths"][:3].tolist() == [5, 2, 2]
    assert arrays["document"].tolist() == [0, *range(500)]
    counts = np.bincount(arrays["genre"]).tolist()
    assert (counts[0], counts[1:3], sum(counts)) == (45, [27, 17], 501)


def test_the_files_of_all_genres():
    assert len(brown._NAMES) == 500
    assert brown._NAMES["ca44"] == "news"
    assert brown._NAMES["cr09"] == "humor"
    assert len(brown.GENRES) == 15


def test_a_zip_holds_the_same():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, blob in files(ca01=FIRST).items():
            archive.writestr(f"brown/{name}", blob.data)
    found = brown._from_zip({"brown.zip": Blob("brown.zip", buffer.getvalue())})
    assert fingerprint(found) == fingerprint(brown._read_tagged(files(ca01=FIRST)))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"The/at dog", "ca01: has a word without a tag in 'The/at dog'"),
        (b"The/at /nn", "ca01: has a word without a tag"),
        (b"The/at dog/", "ca01: has a word without a tag"),
        ("Où/wrb".encode(), "ca01: not readable as words with tags: 'ascii' codec"),
    ],
)
def test_a_file_that_is_none(data, says):
    with pytest.raises(ValueError, match=says):
        brown._read_tagged(files(ca01=data))


@pytest.mark.parametrize(
    ("tag", "simple", "universal"),
    [
        ("NN", "NN", "NOUN"),
        ("nn-tl-hl", "NN", "NOUN"),
        ("FW-AT+NN-TL", "AT", "X"),
        ("VB+PPO", "VB", "VERB"),
        ("MD*", "MD", "VERB"),
        ("DOD*-TL", "DOD", "VERB"),
        ("WRB+DOD*", "WRB", "ADV"),
        ("*", "*", "ADV"),
        ("*-HL", "*", "ADV"),
        ("FW-*", "*", "X"),
        ("PP$", "PP$", "DET"),
        ("PP$$", "PP$$", "PRON"),
        ("PN+HVZ", "PN", "PRON"),
        ("``", "``", "."),
        (",-HL", ",", "."),
        ("--", "--", "."),
        ("NIL", "NIL", "X"),
        ("ppss+ber-n", "PPSS", "PRON"),  # the corpus has a few tags cut short
        ("?", "?", "X"),
    ],
)
def test_tags_made_fewer(tag, simple, universal):
    assert base_tag(tag) == simple
    assert universal_tag(tag) == universal


def test_twelve_classes_without_overlap():
    assert len(UNIVERSAL_TAGS) == 12
    tags = [tag for tags in brown._CLASSES.values() for tag in tags.split()]
    assert len(tags) == len(set(tags))


def test_through_the_store(monkeypatch, tmp_path):
    """From a folder of files, through the cache, to lists."""
    arrays = brown._read_tagged(files(ca01=FIRST))
    toy = dataclasses.replace(brown.brown, fingerprint=fingerprint(arrays), sources=())
    monkeypatch.setattr(store, "_OTHERS", (toy,))
    for name, blob in files(ca01=FIRST).items():
        (tmp_path / name).write_bytes(blob.data)
    for folder in (tmp_path, None):
        found = load_brown(folder=folder)
        assert found.words[:3] == [
            ["The", "Fulton", "and/or", "he's", "."],
            ["No", "--"],
            ["A", "ca02"],
        ]
        assert found.tags[0] == ["AT", "NP-TL", "CC", "PPS+BEZ", "."]
        assert found.universal[:2] == [["DET", "NOUN", "CONJ", "PRON", "."], ["ADV", "."]]
        assert (
            [len(row) for row in found.words] == [len(row) for row in found.tags] == [5, *[2] * 500]
        )
        assert found.genres[found.genre[-1]] == "humor"
        assert found.document[-1] == 499
