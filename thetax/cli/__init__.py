"""The command line:
`thetax train | tune | look | verify | classify | embed | generate | list | data`.

The options of `thetax train RECIPE` are those of the recipe's signature; nothing is written down
twice. Exit codes: 0 done, 1 it failed, 2 an unknown command or option, 130 interrupted and
resumable.
"""

import sys

from .interrupt import interrupts


def main(arguments: list[str] | None = None) -> None:
    """Runs one command, by default that of the command line, and exits with its code."""
    interrupts.install()  # before JAX is imported, which takes seconds
    try:
        from . import classify, embed, generate, listing, train, tune, verify  # noqa: F401  they register themselves
        from .app import run

        run(sys.argv[1:] if arguments is None else arguments)
    finally:
        if arguments is not None:  # called from Python, which goes on
            interrupts.remove()
