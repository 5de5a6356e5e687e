"""A run is a folder: what was asked, what was measured, where it stood, and what came of it.

    run.json recipe, arguments, seed, versions, git commit .asked.json recipe, arguments and seed
    again: a run whose run.json was edited is not resumed metrics.jsonl one line an epoch, at most a
    few seconds behind checkpoints/ see `checkpoint` model.safetensors the weights, once done
    done.json why and when it ended

A job of several fits keeps each in a folder of its own, `run / "teacher"`. Calling the same job on
the same folder again goes on where it stood, and returns at once what is already done.
"""

import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

try:
    import fcntl
except ImportError:  # on Windows a folder is not guarded against a second process
    fcntl = None

from ... import files as disk
from ..io.weights import load_weights, save_weights

ASKED = ".asked.json"


class Damaged(ValueError):
    """A file of a run is missing or not what was written."""


@dataclass(frozen=True, init=False)
class Run:
    """A run's folder. With `look_only` nothing is trained: a fit answers with the newest weights it
    finds.

    >>> import tempfile
    >>> run = Run.begin(
    ...     Path(tempfile.mkdtemp()) / "r", recipe="digits", arguments={"epochs": 3}, seed=0
    ... )
    >>> Run.open(run.folder).described["recipe"]
    'digits'
    """

    folder: Path
    look_only: bool = False
    share: float = 0.01  # of the time, for checkpoints

    def __init__(self, folder: str | Path, look_only: bool = False, share: float = 0.01):
        for name, value in {"folder": Path(folder), "look_only": look_only, "share": share}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def begin(
        cls, folder: str | Path, *, recipe: str, arguments: dict[str, Any], seed: int
    ) -> "Run":
        """A new run, or the same one again; refuses the folder of another."""
        run = cls(Path(folder))
        asked = {"recipe": recipe, "arguments": _plain(arguments), "seed": seed}
        begun = any(run.folder.glob("fit.json")) or any(run.folder.glob("*/fit.json"))
        if (run.folder / "run.json").exists() and begun:
            there = _flat(run.asked)
            here = _flat(asked)
            for name in here | there:
                if there.get(name) != here.get(name):
                    raise ValueError(
                        f"{run.folder} holds another run: its {name} is {there.get(name)}, not "
                        f"{here.get(name)}. Choose another folder, or resume it as it was begun."
                    )
            return run
        if run.folder.is_dir() and {path.name for path in run.folder.iterdir()} - {
            "run.json",
            ASKED,
        }:
            raise ValueError(f"{run.folder} is not empty and holds no run; choose a new folder.")
        run.write(ASKED, asked)
        run.write("run.json", {**asked, "versions": versions(), "commit": _commit()})
        return run

    @classmethod
    def open(cls, folder: str | Path, *, look_only: bool = False) -> "Run":
        """An existing run."""
        run = cls(Path(folder), look_only)
        if not (run.folder / "run.json").is_file():
            raise ValueError(
                f"{run.folder} holds no run (no run.json); give the folder `thetax train` printed."
            )
        run.asked  # noqa: B018  refuses what was edited
        return run

    def __truediv__(self, name: str) -> "Run":
        return Run(self.folder / name, self.look_only, self.share)

    @property
    def described(self) -> dict[str, Any]:
        """The content of `run.json`."""
        return self.read("run.json")

    @property
    def asked(self) -> dict[str, Any]:
        """The recipe, arguments and seed in `run.json`; refuses them if they are not what the run
        began with.
        """
        path = self.folder / "run.json"
        described = self.described
        for name, kind, form in (
            ("recipe", str, "text"),
            ("arguments", dict, "an object"),
            ("seed", int, "an integer"),
        ):
            if name not in described:
                raise ValueError(
                    f"{path} lacks the recipe, its arguments or the seed; begin a new run."
                )
            if not isinstance(described[name], kind) or isinstance(described[name], bool):
                raise ValueError(
                    f"{path}: {name} must be {form}; got {described[name]!r}. Restore it, or "
                    "begin a new run."
                )
        asked = {name: described[name] for name in ("recipe", "arguments", "seed")}
        if (self.folder / ASKED).is_file():
            there = _flat(asked)
            began = _flat(self.read(ASKED))
            for name in began | there:
                if there.get(name) != began.get(name):
                    raise ValueError(
                        f"{path} was edited: its {name} is {there.get(name)!r}, but the run began "
                        "with "
                        f"{began.get(name)!r}. Restore it, or begin a new run with other settings."
                    )
        return asked

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the run."""
        path = self.folder / name
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as trouble:
            raise ValueError(
                f"{path} cannot be read ({trouble}); restore it, or begin a new run."
            ) from None
        if not isinstance(content, dict):
            raise ValueError(
                f"{path} should hold a JSON object, not {type(content).__name__}; begin a new run."
            )
        return content

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Puts a JSON file into the run, whole or not at all."""
        self._write(name, json.dumps(_plain(content), indent=1) + "\n")

    def _write(self, name: str, text: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            disk.write(self.folder / name, text)
        except OSError as trouble:
            raise OSError(
                f"Cannot write to {self.folder}: {trouble}. Choose a folder with room that you own."
            ) from None

    def record(self, rows: list[dict[str, Any]]) -> None:
        """Makes `metrics.jsonl` hold these rows, one an epoch."""
        self._write("metrics.jsonl", "".join(json.dumps(_plain(row)) + "\n" for row in rows))

    def recorded(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`; none where nothing was measured yet."""
        path = self.folder / "metrics.jsonl"
        try:
            return (
                [json.loads(line) for line in path.read_text().splitlines()]
                if path.is_file()
                else []
            )
        except (OSError, ValueError) as trouble:
            raise ValueError(
                f"{path} cannot be read ({trouble}); restore it, or begin a new run."
            ) from None

    def agree(self, settings: dict[str, Any]) -> None:
        """Refuses settings other than those the fit in this folder began with."""
        if not (self.folder / "fit.json").exists():
            return
        there = self.read("fit.json")
        asked = _plain(settings)
        for name in sorted(there.keys() | asked.keys()):
            if there.get(name) != asked.get(name):
                raise ValueError(
                    f"{self.folder} holds a fit with {name}={there.get(name)!r}, not "
                    f"{asked.get(name)!r}. "
                    "Resume with the settings it began with, or choose a new folder."
                )

    def claim(self, settings: dict[str, Any]) -> int | None:
        """Takes the folder for a fit with these settings; refuses one that another process has.

        Gives the lock, to be closed at the end; it goes with the process, however that ends.
        """
        self.agree(settings)
        self.write("fit.json", settings)
        if fcntl is None:
            return None
        lock = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ValueError(
                f"Another process is training in {self.folder}; wait for it, or stop it."
            ) from None
        return lock

    @property
    def done(self) -> bool:
        """Whether the fit of this folder has ended and its weights are there."""
        return (self.folder / "done.json").is_file()

    def finish(self, model: Any, outcome: dict[str, Any]) -> None:
        """Keeps the weights, then says that the fit has ended."""
        path = self.folder / "model.safetensors"
        try:
            save_weights(path, model)
        except OSError as trouble:
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(model))
            raise OSError(
                f"Cannot write the weights to {path}: {trouble}. They take {size:,} bytes, and the "
                f"disk has {shutil.disk_usage(self.folder).free:,} free. Make room and resume the "
                "run, which goes on from its last checkpoint."
            ) from trouble
        self.write("done.json", {**outcome, "sha256": disk.sha256(path)})

    def finished(self, like: Any) -> tuple[Any, dict[str, Any]]:
        """The weights and the outcome of a fit that has ended; refuses weights that are not those
        it wrote.
        """
        outcome = self.read("done.json")
        path = self.folder / "model.safetensors"
        if not path.is_file() or disk.sha256(path) != outcome.get("sha256"):
            raise Damaged(f"{path} is missing or damaged")
        return load_weights(path, like, allow_nan=True), outcome  # what it wrote, whatever that was


def _flat(described: dict[str, Any]) -> dict[str, Any]:
    """What was asked, option by option."""
    asked = {"recipe": described.get("recipe"), "seed": described.get("seed")}
    return asked | {f"--{name}": value for name, value in described.get("arguments", {}).items()}


def _plain(value: Any) -> Any:
    """As JSON has it: tuples are lists, numbers are Python's."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _plain(np.asarray(value).tolist())
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def versions() -> dict[str, str]:
    """With what a run, or a set of findings, was made."""
    names = ("thetax", "jax", "jaxlib", "equinox", "optax", "orbax-checkpoint", "numpy")
    device = jax.devices()[0].device_kind
    return {"python": platform.python_version(), **{n: version(n) for n in names}, "device": device}


def _commit() -> str | None:
    """The git commit of the folder the user works in, if there is one."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, cwd=os.getcwd()
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
