"""The command line, called from a test."""

import pytest

from thetax import cli


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    """The exit code, what was printed, and what was said on standard error, in one line."""
    with pytest.raises(SystemExit) as exit:
        cli.main(list(arguments))
    said = capsys.readouterr()
    return int(exit.value.code or 0), said.out, " ".join(said.err.split())
