"""The cost of checkpoints: the same fit with and without the folder of a run."""

import tempfile
import time
from functools import cache
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

from thetax import tree
from thetax.train import FitResult, Run, Silent, fit

from .mlp import Job, expect_finished
from .row import Result, Row

SECONDS = 18  # of a fit, so that it writes several checkpoints


class Watcher(Silent):
    """Counts the checkpoints of a fit."""

    def __init__(self, folder: Path):
        self.folder, self.seen = folder / "checkpoints", set()

    def update(self, epoch: int, step: int, loss: float) -> None:
        """Looks for new checkpoints; called several times per second."""
        self.seen |= {path.name for path in self.folder.glob("[0-9]*")}


class Safety:
    """The fit of a job, with enough epochs to be timed."""

    def __init__(self, job: Job):
        self.job, self.epochs, self.counts = job, 1, []

    def check(self) -> None:
        """Raises unless both fits are bitwise equal; sets the number of epochs."""
        without, (saved, _) = self.fit(), self.fit_in_folder()
        for a, b in zip(jax.tree.leaves(without.model), jax.tree.leaves(saved.model), strict=True):
            np.testing.assert_array_equal(a, b)
        start = time.perf_counter()
        self.fit()
        self.epochs = max(1, round(SECONDS / (time.perf_counter() - start)))

    def fit(self, run: Run | None = None, progress: Silent | None = None) -> FitResult:
        """A fit, by default without a folder."""
        job = self.job
        settings = {"epochs": self.epochs, "batch_size": self.job.batch, "key": jr.key(1)}
        result = fit(
            job.iteration,
            job.model,
            job.on_device,
            run=run,
            progress=progress or Silent(),
            **settings,
        )
        return expect_finished(result)

    def fit_in_folder(self) -> tuple[FitResult, int]:
        """A fit with a folder, and its number of checkpoints."""
        with tempfile.TemporaryDirectory() as folder:
            run = Run.begin(Path(folder) / "run", recipe="bench", arguments={}, seed=0)
            watcher = Watcher(run.folder)
            return self.fit(run, watcher), len(watcher.seen)

    def cost_without_folder(self) -> float:
        """Milliseconds per step without a folder."""
        start = time.perf_counter()
        result = self.fit()
        return 1e3 * (time.perf_counter() - start) / result.steps

    def cost_with_folder(self) -> float:
        """Milliseconds per step with a folder."""
        start = time.perf_counter()
        result, checkpoints = self.fit_in_folder()
        self.counts.append(checkpoints)
        return 1e3 * (time.perf_counter() - start) / result.steps

    def remark(self, result: Result) -> str:
        """The fraction of the time for checkpoints."""
        assert result.ratio is not None
        share = (
            f"checkpoints cost {100 * (1 / result.ratio - 1):.2f} % of training (target: less "
            "than 2 %)"
        )
        return f"{share}, {min(self.counts)} to {max(self.counts)} of them in a fit of {SECONDS} s"


@cache
def job() -> Job:
    """A network of the size of MNIST."""
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


def describe() -> str:
    """A description of the work."""
    size = 12 * tree.size(job().model) / 1e6
    return (
        f"A checkpoint has the weights and the two moments of Adam, {size:.2f} MB, and is hashed, "
        "flushed and renamed."
    )


def rows() -> list[Row]:
    """With a folder against without."""
    safety = Safety(job())
    work = job().work
    return [
        Row(
            job().name,
            "no run folder",
            safety.cost_with_folder,
            safety.cost_without_folder,
            "ms/step",
            safety.check,
            pairs=4,
            target=1 / 1.02,
            work=work,
            remark=safety.remark,
        )
    ]
