"""The header of a GGUF file: counts, metadata and a list of tensors, read without trust in any
number of it.

Every value takes bytes of the file, so that a count that lies comes to the file's end before it
takes memory.
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
LIMIT = 64 << 20  # the most bytes before the tensors; the largest vocabularies take 15 million
_DEEPEST = 4  # arrays within arrays
_MOST_AXES = 4


def library():
    """The library `gguf`, imported when it is first needed."""
    try:
        import gguf
    except ImportError as error:
        raise ImportError(
            "GGUF files need the library gguf: pip install 'thetax[text]'."
        ) from error
    return gguf


class Info(NamedTuple):
    """Where a tensor lies, and as what."""

    shape: tuple[int, ...]
    kind: int
    offset: int  # from where the tensors begin
    size: int  # in bytes


class Header:
    """Reads values one after another, never beyond the end."""

    def __init__(self, data: np.ndarray, name: str):
        self.data, self.name, self.place = data, name, 0

    def begin(self) -> int:
        """Checks how the file begins; gives the number of tensors."""
        if self.take(4) != b"GGUF":
            raise ValueError(
                f"{self.name}: does not begin as a GGUF file does; it is something else."
            )
        version = self.number("u4")
        if version not in (2, 3):
            raise ValueError(
                f"{self.name}: is GGUF of version {version}; 2 and 3 in little-endian order are "
                "read."
            )
        return self.number("u8")

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.place:
            raise ValueError(
                f"{self.name}: announces more than its {len(self.data):,} bytes hold. Fetch it "
                "again."
            )
        self.place += size
        return self.data[self.place - size : self.place].tobytes()

    def number(self, kind: str) -> Any:
        return self.numbers(kind, 1)[0]

    def numbers(self, kind: str, count: int) -> list[Any]:
        little = np.dtype(kind).newbyteorder("<")
        return np.frombuffer(self.take(count * little.itemsize), little).tolist()

    def string(self) -> str:
        return self.take(self.number("u8")).decode()

    def distinct(
        self, count: int, read: Callable[[], tuple[str, Any]]
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        for _ in range(count):
            name, value = read()
            if name in seen:
                raise ValueError(f"{self.name}: has {name!r} twice.")
            seen.add(name)
            yield name, value

    def pair(self) -> tuple[str, Any]:
        return self.string(), self.value(self.number("u4"))

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth == _DEEPEST:
            raise ValueError(
                f"{self.name}: has a value of the unknown kind {kind}, or arrays too deep in "
                "arrays."
            )
        inner = self.number("u4")
        count = self.number("u8")
        if inner in _NUMBERS:
            return self.numbers(_NUMBERS[inner], count)
        return [
            self.value(inner, depth + 1) for _ in range(count)
        ]  # each takes bytes, so the file's end ends it

    def tensor(self, room: int) -> tuple[str, Info]:
        gguf = library()
        name = self.string()
        axes = self.number("u4")
        if axes > _MOST_AXES:
            raise ValueError(
                f"{self.name}: tensor {name!r} has {axes} axes; at most {_MOST_AXES} are allowed."
            )
        shape = tuple(self.numbers("u8", axes)[::-1])
        kind = self.number("u4")
        offset = self.number("u8")
        try:
            block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
        except (ValueError, KeyError):
            raise ValueError(
                f"{self.name}: tensor {name!r} is of the unknown kind {kind}."
            ) from None
        last = shape[-1] if shape else 1
        size = math.prod(shape) // block * size
        if last % block or min(shape, default=1) < 1 or size > room:
            raise ValueError(
                f"{self.name}: tensor {name!r} of shape {shape} cannot be; the file has {room:,} "
                "bytes."
            )
        return name, Info(shape, kind, offset, size)


def aligned(place: int, alignment: Any) -> int:
    """The first place from there on that is a multiple of the alignment, a power of two."""
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment!r}, which is no power of two")
    return -(-place // alignment) * alignment


def apart(infos: Mapping[str, Info], start: int, room: int, name: str) -> None:
    """Every tensor within the file, and no two in the same place."""
    rows = sorted((info.offset, info.offset + info.size, tensor) for tensor, info in infos.items())
    for (_, end, first), (begin, _, second) in pairwise(rows):
        if begin < end:
            raise ValueError(f"{name}: tensors {first!r} and {second!r} lie in the same place.")
    if rows and start + rows[-1][1] > room:
        missing = start + rows[-1][1] - room
        raise ValueError(
            f"{name}: ends {missing:,} bytes before its tensors do; it was cut off. Fetch it again."
        )
