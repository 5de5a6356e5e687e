"""The error by which the trials of a study are compared, what is recorded of them, and the repair
of a record.
"""

import sys
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from thetax.train.tuning.study import RESULT, FileLock, Search, TopThirdPruner, _mean_error


@pytest.mark.usefixtures("unchecked")
def test_the_error_of_a_candidate_is_the_mean_at_the_epoch():
    candidate = SimpleNamespace(
        errors=[np.array([1.0, 3.0]), np.array([2.0, 4.0]), np.array([np.nan, 1.0])]
    )
    assert [_mean_error(candidate, epoch) for epoch in (1, 2, 3)] == [2.0, 3.0, float("inf")]


@pytest.mark.usefixtures("unchecked")
def test_a_round_records_each_trial_at_the_epoch_where_it_ended(tmp_path):
    """Of three candidates of nine epochs the best goes on after the first; the report of every rung
    but the last is kept.
    """
    lanes = lambda start: [np.array([start - epoch, start + epoch / 2]) for epoch in range(9)]
    search = Search(None, {}, tmp_path, 3, 2, 1, 1, 3, np.zeros(2, np.uint32))
    study = optuna.create_study(pruner=TopThirdPruner())
    vars(search).update(study=study, trainer=SimpleNamespace(train_until=lambda *_: None))
    candidates = [
        SimpleNamespace(
            setting=SimpleNamespace(epochs=9), errors=lanes(start), losses=lanes(-start)
        )
        for start in (30.0, 10.0, 20.0)
    ]
    search._run_round([(study.ask(), c) for c in candidates], lambda: None)
    trials = study.get_trials()
    assert [t.state for t in trials] == [TrialState.PRUNED, TrialState.COMPLETE, TrialState.PRUNED]
    # means after the epochs 1, 3 and 9, counted from 0
    assert [t.intermediate_values for t in trials] == [{0: 30.0}, {0: 10.0, 1: 9.5}, {0: 20.0}]
    assert trials[1].value == 8.0
    results = [t.user_attrs[RESULT] for t in trials]
    assert [r["lane_errors"] for r in results] == [[30.0, 30.0], [2.0, 14.0], [20.0, 20.0]]
    assert [len(r["errors"]) for r in results] == [1, 9, 1]
    assert results[1]["errors"] == [10 - epoch / 4 for epoch in range(9)]
    assert results[1]["losses"] == [-10 - epoch / 4 for epoch in range(9)]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")
@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (b"", b""),
        (b"{", b""),
        (b"{}\n", b"{}\n"),
        (b"{}\n{", b"{}\n"),
        (b"{}\n{}\n{}", b"{}\n{}\n"),
        (b"{}\n{}\n", b"{}\n{}\n"),
    ],
)
def test_the_lock_cuts_a_line_that_was_not_finished(tmp_path, written, kept):
    path = tmp_path / "study.log"
    path.write_bytes(written)
    lock = FileLock(path)
    assert lock.acquire()
    lock.release()
    assert path.read_bytes() == kept
