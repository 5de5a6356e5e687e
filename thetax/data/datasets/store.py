"""Loading datasets by name: from the cache, or else from the first source that works.

A dataset is cached as one npz file, a pretrained network possibly as a folder of files. Both are
written atomically, through a temporary name, and verified whenever they are loaded.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ...check import suggest
from ...core import cache_folder
from ...files import sha256
from ...progress import print_status
from ..io.readers import Arrays, read_npz
from ..io.sources import Form, Source, in_folder
from .books import gutenberg
from .brown import brown
from .dataset import Data, Dataset, fingerprint
from .graphs import (
    citeseer,
    cora,
    cuneiform,
    davis,
    florentine,
    karate,
    les_miserables,
    mutag,
    pubmed,
)
from .images import cifar_10, digits, fashion_mnist, mnist
from .parallel_bible import verses
from .photographs import isl_photographs
from .point_clouds import cad, ycb
from .pretrained import minilm, resnet_50, smollm2
from .reviews import imdb
from .tables import auto, default, nyse, spambase

_DATASETS = (digits, mnist, fashion_mnist, cifar_10, default, nyse, auto, spambase, imdb, gutenberg)
_OTHERS = (
    verses,
    brown,
    isl_photographs,
    ycb,
    cad,
    resnet_50,
    minilm,
    smollm2,
)  # not labelled examples
_GRAPHS = (cora, citeseer, pubmed, karate, les_miserables, florentine, davis)
_GRAPH_SETS = (mutag, cuneiform)
_MAX_LISTED = 30  # files listed in an error message


class DatasetUnavailable(OSError):
    """All sources of a dataset failed; the message gives the reason of each and the remedy."""


def datasets() -> list[Dataset]:
    """All available datasets, including those of `load_graph`, `load_graphs`, `load_arrays` and
    `fetch_model`.

    >>> [dataset.name for dataset in datasets()][:3]
    ['digits', 'mnist', 'fashion-mnist']
    """
    return [*_DATASETS, *_OTHERS, *_GRAPHS, *_GRAPH_SETS]


def load(name: str, *, folder: str | Path | None = None) -> Data:
    """A dataset by name, downloaded unless it is in the cache.

    `folder` may hold the dataset's files or an archive of them.

    >>> xs, ys = load("digits").train
    >>> xs.shape, xs.dtype, ys.dtype, float(xs.max())
    ((1797, 8, 8), dtype('float32'), dtype('int32'), 1.0)
    """
    dataset = _find(name)
    if dataset not in _DATASETS:
        raise ValueError(
            f"load: name={name!r} is not a labelled dataset. Use {_loader(dataset)}({name!r})."
        )
    return dataset.data(_load(dataset, folder))


def load_arrays(name: str, *, folder: str | Path | None = None) -> Arrays:
    """The stored arrays of a dataset, downloaded unless they are in the cache.

    Use it for weights and image files; `load` gives labelled datasets.

    >>> {part: array.shape for part, array in load_arrays("digits").items()}
    {'train_x': (1797, 8, 8), 'train_y': (1797,)}
    """
    dataset = _find(name)
    if dataset.files:
        raise ValueError(
            f"load_arrays: name={name!r} is stored as files, not as arrays. Use "
            f"fetch_model({name!r})."
        )
    return _load(dataset, folder)


def fetch_model(name: str, *, folder: str | Path | None = None) -> Path:
    """The cached folder with the files of a pretrained network, downloaded if missing.

    `"minilm"` has `model.safetensors`, `config.json` and the tokeniser files, in the layout of
    Hugging Face; `"smollm2"` has one GGUF file. Every call verifies the SHA-256 of each file.
    """
    dataset = _find(name)
    if not dataset.files:
        known = ", ".join(other.name for other in datasets() if other.files)
        raise ValueError(
            f"fetch_model: name={name!r} is not a network stored as files; choose from {known}."
        )
    path = fetch(name, folder=folder)
    assert path is not None
    return path


def fetch(name: str, *, folder: str | Path | None = None) -> Path | None:
    """Downloads a dataset into the cache unless it is there.

    Returns its file or folder, or None if an installed library contains it.
    """
    dataset = _find(name)
    if dataset.embedded:
        return None
    _arrays(dataset, _check_folder(folder))
    return cached_path(dataset)


def cached_path(dataset: Dataset) -> Path | None:
    """The dataset's file or folder in the cache, or None if it is not cached."""
    path = _cache_path(dataset)
    return path if path.exists() else None


def _cache_path(dataset: Dataset) -> Path:
    return cache_folder("data", dataset.name) / (
        "files" if dataset.files else f"{dataset.name}.npz"
    )


def _find(name: str) -> Dataset:
    known = {dataset.name: dataset for dataset in datasets()}
    if name in known:
        return known[name]
    raise ValueError(
        f"name={name!r} is not a dataset; {suggest(name, known, n=2)}choose from "
        f"{', '.join(known)}."
    )


def _loader(dataset: Dataset) -> str:
    """The name of the function that loads a dataset."""
    if dataset in _GRAPHS:
        return "load_graph"
    if dataset in _GRAPH_SETS:
        return "load_graphs"
    return "fetch_model" if dataset.files else "load_arrays" if dataset in _OTHERS else "load"


