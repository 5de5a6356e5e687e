r"""$\theta$ on disk: a safetensors file whose names are the paths of the model's leaves; never a
pickle.

With `names` it is a file of another library, and a folder is one in the layout of Hugging Face's
libraries.
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
OWN = WeightNames()
_NORMS = "batch_norms"  # in the metadata: the paths of those of the model
_CONFIG, _LIMIT = "config.json", 2 << 20  # bytes; a thousand names of classes take 50,000


def save_weights(
    path: str | Path, model: Any, *, names: WeightNames = OWN, shard_bytes: int | None = None
) -> None:
    """Writes every leaf under its dotted path, e.g. `body.layers.0.W`, or as another library calls
    it.

    A path that is a folder, or any path with `shard_bytes`, becomes a folder as Hugging Face's
    libraries read it: `model.safetensors` or, beyond `shard_bytes` bytes, shards of at most that
    size and their index. Files that were there are replaced.

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
    about = {} if names.rules else {_NORMS: "\n".join(sorted(_norms(model)))}
    if shard_bytes is not None or path.is_dir():
        return shards.write_folder(path, tensors, shard_bytes=shard_bytes, metadata=about)
    kind = "pt" if names.rules else "thetax-2"  # what readers of torch's models expect
    disk.write(path, safetensors.numpy.save(tensors, metadata={"format": kind} | about))


def load_weights(
    path: str | Path, like: M, *, names: WeightNames = OWN, allow_nan: bool = False
) -> M:
    """The model shaped as `like` with the weights of the file; `like` may be abstract
    (`jax.eval_shape`).

    A folder has `model.safetensors`, or shards and `model.safetensors.index.json`. A damaged file
    is a `ValueError`, and so are missing, superfluous and misshapen tensors, all told at once. A
    file of another library, read with its `names`, may hold floats of another width.

    NaN is refused unless `allow_nan`, and so are the weights of a folded model where `like` has a
    `BatchNorm`, and the other way round: the leaves have the same names, but mean something else.
    """
    path = Path(path)
    found = shards.read_folder(path) if path.is_dir() else shards.read_file(path)
    model = names.read(found, like, source=f"load_weights: the tensors of {path}")
    if not names.rules:
        _expect_norms(path, _norms(like))
    if not allow_nan and (bad := [name for name, tensor in found.items() if _has_nan(tensor)]):
        raise ValueError(
            f"load_weights: {path} has NaN in {', '.join(bad[:4])}; take weights from before, or "
            "give allow_nan=True."
        )
    return model


def _has_nan(tensor: np.ndarray) -> bool:
    return jnp.issubdtype(tensor.dtype, jnp.inexact) and bool(np.isnan(tensor).any())


def _norms(model: Any) -> set[str]:
    return {name or "the model" for name in batch_norms(model)}


def _expect_norms(path: Path, here: set[str]) -> None:
    """Refuses a file whose norms are those of a batch where ours are affine maps, or the other way
    round.
    """
    written = shards.read_metadata(path).get(_NORMS)
    if written is None:  # not by save_weights
        return
    for name in sorted(here ^ set(filter(None, written.split("\n")))):
        there, ours = (
            ("folded into an affine map", "a BatchNorm")
            if name in here
            else ("a BatchNorm", "no BatchNorm")
        )
        raise ValueError(
            f"load_weights: {name} is {there} in {path}, but {ours} in this model. Load the "
            "weights into a model of "
            "the kind that was saved: the one with the BatchNorm, or fold(model, xs) of it."
        )


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
            f"read_config: there is no file {path}; give the folder of a network in Hugging "
            "Face's layout."
        )
    return shards.read_object(path, limit=_LIMIT)
