"""The description of a dataset: name, sources, licence, and the fingerprint of its arrays.

All sources of a dataset give the same arrays (`train_x`, `train_y` and optionally `test_x`,
`test_y`). One SHA-256 over them is pinned, so sources cannot silently differ and a damaged cache is
detected.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..io.readers import Arrays
from ..io.sources import Form, Source


class Data(NamedTuple):
    """A dataset in memory.

    Images are float32 in [0, 1], of shape (n, h, w) if grey and (n, c, h, w) in colour; tables are
    float32 (n, d); texts are n strings (NumPy's `StringDType`). Labels are int32, regression
    targets float32.
    """

    train: tuple[np.ndarray, np.ndarray]  # xs, ys; all examples if there is no official split
    test: tuple[np.ndarray, np.ndarray] | None
    classes: tuple[str, ...]  # names of the labels 0, 1, ...; empty for regression
    features: tuple[str, ...]  # names of the columns; empty for images and texts


@dataclass(frozen=True)
class Dataset:
    """The description of a dataset, which `datasets` lists and `load` uses."""

    name: str
    about: str
    licence: str
    size: int  # bytes in the cache; 0 if an installed library contains it
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    fingerprint: str = ""
    sources: tuple[Source, ...] = field(default=(), repr=False)
    forms: tuple[Form, ...] = field(default=(), repr=False)  # accepted in a user's folder
    embedded: Callable[[], Arrays] | None = field(default=None, repr=False)
    # SHA-256 of each file, for a dataset that is cached as files
    files: Mapping[str, str] = field(default_factory=dict, repr=False)

    def data(self, arrays: Arrays) -> Data:
        """The arrays for training: pixels in [0, 1], texts as strings, labels as int32."""
        test = _pair(arrays, "test") if "test_x" in arrays else None
        return Data(_pair(arrays, "train"), test, self.classes, self.features)


def fingerprint(arrays: Arrays) -> str:
    """The SHA-256 of the names, dtypes, shapes and bytes of the arrays.

    >>> a = {"x": np.zeros(2, np.uint8)}
    >>> fingerprint(a) == fingerprint({"x": np.zeros(2, np.uint8)})
    True
    >>> fingerprint(a) == fingerprint({"x": np.zeros((1, 2), np.uint8)})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<"))
        digest.update(f"{name} {array.dtype.str} {arrays[name].shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _pair(arrays: Arrays, part: str) -> tuple[np.ndarray, np.ndarray]:
    xs = arrays[f"{part}_x"]
    ends = arrays.get(f"{part}_ends")
    return _pixels(xs) if ends is None else strings(xs, ends), _labels(arrays[f"{part}_y"])


def strings(xs: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Splits one UTF-8 buffer into strings, which end at the offsets `ends`."""
    data = xs.tobytes()
    stops = ends.tolist()
    texts = [data[start:stop].decode() for start, stop in zip([0, *stops], stops)]
    return np.array(texts, np.dtypes.StringDType())


def _pixels(xs: np.ndarray) -> np.ndarray:
    return np.multiply(xs, np.float32(1 / 255), dtype=np.float32) if xs.dtype == np.uint8 else xs


def _labels(ys: np.ndarray) -> np.ndarray:
    return ys.astype(np.int32) if ys.dtype == np.uint8 else ys