def find_graph_dataset(name: str, call: str) -> Dataset:
    """The dataset of this name; raises `ValueError` if `call` is not what loads it."""
    dataset = _find(name)
    if _loader(dataset) != call:
        raise ValueError(f"{call}: name={name!r} is another kind of data. Use {_loader(dataset)}.")
    return dataset


def _check_folder(folder: str | Path | None) -> Path | None:
    if folder is not None and not Path(folder).is_dir():
        raise ValueError(
            f"folder={str(folder)!r} is not a folder. Give the folder of the files, or None."
        )
    return None if folder is None else Path(folder)


def _load(dataset: Dataset, folder: str | Path | None) -> Arrays:
    if dataset.embedded:
        return dataset.embedded()
    return _arrays(dataset, _check_folder(folder))


def _arrays(dataset: Dataset, folder: Path | None) -> Arrays:
    home = cache_folder("data", dataset.name)
    if (arrays := _from_cache(dataset)) is not None:
        return arrays
    home.mkdir(parents=True, exist_ok=True)
    with _lock(home):
        if (arrays := _from_cache(dataset)) is not None:  # another process was faster
            return arrays
        arrays = _from_sources(dataset, folder, work=home / "download")
        (_save_files if dataset.files else _save_npz)(_cache_path(dataset), arrays)
    shutil.rmtree(home / "download", ignore_errors=True)
    return arrays


def _from_cache(dataset: Dataset) -> Arrays | None:
    path = cached_path(dataset)
    if path is None:
        return None
    try:
        if dataset.files:
            return _verify_folder(path, dataset)
        return _verify(read_npz(path, limit=_max_bytes(dataset)), dataset)
    except ValueError as error:
        print_status(f"the cache is damaged ({error}); fetching {dataset.name} again")
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return None


def _verify_folder(path: Path, dataset: Dataset) -> Arrays:
    """Verifies the checksums of all files without reading them into memory; returns no arrays."""
    digests = {
        name: sha256(path / name) if (path / name).is_file() else "no file"
        for name in dataset.files
    }
    _compare_digests(digests, dataset)
    return {}


def _compare_digests(digests: Mapping[str, str], dataset: Dataset) -> None:
    for name, expected in dataset.files.items():
        digest = digests.get(name, "no file")
        if digest != expected:
            raise ValueError(
                f"{name} is not the file of {dataset.name}: expected SHA-256 {expected}; got "
                f"{digest}"
            )


def _max_bytes(dataset: Dataset) -> int:
    return 2 * dataset.size + (1 << 20)


def _verify(arrays: Arrays, dataset: Dataset) -> Arrays:
    if dataset.files:
        _compare_digests(
            {name: hashlib.sha256(array.data).hexdigest() for name, array in arrays.items()},
            dataset,
        )
    elif (got := fingerprint(arrays)) != dataset.fingerprint:
        raise ValueError(
            f"these are not the arrays of {dataset.name}: expected fingerprint "
            f"{dataset.fingerprint}; got {got}"
        )
    return arrays


def _from_sources(dataset: Dataset, folder: Path | None, *, work: Path) -> Arrays:
    """The arrays from the first source that works; invalid downloads are deleted."""
    failures: list[str] = []
    for source in _candidates(dataset, folder, failures):
        work.mkdir(exist_ok=True)
        try:
            return _verify(source.form.read(source.files(work)), dataset)
        except ValueError as error:
            shutil.rmtree(work, ignore_errors=True)
            failures.append(f"{source.label}: {error}")
        except OSError as error:
            failures.append(f"{source.label}: {error}")
        print_status(f"{failures[-1]}")
    raise DatasetUnavailable(_failure_message(dataset, failures))


def _candidates(dataset: Dataset, folder: Path | None, failures: list[str]) -> Iterator[Source]:
    if folder is not None:
        npz_form = Form(
            (f"{dataset.name}.npz",), lambda files: read_npz(*files.values()), _max_bytes(dataset)
        )
        forms = dataset.forms if dataset.files else (npz_form, *dataset.forms)
        local = in_folder(folder, dataset.sources, forms)
        if not local:
            failures.append(f"folder {folder}: contains none of the sets of files listed below")
        yield from local
    yield from dataset.sources


def _failure_message(dataset: Dataset, failures: list[str]) -> str:
    call = _loader(dataset)
    reasons = "\n".join(f"  - {failure}" for failure in failures)
    choices = "\n".join(f"  - {_file_list(form.files)}" for form in dataset.forms)
    return (
        f"{dataset.name} could not be loaded. All sources failed:\n{reasons}\n"
        f"Put one of these sets of files (compressed with gzip or not) into a folder:\n{choices}\n"
        f"and call {call}({dataset.name!r}, folder=THAT_FOLDER)."
    )


def _file_list(files: tuple[str, ...]) -> str:
    if len(files) <= _MAX_LISTED:
        return ", ".join(files)
    return f"{', '.join(files[:3])}, ..., {files[-1]} ({len(files)} files)"


def _save_npz(path: Path, arrays: Arrays) -> None:
    """Writes an npz file atomically."""
    temporary = path.with_name(f"{path.name}.part")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _save_files(path: Path, arrays: Arrays) -> None:
    """Writes a folder of files atomically."""
    temporary = path.with_name(f"{path.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        for name, array in arrays.items():
            with open(temporary / name, "wb") as file:
                file.write(array.data)
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    """Locks out other processes while a dataset is downloaded (where `fcntl` exists)."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(home / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
