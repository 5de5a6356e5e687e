"""The command line as a user types it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from children import check_annotations
from shell import run

from thetax.train import Run

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.strip().count(".") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("train", "digts"), 1, "did you mean digits"),
        (("train",), 1, "the name of a recipe is missing"),
        (("train", "digits", "--learning-rte", "3"), 2, "Did you mean --learning-rate?"),
        (("train", "digits", "--epochs", "many"), 2, 'unable to convert "many" into int'),
        (("trian", "digits"), 2, 'Did you mean "train"?'),
        (
            ("train", "digits", "--learning-rate", "-1"),
            1,
            "learning_rate must be more than 0; got -1.0",
        ),
        (("train", "digits", "--batch-size", "5000"), 1, "batch_size=5000 is larger than"),
        (("train", "digits", "--dropout", "1.5"), 1, "in [0, 1); got 1.5"),
        (("train", "--resume", "nowhere"), 1, "nowhere holds no run (no run.json)"),
        (("look", "nowhere"), 1, "nowhere holds no run (no run.json)"),
        (("look",), 1, "There is no run in runs/"),
        (("data", "fetch", "mnits"), 1, "did you mean mnist"),
        (("list", "nothing"), 2, "nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_asked_wrongly_is_answered(capsys, arguments, code, says):
    found, _, error = run(capsys, *arguments)
    assert (found, says in error) == (code, True), error


@pytest.mark.parametrize("name", ["sacrebleu.metrics.bleu", "gguf"])
def test_a_library_that_is_missing_is_named(capsys, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    Path("a.gguf").write_bytes(b"GGUF")
    asked = ("generate", "so", "--model", "a.gguf") if name == "gguf" else ("train", "translate")
    code, _, error = run(capsys, *asked)
    assert code == 1
    assert f"{name.partition('.')[0]}: pip install 'thetax[text]'" in error


def test_help_is_the_signature(capsys):
    """Every option of the recipe stands in the help with its default and its sentence."""
    code, out, _ = run(capsys, "train", "digits", "--help")
    assert code == 0
    for word in (
        "--hidden",
        "--dropout",
        "--learning-rate",
        "--epochs",
        "--batch-size",
        "--seed",
        "--out",
        "Widths of the hidden",
    ):
        assert word in out


def test_train_resume_look(capsys, tmp_path):
    """The main job: trained once, answered from the folder the second time, then looked at."""
    options = ("--hidden", "32", "16", "--learning-rate", "0.01")
    code, out, _ = run(capsys, "train", "digits", "--epochs", "4", *options, "--out", "r", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [event["event"] for event in events] == ["epoch"] * 4 + ["done"]
    error = events[-1]["table"]["multi-layer perceptron"]["test error %"]
    assert 0 < error < 40
    about = json.loads((tmp_path / "r" / "run.json").read_text())
    given = {
        "hidden": [32, 16],
        "dropout": 0.2,
        "weight_decay": 1e-4,
        "learning_rate": 0.01,
        "epochs": 4,
        "batch_size": 64,
    }
    assert about["arguments"] == given
    assert {"recipe", "seed", "versions", "commit"} < about.keys()

    code, out, _ = run(capsys, "train", "--resume", "r", "--json")
    assert (
        json.loads(out.splitlines()[-1])["table"]["multi-layer perceptron"]["test error %"] == error
    )

    code, out, _ = run(capsys, "train", "digits", "--resume", "r", "--json")
    assert (
        json.loads(out.splitlines()[-1])["table"]["multi-layer perceptron"]["test error %"] == error
    )
    assert "is a run of digits, not of mnist" in run(capsys, "train", "mnist", "--resume", "r")[2]
    assert (
        "leave out --epochs" in run(capsys, "train", "digits", "--resume", "r", "--epochs", "9")[2]
    )

    code, out, _ = run(capsys, "train", "--resume", "r")
    (took,) = re.findall(
        "training time, with compilation: (.*? s); total time: ",
        " ".join(out.split()),
    )

    code, out, _ = run(capsys, "look", "r", "--only", "curves", "--only", "confusion", "--json")
    assert code == 0
    page = (tmp_path / "r" / "report.html").read_text()
    assert f"<dt>training time, with compilation</dt><dd>{took}</dd>" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert len(list((tmp_path / "r" / "figures").glob("*.png"))) == 2

    code, _, error = run(capsys, "train", "digits", "--epochs", "5", *options, "--out", "r")
    assert code == 1
    assert "its --epochs is 4, not 5" in error


def test_folder_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, error = run(capsys, "train", "digits", "--out", "file/run")
    assert code == 1
    assert "Cannot write to file/run" in error


def test_folder_of_something_else(capsys, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("")
    code, _, error = run(capsys, "train", "digits", "--out", "photos")
    assert code == 1
    assert "photos is not empty and holds no run" in error
    assert os.listdir(tmp_path / "photos") == ["cat.jpg"]


def test_broken_run_json(capsys, tmp_path):
    Run.begin(tmp_path / "r", recipe="digits", arguments={}, seed=0)
    (tmp_path / "r" / "run.json").write_text('{"recipe": ')
    code, _, error = run(capsys, "look", "r")
    assert code == 1
    assert "cannot be read" in error


def test_interrupt_leaves_a_resumable_run(tmp_path):
    """Ctrl-C exits with 130, says how to go on, and going on works."""
    thetax = [sys.executable, "-m", "thetax.cli"]
    command = [*thetax, "train", "digits", "--epochs", "20000", "--out", "r", "--json"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()  # the first epoch is done
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "thetax train --resume r" in " ".join(error.split())
    assert len(list((tmp_path / "r" / "checkpoints").glob("[0-9]*"))) >= 1

    process = subprocess.Popen(
        [*thetax, "train", "--resume", "r", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "resumed at epoch" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_verify_writes_what_it_found(capsys, tmp_path, monkeypatch):
    check_annotations(tmp_path, monkeypatch)
    code, out, said = run(
        capsys, "verify", "1.2-xor", "1.2-sgn", "--json", "out.json", "--html", "out.html"
    )
    assert code == 0
    assert "all hold" in out
    assert "2/2 checked" in said
    found = json.loads(Path("out.json").read_text())
    assert [finding["ids"][0] for finding in found] == ["1.2-sgn", "1.2-xor"]
    assert all(finding["holds"] for finding in found)
    assert 'id="1.2-xor"' in Path("out.html").read_text()


def test_verify_says_what_does_not_hold_and_goes_on(capsys, monkeypatch):
    """A claim broken in this process only would not reach the others, so they are run here."""
    from thetax import claims

    def broken(key):
        return claims.Verdict(claims.equal("two and two", 5, 4))

    (good,) = claims.find_claims("1.2-sgn")
    bad = replace(good, ids=("1.2-xor",), title="Arithmetic", function=broken, of=())
    monkeypatch.setattr(claims, "find_claims", lambda *wanted: [bad, good])
    here = lambda chosen, *, seed, scale, jobs: (
        claims.run_claim(claim, seed=seed, scale=scale) for claim in chosen
    )
    monkeypatch.setattr(claims, "verify", here)
    code, out, _ = run(capsys, "verify")
    assert code == 1
    assert "1 does not hold" in out
    assert "two and two: measured 5, expected 4" in out
    assert "1.2-sgn" in out


def test_verify_does_not_fail_for_want_of_data(capsys, monkeypatch):
    from thetax import claims
    from thetax.data import DatasetUnavailable

    def offline(key):
        raise DatasetUnavailable("spambase is unavailable. Each source failed:\n - the web")

    (good,) = claims.find_claims("1.2-sgn")
    lacking = replace(good, ids=("1.2-xor",), title="Data", function=offline, of=())
    monkeypatch.setattr(claims, "find_claims", lambda *wanted: [lacking, good])
    here = lambda chosen, *, seed, scale, jobs: (
        claims.run_claim(claim, seed=seed, scale=scale) for claim in chosen
    )
    monkeypatch.setattr(claims, "verify", here)
    code, out, _ = run(capsys, "verify", "--html", "out.html")
    assert code == 0
    assert "1.2-xor: spambase is unavailable" in out
    assert "1 hold, 1 not checked: data missing" in out
    page = Path("out.html").read_text()
    assert "Not checked, because data is missing" in page
    assert "1 of 2" in page


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("1.2-novikov",), "did you mean 1.2-novikoff"),
        (("1.2-xor", "--json", "nowhere/out.json"), "make it first"),
        (("1.2-xor", "--html", "."), "is a folder"),
        (("1.2-xor", "--jobs", "0"), "jobs must be an integer >= 1; got 0"),
        (("1.2-xor", "--html", "x", "--json", "x"), "--json and --html are both x; give two files"),
        (("1.2-xor", "--html", "/proc/x.html"), "cannot be written"),
    ],
)
def test_verify_refuses_before_it_runs(capsys, arguments, says):
    code, out, said = run(capsys, "verify", *arguments)
    assert code == 1
    assert says in said
    assert out == ""


def test_an_interrupted_verify_tells_what_it_found(capsys, monkeypatch):
    from thetax import claims

    def stopped(chosen, *, seed, scale, jobs):
        yield claims.run_claim(chosen[0], seed=seed, scale=scale)
        raise KeyboardInterrupt

    monkeypatch.setattr(claims, "verify", stopped)
    code, out, said = run(capsys, "verify", "1.2-sgn", "1.2-xor", "--json", "part.json")
    assert code == 130
    assert "interrupted after 1 of 2" in said
    assert "1 claim on 1 statement: all hold" in out
    assert len(json.loads(Path("part.json").read_text())) == 1


def test_list_claims_by_name(capsys):
    code, out, _ = run(capsys, "list", "claims", "1.2-novikoff")
    assert code == 0
    assert out.count("1.2-novikoff") == 2
    assert run(capsys, "list", "recipes", "1.2")[0] == 1


def test_list_claims(capsys):
    code, out, _ = run(capsys, "list", "claims")
    assert code == 0
    assert "60 of 60" in out
    _, out, _ = run(capsys, "list", "claims", "--json")
    chapters = json.loads(out)
    assert [c["chapter"] for c in chapters][:3] == ["1", "2", "3"]
    assert all(c["claimed"] == c["rows"] for c in chapters[:3])
