"""Readers of meshes: binary STL, and the face sets of VRML 2 (`.wrl`).

Both return the corners of triangles, of shape (t, 3, 3), compare announced sizes with the bytes
that are there, and refuse damaged files with a `ValueError` that names the file.
"""

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from .bounded_read import File, contents, reading

_LIMIT = 1 << 28  # bytes of one decompressed file
_STL_HEADER = 84  # 80 bytes of text, and the number of triangles
_STL_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
_FACES = re.compile(
    r"material\s+(?:USE|DEF)\s+(?P<material>[\w.-]+)"
    r"|coordIndex\s*\[(?P<indices>[^\[\]]*)\]"
    r"|\bpoint\s*\[(?P<points>[^\[\]]*)\]"
)
_MOVED = re.compile(r"\b(Transform|Inline|Billboard)\b\s*\{")


class Vrml(NamedTuple):
    """The triangles of a VRML file, and the name of the material of each ("" if it has none)."""

    triangles: Float32[np.ndarray, "t 3 3"]
    materials: np.ndarray


def read_stl(file: File, *, limit: int = _LIMIT) -> Float32[np.ndarray, "t 3 3"]:
    """The triangles of a binary STL file.

    >>> from thetax.data.io.bounded_read import Blob
    >>> triangle = np.zeros(1, _STL_TRIANGLE)
    >>> header = bytes(80) + (1).to_bytes(4, "little")
    >>> read_stl(Blob("a.stl", header + triangle.tobytes())).shape
    (1, 3, 3)
    >>> read_stl(Blob("a.stl", header))
    Traceback (most recent call last):
    ValueError: a.stl: announces 1 triangles, that is 134 bytes, but holds 84. Download it again.
    """
    name, data = contents(file, limit=limit)
    if len(data) < _STL_HEADER:
        raise ValueError(
            f"{name}: is not a binary STL file, which has at least {_STL_HEADER} bytes; got "
            f"{len(data)}."
        )
    count = int.from_bytes(data[80:_STL_HEADER], "little")
    expected = _STL_HEADER + count * _STL_TRIANGLE.itemsize
    if expected != len(data):
        if data.lstrip().startswith(b"solid"):
            raise ValueError(f"{name}: is a text STL file; convert it to binary STL.")
        raise ValueError(
            f"{name}: announces {count:,} triangles, that is {expected:,} bytes, but holds "
            f"{len(data):,}. Download it again."
        )
    corners = np.frombuffer(data, _STL_TRIANGLE, offset=_STL_HEADER)["corners"]
    return _checked(corners.astype(np.float32), name)


def read_vrml(file: File, *, limit: int = _LIMIT) -> Vrml:
    """The triangles of all face sets of a VRML 2 file; polygons are cut into fans.

    Files with transformations or included files are refused.

    >>> from thetax.data.io.bounded_read import Blob
    >>> text = b'''#VRML V2.0 utf8
    ... Shape { geometry IndexedFaceSet { coordIndex [0,1,2,3,-1]
    ... coord Coordinate { point [0 0 0, 1 0 0, 1 1 0, 0 1 0] } } }'''
    >>> read_vrml(Blob("square.wrl", text)).triangles[1].tolist()
    [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """
    name, data = contents(file, limit=limit)
    if not data.startswith(b"#VRML V2.0"):
        raise ValueError(
            f"{name}: is not a VRML 2 file, which begins with '#VRML V2.0'; got {data[:10]!r}."
        )
    text = re.sub(r"#[^\n]*", "", data.decode("utf-8", "replace"))
    if moved := _MOVED.search(text):
        raise ValueError(f"{name}: uses {moved.group(1)}, which is not supported.")
    triangles: list[np.ndarray] = []
    materials: list[str] = []
    material = ""
    pending = None
    with reading(name, "a VRML 2 file"):
        for match in _FACES.finditer(text):
            if (shown := match["material"]) is not None:
                material = shown
            elif match["indices"] is not None:
                if pending is not None:
                    raise ValueError("a coordIndex has no points")
                pending = match["indices"]
            elif pending is not None:
                faces = _faces(pending, match["points"])
                pending = None
                triangles.append(faces)
                materials += [material] * len(faces)
        if pending is not None:
            raise ValueError("a coordIndex has no points")
    if not materials:
        raise ValueError(f"{name}: has no faces.")
    return Vrml(_checked(np.concatenate(triangles), name), np.array(materials))


def _faces(indices: str, points: str) -> np.ndarray:
    """The triangles of one face set."""
    corners = np.array(points.replace(",", " ").split(), np.float32)
    if len(corners) % 3:
        raise ValueError(f"a list of points has {len(corners)} coordinates, no multiple of 3")
    corners = corners.reshape(-1, 3)
    numbers = np.array(indices.replace(",", " ").split(), np.int64)
    if len(numbers) and (numbers.min() < -1 or numbers.max() >= len(corners)):
        raise ValueError(
            f"a face has the corner {numbers.max()}, but there are {len(corners)} points"
        )
    fans = []
    for face in np.split(numbers, np.flatnonzero(numbers == -1) + 1):
        face = face[face >= 0]
        fans += [(face[0], face[k], face[k + 1]) for k in range(1, len(face) - 1)]
    return corners[np.array(fans, np.int64).reshape(-1, 3)]


def _checked(triangles: np.ndarray, name: str) -> np.ndarray:
    if not len(triangles):
        raise ValueError(f"{name}: has no triangles.")
    if not np.isfinite(triangles).all():
        raise ValueError(f"{name}: has corners that are not finite numbers. Download it again.")
    return triangles
