"""Tensors in safetensors files: one file, or a folder in the layout of Hugging Face's libraries.

A folder has `model.safetensors`, or several *shards* and `model.safetensors.index.json`, which says
in which shard each tensor lies. Files are mapped, not read: a tensor takes room in memory once its
numbers are used.
"""

import json
import mmap
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from ... import files as disk
from ...data.io.bounded_read import contents, reading

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"},
    **{
        f"{kind}{bits}": f"{name}{bits}"
        for kind, name in (("I", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    },
}
PICKLES = (b"\x80\x02\x8a\n", b"\x80\x04\x95", b"\x80\x05\x95")  # how they begin, if not zipped
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_LIMIT = 16 << 20  # the most bytes of an index; that of 90,000 tensors has 9 million
_SHOWN = 8  # names that a message lists

Tensors = dict[str, np.ndarray]


def read_file(path: Path) -> Tensors:
    """The tensors of one file, as views of it."""
    try:
        with safetensors.safe_open(path, "numpy"):  # refuses what is not a whole file
            data = np.memmap(path, np.uint8, mode="r")
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header: dict[str, Any] = json.loads(data[8:start].tobytes())
        header.pop("__metadata__", None)
        return {name: _view(data[start:], **stored) for name, stored in header.items()}
    except FileNotFoundError:
        raise ValueError(
            f"load_weights: there is no file {path}; train the model first, or check the path."
        ) from None
    except (
        safetensors.SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        OSError,
    ) as damage:
        if _is_pickle(path):
            raise ValueError(
                f"load_weights: {path} is a pickle of PyTorch, which is never opened; save it as "
                "safetensors."
            ) from None
        raise ValueError(
            f"load_weights: {path} is not a whole safetensors file ({damage}); get it anew."
        ) from None


def _view(data: np.ndarray, *, dtype: str, shape: list[int], data_offsets: list[int]) -> np.ndarray:
    begin, end = data_offsets
    return np.asarray(data[begin:end]).view(jnp.dtype(DTYPES[dtype])).reshape(shape)


def _is_pickle(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data[:4].startswith(PICKLES) or (data[:2] == b"PK" and data.find(b"data.pkl") >= 0)


def read_folder(folder: Path) -> Tensors:
    """The tensors of all files of a folder; all that the index and the shards disagree on is told
    at once.
    """
    if (folder / SINGLE).is_file():
        return read_file(folder / SINGLE)
    if not (folder / INDEX).is_file():
        raise ValueError(
            f"load_weights: {folder} has neither {SINGLE} nor {INDEX}; give the folder of a whole "
            "model."
        )
    where, twice = _index(folder / INDEX)
    names = sorted(set(where.values()))
    paths = {name: _inside(folder, name) for name in names}
    if absent := [name for name in names if not paths[name].is_file()]:
        raise ValueError(
            f"load_weights: {folder} lacks {_listed(absent)}, which {INDEX} names; get the folder "
            "anew."
        )
    shards = {name: read_file(path) for name, path in paths.items()}
    _agree(folder, where, twice, shards)
    return {tensor: shards[name][tensor] for tensor, name in where.items()}


def _index(path: Path) -> tuple[dict[str, str], list[str]]:
    """In which file each tensor lies, and the tensors that are listed twice."""
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(
            name for name, times in Counter(name for name, _ in pairs).items() if times > 1
        )
        return dict(pairs)

    where = read_object(path, limit=_LIMIT, hook=once).get("weight_map")
    if (
        not isinstance(where, dict)
        or not where
        or not all(isinstance(name, str) for name in where.values())
    ):
        raise ValueError(
            f"{path}: its weight_map must give for each tensor the name of a file; get the folder "
            "anew."
        )
    return where, twice


def _inside(folder: Path, name: str) -> Path:
    """The file of that name in the folder itself. An index must not lead anywhere else."""
    plain = (
        name not in ("", ".", "..")
        and "\0" not in name
        and name == Path(name).name == PureWindowsPath(name).name
    )
    if not plain or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"load_weights: {INDEX} names {name!r}, which lies outside {folder}; it is not opened. "
            "If the files are links, copy the folder with the links followed."
        )
    return folder / name


def _agree(
    folder: Path, where: Mapping[str, str], twice: list[str], shards: Mapping[str, Tensors]
) -> None:
    wrong = {
        "listed twice": twice,
        "missing in their shard": [
            f"{t} ({where[t]})" for t in sorted(where) if t not in shards[where[t]]
        ],
        "in a shard where the index does not have them": [
            f"{t} ({name})"
            for name, tensors in shards.items()
            for t in sorted(tensors)
            if where.get(t) != name
        ],
    }
    if any(wrong.values()):
        told = "\n".join(f"  {what}: {_listed(names)}" for what, names in wrong.items() if names)
        raise ValueError(
            f"load_weights: {INDEX} and the shards of {folder} disagree:\n{told}\nGet the folder "
            "anew."
        )


def read_object(path: Path, *, limit: int, hook: Any = None) -> dict[str, Any]:
    """The JSON object in a file of at most `limit` bytes."""
    name, data = contents(path, limit=limit)
    with reading(name, "a JSON object"):
        found = json.loads(data, object_pairs_hook=hook)
        if not isinstance(found, dict):
            raise ValueError(f"{name}: expected a JSON object, got a {type(found).__name__}.")
    return found


def read_metadata(path: Path) -> dict[str, str]:
    """What the file, or the first of those of a folder that has been read, says about itself."""
    if path.is_dir():
        path = path / SINGLE if (path / SINGLE).is_file() else min(path.glob("model-*.safetensors"))
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return header.get("__metadata__", {})


def write_folder(
    folder: Path,
    tensors: Tensors,
    *,
    shard_bytes: int | None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes `model.safetensors`, or shards and an index if there are more than `shard_bytes`
    bytes.

    What tells a reader that the model is there, the one file or the index, is written last, and an
    older index is gone before any shard of it is replaced: after a crash the folder has the old
    model, the new one, or none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts, about = (
        _parts(tensors, shard_bytes),
        {"format": "pt"} | dict(metadata or {}),
    )  # what readers ask for
    if len(parts) == 1:
        disk.write(folder / SINGLE, safetensors.numpy.save(tensors, about))
        (folder / INDEX).unlink(missing_ok=True)
        return _sweep(folder, keep=set())
    (folder / INDEX).unlink(missing_ok=True)
    shards = {
        f"model-{i:05d}-of-{len(parts):05d}.safetensors": part
        for i, part in enumerate(parts, start=1)
    }
    for name, part in shards.items():
        disk.write(
            folder / name,
            safetensors.numpy.save({tensor: tensors[tensor] for tensor in part}, about),
        )
    where = {tensor: name for name, part in shards.items() for tensor in part}
    total = sum(tensor.nbytes for tensor in tensors.values())
    disk.write(
        folder / INDEX,
        json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2) + "\n",
    )
    (folder / SINGLE).unlink(missing_ok=True)
    _sweep(folder, keep=set(shards))


def _parts(tensors: Tensors, shard_bytes: int | None) -> list[list[str]]:
    """The names in order, cut before a shard would grow beyond `shard_bytes`; a larger tensor has a
    shard alone.
    """
    if shard_bytes is not None and shard_bytes < 1:
        raise ValueError(
            f"save_weights: shard_bytes counts bytes and must be at least 1; got {shard_bytes}."
        )
    parts = [[]]
    size = 0
    for name, tensor in tensors.items():
        if shard_bytes is not None and parts[-1] and size + tensor.nbytes > shard_bytes:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += tensor.nbytes
    return parts


def _sweep(folder: Path, *, keep: set[str]) -> None:
    """Removes the shards of an older model."""
    for path in folder.iterdir():
        if _SHARD.fullmatch(path.name) and path.name not in keep:
            path.unlink()


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (
        f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    )
