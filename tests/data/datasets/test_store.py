"""From a name to arrays: every way in, every way to fail, and a cache that is right or not
there.
"""

import dataclasses
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import threading

import numpy as np
import pytest

from thetax.data import DatasetUnavailable, cached_path, datasets, fetch, load
from thetax.data.datasets import store
from thetax.data.datasets.dataset import Dataset, fingerprint
from thetax.data.io.readers import read_csv, read_idx
from thetax.data.io.sources import Form, Package, PackageGroup, Web

LABELS = np.array([0, 1, 1, 0], np.uint8)
PIXELS = np.arange(16, dtype=np.uint8).reshape(4, 2, 2)
ARRAYS = {"train_x": PIXELS, "train_y": LABELS}


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + b"".join(n.to_bytes(4, "big") for n in array.shape)
        + array.tobytes()
    )


FILES = {"images": idx(PIXELS), "labels": idx(LABELS)}
IDX = Form(
    ("images", "labels"),
    lambda f: {"train_x": read_idx(f["images"]), "train_y": read_idx(f["labels"])},
    1000,
)


def from_csv(files):
    columns = {
        name: np.array(column, np.uint8) for name, column in read_csv(files["toy.csv"]).items()
    }
    labels = columns.pop("label")
    return {
        "train_x": np.stack(list(columns.values()), axis=1).reshape(-1, 2, 2),
        "train_y": labels,
    }


CSV = Form(("toy.csv",), from_csv, 1000)
ROWS = b"a,b,c,d,label\n" + b"".join(
    b",".join(b"%d" % n for n in (*x.ravel(), y)) + b"\n" for x, y in zip(PIXELS, LABELS)
)


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in FILES.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


SUM = hashlib.sha256(archive()).hexdigest()
PACKAGE = Package(
    "npm", "toy", "1.0", "toy-1.0.tgz", SUM, 500, IDX, {name: f"package/{name}" for name in FILES}
)


@pytest.fixture
def known(monkeypatch):
    """`known(source, ...)` makes a dataset "toy" of those sources the only one there is."""

    def make(*sources) -> Dataset:
        toy = Dataset(
            "toy",
            "a toy",
            "CC0",
            500,
            ("no", "yes"),
            (),
            fingerprint(ARRAYS),
            sources=sources,
            forms=(IDX, CSV),
        )
        monkeypatch.setattr(store, "_DATASETS", (toy,))
        return toy

    return make


def assert_right(data):
    np.testing.assert_allclose(data.train[0], PIXELS / 255.0, rtol=1e-6)
    np.testing.assert_array_equal(data.train[1], LABELS)
    assert data.train[0].dtype == np.float32
    assert data.train[1].dtype == np.int32
    assert data.test is None
    assert data.classes == ("no", "yes")


def test_from_the_web_then_from_the_cache(known, web, cache):
    web.pages = {f"{name}.gz": gzip.compress(data) for name, data in FILES.items()}
    toy = known(Web(web.base, IDX, {}, ".gz"))
    assert cached_path(toy) is None
    assert_right(load("toy"))
    assert len(web.asked) == 2
    assert_right(load("toy"))
    assert len(web.asked) == 2
    assert fetch("toy") == cached_path(toy) == cache / "toy" / "toy.npz"
    assert sorted(path.name for path in (cache / "toy").iterdir()) == [".lock", "toy.npz"]


def test_from_a_package_when_the_web_fails(known, web, client, tmp_path, capsys):
    (tmp_path / "kept.tgz").write_bytes(archive())
    client(
        "npm", f"open('toy-1.0.tgz', 'wb').write(open({str(tmp_path / 'kept.tgz')!r}, 'rb').read())"
    )
    known(Web(web.base, IDX, {}), PACKAGE)
    assert_right(load("toy"))
    said = capsys.readouterr().err
    assert f"thetax: {web.base}: the server answered 404 Not Found for images\n" in said
    assert "thetax: fetching toy 1.0 with npm" in said


@pytest.mark.parametrize(
    "files",
    [
        FILES,
        {f"{name}.gz": gzip.compress(data) for name, data in FILES.items()},
        {"toy.csv": ROWS},
        {"toy-1.0.tgz": archive()},
    ],
    ids=["raw", "gz", "csv", "archive"],
)
def test_from_a_folder_in_any_form(known, tmp_path, files):
    known(PACKAGE)
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    assert_right(load("toy", folder=folder))


def test_from_a_folder_with_a_copy_of_the_cache(known, web, cache, tmp_path):
    web.pages = dict(FILES)
    known(Web(web.base, IDX, {}))
    path = fetch("toy")
    (tmp_path / "mine").mkdir()
    path.rename(tmp_path / "mine" / "toy.npz")
    known()
    assert_right(load("toy", folder=str(tmp_path / "mine")))


def test_a_folder_that_is_none(known, tmp_path):
    known()
    with pytest.raises(
        ValueError,
        match=r"folder='.*nowhere' is not a folder. Give the folder of the files",
    ):
        load("toy", folder=tmp_path / "nowhere")


