"""Binary STL and VRML 2: what is read, and what damaged or hostile files get."""

import gzip

import numpy as np
import pytest

from thetax.data import read_stl, read_vrml
from thetax.data.io.bounded_read import Blob

SQUARE = """#VRML V2.0 utf8
# a comment with coordIndex [9] in it
Shape { appearance Appearance { material DEF PIN-01 Material { diffuseColor 0 0 0 } }
 geometry IndexedFaceSet { creaseAngle 0.5 coordIndex [0,1,2,3,-1]
 coord Coordinate { point [0 0 0, 1 0 0, 1 1 0, 0 1 0] } } }
Shape { appearance Appearance { material USE BODY }
 geometry IndexedFaceSet { coordIndex [0, 1, 2, -1, 2, 1, 0]
 coord Coordinate { point [0 0 1,1 0 1,0 2.5e0 1] } } }
"""


def stl(corners, *, count=None, header=b""):
    corners = np.asarray(corners, "<f4")
    record = np.dtype([("n", "<f4", 3), ("v", "<f4", (3, 3)), ("a", "<u2")])
    records = np.zeros(len(corners), record)
    records["v"] = corners
    count = len(corners) if count is None else count
    return Blob("a.stl", header.ljust(80) + count.to_bytes(4, "little") + records.tobytes())


def wrl(text):
    return Blob("a.wrl", text.encode())


def test_stl():
    corners = np.random.default_rng(0).normal(size=(7, 3, 3)).astype(np.float32)
    np.testing.assert_array_equal(read_stl(stl(corners)), corners)
    # a binary file may begin with the word of the text format
    np.testing.assert_array_equal(read_stl(stl(corners, header=b"solid")), corners)
    packed = Blob("a.stl.gz", gzip.compress(stl(corners).data))
    np.testing.assert_array_equal(read_stl(packed), corners)


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (Blob("a.stl", b"short"), "at least 84 bytes; got 5"),
        (stl(np.zeros((2, 3, 3)), count=3), "announces 3 triangles"),
        (stl(np.zeros((2, 3, 3)), count=2**32 - 1), "announces 4,294,967,295 triangles"),
        (Blob("a.stl", stl(np.zeros((2, 3, 3))).data[:-1]), "that is 184 bytes, but holds 183"),
        (stl(np.zeros((0, 3, 3))), "has no triangles"),
        (stl(np.full((1, 3, 3), np.nan)), "not finite"),
        (Blob("a.stl", b"solid cube\n  facet normal 0 0 0".ljust(200)), "is a text STL"),
    ],
)
def test_damaged_stl_is_refused(blob, message):
    with pytest.raises(ValueError, match=f"a.stl: .*{message}"):
        read_stl(blob)


def test_vrml():
    found = read_vrml(wrl(SQUARE))
    expected = [
        [[0, 0, 0], [1, 0, 0], [1, 1, 0]],
        [[0, 0, 0], [1, 1, 0], [0, 1, 0]],
        [[0, 0, 1], [1, 0, 1], [0, 2.5, 1]],
        [[0, 2.5, 1], [1, 0, 1], [0, 0, 1]],
    ]
    np.testing.assert_array_equal(found.triangles, np.array(expected, np.float32))
    assert found.materials.tolist() == ["PIN-01", "PIN-01", "BODY", "BODY"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<x3d>", "is not a VRML 2 file"),
        ("#VRML V1.0 ascii\n" + SQUARE, "is not a VRML 2 file"),
        ("#VRML V2.0 utf8\nShape {}", "has no faces"),
        (SQUARE.replace("Shape {", "Transform { children Shape {"), "uses Transform"),
        (SQUARE.replace("0,1,2,3,-1", "0,1,2,4,-1"), "corner 4, but there are 4 points"),
        (SQUARE.replace("0,1,2,3,-1", "0,1,-2,3,-1"), "corner 3"),
        (SQUARE.replace("0 1 0] } }", "0 1] } }"), "no multiple of 3"),
        (SQUARE.replace("1 1 0", "1 x 0"), "not readable as a VRML 2 file"),
        (SQUARE.replace("1 1 0", "1 1e99 0"), "not finite"),
        (SQUARE[:180], "has no points|has no faces"),
        (SQUARE.replace("point [0 0 1", "colour [0 0 1"), "has no points"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_damaged_vrml_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_vrml(wrl(text))


def test_a_decompression_bomb_is_refused():
    bomb = Blob("a.wrl", gzip.compress(bytes(10_000)))
    with pytest.raises(ValueError, match="more than the 999 bytes"):
        read_vrml(bomb, limit=999)
    with pytest.raises(ValueError, match="more than the 999 bytes"):
        read_stl(bomb, limit=999)
