"""`thetax attack RUN` and `thetax look` on finished and unfinished runs."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax.random as jr
import numpy as np
import pytest
from shell import run

import thetax.cli.train  # noqa: F401  registers the commands before a test replaces a recipe
from thetax import recipes
from thetax.models import MLP
from thetax.recipes.engine.outcome import Outcome, save_outcome
from thetax.train import Run, cross_entropy

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def finished_run(folder: str, **more) -> Outcome:
    """A run of the digits recipe with the outcome of a small network."""
    started = Run.begin(folder, recipe="digits", arguments={"epochs": 1}, seed=0)
    xs = np.asarray(jr.uniform(jr.key(0), (12, 3)))
    data = xs, np.arange(12, dtype=np.int32) % 2
    outcome = Outcome(
        MLP.init(3, 4, 2, key=jr.key(1)),
        data,
        data,
        cross_entropy,
        classes=("a", "b"),
        table={"network": {"test error %": 50.0}},
        **more,
    )
    started.write("fit.json", {"epochs": 1})
    started.write_metrics([{"epoch": 1, "train loss": 0.5, "seconds": 0.1}])
    started.finish(outcome.model, {"reason": "the only epoch done", "rows": []})
    save_outcome(started.folder, outcome)
    return outcome


def test_attack_takes_the_folder_of_a_run(capsys, monkeypatch):
    """The folder is the positional argument; the options are those of the recipe."""
    options_passed = {}

    def fake(job, **options):
        options_passed.update(options)
        return replace(finished_run("r"), reason="attacked")

    fake.__name__ = "attack"
    monkeypatch.setitem(recipes.RECIPES, "attack", fake)
    monkeypatch.setattr(
        "thetax.recipes.engine.runs.parse_options", lambda name, options: options
    )  # the fake recipe has no annotations
    code, out, _ = run(
        capsys, "attack", "r", "--eps", "0.2", "--steps", "3", "--out", "a", "--json"
    )
    assert code == 0
    assert options_passed["run"] == "r"
    assert options_passed["eps"] == 0.2
    assert options_passed["steps"] == 3
    assert json.loads(out.splitlines()[-1])["run"] == "a"
    assert json.loads(Path("a/run.json").read_text())["recipe"] == "attack"


def test_attack_refuses_a_run_that_is_not_there(capsys):
    code, _, error = run(capsys, "attack", "nowhere")
    assert code == 1
    assert "nowhere holds no run (no run.json)" in error
    assert not list(Path("runs").glob("*"))  # a run that failed at once leaves no folder


def test_look_takes_the_newest_run_with_results(capsys):
    finished_run("runs/good")
    Run.begin("runs/newer", recipe="digits", arguments={"epochs": 1}, seed=0)
    code, out, _ = run(capsys, "look", "--only", "confusion")
    assert code == 0
    assert "runs/good" in out


def test_look_reads_what_train_saved(capsys, monkeypatch):
    """No recipe is called."""
    finished_run("r", reason="done early")
    monkeypatch.setitem(recipes.RECIPES, "digits", lambda job, **_: pytest.fail("it ran again"))
    code, out, _ = run(capsys, "look", "r", "--only", "confusion", "--json")
    assert code == 0
    assert json.loads(out)["table"] == {"network": {"test error %": 50.0}}
    assert "done early" in Path("r/report.html").read_text()


def test_look_at_a_run_that_is_not_finished(capsys):
    started = Run.begin("r", recipe="digits", arguments={"epochs": 2}, seed=0)
    started.write("fit.json", {"epochs": 2})
    started.write_metrics([{"epoch": 1, "train loss": 0.5, "seconds": 0.1}])
    code, out, error = run(capsys, "look", "r")
    assert code == 0
    assert "learning curves" in out
    assert "Continue with: thetax train --resume r" in error
    code, _, error = run(capsys, "look", "r", "--only", "confusion")
    assert code == 1
    assert "not finished" in error


def test_run_is_another_name_of_train(capsys):
    assert run(capsys, "run", "digits", "--help")[1] == run(capsys, "train", "digits", "--help")[
        1
    ].replace("thetax train", "thetax run")
    assert SimpleNamespace(code=run(capsys, "run")[0]).code == 1
