r"""Saving and loading weights as safetensors files, whose names are the paths of the model's
leaves.

With `names` the names are those of another library. A folder is in the layout of Hugging Face.
Pickles are never opened.
"""

from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from ... import files as disk
from ...models.interop.weight_names import WeightNames, batch_norms
from . import safetensors_io as shards

M = TypeVar("M")
OWN_NAMES = WeightNames()
_BATCH_NORMS = "batch_norms"  # metadata key for the paths of the batch norms
_CONFIG_FILE = "config.json"
_MAX_CONFIG_BYTES = 2 << 20


def save_weights(
    path: str | Path, model: Any, *, names: WeightNames = OWN_NAMES, shard_bytes: int | None = None
) -> None:
    """Saves every leaf under its dotted path, e.g. `body.layers.0.W`, or under another library's
    name.

    If the path is a folder, or with `shard_bytes`, a folder in the layout of Hugging Face is
    written: `model.safetensors` or, for more than `shard_bytes` bytes, shards of at most that size
    with their index. Existing files are replaced.

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
    path = Path(path)
    tensors = names.write(model)
    metadata = {} if names.rules else {_BATCH_NORMS: "\n".join(sorted(_norms(model)))}
    if shard_bytes is not None or path.is_dir():
        return shards.write_folder(path, tensors, shard_bytes=shard_bytes, metadata=metadata)
    kind = "pt" if names.rules else "thetax-2"  # "pt" is what PyTorch readers expect
    disk.write(path, safetensors.numpy.save(tensors, metadata={"format": kind} | metadata))


def load_weights(
    path: str | Path, like: M, *, names: WeightNames = OWN_NAMES, allow_nan: bool = False
) -> M:
    """The model with the structure of `like` and the weights of a file or folder.

    `like` may be abstract (`jax.eval_shape`). A folder has `model.safetensors`, or shards and
    `model.safetensors.index.json`. A damaged file raises `ValueError`, as do missing, superfluous
    and misshapen tensors, which are all listed. Files of other libraries, read with `names`, may
    have floats of another width.

    NaN raises `ValueError` unless `allow_nan`. So do the weights of a folded model if `like` has a
    `BatchNorm`, and conversely: the leaves have the same names but another meaning.
    """
    path = Path(path)
    tensors = shards.read_folder(path) if path.is_dir() else shards.read_file(path)
    model = names.read(tensors, like, source=f"load_weights: the tensors of {path}")
    if not names.rules:
        _check_norms(path, _norms(like))
    with_nan = [name for name, tensor in tensors.items() if _has_nan(tensor)]
    if with_nan and not allow_nan:
        raise ValueError(
            f"load_weights: {path} has NaN in {', '.join(with_nan[:4])}. Load earlier weights, or "
            "give allow_nan=True."
        )
    return model


def _has_nan(tensor: np.ndarray) -> bool:
    return jnp.issubdtype(tensor.dtype, jnp.inexact) and bool(np.isnan(tensor).any())


def _norms(model: Any) -> set[str]:
    return {name or "the model" for name in batch_norms(model)}


def _check_norms(path: Path, batch_norm_names: set[str]) -> None:
    """Raises `ValueError` if a norm is a `BatchNorm` in the file but not in the model, or
    conversely.
    """
    written = shards.read_metadata(path).get(_BATCH_NORMS)
    if written is None:  # not written by save_weights
        return
    for name in sorted(batch_norm_names ^ set(filter(None, written.split("\n")))):
        saved, current = (
            ("folded into an affine map", "a BatchNorm")
            if name in batch_norm_names
            else ("a BatchNorm", "no BatchNorm")
        )
        raise ValueError(
            f"load_weights: {name} is {saved} in {path}, but {current} in this model. Load the "
            "weights into the model with BatchNorm, or into fold_batch_norm(model, xs) of it, "
            "whichever was saved."
        )


def read_config(folder: str | Path) -> dict[str, Any]:
    """The content of `config.json` in the folder of a network.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text('{"hidden_size": 384}')
    >>> read_config(folder)
    {'hidden_size': 384}
    """
    path = Path(folder) / _CONFIG_FILE
    if not path.is_file():
        raise ValueError(
            f"read_config: {path} does not exist. Give a folder in the layout of Hugging Face."
        )
    return shards.read_object(path, limit=_MAX_CONFIG_BYTES)
