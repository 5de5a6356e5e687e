"""A small hyper-parameter search in a child process that can kill itself:
`tune_child.py FOLDER TRIALS WORKERS [KILL_AFTER]`.

After KILL_AFTER finished trials it kills itself; with several workers that is their parent process.
"""

import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr

from thetax.core import cache_folder
from thetax.models import MLP
from thetax.train import Choice, Range, TuningTask, tune

SPACE = {
    "learning_rate": Range(1e-3, 1e-1, log=True),
    "width": Choice(3, 4),
    "batch_size": 16,
    "epochs": 9,
    "dropout": Range(0.0, 0.5),
}


def main(folder: Path, trials: int, workers: int, kill_after: int | None = None) -> None:
    jax.config.update("jax_compilation_cache_dir", str(cache_folder("tests")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    xs = jr.normal(jr.key(0), (64, 2))
    task = TuningTask(
        (xs, (xs[:, 0] > 0).astype(jnp.int32)),
        lambda hidden, dropout, key: MLP.init(2, *hidden, 2, dropout=dropout, key=key),
    )

    def on_progress(progress):
        if kill_after is not None and len(progress.trials) >= kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    found = tune(
        task,
        SPACE,
        trials=trials,
        folds=2,
        members=2,
        round_size=3,
        workers=workers,
        key=jr.key(1),
        folder=folder,
        on_progress=on_progress,
    )
    print(len(found.trials), found.best.number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
