"""Processes that share a search: `python -m thetax.train.tuning.worker` reads one from its input
and works on it.

A worker has one thread of its own and ends with the process that began it, however that ends.
"""

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

import jax

POLL = 0.5  # seconds


def begin(search: Any) -> tuple[subprocess.Popen, Any]:
    """A process that works on the search, and the file of what it complains of."""
    from joblib import wrap_non_picklable_objects  # sends functions that have no name, too

    try:
        content = pickle.dumps(wrap_non_picklable_objects(search, keep_wrapper=False))
    except (TypeError, AttributeError, pickle.PicklingError) as trouble:
        raise ValueError(
            f"tune: the task cannot be sent to another process ({trouble}); search with workers=1."
        ) from None
    complaints = TemporaryFile()  # noqa: SIM115  closed by the one who waits
    child = subprocess.Popen(
        [sys.executable, "-m", "thetax.train.tuning.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for the one that waits
    )
    assert child.stdin is not None
    child.stdin.write(len(content).to_bytes(8, "little") + content)
    child.stdin.flush()  # and stays open: its end is the end of this process
    return child, complaints


def _environment() -> dict[str, str]:
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    there = dict(os.environ) | {"XLA_FLAGS": flags.strip(), "OMP_NUM_THREADS": "1"}
    there["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    if folder := getattr(jax.config, "jax_compilation_cache_dir", None):
        there |= {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    return there


def share(search: Any, workers: int, after: Callable[[], None]) -> None:
    """Runs the search on several processes and returns when all have ended; their trouble is raised
    here.
    """
    begun = [begin(search) for _ in range(workers)]
    try:
        while any(child.poll() is None for child, _ in begun):
            time.sleep(POLL)
            after()
        for child, complaints in begun:
            if child.returncode:
                complaints.seek(0)
                last = complaints.read().decode(errors="replace").strip().splitlines()[-1:] or [
                    "it said nothing"
                ]
                raise RuntimeError(
                    f"tune: a worker ended with the code {child.returncode}: {last[0]}"
                )
    finally:
        for child, complaints in begun:
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
            complaints.close()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Reads the search and works until there is nothing left to ask for."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "little")
    search = pickle.loads(sys.stdin.buffer.read(size))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    search.work()
    os._exit(0)  # the thread still waits for the parent


if __name__ == "__main__":
    main()
