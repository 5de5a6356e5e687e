r"""$\theta$ on disk: a safetensors file whose names are the paths of the model's leaves; never a pickle.

With `names` it is a file of another library.
"""

from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from ..models.names import Names
from . import disk

M = TypeVar("M")
OWN = Names()


def save_weights(path: str | Path, model: Any, *, names: Names = OWN) -> None:
    """Writes every leaf under its dotted path, e.g. `body.layers.0.W`, or as another library calls it.

    >>> import tempfile
    >>> from thetax.layers import Linear
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> save_weights(path, Linear(jnp.eye(2), jnp.ones(2)))
    >>> load_weights(path, Linear(jnp.zeros((2, 2)), jnp.zeros(2))).b.tolist()
    [1.0, 1.0]
    """
    kind = "pt" if names.rules else "thetax-1"  # what readers of torch's models expect
    disk.write(Path(path), safetensors.numpy.save(names.write(model), metadata={"format": kind}))


DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"},
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
}
PICKLES = (b"\x80\x02\x8a\n", b"\x80\x04\x95", b"\x80\x05\x95")  # how they begin, if not zipped


def _array(dtype: str, shape: list[int], data: bytes | bytearray) -> np.ndarray:
    return np.frombuffer(data, jnp.dtype(DTYPES[dtype])).reshape(shape)


def load_weights(path: str | Path, like: M, *, names: Names = OWN) -> M:
    """The model shaped as `like` with the weights of the file; `like` may be abstract (`jax.eval_shape`).

    A damaged file is a `ValueError`, and so are missing, superfluous and misshapen tensors, all told at once. A file of
    another library, read with its `names`, may hold floats of another width.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"load_weights: there is no file {path}; train the model first, or check the path.") from None
    try:
        found = {name: _array(**stored) for name, stored in safetensors.deserialize(data)}
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OverflowError) as damage:
        if data.startswith(PICKLES) or (data.startswith(b"PK") and b"data.pkl" in data):
            raise ValueError(
                f"load_weights: {path} is a pickle of PyTorch, which is never opened; save it as safetensors."
            ) from None
        raise ValueError(f"load_weights: {path} is not a whole safetensors file ({damage}); get it anew.") from None
    return names.read(found, like, source=f"load_weights: the tensors of {path}")
