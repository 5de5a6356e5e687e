"""Handling of Ctrl-C: at any time the program exits with code 130 and prints one line.

Before and after a command the process ends immediately. While a command runs, Ctrl-C raises
`Interrupt`. Python drops an exception that is raised in a destructor or in a callback of the
garbage collector, and a library may drop one in a bare `except`; so an `Interrupt` that is dropped
before the program has acknowledged it sends the signal again. A second Ctrl-C ends the process
immediately.

This module is imported first and imports only modules that Python has loaded already.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

INTERRUPTED = 130
RETRY = 0.02  # seconds until a dropped interrupt is raised again
SHOW_CURSOR = b"\x1b[?25h"  # progress bars hide it


class Interrupt(KeyboardInterrupt):
    """Raised by Ctrl-C; sends the signal again if it is dropped while its command is running."""

    def __init__(self, command: int):
        super().__init__()
        self.command = command

    def __del__(self):
        if (
            interrupts.running
            and interrupts.command == self.command
            and not interrupts.acknowledged
        ):
            interrupts.send_again()


class Interrupts:
    """The handler of SIGINT, and a context manager in which it raises `Interrupt` instead of ending
    the process.

    Leaving the context with an unacknowledged interrupt raises `KeyboardInterrupt`, even if a
    library replaced it by another exception.
    """

    def __init__(self):
        self.running = self.asked = self.sent_again = self.acknowledged = False
        self.before: Any = None
        self.command = 0

    def install(self) -> None:
        """Installs the handler, unless the process ignores SIGINT (a shell's background job)."""
        self.before = signal.getsignal(signal.SIGINT)
        if self.before != signal.SIG_IGN:
            signal.signal(signal.SIGINT, self.handle)

    def remove(self) -> None:
        """Restores the previous handler."""
        signal.signal(signal.SIGINT, self.before)

    def handle(self, number: int, frame: Any) -> None:
        """The signal handler."""
        if not self.running or (self.asked and not self.sent_again):
            end_at_once()
        self.asked, self.sent_again = True, False
        raise Interrupt(self.command)

    def acknowledge(self) -> None:
        """Called by a command that handles the interrupt itself, so it is not raised again."""
        self.acknowledged = True

    def send_again(self) -> None:
        """Sends the signal again from another thread, after a short delay."""
        import threading

        def send():
            if self.running:
                self.sent_again = True
                os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(RETRY, send)
        timer.daemon = True
        timer.start()

    def __enter__(self) -> "Interrupts":
        self.asked = self.sent_again = self.acknowledged = False
        self.report, sys.unraisablehook = (
            sys.unraisablehook,
            self._ignore_interrupt(sys.unraisablehook),
        )
        self.command += 1
        self.running = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        self.running = False
        sys.unraisablehook = self.report
        if self.asked and not self.acknowledged and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error

    @staticmethod
    def _ignore_interrupt(report: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The hook for dropped exceptions, without the report for an `Interrupt`."""
        return lambda dropped: None if isinstance(dropped.exc_value, Interrupt) else report(dropped)


def end_at_once() -> None:
    """Ends the process without unwinding; flushes the output."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # closed, or interrupted in a flush
            continue
    os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + b"interrupted\n")
    os._exit(INTERRUPTED)


interrupts = Interrupts()
