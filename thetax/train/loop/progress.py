"""Progress displays of a fit: a bar on a terminal, lines elsewhere, or JSON.

A display has the methods `start`, `update`, `epoch`, `note` and `close`; `fit` calls `update`
several times a second.
"""

import json
import sys
import time
from typing import Any, Protocol, TextIO, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """The interface of progress displays."""

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        """Called at the start, with the number of epochs, steps per epoch, examples per step."""

    def update(self, epoch: int, step: int, loss: float) -> None:
        """Called after some steps, with their number in this epoch and the mean loss."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Called after every epoch, with its metrics."""

    def note(self, text: str) -> None:
        """Called with a message for the user."""

    def close(self) -> None:
        """Called at the end, also after an error."""


def default_progress(stream: TextIO | None = None) -> Progress:
    """A progress bar if the stream (standard error) is a terminal, otherwise lines."""
    return ProgressBar() if (stream or sys.stderr).isatty() else ProgressLines(stream)


def format_metrics(row: dict[str, Any]) -> str:
    """The metrics of a row as one line.

    >>> format_metrics({"epoch": 3, "train loss": 0.12345, "valid error": 0.02})
    'train loss 0.1235  valid error 0.0200'
    """
    return "  ".join(
        f"{name} {value:.4f}" for name, value in row.items() if name.startswith(("train", "valid"))
    )


class Silent:
    """No output."""

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        pass

    def update(self, epoch: int, step: int, loss: float) -> None:
        pass

    def epoch(self, row: dict[str, Any]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class ProgressLines:
    """One line per epoch, at most two per second, and one every ten seconds within a long epoch."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.print_time = time.monotonic()
        self.last = ""  # the last line, if it was not printed

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        self.epochs = epochs
        self.steps = steps
        self.print_time = time.monotonic()

    def update(self, epoch: int, step: int, loss: float) -> None:
        if time.monotonic() - self.print_time > 10:
            self._print(
                f"epoch {epoch + 1}/{self.epochs}  step {step}/{self.steps or '?'}  loss {loss:.4f}"
            )

    def epoch(self, row: dict[str, Any]) -> None:
        speed = f"{row['examples/s']:,} examples/s"
        self.last = f"epoch {row['epoch']}/{self.epochs}  {format_metrics(row)}  {speed}"
        if time.monotonic() - self.print_time > 0.5 or row["epoch"] == 1:
            self._print(self.last)
            self.last = ""

    def note(self, text: str) -> None:
        self._print(text)

    def close(self) -> None:
        if self.last:  # the last epoch is always printed
            self._print(self.last)
        self.last = ""

    def _print(self, text: str) -> None:
        print(text, file=self.stream, flush=True)
        self.print_time = time.monotonic()


class JsonLines(Silent):
    """One JSON object per line on standard output: `{"event": "epoch", ...}` or
    `{"event": "note", ...}`.
    """

    def epoch(self, row: dict[str, Any]) -> None:
        print(json.dumps({"event": "epoch", **row}), flush=True)

    def note(self, text: str) -> None:
        print(json.dumps({"event": "note", "text": text}), flush=True)


class ProgressBar:
    """A progress bar: epoch, remaining time, loss, validation metrics, examples per second."""

    def __init__(self):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        description = TextColumn(
            "{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
        )
        count = TextColumn(
            "epoch {task.fields[epoch]}/{task.total:.0f}", table_column=Column(no_wrap=True)
        )
        left = TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7))
        self.bar = RichProgress(
            count,
            BarColumn(bar_width=12),
            left,
            description,
            console=Console(stderr=True),
            expand=True,
        )

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        self.steps = steps
        self.size = size
        self.last = ""  # the validation metrics of the last epoch
        self.bar.start()
        for task in self.bar.task_ids:  # of an earlier fit
            self.bar.remove_task(task)
        self.task = self.bar.add_task("compiling", total=epochs, epoch=1)
        self.time = time.monotonic()
        self.step = 0

    def update(self, epoch: int, step: int, loss: float) -> None:
        now = time.monotonic()
        steps = step - self.step if step > self.step else step
        speed = steps * self.size / max(now - self.time, 1e-6)
        fraction = step / self.steps if self.steps else 0.0
        text = f"loss {loss:.4f}  {self.last}{speed:,.0f} examples/s"
        self.bar.update(self.task, completed=epoch + fraction, epoch=epoch + 1, description=text)
        self.time = now
        self.step = step

    def epoch(self, row: dict[str, Any]) -> None:
        valid = {name: value for name, value in row.items() if name.startswith("valid")}
        self.last = format_metrics(valid) + "  " if valid else ""

    def note(self, text: str) -> None:
        self.bar.console.print(text)

    def close(self) -> None:
        self.bar.stop()
