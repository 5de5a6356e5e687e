"""Arrays from pickles without unpickling: a reader that knows only numbers, strings, lists, dicts,
NumPy arrays and SciPy's CSR matrices.

The benchmark graphs of Planetoid are pickles of Python 2. A pickle is a program, and Python's
`pickle` runs it. Here its instructions are listed by `pickletools.genops`, which executes nothing,
and interpreted by a table of the few that arrays need. The names in a pickle (`numpy dtype`) are
compared with a list of six and never imported, so a hostile file is a `ValueError`.
"""

import math
import pickletools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .bounded_read import LIMIT, File, contents, reading

_NAMES = {
    "numpy.core.multiarray _reconstruct",
    "numpy ndarray",
    "numpy dtype",
    "scipy.sparse.csr csr_matrix",
    "collections defaultdict",
    "__builtin__ list",
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINSTRING", "SHORT_BINSTRING", "BINUNICODE"),
}
_MARK = object()


class CSRMatrix(NamedTuple):
    """The arrays of a sparse matrix; row i has `data[indptr[i]:indptr[i + 1]]` at the columns
    `indices[...]`.
    """

    shape: tuple[int, int]
    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    def dense(self) -> np.ndarray:
        """The matrix as an array."""
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        full = np.zeros(self.shape, self.data.dtype)
        np.add.at(full, (rows, self.indices), self.data)
        return full


class _Name(NamedTuple):
    """A global name in the pickle; it is compared, never imported."""

    name: str


class _Unfinished:
    """An array, a dtype or a matrix until its state has been read."""

    def __init__(self, kind: str):
        self.kind = kind
        self.value: Any = None


def read_pickled_arrays(file: File, *, limit: int = LIMIT) -> Any:
    """The value of a pickle of protocol 2: an array, a `CSRMatrix`, or a list or dict of these and
    of numbers and strings.

    Anything else is refused, above all every function that a pickle could call.

    >>> import pickle
    >>> from thetax.data.io.bounded_read import Blob
    >>> read_pickled_arrays(Blob("a", pickle.dumps({"rows": [1, 2]}, 2)))
    {'rows': [1, 2]}
    >>> read_pickled_arrays(Blob("a", b"cos\\nsystem\\n(S'true'\\ntR."))
    Traceback (most recent call last):
    ValueError: a: uses the name 'os system', which no array needs. The file may be hostile; ...
    """
    name, data = contents(file, limit=limit)
    with reading(name, "a pickle of arrays"):
        return _finish(_interpret(data, name), name)


def _interpret(data: bytes, name: str) -> Any:
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for opcode, argument, _ in pickletools.genops(data):
        code = opcode.name
        if code in ("PROTO", "STOP"):
            continue
        if code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in _EMPTY:
            stack.append(_EMPTY[code]())
        elif code in _VALUES:
            stack.append(argument)
        elif code == "MARK":
            stack.append(_MARK)
        elif code in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif code in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif code == "GLOBAL":
            if argument not in _NAMES:
                raise ValueError(
                    f"{name}: uses the name {argument!r}, which no array needs. The file may be "
                    "hostile; it was not executed. Download it again from its publisher."
                )
            stack.append(_Name(argument))
        elif code == "TUPLE":
            stack.append(tuple(_to_mark(stack)))
        elif code in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(code[-1])
            stack[-n:] = [tuple(stack[-n:])]
        elif code == "APPEND":
            item = stack.pop()
            _container(stack, list).append(item)
        elif code == "APPENDS":
            items = _to_mark(stack)
            _container(stack, list).extend(items)
        elif code == "SETITEMS":
            items = _to_mark(stack)
            _container(stack, dict).update(zip(items[::2], items[1::2]))
        elif code == "SETITEM":
            value = stack.pop()
            key = stack.pop()
            _container(stack, dict)[key] = value
        elif code in ("REDUCE", "NEWOBJ"):
            arguments = stack.pop()
            stack[-1] = _construct(stack[-1], arguments)
        elif code == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], _Unfinished):
                raise ValueError("an instruction sets the state of something that has none")
            stack[-1].value = _from_state(stack[-1].kind, state)
        else:
            raise ValueError(f"{name}: uses the instruction {code}, which arrays do not need.")
    if len(stack) != 1:
        raise ValueError(f"holds {len(stack)} values instead of one")
    return stack[0]


