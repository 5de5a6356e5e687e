"""From a name to arrays: the cache first, then each source until one gives the very data.

A dataset is cached as one npz file, a pretrained network perhaps as a folder of its files; both are
written under a temporary name and renamed, so that they are there whole or not at all, and checked
whenever they are loaded.
"""

import difflib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ...core import cache_folder
from ...progress import say
from ..io.download import digest
from ..io.readers import Arrays, read_npz
from ..io.sources import Form, Source, in_folder
from .books import gutenberg
from .brown import brown
from .dataset import Data, Dataset, fingerprint
from .images import cifar_10, digits, fashion_mnist, mnist
from .parallel_bible import verses
from .photographs import isl_photographs
from .pretrained import minilm, resnet_50, smollm2
from .reviews import imdb
from .tables import auto, default, nyse, spambase

_DATASETS = (digits, mnist, fashion_mnist, cifar_10, default, nyse, auto, spambase, imdb, gutenberg)
_OTHERS = (verses, brown, isl_photographs, resnet_50, minilm, smollm2)  # no examples with labels
_SHOWN = 30  # files that a message lists by name


class Unavailable(OSError):
    """No source gave the dataset; the text names each with its reason, and says what to do."""


def datasets() -> list[Dataset]:
    """All datasets `load` knows, and those of `load_arrays`.

    >>> [dataset.name for dataset in datasets()][:3]
    ['digits', 'mnist', 'fashion-mnist']
    """
    return [*_DATASETS, *_OTHERS]


def load(name: str, *, folder: str | Path | None = None) -> Data:
    """The dataset of that name, fetched if it is not in the cache.

    `folder` is one where the dataset's files, or an archive of them, may lie already.

    >>> xs, ys = load("digits").train
    >>> xs.shape, xs.dtype, ys.dtype, float(xs.max())
    ((1797, 8, 8), dtype('float32'), dtype('int32'), 1.0)
    """
    dataset = _find(name)
    if dataset in _OTHERS:
        way = f"fetch_model({name!r})" if dataset.files else f"load_arrays({name!r})"
        raise ValueError(
            f"name={name!r} is no set of examples with labels; {way} gives what it holds."
        )
    return dataset.data(
        dataset.embedded() if dataset.embedded else _arrays(dataset, _folder(folder))
    )


def load_arrays(name: str, *, folder: str | Path | None = None) -> Arrays:
    """What is kept under that name, as it is kept, fetched if it is not in the cache: weights, or
    files of pictures.

    >>> {part: array.shape for part, array in load_arrays("digits").items()}
    {'train_x': (1797, 8, 8), 'train_y': (1797,)}
    """
    dataset = _find(name)
    if dataset.files:
        raise ValueError(
            f"name={name!r} is kept as files, not as arrays; fetch_model({name!r}) gives their "
            "folder."
        )
    return dataset.embedded() if dataset.embedded else _arrays(dataset, _folder(folder))


def fetch_model(name: str, *, folder: str | Path | None = None) -> Path:
    """The folder, in the cache, with the files of a pretrained network as its makers lay them out;
    fetched if missing.

    `"minilm"` has `model.safetensors`, `config.json` and the files of its tokeniser, as Hugging
    Face's libraries read them; `"smollm2"` has one GGUF file. Each file has the SHA-256 that is
    pinned for it, at every call.
    """
    dataset = _find(name)
    if not dataset.files:
        known = ", ".join(other.name for other in datasets() if other.files)
        raise ValueError(f"name={name!r} is no network kept as files; those are {known}.")
    path = fetch(name, folder=folder)
    assert path is not None
    return path


def fetch(name: str, *, folder: str | Path | None = None) -> Path | None:
    """Sees that the dataset is in the cache, whole; gives the file or folder (None for what needs
    no fetching).
    """
    dataset = _find(name)
    if dataset.embedded:
        return None
    _arrays(dataset, _folder(folder))
    return cached(dataset)


def cached(dataset: Dataset) -> Path | None:
    """The dataset's file, or its folder of files, in the cache, if there is one."""
    path = _place(dataset)
    return path if path.exists() else None


def _place(dataset: Dataset) -> Path:
    return cache_folder("data", dataset.name) / (
        "files" if dataset.files else f"{dataset.name}.npz"
    )


