"""Tests of the report of a fit without its model."""

import json

import jax.numpy as jnp
import pytest

from thetax.cli.train import look
from thetax.layers import Linear
from thetax.report import look_at_fit
from thetax.train import Run

ROWS = [
    {"epoch": 1, "train loss": 1.5, "valid error": 0.5, "seconds": 1.0, "examples/s": 9},
    {"epoch": 2, "train loss": 0.25, "valid error": 0.125, "seconds": 1.0, "examples/s": 9},
]


@pytest.fixture
def run(tmp_path) -> Run:
    run = Run(tmp_path / "mine")
    run.write("fit.json", {"epochs": 2, "batch_size": 17})
    run.write_metrics(ROWS)
    return run


def test_curves_weights_and_settings_are_on_the_page(run, capsys):
    run.finish(
        Linear(jnp.array([[3.0, -5.0]]), jnp.ones(1)), {"reason": "all 2 epochs done", "rows": ROWS}
    )
    assert look(run.folder) == 0
    said = capsys.readouterr()
    assert "thetax.report.look(thetax.recipes.Outcome(model, train, test" in " ".join(
        said.err.split()
    )
    page = (run.folder / "report.html").read_text()
    for words in ("Learning curves", "0.1250", "1 x 2", "5.000", "all 2 epochs done", "17", "<svg"):
        assert words in page, words
    assert (run.folder / "figures" / "learning-curves.png").is_file()


def test_an_unfinished_fit_has_no_weights(run, capsys):
    assert look(run.folder, json=True) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(run.folder / "report.html")
    assert "Weights" not in (run.folder / "report.html").read_text()


def test_a_run_that_is_not_of_a_recipe(tmp_path, capsys):
    run = Run.begin(tmp_path / "r", recipe="mine", arguments={"rate": 0.125}, seed=3)
    run.write("fit.json", {"epochs": 1})
    assert look(run.folder) == 0
    assert "0.125" in (run.folder / "report.html").read_text()


def test_a_folder_of_several_fits_lists_them(tmp_path):
    for name in ("teacher", "student"):
        (Run(tmp_path) / name).write("fit.json", {"epochs": 1})
    with pytest.raises(ValueError, match="give one of its subfolders: student, teacher"):
        look(tmp_path)


def test_invalid_folders_raise(run, tmp_path):
    with pytest.raises(
        ValueError,
        match=r"--only: selects sections that need the trained model.*thetax\.report\.look",
    ):
        look(run.folder, only=("curves",))
    (run.folder / "metrics.jsonl").write_text('{"epoch": ')
    with pytest.raises(ValueError, match=r"metrics\.jsonl cannot be read"):
        look_at_fit(run)
    with pytest.raises(ValueError, match="holds no run"):
        look(tmp_path / "nothing")
