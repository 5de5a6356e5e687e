"""The program itself: its commands register with `app`; `main` runs one and turns trouble into words and a code."""

import json
import os
import sys
from typing import Any

import cyclopts
from rich.console import Console

from .. import __version__
from ..core import remember_compilations

FAILED, INTERRUPTED = 1, 130

app = cyclopts.App(
    name="thetax",
    help="Deep learning as one library: train a model, look at it, check the course.",
    version=__version__,
    default_parameter=cyclopts.Parameter(consume_multiple=True, negative=""),
)
out, err = Console(), Console(stderr=True)


def main(arguments: list[str] | None = None) -> None:
    """Runs one command and exits with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    remember_compilations()
    try:
        sys.exit(app(arguments))
    except BrokenPipeError:  # nobody reads on, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (ValueError, OSError, ImportError, FloatingPointError) as trouble:
        complain(trouble, json="--json" in arguments and arguments[0] != "verify")  # which writes a file
        sys.exit(FAILED)
    except KeyboardInterrupt:
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
