"""What the user sees while data comes: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

_PAUSE = 5.0  # seconds between two lines where there is no terminal


def say(text: str) -> None:
    """One line of news on the error stream, so that it never mixes with what a program prints."""
    print(f"thetax: {text}", file=sys.stderr, flush=True)


def megabytes(size: int) -> str:
    """A size as people say it.

    >>> megabytes(11_496_804), megabytes(500)
    ('11.5 MB', '0.5 kB')
    """
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


@contextmanager
def progress(label: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives `update(done)`, to be called with the bytes that are there; often is fine."""
    with _bar(label, total) if sys.stderr.isatty() else _lines(label, total) as update:
        yield update


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    words = TextColumn(
        "{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    columns = words, BarColumn(20), DownloadColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), expand=True) as bars:
        task = bars.add_task(label, total=total)
        yield lambda done: bars.update(task, completed=done)


@contextmanager
def _lines(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    start = last = time.monotonic()
    say(f"{label}" + (f", {megabytes(total)}" if total else ""))

    def update(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PAUSE:
            last = now
            part = f" ({100 * done // total} %)" if total else ""
            say(f"{label}: {megabytes(done)}{part} after {now - start:.0f} s")

    yield update


@contextmanager
def counted(label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives `update(done)`, for how many are done, of a total if known; silent about what is soon
    over.
    """
    start = time.monotonic()
    with ExitStack() as stack:
        shown: list[Callable[[int], None]] = []

        def update(done: int) -> None:
            if not shown and time.monotonic() - start >= _PAUSE:
                shown.append(
                    stack.enter_context(
                        (_counting_bar if sys.stderr.isatty() else _counts)(label, total)
                    )
                )
            for show in shown:
                show(done)

        yield update


@contextmanager
def _counting_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=total)
        yield lambda done: bars.update(task, completed=done)


@contextmanager
def _counts(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    last = 0.0

    def update(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            say(f"{label}: {done:,}" + (f" of {total:,}" if total else ""))

    yield update
