"""Outcomes are saved, and read instead of running the recipe again."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import recipes
from thetax.models import MLP
from thetax.recipes import Outcome
from thetax.recipes.engine import outcome as module
from thetax.recipes.engine.outcome import load_outcome, save_outcome
from thetax.recipes.engine.runs import execute
from thetax.train import FitResult, Run, Silent, cross_entropy, weight_decay


def outcome(n: int = 10) -> Outcome:
    xs = np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)
    return Outcome(
        model=MLP.init(2, 3, 2, key=jr.key(0)),
        train=(xs, np.arange(n) % 2),
        test=(xs[:4], np.arange(4) % 2),
        objective=weight_decay(cross_entropy, strength=0.1),
        history={"train loss": np.array([1.0, 0.5])},
        classes=("a", "b"),
        table={"network": {"test error %": 12.5}},
        reason="all 2 epochs done",
    )


def test_a_saved_outcome_is_read(tmp_path):
    first = outcome()
    save_outcome(tmp_path, first)
    second = load_outcome(tmp_path)
    assert second.table == first.table
    assert second.classes == first.classes
    assert second.sizes is None
    assert np.array_equal(second.train[0], first.train[0])
    assert np.array_equal(second.history["train loss"], first.history["train loss"])
    batch = tuple(map(jnp.asarray, first.test))
    assert second.objective(second.model, batch) == first.objective(first.model, batch)


def test_a_large_data_set_is_subsampled(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_DATA_BYTES", 80)  # an example takes 16 bytes
    save_outcome(tmp_path, outcome())
    second = load_outcome(tmp_path)
    assert second.train[0][:, 0].tolist() == [0.0, 4.0, 8.0, 12.0, 18.0]
    assert second.train[1].tolist() == [0, 0, 0, 0, 1]
    assert len(second.test[0]) == 4
    assert second.sizes == (10, 4)


def test_a_folder_without_an_outcome(tmp_path):
    with pytest.raises(ValueError, match=r"is not finished\. Resume it: thetax train --resume"):
        load_outcome(tmp_path)
    module.serialise.save(tmp_path / "outcome", {"a": 1})
    with pytest.raises(ValueError, match="is not the outcome of a recipe"):
        load_outcome(tmp_path)


def test_a_run_saves_its_outcome(tmp_path, monkeypatch):
    run = Run.begin(tmp_path / "r", recipe="digits", arguments={"epochs": 1}, seed=3)
    first = execute(run, Silent())
    monkeypatch.setitem(
        recipes.RECIPES, "digits", lambda job, **_: pytest.fail("the recipe was called again")
    )
    second = load_outcome(run.folder)
    assert second.table == first.table
    assert second.reason == first.reason


def test_what_is_given_replaces_what_the_fit_knows():
    fitted, folded = (MLP.init(2, 2, key=jr.key(seed)) for seed in (0, 1))
    result = FitResult(fitted, {"loss": np.zeros(2)}, "done", steps=2, seconds=1.5)
    pair = (np.zeros((1, 2)), np.zeros(1, int))
    fields = {"train": pair, "test": pair, "objective": cross_entropy}
    outcome = Outcome.of_fit(result, **fields)
    assert outcome.model is fitted
    assert (outcome.reason, outcome.seconds) == ("done", 1.5)
    assert outcome.history is result.history
    outcome = Outcome.of_fit(result, model=folded, seconds=9.0, **fields)
    assert outcome.model is folded
    assert (outcome.reason, outcome.seconds) == ("done", 9.0)
