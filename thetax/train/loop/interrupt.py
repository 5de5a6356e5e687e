"""Catching Ctrl-C during a fit: the first one requests a stop, the second one stops at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def catch_interrupts() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether an interrupt (Ctrl-C or SIGTERM) has been requested.

    Outside the main thread, where Python handles no signals, it is always False.

    >>> with catch_interrupts() as stop_requested:
    ...     stop_requested()
    False
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return

    def handle(number, frame):
        if not requested.is_set():
            requested.set()
            return
        previous = before[signal.SIGINT]
        if callable(previous):  # the handler of the command line
            previous(number, frame)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
