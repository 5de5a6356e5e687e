"""Models, objectives and results as JSON and arrays: saved to two files and built again.

A value becomes a JSON tree in which each node says how it is built again:

    {"class": "thetax.models.mlp:MLP", "fields": {...}}      a module, dataclass or named tuple
    {"function": "thetax.layers.activation:relu"}             a function of a module, by its name
    {"call": "thetax.train.objectives.regularise:weight_decay", "args": [...], "kwargs": {...}}
                                                              what a `@recorded` function returned
    {"array": "3"}                                            a tensor of the safetensors file

Nothing is pickled. Loading imports no module but those of thetax and JAX, unless the program has
imported it already, and calls no function but those marked `@recorded`. So a lambda, or a function
defined inside another, cannot be saved; define it at the top of a module.
"""

import functools
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from . import files

F = TypeVar("F", bound=Callable[..., Any])
IMPORTED = ("thetax", "jax", "jaxlib", "ml_dtypes", "numpy")  # packages that loading may import
PUBLIC = ("jax.nn", "jax.numpy", "jax.lax", "jax.scipy.special")  # where JAX's functions are named
STORED = {"b", "i", "u", "f"}  # kinds of dtype that safetensors stores as they are


class NotSerialisable(ValueError):
    """A value that cannot be written as data, with the path to it."""


def recorded(factory: F) -> F:
    """Marks a function whose result, a function, is saved as the call that made it.

    >>> from thetax.train import cross_entropy, weight_decay
    >>> describe(weight_decay(cross_entropy, strength=0.1), {})["call"]
    'thetax.train.objectives.regularise:weight_decay'
    """

    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Any:
        made = factory(*args, **kwargs)
        object.__setattr__(made, "__recorded__", (_path(factory), args, kwargs))
        return made

    make.__records__ = True  # type: ignore[attr-defined]
    return make  # type: ignore[return-value]


def save(path: str | Path, value: Any) -> None:
    """Writes `path`.json and `path`.safetensors, each whole or not at all.

    >>> import tempfile
    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> path = Path(tempfile.mkdtemp()) / "model"
    >>> save(path, MLP.init(2, 3, 1, key=jr.key(0)))
    >>> load(path)(jnp.ones(2)).shape
    (1,)
    """
    path = Path(path)
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(describe(value, arrays))
    files.write(path.with_name(f"{path.name}.safetensors"), safetensors.numpy.save(arrays))
    files.write(path.with_name(f"{path.name}.json"), text)


def load(path: str | Path) -> Any:
    """The value that `save` wrote; raises `ValueError` for files that it did not write."""
    path = Path(path)
    try:
        description = json.loads(path.with_name(f"{path.name}.json").read_text("utf-8"))
        arrays = safetensors.numpy.load_file(path.with_name(f"{path.name}.safetensors"))
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); write it again.") from None
    try:
        return build(description, arrays)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: was written by another version, or edited ({error!r}); write it again."
        ) from None


# Value -> JSON


def describe(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The JSON tree of a value; its arrays are put into `arrays` by name.

    >>> describe({"depth": 2, "rates": (0.1, 0.2)}, {})
    {'dict': [['depth', 2], ['rates', {'tuple': [0.1, 0.2]}]]}
    """
    return _Writer(arrays).node(value, "value")


class _Writer:
    """Describes values; the same array object is stored once."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        self.names: dict[int, str] = {}
        self.kept: list[Any] = []  # keeps the objects alive, so that no id is used twice

    def node(self, value: Any, at: str) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.dtype | type(jnp.float32)):
            return {"dtype": np.dtype(value).name}
        if isinstance(value, np.generic):
            return {"scalar": value.item(), "dtype": value.dtype.name}
        if isinstance(value, jax.Array | np.ndarray):
            return self.array(value, at)
        if "__recorded__" in getattr(value, "__dict__", ()):
            path, args, kwargs = value.__recorded__
            return {
                "call": path,
                "args": self.node(list(args), at),
                "kwargs": self.node(kwargs, at),
            }
        field_names = getattr(value, "_fields", None)
        if isinstance(value, tuple) and field_names is not None:  # a NamedTuple
            return self.instance(value, field_names, at)
        if isinstance(value, tuple | list):
            items = [self.node(item, f"{at}[{i}]") for i, item in enumerate(value)]
            return {type(value).__name__: items}
        if isinstance(value, dict):
            return {
                "dict": [[name, self.node(item, f"{at}[{name!r}]")] for name, item in value.items()]
            }
        if isinstance(value, type):
            return {"type": self.importable(value, at)}
        if is_dataclass(value):
            return self.instance(value, [field.name for field in fields(value)], at)
        if isinstance(value, functools.partial):
            parts = (value.func, list(value.args), dict(value.keywords))
            names = ("partial", "args", "kwargs")
            return {name: self.node(part, at) for name, part in zip(names, parts)}
        if callable(value):
            return {"function": self.importable(value, at)}
        raise NotSerialisable(f"{at}: a {type(value).__name__} cannot be saved as data.")

    def array(self, value: Any, at: str) -> Any:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise NotSerialisable(f"{at}: a random key cannot be saved; save its seed.")
        if value.dtype.kind in "US":
            return {"strings": value.tolist()}
        if value.dtype.kind == "O":
            raise NotSerialisable(f"{at}: an array of Python objects cannot be saved as data.")
        if id(value) not in self.names:
            stored = np.ascontiguousarray(np.asarray(value)).reshape(value.shape)
            if stored.dtype.kind not in STORED:  # such as bfloat16
                stored = stored.view(np.dtype(f"u{stored.dtype.itemsize}"))
            self.names[id(value)] = str(len(self.names))
            self.kept.append(value)
            self.arrays[self.names[id(value)]] = stored
        kind = "numpy" if isinstance(value, np.ndarray) else "jax"
        return {"array": self.names[id(value)], "dtype": value.dtype.name, "kind": kind}

    def instance(self, value: Any, names: Any, at: str) -> Any:
        described = {
            name: self.node(getattr(value, name), f"{at}.{name}")
            for name in names
            if hasattr(value, name)
        }
        return {"class": self.importable(type(value), at), "fields": described}

    def importable(self, thing: Any, at: str) -> str:
        """Where a class or function is found again; it must be the very same object."""
        name = getattr(thing, "__name__", "")
        public = [f"{module}:{name}" for module in PUBLIC if _is_at(thing, f"{module}:{name}")]
        path = public[0] if public else _path(thing)
        if not _is_at(thing, path):
            raise NotSerialisable(
                f"{at}: {getattr(thing, '__qualname__', thing)!r} is a lambda or is defined inside "
                "another function, so it cannot be saved as data; define it at the top of a module."
            )
        return path


