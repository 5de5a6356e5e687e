"""Reading and writing safetensors: one file, or a folder in the layout of Hugging Face.

A folder has `model.safetensors`, or several shards and `model.safetensors.index.json`, which maps
each tensor to its shard. Files are memory-mapped: a tensor is read when its values are used.
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
from ...check import expect_count
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
PICKLE_MAGIC = (b"\x80\x02\x8a\n", b"\x80\x04\x95", b"\x80\x05\x95")  # if not zipped
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_MAX_INDEX_BYTES = 16 << 20  # an index of 90,000 tensors has 9 million
_MAX_LISTED = 8  # names in an error message

Tensors = dict[str, np.ndarray]


def read_file(path: Path) -> Tensors:
    """The tensors of one file, as memory-mapped views."""
    try:
        with safetensors.safe_open(path, "numpy"):  # raises if the file is incomplete
            data = np.memmap(path, np.uint8, mode="r")
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header: dict[str, Any] = json.loads(data[8:start].tobytes())
        header.pop("__metadata__", None)
        return {name: _view(data[start:], **stored) for name, stored in header.items()}
    except FileNotFoundError:
        raise ValueError(
            f"load_weights: {path} does not exist. Train the model first, or check the path."
        ) from None
    except (
        safetensors.SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        OSError,
    ) as error:
        if _is_pickle(path):
            raise ValueError(
                f"load_weights: {path} is a PyTorch pickle, which is never opened. Save it as "
                "safetensors."
            ) from None
        raise ValueError(
            f"load_weights: {path} is not a complete safetensors file ({error}). Download it again."
        ) from None


def _view(data: np.ndarray, *, dtype: str, shape: list[int], data_offsets: list[int]) -> np.ndarray:
    start, stop = data_offsets
    return np.asarray(data[start:stop]).view(jnp.dtype(DTYPES[dtype])).reshape(shape)


def _is_pickle(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data[:4].startswith(PICKLE_MAGIC) or (
            data[:2] == b"PK" and data.find(b"data.pkl") >= 0
        )


def read_folder(folder: Path) -> Tensors:
    """The tensors of all files of a folder; raises `ValueError` with all contradictions between the
    index and the shards.
    """
    if (folder / SINGLE).is_file():
        return read_file(folder / SINGLE)
    if not (folder / INDEX).is_file():
        raise ValueError(
            f"load_weights: {folder} has neither {SINGLE} nor {INDEX}. Give the folder of a "
            "complete model."
        )
    shard_of, duplicates = _read_index(folder / INDEX)
    names = sorted(set(shard_of.values()))
    paths = {name: _path_in_folder(folder, name) for name in names}
    missing = [name for name in names if not paths[name].is_file()]
    if missing:
        raise ValueError(
            f"load_weights: {folder} lacks {_name_list(missing)}, listed in {INDEX}. Download the "
            "folder again."
        )
    shards = {name: read_file(path) for name, path in paths.items()}
    _check_shards(folder, shard_of, duplicates, shards)
    return {tensor: shards[name][tensor] for tensor, name in shard_of.items()}


def _read_index(path: Path) -> tuple[dict[str, str], list[str]]:
    """The file of each tensor, and the tensors that are listed twice."""
    duplicates: list[str] = []

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        duplicates.extend(name for name, count in counts.items() if count > 1)
        return dict(pairs)

    shard_of = read_object(path, limit=_MAX_INDEX_BYTES, hook=to_dict).get("weight_map")
    if (
        not isinstance(shard_of, dict)
        or not shard_of
        or not all(isinstance(name, str) for name in shard_of.values())
    ):
        raise ValueError(
            f"{path}: weight_map must map each tensor to a file name. Download the folder again."
        )
    return shard_of, duplicates


def _path_in_folder(folder: Path, name: str) -> Path:
    """The path of a file directly in the folder; raises `ValueError` if it would be elsewhere."""
    is_plain_name = (
        name not in ("", ".", "..")
        and "\0" not in name
        and name == Path(name).name == PureWindowsPath(name).name
    )
    if not is_plain_name or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"load_weights: {INDEX} lists {name!r}, which is outside {folder}; it was not opened. "
            "If the files are links, copy the folder with the links resolved."
        )
    return folder / name


def _check_shards(
    folder: Path,
    shard_of: Mapping[str, str],
    duplicates: list[str],
    shards: Mapping[str, Tensors],
) -> None:
    problems = {
        "listed twice": duplicates,
        "missing from their shard": [
            f"{t} ({shard_of[t]})" for t in sorted(shard_of) if t not in shards[shard_of[t]]
        ],
        "in another shard than the index says": [
            f"{t} ({name})"
            for name, tensors in shards.items()
            for t in sorted(tensors)
            if shard_of.get(t) != name
        ],
    }
    if any(problems.values()):
        lines = [f"  {what}: {_name_list(names)}" for what, names in problems.items() if names]
        raise ValueError(
            f"load_weights: {INDEX} and the shards in {folder} disagree:\n"
            + "\n".join(lines)
            + "\nDownload the folder again."
        )


def read_object(path: Path, *, limit: int, hook: Any = None) -> dict[str, Any]:
    """The JSON object in a file of at most `limit` bytes."""
    name, data = contents(path, limit=limit)
    with reading(name, "a JSON object"):
        value = json.loads(data, object_pairs_hook=hook)
        if not isinstance(value, dict):
            raise ValueError(f"{name}: expected a JSON object; got {type(value).__name__}.")
    return value


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file, or of the first file of a folder."""
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
    """Writes `model.safetensors`, or shards and an index for more than `shard_bytes` bytes.

    The single file or the index is written last, and an older index is deleted before any of its
    shards is replaced. So after a crash the folder has the old model, the new one, or none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = _split_into_shards(tensors, shard_bytes)
    metadata = {"format": "pt"} | dict(metadata or {})  # "pt" is what PyTorch readers expect
    if len(parts) == 1:
        disk.write(folder / SINGLE, safetensors.numpy.save(tensors, metadata))
        (folder / INDEX).unlink(missing_ok=True)
        return _remove_shards(folder, keep=set())
    (folder / INDEX).unlink(missing_ok=True)
    shards = {
        f"model-{i:05d}-of-{len(parts):05d}.safetensors": part
        for i, part in enumerate(parts, start=1)
    }
    for name, part in shards.items():
        disk.write(
            folder / name,
            safetensors.numpy.save({tensor: tensors[tensor] for tensor in part}, metadata),
        )
    shard_of = {tensor: name for name, part in shards.items() for tensor in part}
    total = sum(tensor.nbytes for tensor in tensors.values())
    disk.write(
        folder / INDEX,
        json.dumps({"metadata": {"total_size": total}, "weight_map": shard_of}, indent=2) + "\n",
    )
    (folder / SINGLE).unlink(missing_ok=True)
    _remove_shards(folder, keep=set(shards))


def _split_into_shards(tensors: Tensors, shard_bytes: int | None) -> list[list[str]]:
    """The names of the tensors of each shard, of at most `shard_bytes` bytes; a larger tensor has a
    shard of its own.
    """
    if shard_bytes is not None:
        expect_count("save_weights", shard_bytes=shard_bytes)
    parts = [[]]
    size = 0
    for name, tensor in tensors.items():
        if shard_bytes is not None and parts[-1] and size + tensor.nbytes > shard_bytes:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += tensor.nbytes
    return parts


def _remove_shards(folder: Path, *, keep: set[str]) -> None:
    """Removes the shards of an older model."""
    for path in folder.iterdir():
        if _SHARD.fullmatch(path.name) and path.name not in keep:
            path.unlink()


def _name_list(names: list[str]) -> str:
    return ", ".join(names[:_MAX_LISTED]) + (
        f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    )
