"""Checkpoints that a crash cannot spoil: Orbax writes the arrays, a manifest of hashes vouches for
them.

A checkpoint is a folder `checkpoints/STEP/` with `arrays/` (Orbax), `place.json` (where the run
stood) and `manifest.json` (the SHA-256 of every other file). It is written by a thread of its own
under a hidden name and renamed when whole. Whoever reads takes the newest one whose files all match
their hashes.
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

LONGEST = 600.0  # seconds between two checkpoints, whatever they cost


class Restored(NamedTuple):
    """The newest whole checkpoint: its arrays, where the run stood, and what was wrong with newer
    ones.
    """

    arrays: Any
    place: dict[str, Any]
    notes: list[str]


class Checkpoints:
    """The checkpoints of one run; at most `share` of the running time is spent on writing them.

    >>> import tempfile
    >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
    >>> checkpoints.save(7, {"w": jnp.ones(3)}, {"epoch": 1})
    >>> checkpoints.wait()
    >>> arrays, place, notes = checkpoints.restore(like={"w": jnp.zeros(3)})
    >>> arrays["w"].tolist(), place, notes
    ([1.0, 1.0, 1.0], {'epoch': 1}, [])
    """

    def __init__(self, folder: Path, *, max_to_keep: int = 2, share: float = 0.01):
        self.folder, self.max_to_keep, self.share = Path(folder), max_to_keep, share
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[float] | None = None
        self._cost, self._last = 0.03, time.monotonic()

    def due(self) -> bool:
        """Whether writing one now keeps within the share of time."""
        idle = self._pending is None or self._pending.done()
        return idle and time.monotonic() - self._last > min(self._cost / self.share, LONGEST)

    def save(self, step: int, arrays: Any, place: dict[str, Any]) -> None:
        """Begins to write; the arrays are copied first, so the caller may give them away at
        once.
        """
        began = time.monotonic()
        self.wait()
        leaves = {
            name: jnp.copy(_words(leaf))
            for name, leaf in zip(tree.names(arrays), jax.tree.leaves(arrays))
        }
        self._pending = self._writer.submit(self._write, step, leaves, place)
        self._last = time.monotonic()
        self._cost = max(self._cost, self._last - began)

    def wait(self) -> None:
        """Returns when what was begun is on disk; raises what went wrong there."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        try:
            self._cost = pending.result()
        except (OSError, ValueError) as trouble:
            newest = max(self.steps(), default=None)
            safe = (
                "no checkpoint was written before"
                if newest is None
                else f"the checkpoint of step {newest} is whole"
            )
            raise OSError(
                f"A checkpoint could not be written to {self.folder}: {trouble}. "
                f"{safe.capitalize()}; free some space or choose another folder, then resume."
            ) from trouble

    def steps(self) -> list[int]:
        """The steps of the checkpoints on disk, oldest first."""
        return sorted(int(path.name) for path in self.folder.glob("[0-9]*") if path.name.isdigit())

    def restore(self, like: Any) -> Restored | None:
        """The newest checkpoint that is whole, shaped as `like`; None where there is none."""
        notes = []
        for step in reversed(self.steps()):
            folder = self.folder / str(step)
            if damage := _damage(folder):
                notes.append(
                    f"checkpoint {step} is damaged ({damage}); falling back to an older one"
                )
                continue
            try:
                place = json.loads((folder / "place.json").read_text())
                return Restored(_read(folder / "arrays", like), place, notes)
            except (
                FileNotFoundError
            ) as gone:  # removed by the process that trains, while this one looks
                notes.append(f"checkpoint {step} went away ({gone}); falling back to an older one")
        return Restored(None, {}, notes) if notes else None

    def _write(self, step: int, leaves: dict[str, Any], place: dict[str, Any]) -> float:
        began = time.monotonic()
        hidden = self.folder / f".{step}"
        final = self.folder / str(step)
        for leftover in self.folder.glob(".*"):  # of a process that was killed while it wrote
            shutil.rmtree(leftover, ignore_errors=True)
        hidden.mkdir(parents=True)
        with ocp.PyTreeCheckpointer() as writer:
            writer.save((hidden / "arrays").absolute(), leaves)
        disk.write(hidden / "place.json", json.dumps(place))
        hashes = {str(path.relative_to(hidden)): disk.sha256(path) for path in _files(hidden)}
        disk.write(hidden / "manifest.json", json.dumps(hashes, indent=1))
        if final.exists():  # the same step again, after a resume
            self._remove(step)
        os.rename(hidden, final)
        disk.flush_folder(self.folder)
        for old in self.steps()[: -self.max_to_keep]:
            self._remove(old)
        return time.monotonic() - began

    def _remove(self, step: int) -> None:
        doomed = self.folder / f".old-{step}"
        os.rename(self.folder / str(step), doomed)  # never half a checkpoint under a real name
        shutil.rmtree(doomed, ignore_errors=True)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _words(leaf: Any) -> Any:
    """A random key as the numbers it is; anything else as it is."""
    return jr.key_data(leaf) if _is_key(leaf) else leaf


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"
    )


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        for name, expected in manifest.items():
            if disk.sha256(folder / name) != expected:
                return f"{name} has another SHA-256"
        if {"place.json"} - manifest.keys() or not any(
            name.startswith("arrays") for name in manifest
        ):
            return "the manifest is incomplete"
    except FileNotFoundError as missing:
        return f"{Path(missing.filename).name} is missing"
    except (OSError, ValueError, AttributeError) as trouble:
        return f"the manifest cannot be read: {trouble}"
    return None


def _read(folder: Path, like: Any) -> Any:
    names, (wanted, structure) = tree.names(like), jax.tree.flatten(like)
    leaves = [_words(leaf) for leaf in wanted]
    with ocp.PyTreeCheckpointer() as reader:
        found = reader.metadata(folder.absolute()).item_metadata.tree
        shapes = {name: (tuple(leaf.shape), str(leaf.dtype)) for name, leaf in zip(names, leaves)}
        saved = {name: (tuple(found[name].shape), str(found[name].dtype)) for name in found}
        if shapes != saved:
            odd = sorted(set(shapes.items()) ^ set(saved.items()))[0][0]
            raise ValueError(
                f"The checkpoint in {folder.parent} is of another model or optimiser: {odd} is "
                f"{saved.get(odd)} there and {shapes.get(odd)} here. Resume with the settings the "
                "run began with, or choose a new folder."
            )
        target = dict(zip(names, leaves))
        restored = reader.restore(
            folder.absolute(),
            item=target,
            restore_args=ocp.checkpoint_utils.construct_restore_args(target),
        )
    keyed = lambda leaf, found: (
        jr.wrap_key_data(found, impl=jr.key_impl(leaf)) if _is_key(leaf) else found
    )
    return jax.tree.unflatten(
        structure, [keyed(leaf, restored[name]) for leaf, name in zip(wanted, names)]
    )
