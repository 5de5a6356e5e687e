"""Startup times: the import, and the first training step of a new process."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from functools import cache, partial
from pathlib import Path

import numpy as np

from .first import weights
from .row import Missing, Row

HOME = Path(__file__).parents[1]
IMPORTS = {
    "import thetax": "import thetax",
    "import thetax.train, .models": "import thetax.train, thetax.models",
}
PEERS = "import jax, equinox, optax"


def python(*arguments: str, cache_folder: str | None = None) -> str:
    """The output of a new interpreter, optionally with a compilation cache."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("JAX_COMPILATION_CACHE")
    }
    if cache_folder:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": cache_folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
    command = [sys.executable, *arguments]
    process = subprocess.run(
        command, capture_output=True, text=True, cwd=HOME, env=environment, check=False
    )
    if process.returncode:
        raise RuntimeError(
            process.stderr.strip().splitlines()[-1]
            if process.stderr.strip()
            else "the process died"
        )
    return process.stdout


def importing(statement: str) -> float:
    """Milliseconds of an import, measured in its process."""
    return float(
        python(
            "-c",
            f"from time import perf_counter as t; s = t(); {statement}; print(1e3 * (t() - s))",
        )
    )


def first_step(library: str, *, cache_folder: str | None = None) -> float:
    """Seconds of a process that makes one training step."""
    start = time.perf_counter()
    python("-m", "bench.first", library, cache_folder=cache_folder)
    return time.perf_counter() - start


def installed(*names: str) -> None:
    """Raises `Missing` for the first library that is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise Missing("not installed" if len(names) == 1 else f"{name} is not installed")


def same_step() -> None:
    """Raises unless both libraries have the same loss before and after the step."""
    installed("torch")
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "start.npz", **weights())  # pyright: ignore[reportArgumentType]
        losses = [
            python("-m", "bench.first", name, f"{folder}/start.npz").split()
            for name in ("thetax", "torch")
        ]
    ours, theirs = np.array(losses, float)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@cache
def compilation_cache() -> tempfile.TemporaryDirectory:
    """A folder for the compilation cache, which the warm-up fills."""
    return tempfile.TemporaryDirectory()


def describe() -> str:
    """A description of the work."""
    sizes = {
        s: python("-c", f"{s}; import sys; print(len(sys.modules))").strip()
        for s in [*IMPORTS.values(), PEERS]
    }
    loaded = "; ".join(f"`{statement}` loads {size} modules" for statement, size in sizes.items())
    return f"{loaded}. A first step is 129 MFLOP; the rest is loading, tracing and compilation."


def rows() -> list[Row]:
    """Imports against those of the dependencies; the first step against PyTorch."""
    imports = [
        Row(
            name,
            PEERS.removeprefix("import "),
            partial(importing, statement),
            partial(importing, PEERS),
            "ms",
            partial(installed, "jax", "equinox", "optax"),
            target=1 / 1.3,
        )
        for name, statement in IMPORTS.items()
    ]
    torch = partial(first_step, "torch")
    warm = lambda: first_step("thetax", cache_folder=compilation_cache().name)
    return [
        *imports,
        Row(
            "first step, cold",
            "torch eager",
            partial(first_step, "thetax"),
            torch,
            "s",
            same_step,
            pairs=5,
        ),
        Row("first step, compile cache", "torch eager", warm, torch, "s", same_step, pairs=5),
    ]
