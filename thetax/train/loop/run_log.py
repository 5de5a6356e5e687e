"""What a fit tells the world: the user through a progress, the disk through a run's folder."""

import os
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import tree
from .progress import Progress
from .run import Run

SECONDS = 3.0  # between two writes of the metrics


class Place(NamedTuple):
    """Where a fit stands: three trees of arrays on the device, and what is small enough for
    JSON.
    """

    state: Any  # of the iteration
    best: Any  # the best weights so far, where there is patience
    total: Any  # sums of the readings over the steps of this epoch
    epoch: int = 0
    step: int = 0  # within the epoch
    steps: int = 0  # in all
    rows: tuple[dict[str, Any], ...] = ()
    lowest: float | None = None
    waited: int = 0
    seconds: float = 0.0

    def arrays(self) -> dict[str, Any]:
        """What Orbax keeps."""
        return {"state": self.state, "best": self.best, "total": self.total}

    def rest(self) -> dict[str, Any]:
        """What JSON keeps."""
        return {name: value for name, value in self._asdict().items() if name not in self.arrays()}


class Journal:
    """Speaks to the progress and, if there is a run, keeps its folder; without one it only
    speaks.
    """

    def __init__(self, run: Run | None, progress: Progress):
        self.run, self.progress, self.checkpoints, self.recorded = run, progress, None, 0.0
        self.lock, self.saved = None, -1
        if run is not None:
            from .checkpoint import (
                Checkpoints,
            )  # brings Orbax, which only a fit with a folder needs

            self.checkpoints = Checkpoints(run.folder / "checkpoints", share=run.share)

    def recall(self, start: Place) -> Place:
        """The place of the newest whole checkpoint, or the start."""
        found = None if self.checkpoints is None else self.checkpoints.restore(like=start.arrays())
        for note in found.notes if found else ():
            self.progress.note(note)
        looked_at = self.run.folder if self.run is not None and self.run.look_only else None
        if found is None or found.arrays is None:
            if looked_at is not None:
                raise ValueError(
                    f"{looked_at} holds no weights yet, no checkpoint and no model; train it first."
                )
            return start
        arrays = jax.tree.map(jnp.asarray, found.arrays)
        place = Place(**arrays, **{**found.place, "rows": tuple(found.place["rows"])})
        self.record(place)
        where = f"epoch {place.epoch + 1}, step {place.step}"
        self.progress.note(
            f"not finished: the weights are those of {where}"
            if looked_at
            else f"resumed at {where}"
        )
        return place

    def update(self, place: Place) -> None:
        """A chunk is done."""
        loss = float(place.total.get("loss", next(iter(place.total.values())))) / max(1, place.step)
        self.progress.update(place.epoch, place.step, loss)
        if self.checkpoints is not None and self.checkpoints.due():
            self.save(place)

    def save(self, place: Place) -> None:
        """Begins to write a checkpoint, unless this very step has one or its weights are not
        finite.
        """
        if (
            self.checkpoints is None
            or self.saved == place.steps
            or not tree.finite(place.state.model)
        ):
            return
        self.checkpoints.save(place.steps, place.arrays(), place.rest())
        self.saved = place.steps
        self.record(place)

    def leave(self, place: Place) -> None:
        """The user asked to stop: with a folder the work is saved and the interrupt goes on to the
        caller.
        """
        if self.run is not None:
            self.save(place)
            self.settle()
            raise KeyboardInterrupt(
                f"stopped at step {place.steps}; the run in {self.run.folder} can be resumed"
            )

    def epoch(self, place: Place) -> None:
        """An epoch is done."""
        self.progress.epoch(place.rows[-1])
        if time.monotonic() - self.recorded > SECONDS:
            self.record(place)

    def record(self, place: Place) -> None:
        """Brings `metrics.jsonl` up to date; it is flushed to the disk, which is too slow for every
        short epoch.
        """
        if self.run is not None and not self.run.look_only:
            self.run.record(list(place.rows))
            self.recorded = time.monotonic()

    def claim(self, settings: dict[str, Any]) -> None:
        """Makes sure, before any compute, that the folder is ours and can be written."""
        if self.run is not None and not self.run.look_only:
            self.lock = self.run.claim(settings)

    def finish(self, place: Place, model: Any, reason: str) -> None:
        """The fit has ended of itself."""
        self.settle()
        self.record(place)
        if self.run is not None and not self.run.look_only:
            ended = {
                "reason": reason,
                "steps": place.steps,
                "seconds": place.seconds,
                "rows": place.rows,
            }
            self.run.finish(model, ended)

    def close(self) -> None:
        """The fit is over, well or not."""
        self.progress.close()
        try:
            self.settle()
        finally:
            if self.lock is not None:
                os.close(self.lock)

    def settle(self) -> None:
        """Waits until what was begun is on disk."""
        if self.checkpoints is not None:
            self.checkpoints.wait()

    def safe(self) -> str:
        """What a user can go back to."""
        steps = [] if self.checkpoints is None else self.checkpoints.steps()
        return (
            f"The last good checkpoint is that of step {steps[-1]}."
            if steps
            else "No checkpoint had been written."
        )
