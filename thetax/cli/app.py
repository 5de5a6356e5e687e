"""The command-line application: commands register with `app`; `run` runs one and reports errors."""

import json
import os
import sys
from importlib.metadata import version
from typing import Any

import cyclopts
from rich.console import Console

from ..core import enable_compilation_cache
from .interrupt import INTERRUPTED, interrupts

FAILED = 1

app = cyclopts.App(
    name="thetax",
    help="Deep learning: train a model, inspect it, verify the statements of the course.",
    version=version("thetax"),
    default_parameter=cyclopts.Parameter(consume_multiple=True, negative=""),
    suppress_keyboard_interrupt=False,
)
out = Console()
err = Console(stderr=True)


def run(arguments: list[str]) -> None:
    """Runs one command and exits with its exit code."""
    enable_compilation_cache()
    try:
        with interrupts:
            sys.exit(app(arguments))
    except BrokenPipeError:  # the reader closed the pipe, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        # for `verify`, --json names a file
        report_error(error, json="--json" in arguments and arguments[0] != "verify")
        sys.exit(FAILED)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(INTERRUPTED)


def report_error(error: BaseException, *, json: bool) -> None:
    """Prints an error on standard error, and with `json` also as an event on standard output."""
    if json:
        print_json({"event": "error", "text": str(error)})
    err.print(f"[bold red]thetax:[/] {_escape(error)}", soft_wrap=True)


def _escape(error: BaseException) -> str:
    return str(error).replace("[", r"\[")


def print_json(content: Any) -> None:
    """Prints one JSON value on a line of standard output."""
    print(json.dumps(content), flush=True)
