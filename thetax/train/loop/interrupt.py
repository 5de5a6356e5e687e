"""Ctrl-C as a request, not an accident: the work in hand ends cleanly, a second one ends it at
once.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def listening() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether an interrupt (Ctrl-C, or a scheduler's SIGTERM) was asked
    for.

    Outside the main thread, where Python takes no signals, it never was.

    >>> with listening() as stop_asked:
    ...     stop_asked()
    False
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def hear(number, frame):
        if not asked.is_set():
            asked.set()
            return
        if callable(
            program := before[signal.SIGINT]
        ):  # the command line has a handler that is never lost
            program(number, frame)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
