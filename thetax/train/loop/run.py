"""The folder of a run: its settings, metrics, checkpoints and results.

    run.json             recipe, arguments, seed, versions, git commit
    .request.json        a copy of recipe, arguments and seed, to detect an edited run.json
    metrics.jsonl        one line per epoch, written every few seconds
    checkpoints/         see `checkpoint`
    model.safetensors    the final weights
    done.json            why and when the fit ended
    outcome.json, outcome.safetensors    the result of a recipe, which `thetax look` reads

A job of several fits has one subfolder per fit, `run / "teacher"`. Calling the same job on the same
folder again resumes it; fits that are finished return immediately.
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
except ImportError:  # on Windows there is no lock against a second process
    fcntl = None

from ... import files as disk
from ..io.weights import load_weights, save_weights

REQUEST_FILE = ".request.json"


class DamagedRun(ValueError):
    """A file of a run is missing or differs from what was written."""


@dataclass(frozen=True, init=False)
class Run:
    """The folder of a run.

    `checkpoint_time` is the maximal fraction of the training time spent on writing checkpoints.

    >>> import tempfile
    >>> run = Run.begin(
    ...     Path(tempfile.mkdtemp()) / "r", recipe="digits", arguments={"epochs": 3}, seed=0
    ... )
    >>> Run.open(run.folder).description["recipe"]
    'digits'
    """

    folder: Path
    checkpoint_time: float = 0.01

    def __init__(self, folder: str | Path, checkpoint_time: float = 0.01):
        object.__setattr__(self, "folder", Path(folder))
        object.__setattr__(self, "checkpoint_time", checkpoint_time)

    @classmethod
    def begin(
        cls, folder: str | Path, *, recipe: str, arguments: dict[str, Any], seed: int
    ) -> "Run":
        """Starts a run in a folder, or opens it again if recipe, arguments and seed are the same.

        Raises `ValueError` if the folder holds another run or other files.
        """
        run = cls(Path(folder))
        request = {"recipe": recipe, "arguments": _to_json(arguments), "seed": seed}
        has_fit = any(run.folder.glob("fit.json")) or any(run.folder.glob("*/fit.json"))
        if (run.folder / "run.json").exists() and has_fit:
            existing = _flatten(run.request)
            requested = _flatten(request)
            for name in requested | existing:
                if existing.get(name) != requested.get(name):
                    raise ValueError(
                        f"{run.folder} holds another run: its {name} is {existing.get(name)}, not "
                        f"{requested.get(name)}. Choose another folder, or resume the run with its "
                        "original settings."
                    )
            return run
        if run.folder.is_dir() and {path.name for path in run.folder.iterdir()} - {
            "run.json",
            REQUEST_FILE,
        }:
            raise ValueError(f"{run.folder} is not empty and holds no run. Choose a new folder.")
        run.write(REQUEST_FILE, request)
        run.write("run.json", {**request, "versions": versions(), "commit": _commit()})
        return run

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Opens an existing run."""
        run = cls(Path(folder))
        if not (run.folder / "run.json").is_file():
            raise ValueError(
                f"{run.folder} holds no run (no run.json). Give the folder printed by "
                "`thetax train`."
            )
        run.request  # noqa: B018  raises if run.json was edited
        return run

    def __truediv__(self, name: str) -> "Run":
        return Run(self.folder / name, self.checkpoint_time)

    @property
    def description(self) -> dict[str, Any]:
        """The content of `run.json`."""
        return self.read("run.json")

    @property
    def request(self) -> dict[str, Any]:
        """The recipe, arguments and seed in `run.json`; raises `ValueError` if they were edited."""
        path = self.folder / "run.json"
        description = self.description
        for name, kind, form in (
            ("recipe", str, "text"),
            ("arguments", dict, "an object"),
            ("seed", int, "an integer"),
        ):
            if name not in description:
                raise ValueError(f"{path}: recipe, arguments or seed is missing. Start a new run.")
            if not isinstance(description[name], kind) or isinstance(description[name], bool):
                raise ValueError(
                    f"{path}: {name} must be {form}; got {description[name]!r}. Restore it, or "
                    "start a new run."
                )
        request = {name: description[name] for name in ("recipe", "arguments", "seed")}
        if (self.folder / REQUEST_FILE).is_file():
            current = _flatten(request)
            original = _flatten(self.read(REQUEST_FILE))
            for name in original | current:
                if current.get(name) != original.get(name):
                    raise ValueError(
                        f"{path} was edited: its {name} is {current.get(name)!r}, but the run "
                        f"began with {original.get(name)!r}. Restore it, or start a new run."
                    )
        return request

    def read(self, name: str) -> dict[str, Any]:
        """The content of a JSON file of the run."""
        path = self.folder / name
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{path} cannot be read ({error}). Restore it, or start a new run."
            ) from None
        if not isinstance(content, dict):
            raise ValueError(
                f"{path}: expected a JSON object; got {type(content).__name__}. Start a new run."
            )
        return content

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Writes a JSON file of the run atomically."""
        self._write(name, json.dumps(_to_json(content), indent=1) + "\n")

    def _write(self, name: str, text: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            disk.write(self.folder / name, text)
        except OSError as error:
            raise OSError(
                f"Cannot write to {self.folder}: {error}. Choose a writable folder on a disk "
                "with free space."
            ) from None

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Writes `metrics.jsonl`, one row per epoch."""
        self._write("metrics.jsonl", "".join(json.dumps(_to_json(row)) + "\n" for row in rows))

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`; empty before the first epoch has ended."""
        path = self.folder / "metrics.jsonl"
        try:
            return (
                [json.loads(line) for line in path.read_text().splitlines()]
                if path.is_file()
                else []
            )
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{path} cannot be read ({error}). Restore it, or start a new run."
            ) from None

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Raises `ValueError` if a fit in this folder began with other settings."""
        if not (self.folder / "fit.json").exists():
            return
        existing = self.read("fit.json")
        requested = _to_json(settings)
        for name in sorted(existing.keys() | requested.keys()):
            if existing.get(name) != requested.get(name):
                raise ValueError(
                    f"{self.folder} holds a fit with {name}={existing.get(name)!r}, not "
                    f"{requested.get(name)!r}. Resume it with its original settings, or choose a "
                    "new folder."
                )

    def lock(self, settings: dict[str, Any]) -> int | None:
        """Locks the folder for a fit with these settings; raises `ValueError` if it is locked.

        Returns the file descriptor of the lock, which is released when it is closed or the process
        ends.
        """
        self.check_settings(settings)
        self.write("fit.json", settings)
        if fcntl is None:
            return None
        lock = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ValueError(
                f"Another process is training in {self.folder}. Wait for it, or stop it."
            ) from None
        return lock

    @property
    def is_finished(self) -> bool:
        """Whether the fit in this folder has ended and saved its weights."""
        return (self.folder / "done.json").is_file()

    def finish(self, model: Any, outcome: dict[str, Any]) -> None:
        """Saves the weights, then marks the fit as finished."""
        path = self.folder / "model.safetensors"
        try:
            save_weights(path, model)
        except OSError as error:
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(model))
            raise OSError(
                f"Cannot write the weights to {path}: {error}. They take {size:,} bytes, and the "
                f"disk has {shutil.disk_usage(self.folder).free:,} free. Free some space and "
                "resume the run from its last checkpoint."
            ) from error
        self.write("done.json", {**outcome, "sha256": disk.sha256(path)})

    def load_result(self, like: Any) -> tuple[Any, dict[str, Any]]:
        """The weights and the outcome of a finished fit.

        Raises `DamagedRun` if the weights differ from those written.
        """
        outcome = self.read("done.json")
        path = self.folder / "model.safetensors"
        if not path.is_file() or disk.sha256(path) != outcome.get("sha256"):
            raise DamagedRun(f"{path} is missing or damaged")
        return load_weights(path, like, allow_nan=True), outcome


def _flatten(request: dict[str, Any]) -> dict[str, Any]:
    """Recipe, seed and every argument by its option name."""
    flat = {"recipe": request.get("recipe"), "seed": request.get("seed")}
    return flat | {f"--{name}": value for name, value in request.get("arguments", {}).items()}


def _to_json(value: Any) -> Any:
    """The value with JSON types: lists for tuples, Python numbers."""
    if isinstance(value, dict):
        return {str(name): _to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _to_json(np.asarray(value).tolist())
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def versions() -> dict[str, str]:
    """The versions of Python and the main libraries, and the device."""
    names = ("thetax", "jax", "jaxlib", "equinox", "optax", "orbax-checkpoint", "numpy")
    device = jax.devices()[0].device_kind
    return {"python": platform.python_version(), **{n: version(n) for n in names}, "device": device}


def _commit() -> str | None:
    """The git commit of the current folder, or None."""
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, cwd=os.getcwd()
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None
