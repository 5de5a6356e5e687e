"""Crash-safe checkpoints: arrays written by Orbax, with a manifest of checksums.

A checkpoint is a folder `checkpoints/STEP/` with `arrays/` (Orbax), `position.json` (the position
in the run) and `manifest.json` (the SHA-256 of every other file). A background thread writes it
under a hidden name and renames it when it is complete. `restore` reads the newest checkpoint whose
files all match their checksums.
"""

import json
import os
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import orbax.checkpoint as ocp

from ... import files as disk
from ... import tree

MAX_INTERVAL = 600.0  # seconds between two checkpoints


class Restored(NamedTuple):
    """The newest undamaged checkpoint: its arrays, its position in the run, and notes on damaged
    newer ones.
    """

    arrays: Any
    position: dict[str, Any]
    notes: list[str]


class Checkpoints:
    """The checkpoints of one run, written in at most the fraction `max_time` of the running time.

    >>> import tempfile
    >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
    >>> checkpoints.save(7, {"w": jnp.ones(3)}, {"epoch": 1})
    >>> checkpoints.wait()
    >>> arrays, position, notes = checkpoints.restore(like={"w": jnp.zeros(3)})
    >>> arrays["w"].tolist(), position, notes
    ([1.0, 1.0, 1.0], {'epoch': 1}, [])
    """

    def __init__(self, folder: Path, *, max_to_keep: int = 2, max_time: float = 0.01):
        self.folder = Path(folder)
        self.max_to_keep = max_to_keep
        self.max_time = max_time
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[float] | None = None
        self._cost = 0.03  # seconds of the last write
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether a checkpoint should be written now."""
        idle = self._pending is None or self._pending.done()
        return idle and time.monotonic() - self._last > min(
            self._cost / self.max_time, MAX_INTERVAL
        )

    def save(self, step: int, arrays: Any, position: dict[str, Any]) -> None:
        """Starts writing a checkpoint of copies of the arrays, which the caller may donate."""
        start = time.monotonic()
        self.wait()
        leaves = {
            name: jnp.copy(_key_data(leaf))
            for name, leaf in zip(tree.leaf_names(arrays), jax.tree.leaves(arrays))
        }
        self._pending = self._writer.submit(self._write, step, leaves, position)
        self._last = time.monotonic()
        self._cost = max(self._cost, self._last - start)

    def wait(self) -> None:
        """Waits until the started checkpoint is on disk; raises `OSError` if writing failed."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        try:
            self._cost = pending.result()
        except (OSError, ValueError) as error:
            newest = max(self.steps(), default=None)
            fallback = (
                "No checkpoint was written before"
                if newest is None
                else f"The checkpoint of step {newest} is complete"
            )
            raise OSError(
                f"A checkpoint could not be written to {self.folder}: {error}. "
                f"{fallback}; free some space or choose another folder, then resume."
            ) from error

    def steps(self) -> list[int]:
        """The steps of the checkpoints on disk, oldest first."""
        return sorted(int(path.name) for path in self.folder.glob("[0-9]*") if path.name.isdigit())

    def restore(self, like: Any) -> Restored | None:
        """The newest undamaged checkpoint with the structure of `like`; None if there is none."""
        notes = []
        for step in reversed(self.steps()):
            folder = self.folder / str(step)
            if damage := _find_damage(folder):
                notes.append(
                    f"checkpoint {step} is damaged ({damage}); falling back to an older one"
                )
                continue
            try:
                position = json.loads((folder / "position.json").read_text())
                return Restored(_read(folder / "arrays", like), position, notes)
            except FileNotFoundError as error:  # removed by the training process in the meantime
                notes.append(
                    f"checkpoint {step} was removed ({error}); falling back to an older one"
                )
        return Restored(None, {}, notes) if notes else None

    def _write(self, step: int, leaves: dict[str, Any], position: dict[str, Any]) -> float:
        start = time.monotonic()
        hidden = self.folder / f".{step}"
        final = self.folder / str(step)
        for leftover in self.folder.glob(".*"):  # of a process that was killed while writing
            shutil.rmtree(leftover, ignore_errors=True)
        hidden.mkdir(parents=True)
        with ocp.PyTreeCheckpointer() as writer:
            writer.save((hidden / "arrays").absolute(), leaves)
        disk.write(hidden / "position.json", json.dumps(position))
        hashes = {str(path.relative_to(hidden)): disk.sha256(path) for path in _files(hidden)}
        disk.write(hidden / "manifest.json", json.dumps(hashes, indent=1))
        if final.exists():  # the same step again, after a resume
            self._remove(step)
        os.rename(hidden, final)
        disk.flush_folder(self.folder)
        for old in self.steps()[: -self.max_to_keep]:
            self._remove(old)
        return time.monotonic() - start

    def _remove(self, step: int) -> None:
        hidden = self.folder / f".old-{step}"
        os.rename(self.folder / str(step), hidden)  # no partial checkpoint under its name
        shutil.rmtree(hidden, ignore_errors=True)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_data(leaf: Any) -> Any:
    """The data of a random key; other leaves unchanged."""
    return jr.key_data(leaf) if _is_key(leaf) else leaf


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"
    )


def _find_damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        for name, expected in manifest.items():
            if disk.sha256(folder / name) != expected:
                return f"{name} has another SHA-256"
        if {"position.json"} - manifest.keys() or not any(
            name.startswith("arrays") for name in manifest
        ):
            return "the manifest is incomplete"
    except FileNotFoundError as missing:
        return f"{Path(missing.filename).name} is missing"
    except (OSError, ValueError, AttributeError) as error:
        return f"the manifest cannot be read: {error}"
    return None


def _read(folder: Path, like: Any) -> Any:
    names = tree.leaf_names(like)
    expected, structure = jax.tree.flatten(like)
    leaves = [_key_data(leaf) for leaf in expected]
    with ocp.PyTreeCheckpointer() as reader:
        metadata = reader.metadata(folder.absolute()).item_metadata.tree
        shapes = {name: (tuple(leaf.shape), str(leaf.dtype)) for name, leaf in zip(names, leaves)}
        saved = {name: (tuple(leaf.shape), str(leaf.dtype)) for name, leaf in metadata.items()}
        if shapes != saved:
            name = sorted(set(shapes.items()) ^ set(saved.items()))[0][0]
            raise ValueError(
                f"The checkpoint in {folder.parent} is of another model or optimiser: {name} is "
                f"{saved.get(name)} there and {shapes.get(name)} here. Resume with the original "
                "settings, or choose a new folder."
            )
        target = dict(zip(names, leaves))
        restored = reader.restore(
            folder.absolute(),
            item=target,
            restore_args=ocp.checkpoint_utils.construct_restore_args(target),
        )
    values = [
        jr.wrap_key_data(restored[name], impl=jr.key_impl(leaf))
        if _is_key(leaf)
        else restored[name]
        for leaf, name in zip(expected, names)
    ]
    return jax.tree.unflatten(structure, values)
