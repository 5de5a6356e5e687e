"""The command line:
`thetax train | tune | look | verify | classify | embed | generate | list | data`.

The options of `thetax train RECIPE` are generated from the recipe's signature. Exit codes: 0
success, 1 failure, 2 unknown command or option, 130 interrupted (resumable).
"""

import sys

from .interrupt import interrupts

__all__ = [
    "main",
]


def main(arguments: list[str] | None = None) -> None:
    """Runs one command, by default that of the command line, and exits with its exit code."""
    interrupts.install()  # before JAX is imported, which takes seconds
    try:
        from . import classify, embed, generate, listing, train, tune, verify  # noqa: F401  each registers its command
        from .app import run

        run(sys.argv[1:] if arguments is None else arguments)
    finally:
        if arguments is not None:  # called from Python
            interrupts.remove()
