"""Hyper-parameter search: results, resuming, refused input."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import BatchNorm
from thetax.models import MLP
from thetax.train import Choice, Range, Setting, Trial, TuningTask, evaluate, tune
from thetax.train.tuning.search_space import check_space, parse_domain
from thetax.train.tuning.trial_table import best_trial, simplest_trial

CHILD = Path(__file__).parents[2] / "tune_child.py"
SPACE = {
    "learning_rate": Range(1e-3, 1e-1, log=True),
    "width": Choice(3, 4),
    "batch_size": 16,
    "epochs": 9,
}


def make(hidden, dropout, key):
    return MLP.init(2, *hidden, 2, dropout=dropout, key=key)


@pytest.fixture(scope="module")
def task() -> TuningTask:
    xs = np.asarray(jr.normal(jr.key(0), (80, 2)))
    ys = (xs[:, 0] > 0).astype(np.int32)
    return TuningTask((xs[:64], ys[:64]), make, test=(xs[64:], ys[64:]), name="halves")


def search(task, space=None, **settings):
    return tune(
        task,
        SPACE if space is None else space,
        **{"trials": 7, "folds": 2, "members": 2, "round_size": 3, "key": jr.key(1)} | settings,
    )


@pytest.fixture(scope="module")
def found(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "run"
    standings = []
    return search(task, folder=folder, on_progress=standings.append), folder, standings


@pytest.mark.slow
def test_a_search_finds_counts_and_trains(found, task):
    result, _, standings = found
    assert len(result.trials) == 7
    assert {trial.setting.width for trial in result.trials} <= {3, 4}
    assert all(
        1e-3 <= trial.setting.learning_rate <= 1e-1 and trial.setting.batch_size == 16
        for trial in result.trials
    )
    whole = [trial for trial in result.trials if not trial.stopped]
    assert result.best.error == min(trial.error for trial in whole)
    assert any(trial.stopped for trial in result.trials)
    for trial in result.trials:
        assert len(trial.curve) == (9 if not trial.stopped else len(trial.curve))
        assert trial.curve[-1] == pytest.approx(trial.error)
    assert standings[-1].running == 0
    assert standings[0].total == 7
    assert result.test_error == evaluate(result.model, task.test, {"e": task.metric})["e"] < 0.4
    assert len(jax.tree.leaves(result.model.members)[0]) == 2
    assert sum(result.importance.values()) == pytest.approx(1.0)


@pytest.mark.slow
def test_candidates_of_a_round_have_one_shape(found):
    """Seven trials, at most three in a round and at most half of the remaining: 3, 2, 1 and 1."""
    by_number = sorted(found[0].trials, key=lambda trial: trial.number)
    for first, last in [(0, 3), (3, 5)]:
        assert len({trial.setting.hidden for trial in by_number[first:last]}) == 1


def test_stopped_trials_were_worse_than_a_third_of_the_others(found):
    """By the reports in the journal: a stopped trial is not among the best third at its last
    rung.
    """
    import optuna

    logs = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(found[1] / "study.log"))
    )
    trials = optuna.load_study(study_name="tune", storage=logs).trials
    at_first = sorted(t.intermediate_values[0] for t in trials)
    stopped = [t for t in trials if t.state.name == "PRUNED" and t.last_step == 0]
    assert stopped
    assert all(t.intermediate_values[0] > at_first[0] for t in stopped)


@pytest.mark.slow
def test_the_same_call_again_answers_from_the_folder_and_goes_on(found, task):
    result, folder, _ = found
    before = (folder / "study.log").read_bytes()
    again = search(task, folder=folder)
    assert (folder / "study.log").read_bytes() == before
    assert [trial[:4] for trial in again.trials] == [trial[:4] for trial in result.trials]
    for a, b in zip(jax.tree.leaves(again.model), jax.tree.leaves(result.model)):
        np.testing.assert_array_equal(a, b)
    more = search(task, folder=folder, trials=9)
    assert len(more.trials) == 9
    assert {trial.number for trial in result.trials} <= {trial.number for trial in more.trials}


def test_the_same_seed_finds_the_same(task, found):
    again = search(task)
    assert [(t.setting, t.error) for t in again.trials] == [
        (t.setting, t.error) for t in found[0].trials
    ]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"space": {**SPACE, "learning_rate": Range(1e-3, 1.0, log=True)}}, "space="),
        ({"folds": 3}, "folds=2, not 3"),
        ({"key": jr.key(2)}, "key="),
        ({"task": "other"}, "task='halves', not 'other'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_folder_of_another_study_is_refused(found, task, changed, says):
    if "task" in changed:
        task = replace(task, name=changed["task"])
        changed = {}
    with pytest.raises(ValueError, match=says):
        search(task, folder=found[1], **changed)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({}, "search space is empty"),
        ({"learning_rate": 0.1, "width": Choice(3)}, "search space is empty"),
        ({"learning_rate": Range(0.1, 0.1)}, "search space is empty"),
        ({"learning_rate": Range(0.2, 0.1)}, "low <= high; got low=0.2 and high=0.1"),
        ({"learning_rate": Range(0.0, 0.1)}, "learning_rate must be > 0"),
        ({"weight_decay": Range(0.0, 0.1, log=True)}, "must begin above 0"),
        ({"widht": Choice(1, 2)}, "did you mean width"),
        ({"dropout": Range(0.0, 1.0)}, "probability < 1; got 1.0"),
        ({"label_smoothing": Range(0.0, 1.1)}, r"in \[0, 1\]; got 1.1"),
        ({"width": Range(1.5, 3.0)}, "an integer; got 1.5"),
        ({"width": Choice(0, 3)}, "width must be finite and >= 1; got 0"),
        (
            {"batch_size": Choice(16, 64)},
            "at most 32, the training examples of a fold \\(of 64 in all\\); got 64",
        ),
        ({"learning_rate": Choice()}, "learning_rate has no options"),
        ({"learning_rate": "big"}, "got 'big'"),
        (
            {"learning_rate": Range(float("nan"), 1.0)},
            "learning_rate must be finite and >= 0; got nan",
        ),
    ],
    ids=str,
)
def test_an_invalid_space_is_refused(task, space, says, unchecked):
    with pytest.raises(ValueError, match=says):
        search(task, space and space | {"epochs": 1})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"folds": 65}, "cannot split 64 examples into 65 parts"),
        ({"folds": 1}, "into 1 parts"),
        ({"trials": 0}, "trials must be an integer >= 1; got 0"),
        ({"workers": 0}, "workers must be"),
        ({"members": 0}, "members must be"),
        ({"restarts": 0}, "restarts must be"),
        ({"repeats": 0}, "repeats must be"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused(task, settings, says):
    with pytest.raises(ValueError, match=says):
        search(task, **settings)


def test_bad_data_and_batch_norms_are_refused(task):
    xs, ys = task.train
    with pytest.raises(ValueError, match=r"train\[0\].*NaN|not finite|finite"):
        search(replace(task, train=(np.where(xs > 1, np.nan, xs), ys)))
    with pytest.raises(ValueError, match="train"):
        search(replace(task, train=(xs, ys + 5)))
    single = lambda hidden, dropout, key: MLP.init(2, *hidden, 1, dropout=dropout, key=key)
    with pytest.raises(
        ValueError,
        match=r"two or more classes; got labels of dtype int32 and an output of shape \(1,",
    ):
        search(replace(task, make=single), {"label_smoothing": Range(0.0, 0.2)})
    normed = lambda hidden, dropout, key: MLP.init(2, *hidden, 2, normalise=BatchNorm.init, key=key)
    with pytest.raises(ValueError, match="batch norms"):
        search(replace(task, make=normed))


@pytest.mark.slow
def test_a_diverging_trial_does_not_end_the_search(task):
    """With a learning rate of 1e30 the error is infinite: that trial is stopped."""
    squares = lambda model, batch, key=None: jnp.mean(
        jnp.square(jax.vmap(model)(batch[0])[:, 0] - batch[1])
    )
    wild = replace(
        task,
        objective=squares,
        metric=squares,
        train=(task.train[0], task.train[1].astype(np.float32)),
    )
    wild = replace(wild, test=None)
    result = search(
        wild, {"learning_rate": Choice(1e-2, 1e30), "width": 3, "batch_size": 16, "epochs": 9}
    )
    assert np.isfinite(result.best.error)
    assert len(result.trials) == 7


def test_one_standard_error_prefers_the_small():
    trial = lambda n, width, error, stopped=False: Trial(
        n, Setting(width=width), error, 0.02, stopped, np.array([error]), 0.0
    )
    trials = [trial(0, 64, 0.10), trial(1, 8, 0.115), trial(2, 4, 0.13), trial(3, 2, 0.05, True)]
    assert best_trial(trials).number == 0
    assert simplest_trial(trials, lambda setting: setting.width).number == 1
    with pytest.raises(ValueError, match="every trial was stopped early"):
        best_trial(trials[3:])


def test_domains_parsed_from_the_command_line():
    assert parse_domain("dropout", "0:0.5") == Range(0, 0.5)
    assert parse_domain("weight_decay", "1e-5:1e-2").log
    assert parse_domain("width", "8") == 8
    with pytest.raises(ValueError, match=r"width must be a number, .*got '8;9'"):
        parse_domain("width", "8;9")
    assert check_space({"width": parse_domain("width", "8:16")})["width"].is_integer


@pytest.mark.slow
def test_optuna_is_not_imported_before_it_is_needed():
    code = "import sys, thetax, thetax.train, thetax.cli; sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def child(folder: Path, *asked: int) -> subprocess.CompletedProcess:
    command = [sys.executable, str(CHILD), str(folder), *map(str, asked)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def ended(folder: Path) -> dict[int, list[str]]:
    """What the journal says of each trial that has ended: every line about it."""
    lines = [json.loads(line) for line in (folder / "study.log").read_text().splitlines()]
    done = {
        line["trial_id"] for line in lines if line["op_code"] == 6 and line.get("state") in (1, 2)
    }
    return {
        number: [json.dumps(line) for line in lines if line.get("trial_id") == number]
        for number in done
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "trials"), [(1, 10), (2, 30)]
)  # workers go on for a while when all is killed
def test_a_killed_search_goes_on_and_loses_nothing(tmp_path, workers, trials):
    folder = tmp_path / "run"
    assert child(folder, trials, workers, 4).returncode == -9
    before = ended(folder)
    assert 4 <= len(before) < trials
    with open(folder / "study.log", "ab") as file:
        file.write(b'{"op_code": 4, "wor')  # as if cut short in a write
    done = child(folder, trials, workers)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == str(trials)
    after = ended(folder)
    assert len(after) == trials
    assert {number: after[number] for number in before} == before
