"""What a fit says while it runs: lines, JSON, a bar; each keeps the protocol."""

import io
import json

import pytest

from thetax.train import JsonLines, Progress, ProgressBar, ProgressLines, Silent, default_progress

pytestmark = pytest.mark.usefixtures("unchecked")  # io.StringIO is no typing.TextIO for beartype

ROW = {"epoch": 1, "train loss": 0.5, "valid error": 0.25, "seconds": 1.0, "examples/s": 1234}


def a_life(progress):
    progress.start(2, 3, 8)
    for step in (1, 2, 3):
        progress.update(0, step, 0.7)
    progress.note("remember this")
    progress.epoch(ROW)
    progress.close()


@pytest.mark.parametrize(
    "make", [Silent, ProgressLines, JsonLines, ProgressBar], ids=lambda kind: kind.__name__
)
def test_each_keeps_the_protocol(make, capsys):
    """All live through a whole fit; the silent one says nothing."""
    progress = make()
    assert isinstance(progress, Progress)
    a_life(progress)
    said = capsys.readouterr()
    assert (said.out + said.err == "") == (make is Silent)


def test_lines_say_the_numbers():
    stream = io.StringIO()
    a_life(ProgressLines(stream))
    note, line = stream.getvalue().splitlines()
    assert note == "remember this"
    for part in ("epoch 1/2", "train loss 0.5000", "valid error 0.2500", "1,234 examples/s"):
        assert part in line


def test_json_lines_are_json(capsys):
    a_life(JsonLines())
    note, epoch = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert note == {"event": "note", "text": "remember this"}
    assert epoch == {"event": "epoch", **ROW}


def test_a_bar_is_for_terminals():
    """Elsewhere, lines; so that a log file holds no control characters."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert isinstance(default_progress(io.StringIO()), ProgressLines)
    assert isinstance(default_progress(Terminal()), ProgressBar)
