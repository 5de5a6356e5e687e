"""Ctrl-C ends the program with the exit code 130 and one line, whenever it comes and whatever
Python was doing.
"""

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
import unittest.mock
from pathlib import Path

import cyclopts
import pytest
from shell import run

import thetax
from thetax.cli import interrupt
from thetax.train.loop.interrupt import catch_interrupts


@pytest.fixture(autouse=True)
def heard():
    """Whoever runs the tests in the background of a shell ignores SIGINT, and so would the
    program.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def in_a_callback_of_the_collector():
    callback = lambda phase, info: ctrl_c() if phase == "start" else None
    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


def in_a_destructor():
    class Dropped:
        def __del__(self):
            ctrl_c()

    Dropped()


def in_a_bare_except():
    try:
        ctrl_c()
    except BaseException:
        return


def made_another_error():
    try:
        ctrl_c()
    except BaseException:
        raise ImportError("initialization failed") from None


@pytest.mark.parametrize(
    "where",
    [ctrl_c, in_a_callback_of_the_collector, in_a_destructor, in_a_bare_except, made_another_error],
)
def test_it_is_never_lost(capsys, monkeypatch, where):
    reached = []

    def command(app, arguments):
        where()
        reached.append("went on")
        time.sleep(20)
        reached.append("was not stopped")
        return 0

    monkeypatch.setattr(cyclopts.App, "__call__", command)
    assert run(capsys, "verify") == (130, "", "interrupted")
    assert "was not stopped" not in reached


def test_what_a_command_acknowledges_is_not_raised_again(capsys, monkeypatch):
    """Else it would cut off what `thetax verify` writes about the claims that it has run."""

    def command(app, arguments):
        try:
            ctrl_c()
        except KeyboardInterrupt:
            interrupt.interrupts.acknowledge()
        time.sleep(3 * interrupt.RETRY)
        return 130

    monkeypatch.setattr(cyclopts.App, "__call__", command)
    assert run(capsys, "verify") == (130, "", "")


def test_the_interrupt_of_a_command_that_ended_does_not_end_the_next(capsys, monkeypatch):
    """As when a program calls two commands and keeps what the first one raised."""
    kept = []

    def command(app, arguments):
        if kept:
            kept.clear()
            time.sleep(3 * interrupt.RETRY)
            return 0
        try:
            ctrl_c()
        except KeyboardInterrupt as asked:
            kept.append(asked)
            raise

    monkeypatch.setattr(cyclopts.App, "__call__", command)
    assert run(capsys, "verify") == (130, "", "interrupted")
    assert run(capsys, "verify") == (0, "", "")


def test_other_dropped_errors_are_still_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda dropped: reported.append(str(dropped.exc_value))
    )

    class Broken:
        def __del__(self):
            raise RuntimeError("no file")

    with interrupt.interrupts:
        Broken()
    assert reported == ["no file"]


def test_a_fit_asked_twice_is_interrupted_as_the_program_is():
    interrupt.interrupts.install()
    try:
        with interrupt.interrupts, catch_interrupts() as stop_requested:
            ctrl_c()
            assert stop_requested()
            with pytest.raises(interrupt.Interrupt):
                ctrl_c()
            interrupt.interrupts.acknowledge()
    finally:
        interrupt.interrupts.remove()


# JAX, replaced below, is what the program imports first
STARTING = "from thetax.cli import main; main(['list'])"
ENDING = """
import atexit, os
from thetax.cli.interrupt import interrupts
interrupts.install()
with interrupts:
    print("done")
atexit.register(os.kill, os.getpid(), 2)
"""
TWICE = """
import os, time
from thetax.cli.interrupt import interrupts
interrupts.install()
with interrupts:
    try:
        os.kill(os.getpid(), 2)
    finally:
        os.kill(os.getpid(), 2)
        time.sleep(20)
"""


@pytest.mark.parametrize(("program", "printed"), [(STARTING, ""), (ENDING, "done\n"), (TWICE, "")])
def test_before_and_after_a_command_and_the_second_time_it_ends_the_process(
    tmp_path, program, printed
):
    """An import that goes on for long, an exit handler, and a command that does not end by
    itself.
    """
    (tmp_path / "jax.py").write_text("import os, time\nos.kill(os.getpid(), 2)\ntime.sleep(20)\n")
    path = os.pathsep.join([str(tmp_path), str(Path(thetax.__file__).parents[1])])
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (found.returncode, found.stdout, found.stderr) == (130, printed, "interrupted\n")


def test_a_job_in_the_background_goes_on_ignoring_it():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupt.interrupts.install()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    interrupt.interrupts.remove()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_worker_of_verify_ends_with_its_parent(monkeypatch):
    class Parent:
        def join(self):
            codes.append("parent ended")

    codes = []
    workers = importlib.import_module("thetax.claims.engine.verify")
    monkeypatch.setattr(workers, "parent_process", Parent)
    monkeypatch.setattr(workers, "threadpool_limits", lambda threads: None)
    monkeypatch.setattr(workers, "jax", unittest.mock.Mock())
    monkeypatch.setattr(workers, "enable_compilation_cache", lambda: None)
    monkeypatch.setattr(os, "_exit", codes.append)
    workers._start_worker()
    for thread in threading.enumerate():
        if thread.name == workers.PARENT_WATCH:
            thread.join()
    assert codes == ["parent ended", 1]
