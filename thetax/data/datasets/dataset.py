"""What a dataset is: a name, sources that must agree, a licence, and a fingerprint.

Whatever the source, a dataset is the same arrays (`train_x`, `train_y` and perhaps `test_x`,
`test_y`), and one SHA-256 over them is pinned. So two sources cannot silently differ, and a damaged
cache shows.
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

    Images are float32 in [0, 1], `n h w` if grey and `n c h w` if coloured; tables are float32,
    `n d`; texts are strings, `n` of them (NumPy's `StringDType`). Labels are int32, targets of a
    regression float32.
    """

    train: tuple[np.ndarray, np.ndarray]  # xs, ys; everything, where there is no official split
    test: tuple[np.ndarray, np.ndarray] | None
    classes: tuple[str, ...]  # the names of the labels 0, 1, ...; empty for a regression
    features: tuple[str, ...]  # the names of the columns; empty for images and texts


@dataclass(frozen=True)
class Dataset:
    """A dataset by name: what a list of datasets prints, and what `load` needs."""

    name: str
    about: str
    licence: str
    size: int  # bytes in the cache; 0 for what comes with an installed library
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    fingerprint: str = ""
    sources: tuple[Source, ...] = field(default=(), repr=False)
    forms: tuple[Form, ...] = field(default=(), repr=False)  # what a folder of the user may hold
    embedded: Callable[[], Arrays] | None = field(default=None, repr=False)
    files: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # kept as they are, with the SHA-256 of each

    def data(self, arrays: Arrays) -> Data:
        """The arrays as a learner wants them: pixels in [0, 1], texts as strings, labels as
        int32.
        """
        test = _pair(arrays, "test") if "test_x" in arrays else None
        return Data(_pair(arrays, "train"), test, self.classes, self.features)


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 over the names, types, shapes and bytes of the arrays.

    >>> a = {"x": np.zeros(2, np.uint8)}
    >>> fingerprint(a) == fingerprint({"x": np.zeros(2, np.uint8)})
    True
    >>> fingerprint(a) == fingerprint({"x": np.zeros((1, 2), np.uint8)})
    False
    """
    state = hashlib.sha256()
    for name in sorted(arrays):
        little = arrays[name].dtype.newbyteorder("<")
        array = np.ascontiguousarray(arrays[name], little)
        state.update(f"{name} {array.dtype.str} {arrays[name].shape}\n".encode())
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def _pair(arrays: Arrays, part: str) -> tuple[np.ndarray, np.ndarray]:
    xs = arrays[f"{part}_x"]
    ends = arrays.get(f"{part}_ends")
    return _pixels(xs) if ends is None else strings(xs, ends), _labels(arrays[f"{part}_y"])


def strings(xs: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Strings out of one buffer of UTF-8, each from the end of the one before it to its own."""
    data = xs.tobytes()
    stops = ends.tolist()
    texts = [data[start:stop].decode() for start, stop in zip([0, *stops], stops)]
    return np.array(texts, np.dtypes.StringDType())


def _pixels(xs: np.ndarray) -> np.ndarray:
    return np.multiply(xs, np.float32(1 / 255), dtype=np.float32) if xs.dtype == np.uint8 else xs


def _labels(ys: np.ndarray) -> np.ndarray:
    return ys.astype(np.int32) if ys.dtype == np.uint8 else ys
