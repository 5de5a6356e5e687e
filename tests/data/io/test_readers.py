"""Readers give back what was written, and call every bad file bad by its name."""

import gzip
import io
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from thetax.data.io.bounded_read import Blob
from thetax.data.io.readers import (
    numbers,
    read_cifar,
    read_csv,
    read_grid,
    read_idx,
    read_npz,
    read_strip,
)

LIMIT = 1 << 20
TYPES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, TYPES[array.dtype.str[1:]], array.ndim]) + struct.pack(
        f">{array.ndim}I", *array.shape
    )
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


GREY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
STRIP = np.arange(5 * 9 * 3, dtype=np.uint8).reshape(5, 9, 3)
RECORDS = np.arange(2 * 3073, dtype=np.uint8).reshape(2, 3073)
CSV = b"day,x,y\nmon,1,2\ntue,3,4.5\n"

READERS = {
    "idx": (lambda blob: read_idx(blob, limit=LIMIT), idx(GREY)),
    "idx.gz": (lambda blob: read_idx(blob, limit=LIMIT), gzip.compress(idx(GREY), mtime=0)),
    "npz": (lambda blob: read_npz(blob, limit=LIMIT), npz(a=GREY, b=np.ones((2, 2)))),
    "csv": (lambda blob: read_csv(blob, limit=LIMIT), CSV),
    "grid": (lambda blob: read_grid(blob, columns=3, limit=LIMIT), b"1,2,3\n4,5,6\n"),
    "png": (lambda blob: read_strip(blob, examples=5, side=3, limit=LIMIT), png(STRIP)),
    "cifar": (lambda blob: read_cifar(blob, examples=2, limit=LIMIT), RECORDS.tobytes()),
}


@pytest.mark.parametrize("kind", TYPES)
def test_idx_of_every_type(kind):
    array = (np.arange(12).reshape(3, 4) - 3).astype(kind)
    for data in (idx(array), gzip.compress(idx(array))):
        got = read_idx(Blob("a", data))
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


def test_idx_that_announces_more_than_memory():
    head = bytes([0, 0, 14, 4]) + struct.pack(">4I", *(1 << 20,) * 4)
    with pytest.raises(ValueError, match=r"^huge: announces shape \(1048576.*but holds 0"):
        read_idx(Blob("huge", head))


def test_idx_of_a_zero_size_and_a_huge_one():
    """Zero items of anything are zero bytes, yet no array has 2^32 x 2^32 rows."""
    head = bytes([0, 0, 8, 4]) + struct.pack(">4I", 0, *(2**32 - 1,) * 3)
    with pytest.raises(ValueError, match=r"^odd: "):
        read_idx(Blob("odd", head))


def test_npz_round_trip_in_both_orders():
    f = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    got = read_npz(Blob("a", npz(c=GREY, f=f, s=np.array(3))))
    np.testing.assert_array_equal(got["c"], GREY)
    np.testing.assert_array_equal(got["f"], f)
    assert got["s"].shape == ()


def test_npz_never_unpickles(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    data = npz(a=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match=r"^a.npz: a.npy: holds pickled Python objects"):
        read_npz(Blob("a.npz", data))
    assert not (tmp_path / "sprung").exists()


def test_npz_whose_header_lies():
    data = npz(a=np.zeros(10, np.uint8)).replace(b"(10,)", b"(9**9,)"[:5])
    with pytest.raises(ValueError, match=r"^a.npz: "):
        read_npz(Blob("a.npz", data))
    raw = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        raw, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40,)}
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.npy", raw.getvalue())
    with pytest.raises(ValueError, match=r"announces shape.*but holds 0"):
        read_npz(Blob("a.npz", packed.getvalue()))


def test_csv_columns_and_numbers():
    columns = read_csv(Blob("a", b"\xef\xbb\xbf" + CSV))
    assert list(columns) == ["day", "x", "y"]
    np.testing.assert_array_equal(numbers(columns, ["y", "x"], name="a"), [[2, 1], [4.5, 3]])
    with pytest.raises(ValueError, match=r"^a: row 1 of column 'day' is 'mon'"):
        numbers(columns, ["x", "day"], name="a")
    with pytest.raises(ValueError, match=r"^a: has no column 'z'; it has day, x, y"):
        numbers(columns, ["z"], name="a")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "expected a header and at least one row"),
        (b"x,y\n", "expected a header and at least one row"),
        (b"x,x\n1,2\n", "two columns of the same name"),
        (b"x,y\n1,2\n3\n", "row 2 has 1 fields where the header has 2"),
        (b"x\n\xff\n", "not readable as a CSV file"),
    ],
)
def test_bad_csv(data, says):
    with pytest.raises(ValueError, match=f"^t.csv: .*{says}"):
        read_csv(Blob("t.csv", data))


def test_grid_wants_its_columns():
    assert read_grid(Blob("a", b"h\n1,2\r\n3,4\r\n"), columns=2, header=1).shape == (2, 2)
    for bad in (b"1,2\n3\n", b"1,2,3\n", b"1,x\n", b""):
        with pytest.raises(ValueError, match=r"^a: "):
            read_grid(Blob("a", bad), columns=2)


def test_strip_is_channels_first():
    got = read_strip(Blob("a", png(STRIP)), examples=5, side=3)
    assert got.shape == (5, 3, 3, 3)
    np.testing.assert_array_equal(got[4, 1], STRIP[4, :, 1].reshape(3, 3))
    with pytest.raises(ValueError, match=r"^a: is 9 by 5 pixels of mode RGB; expected 9 by 6"):
        read_strip(Blob("a", png(STRIP)), examples=6, side=3)
    with pytest.raises(ValueError, match=r"of mode L; expected"):
        read_strip(Blob("a", png(STRIP[..., 0])), examples=5, side=3)


def test_cifar_records():
    xs, ys = read_cifar(Blob("a", RECORDS.tobytes()), examples=2)
    np.testing.assert_array_equal(ys, RECORDS[:, 0])
    np.testing.assert_array_equal(xs[1, 2, 0], RECORDS[1, 1 + 2048 : 1 + 2048 + 32])
    with pytest.raises(ValueError, match=r"^a: announces"):
        read_cifar(Blob("a", RECORDS.tobytes()[:-1]), examples=2)


def reads_or_refuses(read, data: bytes) -> None:
    """The one promise: arrays, or a `ValueError` that names the file."""
    said = "the file: "
    try:
        read(Blob("the file", data))
    except ValueError as error:
        said = str(error)
    assert said.startswith("the file: ")
    assert "Type-check" not in said


@pytest.mark.parametrize("name", READERS)
def test_whole_files_are_read(name):
    read, whole = READERS[name]
    read(Blob("the file", whole))


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused_or_read(name, data):
    read, whole = READERS[name]
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    reads_or_refuses(read, bytes(damaged) + data.draw(st.binary(max_size=8)))


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=25, deadline=None)
@given(noise=st.binary(max_size=200))
def test_noise_is_refused_or_read(name, noise):
    reads_or_refuses(READERS[name][0], noise)
