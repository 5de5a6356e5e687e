"""A reader of R data frames saved by `save()` (`.rda`), without R.

An `.rda` file is a (compressed) stream of items in big-endian XDR: a 32-bit word of flags whose
lowest byte is the type, then the value; a pair list is a chain of tagged items, and attributes are
a pair list after the value. Only the types of data frames are read: numbers, text, factors and
lists. Everything else (code, environments, promises) is refused.
"""

import struct
from typing import Any

import numpy as np

from .bounded_read import LIMIT, File, contents, reading

_MAX_DEPTH = 64  # of nesting

_NIL = 254
_SYMBOL = 1
_PAIRS = 2
_TEXT = 9
_LOGICAL = 10
_INTEGER = 13
_REAL = 14
_STRINGS = 16
_LIST = 19
_REFERENCE, _NULL = 255, 0
_NUMERIC = {_LOGICAL: ">i4", _INTEGER: ">i4", _REAL: ">f8"}
_MISSING = -(2**31)  # R's NA among the integers


class _Value:
    """A value and its R attributes."""

    def __init__(self, value: Any, attributes: dict[str, "_Value"]):
        self.value, self.attributes = value, attributes


class _Stream:
    def __init__(self, data: bytes, name: str):
        self.data = data
        self.name = name
        self.position = 0
        self.symbols = []

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            left = len(self.data) - self.position
            raise ValueError(f"{self.name}: announces {size:,} bytes, but {left:,} are left.")
        self.position += size
        return self.data[self.position - size : self.position]

    def word(self) -> int:
        return struct.unpack(">i", self.take(4))[0]

    def count(self, width: int) -> int:
        """A number of elements; raises `ValueError` if the rest of the file is too short for
        elements of at least `width` bytes.
        """
        size = self.word()
        if size < 0 or size * width > len(self.data) - self.position:
            raise ValueError(
                f"{self.name}: announces {size:,} elements, but the file is too short for them."
            )
        return size

    def item(self, depth: int = 0) -> _Value:
        if depth > _MAX_DEPTH:
            raise ValueError(
                f"{self.name}: is nested more than {_MAX_DEPTH} levels deep, unlike a data frame."
            )
        flags = self.word() & 0xFFFFFFFF
        kind = flags & 0xFF
        attributed = bool(flags & 0x200)
        if kind in (_NIL, _NULL):
            return _Value(None, {})
        if kind == _REFERENCE:
            return _Value(self.symbol_at((flags >> 8) or self.word()), {})
        if kind == _SYMBOL:
            self.symbols.append(self.item(depth + 1).value)
            return _Value(self.symbols[-1], {})
        if kind == _PAIRS:
            return _Value(self.pairs(flags, depth), {})
        value = self.vector(kind, depth)
        return _Value(value, self.item(depth + 1).value or {} if attributed else {})

    def symbol_at(self, index: int) -> str:
        if not 1 <= index <= len(self.symbols):
            raise ValueError(f"{self.name}: refers to symbol {index} of {len(self.symbols)}.")
        return self.symbols[index - 1]

    def pairs(self, flags: int, depth: int) -> dict[str, _Value]:
        """A chain of tagged items, read in a loop, not recursively."""
        found: dict[str, _Value] = {}
        while flags & 0xFF == _PAIRS:
            if flags & 0x200:
                self.item(depth + 1)
            tag = self.item(depth + 1).value if flags & 0x400 else ""
            found[str(tag)] = self.item(depth + 1)
            flags = self.word() & 0xFFFFFFFF
        if flags & 0xFF not in (_NIL, _NULL):
            raise ValueError(f"{self.name}: a list ends with an item of type {flags & 0xFF}.")
        return found

    def vector(self, kind: int, depth: int) -> Any:
        if kind in _NUMERIC:
            form = np.dtype(_NUMERIC[kind])
            raw = self.take(self.count(form.itemsize) * form.itemsize)
            return np.frombuffer(raw, form).astype(form.newbyteorder("="))
        if kind == _TEXT:
            size = self.word()
            return None if size == -1 else self.take(size).decode("utf-8", "replace")
        if kind == _STRINGS:
            return [self.item(depth + 1).value for _ in range(self.count(4))]
        if kind == _LIST:
            return [self.item(depth + 1) for _ in range(self.count(4))]
        raise ValueError(
            f"{self.name}: holds an R object of type {kind}; only data frames are supported."
        )


def read_rda(file: File, *, limit: int = LIMIT) -> dict[str, dict[str, np.ndarray]]:
    """The data frames of an `.rda` file by name, each a dictionary of columns.

    Numbers, integers and logicals become float64 with NA as NaN; text and factors become `str`.
    """
    name, data = contents(file, limit=limit)
    with reading(name, "an R data file"):
        stream = _Stream(data, name)
        if stream.take(5) not in (b"RDX2\n", b"RDX3\n") or stream.take(2) != b"X\n":
            raise ValueError(
                f"{name}: is not an R data file of format 2 or 3; it begins with {data[:7]!r}."
            )
        version = stream.word()
        _ = stream.word()
        _ = stream.word()
        if version == 3:
            stream.take(stream.word())  # the native encoding
        frames = stream.item().value
        if not isinstance(frames, dict):
            raise ValueError(f"{name}: holds no named objects.")
        return {key: _frame(value, name=f"{name}: {key}") for key, value in frames.items()}


def _frame(frame: _Value, *, name: str) -> dict[str, np.ndarray]:
    names = frame.attributes.get("names")
    if names is None or not isinstance(frame.value, list) or len(names.value) != len(frame.value):
        raise ValueError(f"{name}: is not a data frame (a list of named columns).")
    columns = {
        str(key): _column(value, name=f"{name}: {key}")
        for key, value in zip(names.value, frame.value)
    }
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"{name}: has columns of different lengths.")
    return columns


def _column(column: _Value, *, name: str) -> np.ndarray:
    values = column.value
    levels = column.attributes.get("levels")
    if isinstance(values, list):
        return np.array([value if isinstance(value, str) else "NA" for value in values], dtype=str)
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{name}: is neither numbers nor text.")
    if levels is None:
        missing = values == _MISSING if values.dtype.kind == "i" else np.zeros(len(values), bool)
        return np.where(missing, np.nan, values.astype(np.float64))
    texts = np.array(["NA", *(str(level) for level in levels.value)], dtype=str)
    present = values[values != _MISSING]
    if np.any((present < 1) | (present >= len(texts))):
        raise ValueError(f"{name}: has a factor code outside its {len(texts) - 1} levels.")
    return texts[np.where(values == _MISSING, 0, values).astype(np.int64)]