def _path(thing: Any) -> str:
    return f"{getattr(thing, '__module__', None)}:{getattr(thing, '__qualname__', None)}"


def _is_at(thing: Any, path: str) -> bool:
    module, _, names = path.partition(":")
    found: Any = sys.modules.get(module)
    for name in names.split("."):
        found = getattr(found, name, None)
    return found is thing


# JSON -> value


def build(description: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value of a JSON tree that `describe` made.

    >>> build({"dict": [["depth", 2], ["rates", {"tuple": [0.1, 0.2]}]]}, {})
    {'depth': 2, 'rates': (0.1, 0.2)}
    >>> build({"function": "os:system"}, {})
    Traceback (most recent call last):
    ValueError: os:system: only names of thetax and JAX are loaded, and of modules that are ...
    """
    return _Reader(arrays).value(description)


class _Reader:
    """Builds values; an array that occurs twice is one object again."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        self.built: dict[tuple[str, str], Any] = {}

    def value(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if "array" in node:
            return self.array(node["array"], np.dtype(node["dtype"]), node["kind"])
        if "class" in node:
            return self.instance(_find(node["class"]), node["fields"])
        if "call" in node:
            factory = _find(node["call"])
            if not getattr(factory, "__records__", False):
                raise ValueError(f"{node['call']}: is not a function that loading may call.")
            return factory(*self.value(node["args"]), **self.value(node["kwargs"]))
        if "partial" in node:
            args, kwargs = self.value(node["args"]), self.value(node["kwargs"])
            return functools.partial(self.value(node["partial"]), *args, **kwargs)
        if "function" in node or "type" in node:
            return _find(node.get("function") or node["type"])
        if "dict" in node:
            return {name: self.value(item) for name, item in node["dict"]}
        if "tuple" in node:
            return tuple(self.value(item) for item in node["tuple"])
        if "list" in node:
            return [self.value(item) for item in node["list"]]
        if "strings" in node:
            return np.array(node["strings"])
        if "scalar" in node:
            return np.dtype(node["dtype"]).type(node["scalar"])
        return np.dtype(node["dtype"])

    def array(self, name: str, dtype: np.dtype, kind: str) -> Any:
        if (name, kind) not in self.built:
            stored = self.arrays[name]
            stored = stored if stored.dtype == dtype else stored.view(dtype)
            self.built[name, kind] = jnp.asarray(stored) if kind == "jax" else stored
        return self.built[name, kind]

    def instance(self, cls: Any, described: dict[str, Any]) -> Any:
        values = {name: self.value(node) for name, node in described.items()}
        if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_make"):
            return cls(**values)  # type: ignore[call-arg]
        if not (isinstance(cls, type) and is_dataclass(cls)):
            raise ValueError(f"{_path(cls)}: is not a class that loading may build.")
        made = object.__new__(cls)  # its fields are what __init__ made of the arguments
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made


def _find(path: str) -> Any:
    """The class or function at `module:qualified.name`."""
    module, _, names = path.partition(":")
    if module.partition(".")[0] in IMPORTED:
        found = importlib.import_module(module)
    elif module in sys.modules and module not in sys.stdlib_module_names:
        found = sys.modules[module]
    else:
        raise ValueError(
            f"{path}: only names of thetax and JAX are loaded, and of modules that are imported "
            "already; import it first if it is yours."
        )
    for name in names.split("."):
        found = getattr(found, name)
    return found
