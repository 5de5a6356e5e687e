"""Meshes from archives: a small archive made here goes the way of the real one; and the real ones,
where they can be downloaded.
"""

import dataclasses
import gzip
import io
import lzma
import tarfile

import jax.random as jr
import numpy as np
import pytest

from thetax.data import DatasetUnavailable, load_arrays, load_meshes, mesh_clouds
from thetax.data.datasets import point_clouds, store
from thetax.data.datasets.dataset import fingerprint
from thetax.data.io.bounded_read import Blob, matching_members

SQUARE = """#VRML V2.0 utf8
Shape { appearance Appearance { material USE %s } geometry IndexedFaceSet {
coordIndex [0,1,2,3,-1] coord Coordinate { point [0 0 %d, 1 0 0, 1 1 0, 0 1 0] } } }"""


def tar(members, *, pack=lambda data: data):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return pack(file.getvalue())


def debian(members):
    data = tar(members, pack=lzma.compress)
    header = lambda name, size: f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n".encode()
    parts = [(b"debian-binary", b"2.0\n"), (b"data.tar.xz", data)]
    out = b"!<arch>\n"
    for name, content in parts:
        out += header(name.decode(), len(content)) + content + b"\n" * (len(content) % 2)
    return out


def kicad_members():
    """Two meshes of each class, a file with a transformation, and other files."""
    base = "./usr/share/kicad/3dmodels"
    members = {"./usr/share/doc/copyright": b"text", f"{base}/Other.3dshapes/a.wrl": b"no mesh"}
    for i, label in enumerate(point_clouds.KICAD_CLASSES):
        folder = f"{base}/{label}.3dshapes"
        members |= {
            f"{folder}/b.wrl": (SQUARE % ("PIN-01", i)).encode(),
            f"{folder}/a.wrl": (SQUARE % ("IC-BODY", i)).encode(),
            f"{folder}/c.wrl": (SQUARE % ("MET", i)).replace("Shape", "Transform", 1).encode(),
            f"{folder}/a.step": b"another format",
        }
    return members


def stl(corner):
    record = np.dtype([("n", "<f4", 3), ("v", "<f4", (3, 3)), ("a", "<u2")])
    records = np.zeros(2, record)
    records["v"][:, 0] = corner
    records["v"][:, 1, 0] = 5
    return bytes(80) + (2).to_bytes(4, "little") + records.tobytes()


@pytest.fixture
def small(monkeypatch):
    """Replaces a dataset by one with the fingerprint of these arrays and no download."""

    def replace(name, arrays):
        whole = {"ycb": point_clouds.ycb, "cad": point_clouds.cad}[name]
        fake = dataclasses.replace(whole, fingerprint=fingerprint(arrays), sources=())
        others = tuple(fake if other.name == name else other for other in store._OTHERS)
        monkeypatch.setattr(store, "_OTHERS", others)

    return replace


def test_cad_from_a_folder(small, tmp_path):
    path = tmp_path / point_clouds._KICAD_ARCHIVE
    path.write_bytes(debian(kicad_members()))
    small("cad", point_clouds._read_kicad({path.name: Blob(path.name, path.read_bytes())}))
    meshes = load_meshes("cad", folder=tmp_path)
    assert meshes.labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert all(mesh.shape == (2, 3, 3) for mesh in meshes.triangles)
    assert [mesh[0, 0, 2] for mesh in meshes.triangles] == meshes.labels.tolist()
    assert [parts.tolist() for parts in meshes.parts[:2]] == [[0, 0], [1, 1]]
    clouds = mesh_clouds(meshes, n_points=6, per_mesh=3, key=jr.key(0))
    assert clouds.points.shape == (60, 6, 3)
    assert clouds.labels.tolist() == np.repeat(meshes.labels, 3).tolist()
    assert clouds.parts[:3].tolist() == [[0] * 6] * 3
    assert clouds.parts[3:6].tolist() == [[1] * 6] * 3
    again = mesh_clouds(meshes, n_points=6, per_mesh=3, key=jr.key(0))
    np.testing.assert_array_equal(again.points, clouds.points)


def test_ycb_from_a_folder(small, tmp_path):
    names = [f"x-0/x/stl_files/{i:03d}_thing.stl" for i in (7, 3, 5)]
    members = {name: stl(float(name.split("/")[-1][:3])) for name in names} | {
        "x-0/setup.py": b"raise"
    }
    path = tmp_path / point_clouds._YCB_ARCHIVE
    path.write_bytes(gzip.compress(tar(members)))
    small("ycb", point_clouds._read_ycb({path.name: Blob(path.name, tar(members))}))
    meshes = load_meshes("ycb", folder=tmp_path)
    assert [mesh[0, 0, 0] for mesh in meshes.triangles] == [3, 5, 7]
    assert meshes.labels.tolist() == [0, 1, 2]
    assert meshes.parts == []
    assert mesh_clouds(meshes, n_points=4, key=jr.key(0)).parts is None


def test_damaged_archives_are_refused(tmp_path):
    path = tmp_path / point_clouds._KICAD_ARCHIVE
    whole = debian(kicad_members())
    read = lambda data: point_clouds._read_kicad({path.name: Blob(path.name, data)})
    assert len(read(whole)["labels"]) == 20
    for data in (whole[:-200], whole[:50], b"!<arch>\nrubbish", b""):
        with pytest.raises(ValueError, match=path.name):
            read(data)
    few = {name: text for name, text in kicad_members().items() if "LED" not in name}
    with pytest.raises(ValueError, match="no meshes of the class LED_THT"):
        read(debian(few))
    with pytest.raises(ValueError, match="none of the wanted members"):
        read(debian({"./a": b"b"}))
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="expected SHA-256 e4ee31"):
        point_clouds.cad.sources[0].inside(path)
    with pytest.raises(ValueError, match="more than the 5,000 bytes"):
        matching_members(Blob("a", whole), lambda name, size: False, limit=5_000)


def test_an_archive_with_other_meshes_is_refused(tmp_path, monkeypatch):
    """Of the right name and format, but with other contents: the fingerprint differs."""
    path = tmp_path / point_clouds._KICAD_ARCHIVE
    path.write_bytes(debian(kicad_members()))
    offline = dataclasses.replace(point_clouds.cad, sources=())
    others = tuple(offline if other.name == "cad" else other for other in store._OTHERS)
    monkeypatch.setattr(store, "_OTHERS", others)
    with pytest.raises(DatasetUnavailable, match="expected fingerprint"):
        load_meshes("cad", folder=tmp_path)
    with pytest.raises(ValueError, match="'ycb' or 'cad'; got 'mnist'"):
        load_meshes("mnist")


@pytest.mark.network
def test_the_real_ycb_meshes():
    try:
        arrays = load_arrays("ycb")
    except DatasetUnavailable as error:
        pytest.skip(str(error))
    assert arrays["triangles"].shape == (78 * 16_384, 3, 3)
    meshes = load_meshes("ycb")
    mug = meshes.triangles[meshes.classes.index("mug")]
    assert 0.1 < np.ptp(mug.reshape(-1, 3), axis=0).max() < 0.15  # metres


@pytest.mark.network
def test_the_real_cad_meshes():
    try:
        meshes = load_meshes("cad")
    except DatasetUnavailable as error:
        pytest.skip(str(error))
    assert np.bincount(meshes.labels).tolist() == [60] * 10
    assert 0.4 < np.concatenate(meshes.parts).mean() < 0.9