def _find(name: str) -> Dataset:
    known = {dataset.name: dataset for dataset in datasets()}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(str(name).lower(), known, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise ValueError(f"name={name!r} is no dataset; {hint}there are {', '.join(known)}.")


def _folder(folder: str | Path | None) -> Path | None:
    if folder is not None and not Path(folder).is_dir():
        raise ValueError(
            f"folder={str(folder)!r} is not a folder; give one that holds the files, or none."
        )
    return None if folder is None else Path(folder)


def _arrays(dataset: Dataset, folder: Path | None) -> Arrays:
    home = cache_folder("data", dataset.name)
    if (arrays := _from_cache(dataset)) is not None:
        return arrays
    home.mkdir(parents=True, exist_ok=True)
    with _alone(home):
        if (arrays := _from_cache(dataset)) is not None:  # another process fetched it meanwhile
            return arrays
        arrays = _from_sources(dataset, folder, work=home / "download")
        (_save_files if dataset.files else _save)(_place(dataset), arrays)
    shutil.rmtree(home / "download", ignore_errors=True)
    return arrays


def _from_cache(dataset: Dataset) -> Arrays | None:
    path = cached(dataset)
    if path is None:
        return None
    try:
        if dataset.files:
            return _checked_folder(path, dataset)
        return _checked(read_npz(path, limit=_limit(dataset)), dataset)
    except ValueError as error:
        say(f"the cache is damaged ({error}); fetching {dataset.name} again")
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return None


def _checked_folder(path: Path, dataset: Dataset) -> Arrays:
    """No arrays, once every file of the folder is the one expected; none of them is read into
    memory.
    """
    sums = {
        name: digest(path / name) if (path / name).is_file() else "no file"
        for name in dataset.files
    }
    _compare(sums, dataset)
    return {}


def _compare(sums: Mapping[str, str], dataset: Dataset) -> None:
    wrong = [name for name, sha256 in dataset.files.items() if sums.get(name) != sha256]
    if wrong:
        expected = dataset.files[wrong[0]]
        got = sums.get(wrong[0], "no file")
        raise ValueError(
            f"{wrong[0]} is not the file of {dataset.name}: expected SHA-256 {expected}, got {got}"
        )


def _limit(dataset: Dataset) -> int:
    return 2 * dataset.size + (1 << 20)


def _checked(arrays: Arrays, dataset: Dataset) -> Arrays:
    if dataset.files:
        _compare(
            {name: hashlib.sha256(array.data).hexdigest() for name, array in arrays.items()},
            dataset,
        )
    elif (got := fingerprint(arrays)) != dataset.fingerprint:
        raise ValueError(
            f"these are not the arrays of {dataset.name}: expected fingerprint "
            f"{dataset.fingerprint}, got {got}"
        )
    return arrays


def _from_sources(dataset: Dataset, folder: Path | None, *, work: Path) -> Arrays:
    """Each source in turn; what a source left that turned out bad is thrown away."""
    failures: list[str] = []
    for source in _candidates(dataset, folder, failures):
        work.mkdir(exist_ok=True)
        try:
            return _checked(source.form.read(source.files(work)), dataset)
        except ValueError as error:
            shutil.rmtree(work, ignore_errors=True)
            failures.append(f"{source.label}: {error}")
        except OSError as error:
            failures.append(f"{source.label}: {error}")
        say(f"{failures[-1]}")
    raise Unavailable(_sorry(dataset, failures))


def _candidates(dataset: Dataset, folder: Path | None, failures: list[str]) -> Iterator[Source]:
    if folder is not None:
        ours = Form(
            (f"{dataset.name}.npz",), lambda files: read_npz(*files.values()), _limit(dataset)
        )
        here = in_folder(
            folder, dataset.sources, dataset.forms if dataset.files else (ours, *dataset.forms)
        )
        if not here:
            failures.append(f"folder {folder}: holds none of the sets of files named below")
        yield from here
    yield from dataset.sources


def _sorry(dataset: Dataset, failures: list[str]) -> str:
    sets = [_listed(form.files) for form in dataset.forms]
    call = "fetch_model" if dataset.files else "load_arrays" if dataset in _OTHERS else "load"
    reasons = "\n".join(f"  - {failure}" for failure in failures)
    choices = "\n".join(f"  - {choice}" for choice in sets)
    return (
        f"{dataset.name} could not be had. Each source failed:\n{reasons}\n"
        f"Put one of these sets of files (packed with gzip or not) into a folder:\n{choices}\n"
        f"and call {call}({dataset.name!r}, folder=THAT_FOLDER)."
    )


def _listed(files: tuple[str, ...]) -> str:
    few = len(files) <= _SHOWN
    return (
        ", ".join(files)
        if few
        else f"{', '.join(files[:3])} and so on to {files[-1]}, {len(files)} in all"
    )


def _save(path: Path, arrays: Arrays) -> None:
    """Writes an npz file that is there whole or not at all."""
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
    """Writes a folder of files that is there whole or not at all."""
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
def _alone(home: Path) -> Iterator[None]:
    """Holds other processes off this dataset while it is fetched (where the system has such
    locks).
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(home / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
