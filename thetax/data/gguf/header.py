"""The header of a GGUF file: counts, metadata and the list of tensors.

The header is untrusted. Every value takes bytes of the file, so a wrong count reaches the end of
the file before it allocates memory.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

_NUMBERS = {
    0: "u1",
    1: "i1",
    2: "u2",
    3: "i2",
    4: "u4",
    5: "i4",
    6: "f4",
    7: "?",
    10: "u8",
    11: "i8",
    12: "f8",
}
_STRING, _ARRAY = 8, 9
MAX_HEADER_BYTES = 64 << 20  # the largest vocabularies take 15 million
_MAX_DEPTH = 4  # of nested arrays
_MAX_AXES = 4


def import_gguf():
    """The library `gguf`; raises `ImportError` with the install command if it is missing."""
    try:
        import gguf
    except ImportError as error:
        raise ImportError(
            "GGUF files need the library gguf: pip install 'thetax[text]'."
        ) from error
    return gguf


class TensorInfo(NamedTuple):
    """Shape, storage type and position of a tensor."""

    shape: tuple[int, ...]
    kind: int
    offset: int  # from the start of the tensor data
    size: int  # in bytes


class Header:
    """Reads values in sequence; raises `ValueError` at the end of the data."""

    def __init__(self, data: np.ndarray, name: str):
        self.data = data
        self.name = name
        self.position = 0

    def read_start(self) -> int:
        """Checks magic number and version; returns the number of tensors."""
        if self.take(4) != b"GGUF":
            raise ValueError(f"{self.name}: is not a GGUF file.")
        version = self.number("u4")
        if version not in (2, 3):
            raise ValueError(
                f"{self.name}: is GGUF of version {version}; only versions 2 and 3 in "
                "little-endian order are supported."
            )
        return self.number("u8")

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.position:
            raise ValueError(
                f"{self.name}: announces more than its {len(self.data):,} bytes. Download it again."
            )
        self.position += size
        return self.data[self.position - size : self.position].tobytes()

    def number(self, kind: str) -> Any:
        return self.numbers(kind, 1)[0]

    def numbers(self, kind: str, count: int) -> list[Any]:
        dtype = np.dtype(kind).newbyteorder("<")
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()

    def string(self) -> str:
        return self.take(self.number("u8")).decode()

    def distinct(
        self, count: int, read: Callable[[], tuple[str, Any]]
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        for _ in range(count):
            name, value = read()
            if name in seen:
                raise ValueError(f"{self.name}: contains {name!r} twice.")
            seen.add(name)
            yield name, value

    def entry(self) -> tuple[str, Any]:
        return self.string(), self.value(self.number("u4"))

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth == _MAX_DEPTH:
            raise ValueError(
                f"{self.name}: has a value of unknown type {kind}, or too deeply nested arrays."
            )
        inner = self.number("u4")
        count = self.number("u8")
        if inner in _NUMBERS:
            return self.numbers(_NUMBERS[inner], count)
        # every value takes bytes, so a wrong count ends at the end of the file
        return [self.value(inner, depth + 1) for _ in range(count)]

    def tensor(self, file_size: int) -> tuple[str, TensorInfo]:
        gguf = import_gguf()
        name = self.string()
        axes = self.number("u4")
        if axes > _MAX_AXES:
            raise ValueError(
                f"{self.name}: tensor {name!r} has {axes} axes; at most {_MAX_AXES} are allowed."
            )
        shape = tuple(self.numbers("u8", axes)[::-1])
        kind = self.number("u4")
        offset = self.number("u8")
        try:
            block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
        except (ValueError, KeyError):
            raise ValueError(f"{self.name}: tensor {name!r} has the unknown type {kind}.") from None
        last = shape[-1] if shape else 1
        size = math.prod(shape) // block * size
        if last % block or min(shape, default=1) < 1 or size > file_size:
            raise ValueError(
                f"{self.name}: tensor {name!r} has the invalid shape {shape} for a file of "
                f"{file_size:,} bytes."
            )
        return name, TensorInfo(shape, kind, offset, size)


def round_up(position: int, alignment: Any) -> int:
    """The position rounded up to a multiple of the alignment, a power of two."""
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment must be a power of two; got {alignment!r}")
    return -(-position // alignment) * alignment


def check_layout(infos: Mapping[str, TensorInfo], start: int, file_size: int, name: str) -> None:
    """Raises `ValueError` unless the tensors are inside the file and do not overlap."""
    rows = sorted((info.offset, info.offset + info.size, tensor) for tensor, info in infos.items())
    for (_, stop, first), (next_start, _, second) in pairwise(rows):
        if next_start < stop:
            raise ValueError(f"{name}: tensors {first!r} and {second!r} overlap.")
    if rows and start + rows[-1][1] > file_size:
        missing = start + rows[-1][1] - file_size
        raise ValueError(
            f"{name}: is truncated: {missing:,} bytes of tensors are missing. Download it again."
        )
