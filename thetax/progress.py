"""Progress of downloads and long computations: a bar on a terminal, otherwise a line every few
seconds.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

_INTERVAL = 5.0  # seconds between lines without a terminal


def print_status(text: str) -> None:
    """Prints a line to stderr, apart from the output of the program."""
    print(f"thetax: {text}", file=sys.stderr, flush=True)


def format_megabytes(size: int) -> str:
    """A number of bytes as text, in kB or MB.

    >>> format_megabytes(11_496_804), format_megabytes(500)
    ('11.5 MB', '0.5 kB')
    """
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


@contextmanager
def progress(label: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Shows the progress of a download: yields `update(done)`, to be called with the number of
    bytes received so far, as often as you like.
    """
    with _bar(label, total) if sys.stderr.isatty() else _lines(label, total) as update:
        yield update


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    label_column = TextColumn(
        "{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    columns = label_column, BarColumn(20), DownloadColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), expand=True) as bars:
        task = bars.add_task(label, total=total)
        yield lambda done: bars.update(task, completed=done)


@contextmanager
def _lines(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    start = last = time.monotonic()
    print_status(f"{label}" + (f", {format_megabytes(total)}" if total else ""))

    def update(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _INTERVAL:
            last = now
            part = f" ({100 * done // total} %)" if total else ""
            print_status(f"{label}: {format_megabytes(done)}{part} after {now - start:.0f} s")

    yield update


@contextmanager
def count_progress(label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Shows the progress of a computation: yields `update(done)`, to be called with the number of
    items done, out of `total` if given. It prints nothing during the first five seconds.
    """
    start = time.monotonic()
    with ExitStack() as stack:
        displays: list[Callable[[int], None]] = []

        def update(done: int) -> None:
            if not displays and time.monotonic() - start >= _INTERVAL:
                display = (_counting_bar if sys.stderr.isatty() else _counts)(label, total)
                displays.append(stack.enter_context(display))
            for show in displays:
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
        if time.monotonic() - last >= _INTERVAL:
            last = time.monotonic()
            print_status(f"{label}: {done:,}" + (f" of {total:,}" if total else ""))

    yield update
