r"""$\theta$ on disk: a safetensors file whose names are the paths of the model's leaves; never a pickle."""

from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from .. import tree
from . import disk

M = TypeVar("M")


def save_weights(path: str | Path, model: Any) -> None:
    """Writes every leaf under its dotted path, e.g. `body.layers.0.W`.

    >>> import tempfile
    >>> from thetax.layers import Linear
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> save_weights(path, Linear(jnp.eye(2), jnp.ones(2)))
    >>> load_weights(path, Linear(jnp.zeros((2, 2)), jnp.zeros(2))).b.tolist()
    [1.0, 1.0]
    """
    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(model)]
    content = safetensors.numpy.save(dict(zip(tree.names(model), leaves)), metadata={"format": "thetax-1"})
    disk.write(Path(path), content)


DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"},
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
}


def _array(dtype: str, shape: list[int], data: bytes | bytearray) -> np.ndarray:
    return np.frombuffer(data, jnp.dtype(DTYPES[dtype])).reshape(shape)


def load_weights(path: str | Path, like: M) -> M:
    """The model shaped as `like` with the weights of the file; `like` may be abstract (`jax.eval_shape`).

    A damaged file, a missing or a superfluous name, or another shape is a `ValueError`.
    """
    path = Path(path)
    try:
        found = {name: _array(**stored) for name, stored in safetensors.deserialize(path.read_bytes())}
    except FileNotFoundError:
        raise ValueError(f"load_weights: there is no file {path}; train the model first, or check the path.") from None
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OverflowError) as damage:
        raise ValueError(f"load_weights: {path} is not a whole safetensors file ({damage}); get it anew.") from None
    leaves, structure = jax.tree.flatten(like)
    names = tree.names(like)
    if missing := sorted(set(names) - set(found)):
        raise ValueError(f"load_weights: {path} lacks {missing[0]!r} ({len(missing)} missing); another model made it.")
    if extra := sorted(set(found) - set(names)):
        raise ValueError(f"load_weights: {path} has {extra[0]!r} ({len(extra)} such), which this model has not.")
    for name, leaf in zip(names, leaves):
        if found[name].shape != leaf.shape or found[name].dtype != leaf.dtype:
            raise ValueError(
                f"load_weights: {name} in {path} is {found[name].dtype}{found[name].shape}, "
                f"the model has {leaf.dtype}{leaf.shape}; build the model with the sizes it was trained with."
            )
    return jax.tree.unflatten(structure, [jnp.asarray(found[name]) for name in names])
