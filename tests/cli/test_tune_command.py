"""`thetax tune` as a user types it."""

import json
import signal

import pytest
from shell import run

from thetax.cli.tune import _LineDisplay

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")
SMALL = (
    "--folds",
    "2",
    "--width",
    "3,4",
    "--depth",
    "1",
    "--batch-size",
    "64",
    "--epochs",
    "9",
    "--members",
    "2",
)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            (),
            "missing: thetax tune RECIPE, with one of: default, digits, mnist",
        ),
        (("digts",), "There is no recipe to tune called 'digts'; did you mean digits?"),
        (("digits", "--trials", "0"), "trials must be an integer >= 1; got 0"),
        (("digits", "--folds", "1439"), "cannot split 1438 examples into 1439 parts"),
        (
            ("digits", "--learning-rate", "1e-1:1e-4"),
            "learning_rate must be a Range(low, high) with low <= high",
        ),
        (
            ("digits", "--learning-rate", "fast"),
            "learning_rate must be a number, numbers separated by commas, or low:high; got 'fast'",
        ),
        (
            ("digits", "--batch-size", "32,5000"),
            "batch_size must be at most 1150, the training examples of a fold",
        ),
        (
            ("digits", "--width", "1.5"),
            "width must be an integer; got 1.5",
        ),
        (("digits", "--seed", "-1"), "seed must be an integer in [0, 2^63); got -1"),
        (("--resume", "nowhere"), "nowhere holds no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_asked_wrongly_is_answered(capsys, arguments, says):
    code, _, error = run(capsys, "tune", *arguments)
    assert (code, says in error) == (1, True), error


def test_nothing_to_search_is_said(capsys):
    fixed = [
        word for name in ("width", "depth", "batch-size", "epochs") for word in (f"--{name}", "1")
    ]
    code, _, error = run(
        capsys,
        "tune",
        "digits",
        *fixed,
        "--learning-rate",
        "0.1",
        "--weight-decay",
        "0",
        "--dropout",
        "0",
        "--label-smoothing",
        "0",
    )
    assert (code, "search space is empty" in error) == (1, True), error


@pytest.mark.slow
def test_tune_reports_and_is_refused_another_space(capsys, tmp_path):
    code, out, _ = run(
        capsys, "tune", "digits", "--trials", "5", *SMALL, "--workers", "1", "--out", "r", "--json"
    )
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [event["event"] for event in events if event["event"] != "epoch"] == ["trial"] * 5 + [
        "done"
    ]
    assert {"width", "learning_rate", "error", "stopped"} <= events[0].keys()
    done = events[-1]
    assert done["trials"] == 5
    assert 0 < done["test error"] < 1
    page = (tmp_path / "r" / "report.html").read_text()
    for words in (
        "Best trials",
        "Progress of the search",
        "Hyperparameters of the trials",
        "Hyperparameter importance",
    ):
        assert words in page
    assert {path.name for path in (tmp_path / "r" / "figures").iterdir()} >= {
        "progress.png",
        "settings.png",
    }
    assert list((tmp_path / "r").glob("trial-*/model.safetensors"))
    code, out, _ = run(capsys, "tune", "--resume", "r", "--workers", "1")
    assert code == 0
    assert "5 trials" in out
    for command in (("look", "r"), ("train", "--resume", "r")):
        code, _, error = run(capsys, *command)
        assert (code, "study of thetax tune; resume it with: thetax tune --resume r" in error) == (
            1,
            True,
        ), error
    code, _, error = run(
        capsys,
        "tune",
        "digits",
        "--out",
        "r",
        "--trials",
        "5",
        *SMALL,
        "--learning-rate",
        "0.1:0.2",
    )
    assert (code, "r holds" in error and "space=" in error) == (1, True), error
    code, _, error = run(capsys, "tune", "default", "--resume", "r")
    assert (code, "is a run of digits" in error) == (1, True), error


def test_ctrl_c_leaves_a_search_that_goes_on(capsys, monkeypatch):
    """It comes when the second trial has been shown; the first two are not tried again."""
    shown = []

    def update(display, progress):
        shown.append([trial.number for trial in progress.trials])
        if len(shown[-1]) == 2:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background ignores it
    try:
        with monkeypatch.context() as watched:
            watched.setattr(_LineDisplay, "update", update)
            asked = ("tune", "digits", "--trials", "4", *SMALL, "--workers", "1", "--out", "r")
            code, _, error = run(capsys, *asked)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, error) == (130, "interrupted; resume with: thetax tune --resume r")
    assert len(shown[-1]) == 2
    code, out, error = run(capsys, "tune", "--resume", "r", "--workers", "1", "--json")
    assert code == 0, error
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines] == [*["trial"] * 4, "done"]
    assert [line["trial"] for line in lines[:2]] == shown[-1]
