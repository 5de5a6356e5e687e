"""What a fit says while it runs: a bar on a terminal, plain lines elsewhere, JSON for machines.

A progress is anything with `start`, `update`, `epoch`, `note` and `close`; `fit` calls `update`
several times a second.
"""

import json
import sys
import time
from typing import Any, Protocol, TextIO, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """How a fit is watched."""

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        """The fit begins: so many epochs of so many steps (if known) on so many examples each."""

    def update(self, epoch: int, step: int, loss: float) -> None:
        """That many steps of the epoch are done, with this mean loss."""

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done, with these numbers."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def close(self) -> None:
        """The fit is over, well or not."""


def watch(stream: TextIO | None = None) -> Progress:
    """A bar if the stream (standard error) is a terminal, else lines."""
    return Bar() if (stream or sys.stderr).isatty() else Lines(stream)


def numbers(row: dict[str, Any]) -> str:
    """The numbers of a row in one line.

    >>> numbers({"epoch": 3, "train loss": 0.12345, "valid error": 0.02})
    'train loss 0.1235  valid error 0.0200'
    """
    return "  ".join(
        f"{name} {value:.4f}" for name, value in row.items() if name.startswith(("train", "valid"))
    )


class Silent:
    """Says nothing."""

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


class Lines:
    """A line an epoch, but at most two a second, and one every ten seconds within a long epoch."""

    def __init__(self, stream: TextIO | None = None):
        self.stream, self.said, self.last = stream or sys.stderr, time.monotonic(), ""

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        self.epochs, self.steps, self.size, self.said = epochs, steps, size, time.monotonic()

    def update(self, epoch: int, step: int, loss: float) -> None:
        if time.monotonic() - self.said > 10:
            self._say(
                f"epoch {epoch + 1}/{self.epochs}  step {step}/{self.steps or '?'}  loss {loss:.4f}"
            )

    def epoch(self, row: dict[str, Any]) -> None:
        self.last = (
            f"epoch {row['epoch']}/{self.epochs}  {numbers(row)}  {row['examples/s']:,} examples/s"
        )
        if time.monotonic() - self.said > 0.5 or row["epoch"] == 1:
            self._say(self.last)
            self.last = ""

    def note(self, text: str) -> None:
        self._say(text)

    def close(self) -> None:
        if self.last:  # the last epoch is always told
            self._say(self.last)
        self.last = ""

    def _say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)
        self.said = time.monotonic()


class JsonLines(Silent):
    """A JSON object a line on standard output: `{"event": "epoch", ...}` or
    `{"event": "note", ...}`.
    """

    def epoch(self, row: dict[str, Any]) -> None:
        print(json.dumps({"event": "epoch", **row}), flush=True)

    def note(self, text: str) -> None:
        print(json.dumps({"event": "note", "text": text}), flush=True)


class Bar:
    """A rich bar: epoch, time left, loss, validation, examples a second; the last give way on a
    narrow terminal.
    """

    def __init__(self):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        words = TextColumn(
            "{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
        )
        count = TextColumn(
            "epoch {task.fields[epoch]}/{task.total:.0f}", table_column=Column(no_wrap=True)
        )
        left = TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7))
        self.bar = RichProgress(
            count, BarColumn(bar_width=12), left, words, console=Console(stderr=True), expand=True
        )

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        self.steps, self.size, self.last = steps, size, ""
        self.bar.start()
        for task in self.bar.task_ids:  # of a fit before
            self.bar.remove_task(task)
        self.task = self.bar.add_task("compiling", total=epochs, epoch=1)
        self.clock, self.seen = time.monotonic(), 0

    def update(self, epoch: int, step: int, loss: float) -> None:
        now = time.monotonic()
        steps = step - self.seen if step > self.seen else step
        speed = steps * self.size / max(now - self.clock, 1e-6)
        part = step / self.steps if self.steps else 0.0
        text = f"loss {loss:.4f}  {self.last}{speed:,.0f} examples/s"
        self.bar.update(self.task, completed=epoch + part, epoch=epoch + 1, description=text)
        self.clock, self.seen = now, step

    def epoch(self, row: dict[str, Any]) -> None:
        valid = {name: value for name, value in row.items() if name.startswith("valid")}
        self.last = numbers(valid) + "  " if valid else ""

    def note(self, text: str) -> None:
        self.bar.console.print(text)

    def close(self) -> None:
        self.bar.stop()
