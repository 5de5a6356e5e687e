"""What it costs to survive a crash: the same fit with a run's folder and without."""

import tempfile
import time
from functools import cache
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

from thetax import tree
from thetax.train import Fit, Run, Silent, fit

from .mlp import Job, heeded
from .row import Result, Row

SECONDS = 18  # a fit must last, so that several checkpoints fall into it


class Watcher(Silent):
    """Counts the checkpoints that appear while a fit runs."""

    def __init__(self, folder: Path):
        self.folder, self.seen = folder / "checkpoints", set()

    def update(self, epoch: int, step: int, loss: float) -> None:
        """Called several times a second."""
        self.seen |= {path.name for path in self.folder.glob("[0-9]*")}


class Safety:
    """The fit of a job, long enough to be measured."""

    def __init__(self, job: Job):
        self.job, self.epochs, self.counts = job, 1, []

    def settle(self) -> None:
        """Chooses the number of epochs for the time wanted; a folder must not change a bit of the
        answer.
        """
        alone, (kept, _) = self.alone(), self.kept()
        for a, b in zip(jax.tree.leaves(alone.model), jax.tree.leaves(kept.model), strict=True):
            np.testing.assert_array_equal(a, b)
        began = time.perf_counter()
        self.alone()
        self.epochs = max(1, round(SECONDS / (time.perf_counter() - began)))

    def alone(self, run: Run | None = None, progress: Silent | None = None) -> Fit:
        """Without a folder, unless one is given."""
        job = self.job
        settings = {"epochs": self.epochs, "batch": self.job.batch, "key": jr.key(1)}
        found = fit(
            job.iteration,
            job.model,
            job.on_device,
            run=run,
            progress=progress or Silent(),
            **settings,
        )
        return heeded(found)

    def kept(self) -> tuple[Fit, int]:
        """With a folder, and how many checkpoints came to lie in it."""
        with tempfile.TemporaryDirectory() as folder:
            run = Run.begin(Path(folder) / "run", recipe="bench", arguments={}, seed=0)
            watcher = Watcher(run.folder)
            return self.alone(run, watcher), len(watcher.seen)

    def cost_alone(self) -> float:
        """Milliseconds a step without a folder."""
        began = time.perf_counter()
        found = self.alone()
        return 1e3 * (time.perf_counter() - began) / found.steps

    def cost_kept(self) -> float:
        """Milliseconds a step with one, from the first file to the last."""
        began = time.perf_counter()
        found, checkpoints = self.kept()
        self.counts.append(checkpoints)
        return 1e3 * (time.perf_counter() - began) / found.steps

    def remark(self, result: Result) -> str:
        """The share of the time that safety takes."""
        assert result.ratio is not None
        share = (
            f"checkpoints cost {100 * (1 / result.ratio - 1):.2f} % of training (target: less "
            "than 2 %)"
        )
        return f"{share}, {min(self.counts)} to {max(self.counts)} of them in a fit of {SECONDS} s"


@cache
def job() -> Job:
    """MNIST's shape."""
    return Job(
        "784-256-128-10, run folder",
        784,
        256,
        128,
        10,
        dropout=(0.4, 0.3),
        n=59_904,
        batch=128,
        epochs=1,
    )


def count() -> str:
    """What a checkpoint is."""
    size = 12 * tree.size(job().model) / 1e6
    return (
        f"A checkpoint holds weights and Adam's two moments, {size:.2f} MB, hashed, flushed and "
        "renamed."
    )


def rows() -> list[Row]:
    """With against without; 1 would be free."""
    safety = Safety(job())
    work = job().work
    return [
        Row(
            job().name,
            "no run folder",
            safety.cost_kept,
            safety.cost_alone,
            "ms/step",
            safety.settle,
            pairs=4,
            target=1 / 1.02,
            work=work,
            remark=safety.remark,
        )
    ]