def test_other_data_in_the_folder_never_reaches_the_cache(known, tmp_path, cache):
    known()
    (tmp_path / "toy.csv").write_bytes(ROWS.replace(b"\n0,", b"\n9,"))
    with pytest.raises(
        DatasetUnavailable,
        match=r"these are not the arrays of toy: expected fingerprint \w{64}; got \w{64}",
    ):
        load("toy", folder=tmp_path)
    assert not (cache / "toy" / "toy.npz").exists()


def test_every_failure_is_named_with_what_to_do(known, web, client, tmp_path):
    web.pages = {**FILES, "images": b"<html>"}
    client("npm", "print('npm error 404 no such package'); sys.exit(1)")
    known(Web(web.base, IDX, {}), Web(web.base, IDX, {"images": "0" * 64}), PACKAGE)
    with pytest.raises(DatasetUnavailable) as caught:
        load("toy", folder=tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == "toy could not be loaded. All sources failed:"
    assert lines[1] == f"  - folder {tmp_path}: contains none of the sets of files listed below"
    assert "is not an idx file" in lines[2]
    assert f"images: expected SHA-256 {'0' * 64}; got" in lines[3]
    assert (
        lines[4]
        == "  - npm package toy 1.0: npm failed with exit status 1: npm error 404 no such package"
    )
    assert lines[6:] == [
        "  - images, labels",
        "  - toy.csv",
        "and call load('toy', folder=THAT_FOLDER).",
    ]


def test_an_archive_of_the_wrong_checksum_is_not_opened(known, client, tmp_path):
    client("npm", "open('toy-1.0.tgz', 'w').write('something else')")
    known(PACKAGE)
    with pytest.raises(
        DatasetUnavailable, match=rf"toy-1.0.tgz: expected SHA-256 {SUM}; got \w{{64}}"
    ):
        load("toy")


@pytest.mark.parametrize(
    "hurt", [lambda data: data[:-40], lambda data: data.replace(bytes(range(16)), bytes(16))]
)
def test_a_damaged_cache_is_fetched_again(known, web, capsys, hurt):
    web.pages = dict(FILES)
    known(Web(web.base, IDX, {}))
    path = fetch("toy")
    path.write_bytes(hurt(path.read_bytes()))
    capsys.readouterr()
    assert_right(load("toy"))
    assert "thetax: the cache is damaged (" in capsys.readouterr().err
    assert len(web.asked) == 4
    assert_right(load("toy"))
    assert len(web.asked) == 4


def test_arrays_that_differ_are_noticed_in_a_cache_that_reads_well(known, web, capsys):
    web.pages = dict(FILES)
    known(Web(web.base, IDX, {}))
    np.savez(fetch("toy"), **{**ARRAYS, "train_y": 1 - LABELS})
    assert_right(load("toy"))
    assert "the cache is damaged (these are not the arrays of toy" in capsys.readouterr().err


def test_a_write_that_fails_leaves_nothing(known, web, cache, monkeypatch):
    def fail(file, **arrays):
        file.write(b"half")
        raise OSError("no space left")

    web.pages = dict(FILES)
    known(Web(web.base, IDX, {}))
    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="no space left"):
        load("toy")
    assert [path.name for path in (cache / "toy").iterdir() if path.is_file()] == [".lock"]


def test_two_at_once_fetch_once(known, web):
    web.pages = dict(FILES)
    known(Web(web.base, IDX, {}))
    threads = [threading.Thread(target=fetch, args=["toy"]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(web.asked) == 2


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match="name='minst' is not a dataset; did you mean mnist"):
        load("minst")
    with pytest.raises(
        ValueError,
        match="choose from digits, mnist, fashion-mnist, cifar-10, default, nyse, auto, spambase",
    ):
        fetch("§")


def test_digits_need_no_network(client):
    assert fetch("digits") is None
    xs, ys = load("digits").train
    assert np.bincount(ys).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (xs.min(), xs.max()) == (0.0, 1.0)


@pytest.mark.parametrize("dataset", datasets(), ids=lambda dataset: dataset.name)
def test_every_dataset_is_described(dataset):
    assert dataset.licence
    assert len(dataset.about) < 110
    sums = list(dataset.files.values()) or [dataset.fingerprint]
    assert dataset.embedded or (
        dataset.sources and dataset.forms and {len(sha256) for sha256 in sums} == {64}
    )
    for source in dataset.sources:
        assert source.form in dataset.forms
        if isinstance(source, Package | PackageGroup):
            packages = source.packages if isinstance(source, PackageGroup) else (source,)
            names = [name for p in packages for name in p.members or (p.archive,)]
            assert sorted(names) == sorted(source.form.files)
            assert all(len(package.sha256) == 64 for package in packages)
        else:
            assert source.base.startswith("https://")
            assert source.base.endswith("/")
    json.dumps({k: v for k, v in dataclasses.asdict(dataset).items() if isinstance(v, str | int)})


def test_the_import_is_light():
    heavy = ("sklearn", "PIL", "rich", "matplotlib", "gguf")
    program = f"import sys, thetax.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