def _to_mark(stack: list[Any]) -> list[Any]:
    """Takes the values above the last mark from the stack."""
    start = len(stack) - 1
    while stack[start] is not _MARK:
        start -= 1
        if start < 0:
            raise ValueError("a mark is missing")
    values = stack[start + 1 :]
    del stack[start:]
    return values


def _container(stack: list[Any], kind: type) -> Any:
    if type(stack[-1]) is not kind:
        raise ValueError(f"expected a {kind.__name__}; got a {type(stack[-1]).__name__}")
    return stack[-1]


def _construct(name: Any, arguments: Any) -> Any:
    """What the call of a known name makes: an empty dict, or something whose state follows."""
    if not isinstance(name, _Name):
        raise ValueError("an instruction calls something that is not a name")
    if name.name == "collections defaultdict":
        return {}
    if name.name == "numpy.core.multiarray _reconstruct":
        return _Unfinished("array")
    if name.name == "scipy.sparse.csr csr_matrix":
        return _Unfinished("matrix")
    if name.name == "numpy dtype" and re.fullmatch("[fiub][1248]", str(arguments[0])):
        dtype = _Unfinished("dtype")
        dtype.value = np.dtype(arguments[0])
        dtype.kind = f"dtype {arguments[0]}"
        return dtype
    raise ValueError(f"{name.name} with the arguments {arguments!r:.80} is not an array of numbers")


def _from_state(kind: str, state: Any) -> Any:
    if kind == "array":
        _, shape, dtype, by_columns, data = state
        return _array(shape, dtype.value, data, order="F" if by_columns else "C")
    if kind == "matrix":
        data, indices, indptr = (state[name].value for name in ("data", "indices", "indptr"))
        return _matrix(state.get("_shape", state.get("shape")), data, indices, indptr)
    order = state[1]
    if order not in ("<", ">", "|", "="):
        raise ValueError(f"{order!r} is not a byte order")
    return np.dtype(kind.removeprefix("dtype ")).newbyteorder(order)


def _array(shape: Any, dtype: np.dtype, text: Any, *, order: Any) -> np.ndarray:
    data = text.encode("latin-1")
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"{shape!r} is not a shape")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array of shape {shape} and {dtype} has {len(data):,} bytes")
    values = np.frombuffer(data, dtype).reshape(shape, order=order)
    return values.astype(dtype.newbyteorder("="))


def _matrix(shape: Any, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> CSRMatrix:
    n, d = shape
    if (
        any(array.ndim != 1 for array in (data, indices, indptr))
        or len(indptr) != n + 1
        or len(data) != len(indices)
        or indptr[0] != 0
        or indptr[-1] != len(data)
        or np.any(np.diff(indptr) < 0)
        or (len(indices) and not (indices.min() >= 0 and indices.max() < d))
    ):
        raise ValueError(f"the arrays of a sparse matrix of shape {shape} do not fit together")
    return CSRMatrix((n, d), data, indices, indptr)


def _finish(value: Any, name: str) -> Any:
    """The value with arrays in place of what was read as `_Unfinished`."""
    if isinstance(value, _Unfinished):
        if not isinstance(value.value, np.ndarray | CSRMatrix):
            raise ValueError(f"{name}: holds a {value.kind} without its values.")
        return value.value
    if isinstance(value, list):
        return [_finish(item, name) for item in value]
    if isinstance(value, dict):
        return {key: _finish(item, name) for key, item in value.items()}
    if isinstance(value, _Name) or value is _MARK:
        raise ValueError(f"{name}: holds a name instead of an array.")
    return value
