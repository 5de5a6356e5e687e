"""The recipes on small data; tests with the real data are marked `network`."""

import inspect
import json

import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.recipes import RECIPES, Job, find_recipe
from thetax.recipes.engine.runs import parse_options
from thetax.recipes.shared.options import complete_docstring
from thetax.train import Run, Silent


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture
def small_data(monkeypatch):
    """Noise in the shape of MNIST with the label in one pixel, and a threshold rule for Default."""
    rng = np.random.default_rng(0)

    def images(n):
        ys = np.arange(n, dtype=np.int32) % 10
        xs = rng.random((n, 28, 28), np.float32) * 0.01
        xs[np.arange(n), ys, ys] = 1
        return xs, ys

    def table(n):
        xs = rng.normal(size=(n, 3)).astype(np.float32)
        return xs, (xs[:, 1] > 1).astype(np.int32)

    sets = {
        "mnist": data.Data(images(600), images(200), tuple("0123456789"), ()),
        "default": data.Data(table(600), None, ("no", "yes"), ("student", "balance", "income")),
    }
    real = data.load
    monkeypatch.setattr(data, "load", lambda name, **where: sets.get(name) or real(name, **where))


@pytest.mark.slow
def test_mnist(small_data):
    outcome = recipes.mnist(
        job(), hidden=(32,), dropout=(0.1,), epochs=15, batch_size=20, learning_rate=1e-2
    )
    assert outcome.table["multi-layer perceptron"]["test error %"] < 5
    assert len(outcome.history["valid error"]) == 15


@pytest.mark.slow
def test_isl_table(small_data, tmp_path, check_reread):
    """The four rows beside those of ISL; a second call reads the run."""
    run = Run.begin(tmp_path / "r", recipe="isl-table", arguments={}, seed=0)
    first = recipes.isl_table(job(run), epochs=4, batch_size=50)
    assert list(first.table) == [
        "linear discriminant analysis",
        "multinomial logistic regression",
        "ridge network",
        "dropout network",
    ]
    assert [row["ISL %"] for row in first.table.values()] == [12.7, 7.2, 2.3, 1.8]
    assert (tmp_path / "r" / "ridge-network" / "model.safetensors").is_file()
    check_reread(lambda: recipes.isl_table(job(run), epochs=4, batch_size=50), first)


@pytest.mark.slow
def test_default(small_data):
    outcome = recipes.default(job(), epochs=20, batch_size=30)
    majority = outcome.table["majority class"]["test error %"]
    assert outcome.table["logistic regression"]["test error %"] < majority / 2
    assert outcome.table["network"]["test AUC"] > 0.95


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_options_have_types_defaults_and_help(name):
    """The command line is built from the signature and the docstring."""
    function = find_recipe(name)
    document = complete_docstring(function)
    for option in list(inspect.signature(function).parameters.values())[1:]:
        assert option.kind is option.KEYWORD_ONLY
        assert option.annotation is not option.empty
        assert option.default is not option.empty
        assert f"\n{option.name}\n    " in document


@pytest.mark.network
@pytest.mark.slow
def test_isl_table_on_mnist():
    """ISL's table 10.1 within 0.4 points or better (L10-5.3-mnist-table)."""
    table = recipes.isl_table(job()).table
    assert abs(table["linear discriminant analysis"]["test error %"] - 12.7) < 0.4
    assert abs(table["multinomial logistic regression"]["test error %"] - 7.2) < 0.4
    assert table["ridge network"]["test error %"] <= 2.3
    assert table["dropout network"]["test error %"] <= 1.9


@pytest.mark.network
def test_default_on_isl_data():
    """Logistic regression and the network within 0.3 points of one another, AUC at least 0.94."""
    table = recipes.default(job()).table
    errors = [table[name]["test error %"] for name in ("logistic regression", "network")]
    assert abs(errors[0] - errors[1]) < 0.3
    assert max(errors) < table["majority class"]["test error %"]
    assert min(table[name]["test AUC"] for name in ("logistic regression", "network")) >= 0.94


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_defaults_have_the_types_of_the_options(name):
    defaults = {
        p.name: p.default
        for p in inspect.signature(RECIPES[name]).parameters.values()
        if p.name != "job"
    }
    assert parse_options(name, json.loads(json.dumps(defaults))) == defaults


@pytest.mark.parametrize(
    ("recipe", "option", "value"),
    [
        ("mnist", "learning_rate", "fast"),
        ("mnist", "epochs", 2.5),
        ("mnist", "epochs", True),
        ("mnist", "hidden", 32),
        ("mnist", "hidden", [32, "16"]),
        ("mnist", "patience", "none"),
        ("resnet", "precision", "float8"),
    ],
)
def test_options_of_wrong_types_are_refused(recipe, option, value):
    with pytest.raises(ValueError, match=f"The option {option} of the recipe {recipe} cannot be "):
        parse_options(recipe, {option: value})
