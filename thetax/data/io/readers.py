"""Readers of array files: idx, npz, CSV, image strips and the binary batches of CIFAR.

Every reader takes a path (or a `Blob`), decompresses gzip, bzip2 and xz, compares announced sizes
with the actual number of bytes before it allocates memory, and never unpickles. An invalid file is
a `ValueError` that names it.
"""

import csv
import io
import math
import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from .bounded_read import LIMIT, File, bounded, contents, reading

Arrays: TypeAlias = dict[str, np.ndarray]

_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(file: File, *, limit: int = LIMIT) -> np.ndarray:
    """An array in the idx format of MNIST: two zero bytes, a type, the rank, the sizes, the values.

    >>> from thetax.data.io.bounded_read import Blob
    >>> read_idx(Blob("labels", bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]))).tolist()
    [5, 0, 4]
    >>> read_idx(Blob("labels", bytes([0, 0, 8, 1, 0, 0, 0, 9, 5, 0, 4])))
    Traceback (most recent call last):
    ValueError: labels: announces shape (9,), that is 9 bytes, but holds 3. Download it again.
    """
    name, data = contents(file, limit=limit)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES:
        raise ValueError(
            f"{name}: is not an idx file, which begins with 0, 0, type, rank; got {data[:4]!r}."
        )
    kind = np.dtype(_IDX_TYPES[data[2]])
    rank = data[3]
    start = 4 + 4 * rank
    if len(data) < start:
        raise ValueError(
            f"{name}: ends inside the header of an idx file of rank {rank}. Download it again."
        )
    shape = struct.unpack(f">{rank}I", data[4:start])
    return _shaped(data[start:], kind, shape, name=name)


def _shaped(
    data: bytes | memoryview, kind: np.dtype, shape: Sequence[int], *, name: str
) -> np.ndarray:
    """The bytes as an array in native byte order; checks their number first."""
    expected = math.prod(shape) * kind.itemsize  # Python integers: 2**40 items overflow nothing
    if expected != len(data):
        raise ValueError(
            f"{name}: announces shape {tuple(shape)}, that is {expected:,} bytes, "
            f"but holds {len(data):,}. Download it again."
        )
    with reading(name, f"an array of shape {tuple(shape)}"):
        return np.frombuffer(data, kind).reshape(shape).astype(kind.newbyteorder("="), copy=False)


def read_npz(file: File, *, limit: int = LIMIT) -> Arrays:
    """The arrays of an npz file by name; arrays of Python objects are refused, as they are pickled.

    >>> from thetax.data.io.bounded_read import Blob
    >>> buffer = io.BytesIO()
    >>> np.savez(buffer, xs=np.arange(3), ys=np.ones(2))
    >>> {name: array.shape for name, array in read_npz(Blob("a.npz", buffer.getvalue())).items()}
    {'xs': (3,), 'ys': (2,)}
    """
    name, data = contents(file, limit=limit)
    arrays: Arrays = {}
    with reading(name, "an npz file"), zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.namelist():
            with archive.open(member) as stream:
                raw = bounded(stream, name=name, limit=limit)
            limit -= len(raw)
            arrays[member.removesuffix(".npy")] = _npy(raw, name=f"{name}: {member}")
    return arrays


def _npy(raw: bytes, *, name: str) -> np.ndarray:
    stream = io.BytesIO(raw)
    with reading(name, "an npy array"):
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, columns_first, kind = np.lib.format.read_array_header_1_0(stream)
        else:
            shape, columns_first, kind = np.lib.format.read_array_header_2_0(stream)
        if kind.hasobject:
            raise ValueError(f"{name}: holds pickled Python objects, which are refused.")
        array = _shaped(
            memoryview(raw)[stream.tell() :],
            kind,
            shape[::-1] if columns_first else shape,
            name=name,
        )
        return array.T if columns_first else array


