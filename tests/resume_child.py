"""Trains a small network in a folder and, if asked, kills itself there:
`resume_child.py FOLDER [KIND N [EPOCHS]]`.

Of the kinds `event` kills just before the N-th time the process makes, writes, renames or removes
something in the folder; `update` kills after the N-th step, `saved` too, but waits there for the
first checkpoint. Prints the SHA-256 of the weights if it lives to the end.
"""

import hashlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax.core import cache_folder
from thetax.models import MLP
from thetax.train import Run, Silent, cross_entropy, descend, ema, error_rate, fit
from thetax.train.loop import compiled as loop

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


class Watcher(Silent):
    """Kills the process after `kill_after` steps; slows the others, so that checkpoints are
    written in between.
    """

    def __init__(self, kill_after: int, wait_for: Path | None = None):
        self.left, self.wait_for = kill_after, wait_for

    def update(self, epoch: int, step: int, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            while self.wait_for is not None and not any(self.wait_for.glob("[0-9]*")):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.004)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def kill_at_event(folder: Path, number: int) -> None:
    seen = 0
    lock = threading.Lock()

    def hook(event: str, arguments: tuple) -> None:
        nonlocal seen
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (writes or event in CHANGES) and str(arguments[0]).startswith(str(folder)):
            with lock:
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def train(folder: Path, progress: Silent, epochs: int = 6) -> str:
    """The SHA-256 of the weights, the epochs and the steps."""
    xs = jr.normal(jr.key(0), (256, 4))
    data = xs, (xs[:, 0] * xs[:, 1] > 0).astype(jnp.int32)
    found = fit(
        ema(descend(cross_entropy, optax.adam(1e-2)), decay=0.9),
        MLP.init(4, 8, 2, dropout=0.2, key=jr.key(1)),
        data,
        epochs=epochs,
        batch_size=16,
        validation=0.25,
        metrics={"error": error_rate},
        patience=50,
        key=jr.key(2),
        run=Run(folder, checkpoint_time=1.0),
        progress=progress,
    )
    content = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found.model))
    return f"{hashlib.sha256(content).hexdigest()} {len(found.history['train loss'])} {found.steps}"


def main(folder: Path, kind: str = "", number: int = 0, epochs: int = 6) -> None:
    jax.config.update("jax_compilation_cache_dir", str(cache_folder("tests")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    loop.CHUNK_SECONDS = 1e-9  # a chunk a step
    if kind == "event":
        kill_at_event(folder, number)
    watcher = Watcher(
        0 if kind == "event" else number, folder / "checkpoints" if kind == "saved" else None
    )
    print(train(folder, watcher, epochs))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3], *map(int, sys.argv[3:5]))
