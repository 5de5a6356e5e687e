"""Ctrl-C in the program: from its first import to its end the exit code is 130 and one line says
so.

Before and after a command there is nothing to clean up, so the process ends at once. While a
command runs, Ctrl-C raises `Interrupt`, which unwinds it. Python drops an exception that is raised
in a destructor or in a callback of the garbage collector, and a library may drop one in a bare
`except`: an `Interrupt` that is dropped before the program has acknowledged it sends the signal
again. A second Ctrl-C ends the process at once.

This module is imported before all others and imports only what Python has loaded by then.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

INTERRUPTED = 130
RETRY = 0.02  # seconds until a dropped interrupt is raised again
SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


class Interrupt(KeyboardInterrupt):
    """A Ctrl-C that comes back if it is dropped while the command runs in which it was raised."""

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

    Leaving the context with an interrupt that nobody acknowledged raises `KeyboardInterrupt`,
    whatever else a library made of it.
    """

    def __init__(self):
        self.running = self.asked = self.sent_again = self.acknowledged = False
        self.before: Any = None
        self.command = 0

    def install(self) -> None:
        """Handles SIGINT from now on, unless this process was started to ignore it, as in the
        background of a shell.
        """
        self.before = signal.getsignal(signal.SIGINT)
        if self.before != signal.SIG_IGN:
            signal.signal(signal.SIGINT, self.handle)

    def remove(self) -> None:
        """Handles SIGINT as before."""
        signal.signal(signal.SIGINT, self.before)

    def handle(self, number: int, frame: Any) -> None:
        """Called by Python when the signal came."""
        if not self.running or (self.asked and not self.sent_again):
            end_at_once()
        self.asked, self.sent_again = True, False
        raise Interrupt(self.command)

    def acknowledge(self) -> None:
        """Called where a command deals with the interrupt itself: it is not to be raised again."""
        self.acknowledged = True

    def send_again(self) -> None:
        """Sends the signal from another thread, once the code that dropped the exception has gone
        on.
        """
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
            self._unless_interrupt(sys.unraisablehook),
        )
        self.command += 1
        self.running = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: Any
    ) -> None:
        self.running = False
        sys.unraisablehook = self.report
        if self.asked and not self.acknowledged and not isinstance(trouble, KeyboardInterrupt):
            raise KeyboardInterrupt from trouble

    @staticmethod
    def _unless_interrupt(report: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Python reports an exception that it drops; an `Interrupt` comes back instead."""
        return lambda dropped: None if isinstance(dropped.exc_value, Interrupt) else report(dropped)


def end_at_once() -> None:
    """Ends the process without unwinding anything; what was printed is flushed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # closed, or interrupted in a flush
            continue
    os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + b"interrupted\n")
    os._exit(INTERRUPTED)


interrupts = Interrupts()
