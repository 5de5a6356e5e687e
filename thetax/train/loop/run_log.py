"""The state of a fit, and the log of a fit: progress for the user, checkpoints for a run."""

import os
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import tree
from .progress import Progress
from .run import Run

METRICS_INTERVAL = 3.0  # seconds between two writes of the metrics


class FitState(NamedTuple):
    """The state of a fit: three trees of arrays on the device, and values saved as JSON."""

    state: Any  # of the iteration
    best: Any  # the best weights so far, with patience
    total: Any  # sums of the reported numbers over the steps of this epoch
    epoch: int = 0
    step: int = 0  # within the epoch
    steps: int = 0  # in all epochs
    rows: tuple[dict[str, Any], ...] = ()
    lowest: float | None = None  # the best value of the first metric
    waited: int = 0  # epochs without improvement
    seconds: float = 0.0

    def arrays(self) -> dict[str, Any]:
        """The arrays, which Orbax saves."""
        return {"state": self.state, "best": self.best, "total": self.total}

    def position(self) -> dict[str, Any]:
        """The other values, which are saved as JSON."""
        return {name: value for name, value in self._asdict().items() if name not in self.arrays()}


class RunLog:
    """Reports to the progress display and, with a run, writes checkpoints and metrics."""

    def __init__(self, run: Run | None, progress: Progress):
        self.run = run
        self.progress = progress
        self.checkpoints = None
        self.metrics_time = 0.0  # of the last write of the metrics
        self.lock = None
        self.saved_step = -1  # of the last checkpoint
        if run is not None:
            from .checkpoint import Checkpoints  # imports Orbax, which only a run needs

            self.checkpoints = Checkpoints(run.folder / "checkpoints", max_time=run.checkpoint_time)

    def restore(self, start: FitState) -> FitState:
        """The state of the newest undamaged checkpoint, or the start."""
        restored = (
            None if self.checkpoints is None else self.checkpoints.restore(like=start.arrays())
        )
        for note in restored.notes if restored else ():
            self.progress.note(note)
        if restored is None or restored.arrays is None:
            return start
        arrays = jax.tree.map(jnp.asarray, restored.arrays)
        rows = tuple(restored.position["rows"])
        fit_state = FitState(**arrays, **{**restored.position, "rows": rows})
        self.write_metrics(fit_state)
        self.progress.note(f"resumed at epoch {fit_state.epoch + 1}, step {fit_state.step}")
        return fit_state

    def update(self, fit_state: FitState) -> None:
        """Called after every chunk."""
        loss = float(fit_state.total.get("loss", next(iter(fit_state.total.values())))) / max(
            1, fit_state.step
        )
        self.progress.update(fit_state.epoch, fit_state.step, loss)
        if self.checkpoints is not None and self.checkpoints.due():
            self.save(fit_state)

    def save(self, fit_state: FitState) -> None:
        """Starts writing a checkpoint, unless this step has one or the weights are not finite."""
        if (
            self.checkpoints is None
            or self.saved_step == fit_state.steps
            or not tree.all_finite(fit_state.state.model)
        ):
            return
        self.checkpoints.save(fit_state.steps, fit_state.arrays(), fit_state.position())
        self.saved_step = fit_state.steps
        self.write_metrics(fit_state)

    def stop(self, fit_state: FitState) -> None:
        """Called on an interrupt: with a run, saves a checkpoint and raises `KeyboardInterrupt`."""
        if self.run is not None:
            self.save(fit_state)
            self.wait()
            raise KeyboardInterrupt(
                f"stopped at step {fit_state.steps}; the run in {self.run.folder} can be resumed"
            )

    def epoch(self, fit_state: FitState) -> None:
        """Called after every epoch."""
        self.progress.epoch(fit_state.rows[-1])
        if time.monotonic() - self.metrics_time > METRICS_INTERVAL:
            self.write_metrics(fit_state)

    def write_metrics(self, fit_state: FitState) -> None:
        """Writes `metrics.jsonl`; flushing to disk is too slow to do it after every short epoch."""
        if self.run is not None:
            self.run.write_metrics(list(fit_state.rows))
            self.metrics_time = time.monotonic()

    def open(self, settings: dict[str, Any]) -> None:
        """Locks the folder of the run and checks that it can be written, before any computation."""
        if self.run is not None:
            self.lock = self.run.lock(settings)

    def finish(self, fit_state: FitState, model: Any, reason: str) -> None:
        """Called when the fit ends without an interrupt or error."""
        self.wait()
        self.write_metrics(fit_state)
        if self.run is not None:
            outcome = {
                "reason": reason,
                "steps": fit_state.steps,
                "seconds": fit_state.seconds,
                "rows": fit_state.rows,
            }
            self.run.finish(model, outcome)

    def close(self) -> None:
        """Called when the fit is over, also after an error."""
        self.progress.close()
        try:
            self.wait()
        finally:
            if self.lock is not None:
                os.close(self.lock)

    def wait(self) -> None:
        """Waits until the last checkpoint is on disk."""
        if self.checkpoints is not None:
            self.checkpoints.wait()

    def last_checkpoint(self) -> str:
        """A sentence on the last checkpoint, for error messages."""
        steps = [] if self.checkpoints is None else self.checkpoints.steps()
        if not steps:
            return "No checkpoint was written."
        return f"The last checkpoint is that of step {steps[-1]}."
