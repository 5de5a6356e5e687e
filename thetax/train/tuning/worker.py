"""Worker processes of a hyper-parameter search: `python -m thetax.train.tuning.worker` reads the
search from its standard input and trains trials of it.

A worker computes on a single thread and exits with its parent process, however that ends.
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

POLL_SECONDS = 0.5


def start_worker(search: Any) -> tuple[subprocess.Popen, Any]:
    """Starts a worker process for the search; returns it with the file of its standard error."""
    from joblib import wrap_non_picklable_objects  # pickles lambdas, too

    try:
        content = pickle.dumps(wrap_non_picklable_objects(search, keep_wrapper=False))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(
            f"tune: the task cannot be pickled for a worker process ({error}). Use workers=1."
        ) from None
    errors = TemporaryFile()  # noqa: SIM115  closed by run_workers
    child = subprocess.Popen(
        [sys.executable, "-m", "thetax.train.tuning.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=_environment(),
        start_new_session=True,  # Ctrl-C reaches only the parent
    )
    assert child.stdin is not None
    child.stdin.write(len(content).to_bytes(8, "little") + content)
    child.stdin.flush()  # stays open: the worker exits when the parent does and it closes
    return child, errors


def _environment() -> dict[str, str]:
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    environment = dict(os.environ) | {"XLA_FLAGS": flags.strip(), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    if folder := getattr(jax.config, "jax_compilation_cache_dir", None):
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    return environment


def run_workers(search: Any, workers: int, on_progress: Callable[[], None]) -> None:
    """Runs the search on several processes until all have exited; raises if one of them failed."""
    processes = [start_worker(search) for _ in range(workers)]
    try:
        while any(child.poll() is None for child, _ in processes):
            time.sleep(POLL_SECONDS)
            on_progress()
        for child, errors in processes:
            if child.returncode:
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                last = lines[-1] if lines else "no output"
                raise RuntimeError(
                    f"tune: a worker process failed with exit code {child.returncode}: {last}"
                )
    finally:
        for child, errors in processes:
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
            errors.close()


def _exit_with_parent() -> None:
    """Exits once the parent, and so the other end of standard input, is gone."""
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Reads the search from standard input and runs trials until there are none left."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "little")
    search = pickle.loads(sys.stdin.buffer.read(size))
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    search.run_trials()
    os._exit(0)  # the daemon thread still waits on standard input


if __name__ == "__main__":
    main()