def read_csv(file: File, *, limit: int = LIMIT) -> dict[str, list[str]]:
    r"""The columns of a CSV file with a header, as text; `numbers` converts them.

    >>> from thetax.data.io.bounded_read import Blob
    >>> read_csv(Blob("a.csv", b"x,label\n0.5,yes\n1,no\n"))
    {'x': ['0.5', '1'], 'label': ['yes', 'no']}
    """
    name, data = contents(file, limit=limit)
    with reading(name, "a CSV file"):
        header, *rows = [
            row for row in csv.reader(io.StringIO(data.decode("utf-8-sig"))) if row
        ] or [[]]
        if not header or not rows:
            raise ValueError(
                f"{name}: expected a header and at least one row; got {len(rows)} rows."
            )
        if len(set(header)) != len(header):
            raise ValueError(f"{name}: has two columns of the same name in its header {header}.")
        for i, row in enumerate(rows, start=1):
            if len(row) != len(header):
                raise ValueError(
                    f"{name}: row {i} has {len(row)} fields where the header has {len(header)}."
                )
    return dict(zip(header, map(list, zip(*rows))))


def numbers(columns: Mapping[str, Sequence[str]], names: Sequence[str], *, name: str) -> np.ndarray:
    """The named columns as a float32 matrix; raises `ValueError` for a field that is not a number.

    >>> numbers({"a": ["1", "2"], "b": ["3", "x"]}, ["a", "b"], name="t.csv")
    Traceback (most recent call last):
    ValueError: t.csv: row 2 of column 'b' is 'x', not a number.
    """
    parts = []
    for column in names:
        if column not in columns:
            raise ValueError(f"{name}: has no column {column!r}; it has {', '.join(columns)}.")
        try:
            parts.append(np.array(columns[column], dtype=np.float64))
        except ValueError:
            row, field = next(
                (i, f) for i, f in enumerate(columns[column], start=1) if not _is_number(f)
            )
            raise ValueError(
                f"{name}: row {row} of column {column!r} is {field!r}, not a number."
            ) from None
    return np.stack(parts, axis=1).astype(np.float32)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_grid(
    file: File, *, columns: int, header: int = 0, kind: type = np.float32, limit: int = LIMIT
) -> np.ndarray:
    r"""The rows of a text file of comma-separated numbers, each of `columns` fields.

    >>> from thetax.data.io.bounded_read import Blob
    >>> read_grid(Blob("a.csv", b"1,2\n3,4\n"), columns=2).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    name, data = contents(file, limit=limit)
    with reading(name, "rows of numbers"):
        if not data.strip():
            raise ValueError(f"{name}: is empty.")
        rows = np.loadtxt(
            io.BytesIO(data), dtype=kind, delimiter=",", skiprows=header, ndmin=2, comments=None
        )
        if rows.shape[1] != columns:
            raise ValueError(f"{name}: has {rows.shape[1]} fields in a row; expected {columns}.")
        return rows


def read_strip(file: File, *, examples: int, side: int, limit: int = LIMIT) -> np.ndarray:
    """Images from a PNG file whose row i holds the pixels of image i; shape (n, c, h, w)."""
    from PIL import Image

    name, data = contents(file, limit=limit)
    with reading(name, "a PNG image"), Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
        if picture.size != (side * side, examples) or picture.mode not in ("RGB", "RGBA"):
            raise ValueError(
                f"{name}: is {picture.size[0]} by {picture.size[1]} pixels of mode {picture.mode}; "
                f"expected {side * side} by {examples} of mode RGB."
            )
        pixels = np.asarray(picture)[..., :3]  # n (h w) c
    return np.ascontiguousarray(pixels.reshape(examples, side, side, 3).transpose(0, 3, 1, 2))


def read_cifar(
    file: File, *, examples: int = 10_000, limit: int = LIMIT
) -> tuple[np.ndarray, np.ndarray]:
    """A binary batch of CIFAR-10: `examples` records of a label and 3 x 32 x 32 pixels."""
    name, data = contents(file, limit=limit)
    records = _shaped(data, np.dtype(np.uint8), (examples, 1 + 3 * 32 * 32), name=name)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
