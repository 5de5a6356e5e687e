r"""$\theta$ on disk: a safetensors file whose names are the paths of the model's leaves; never a pickle.

With `names` it is a file of another library, and a folder is one in the layout of Hugging Face's libraries.
"""

from pathlib import Path
from typing import Any, TypeVar

import safetensors.numpy

from ..models.names import Names
from . import disk, shards

M = TypeVar("M")
OWN = Names()
_CONFIG, _LIMIT = "config.json", 2 << 20  # bytes; a thousand names of classes take 50,000


def save_weights(path: str | Path, model: Any, *, names: Names = OWN, shard_bytes: int | None = None) -> None:
    """Writes every leaf under its dotted path, e.g. `body.layers.0.W`, or as another library calls it.

    A path that is a folder, or any path with `shard_bytes`, becomes a folder as Hugging Face's libraries read it:
    `model.safetensors` or, beyond `shard_bytes` bytes, shards of at most that size and their index. Files that were
    there are replaced.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> save_weights(path, Linear(jnp.eye(2), jnp.ones(2)))
    >>> load_weights(path, Linear(jnp.zeros((2, 2)), jnp.zeros(2))).b.tolist()
    [1.0, 1.0]
    >>> save_weights(path.parent / "split", Linear(jnp.eye(2), jnp.ones(2)), shard_bytes=16)
    >>> sorted(file.name for file in (path.parent / "split").iterdir())[1:]
    ['model-00002-of-00002.safetensors', 'model.safetensors.index.json']
    """
    path, tensors = Path(path), names.write(model)
    if shard_bytes is not None or path.is_dir():
        return shards.write_folder(path, tensors, shard_bytes=shard_bytes)
    kind = "pt" if names.rules else "thetax-1"  # what readers of torch's models expect
    disk.write(path, safetensors.numpy.save(tensors, metadata={"format": kind}))


def load_weights(path: str | Path, like: M, *, names: Names = OWN) -> M:
    """The model shaped as `like` with the weights of the file; `like` may be abstract (`jax.eval_shape`).

    A folder has `model.safetensors`, or shards and `model.safetensors.index.json`. A damaged file is a `ValueError`,
    and so are missing, superfluous and misshapen tensors, all told at once. A file of another library, read with its
    `names`, may hold floats of another width.
    """
    path = Path(path)
    found = shards.read_folder(path) if path.is_dir() else shards.read_file(path)
    return names.read(found, like, source=f"load_weights: the tensors of {path}")


def read_config(folder: str | Path) -> dict[str, Any]:
    """The settings of a network, `config.json` in its folder.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text('{"hidden_size": 384}')
    >>> read_config(folder)
    {'hidden_size': 384}
    """
    path = Path(folder) / _CONFIG
    if not path.is_file():
        raise ValueError(
            f"read_config: there is no file {path}; give the folder of a network in Hugging Face's layout."
        )
    return shards.read_object(path, limit=_LIMIT)
