"""The program itself: its commands register with `app`; `run` runs one and turns trouble into words
and a code.
"""

import json
import os
import sys
from importlib.metadata import version
from typing import Any

import cyclopts
from rich.console import Console

from ..core import remember_compilations
from .interrupt import INTERRUPTED, interrupts

FAILED = 1

app = cyclopts.App(
    name="thetax",
    help="Deep learning as one library: train a model, look at it, check the course.",
    version=version("thetax"),
    default_parameter=cyclopts.Parameter(consume_multiple=True, negative=""),
    suppress_keyboard_interrupt=False,
)
out = Console()
err = Console(stderr=True)


def run(arguments: list[str]) -> None:
    """Runs one command and exits with its code."""
    remember_compilations()
    try:
        with interrupts:
            sys.exit(app(arguments))
    except BrokenPipeError:  # nobody reads on, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (ValueError, OSError, ImportError, FloatingPointError) as trouble:
        complain(
            trouble, json="--json" in arguments and arguments[0] != "verify"
        )  # which writes a file
        sys.exit(FAILED)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(INTERRUPTED)


def complain(trouble: BaseException, *, json: bool) -> None:
    """Says what is wrong on standard error, and as an event too if JSON is wanted."""
    if json:
        print_json({"event": "error", "text": str(trouble)})
    err.print(f"[bold red]thetax:[/] {_plain(trouble)}", soft_wrap=True)


def _plain(trouble: BaseException) -> str:
    return str(trouble).replace("[", r"\[")


def print_json(content: Any) -> None:
    """One JSON value on standard output."""
    print(json.dumps(content), flush=True)
