r"""Hyper-parameter search by cross-validation: width, depth, weight decay, dropout, label
smoothing, learning rate, batch size and epochs.

The error of a setting is its mean over folds, repeats and restarts. Optuna proposes settings and
prunes trials that fall behind (`study`), those of equal shape are trained in parallel
(`parallel`), and the best setting is trained again on all data as an ensemble of several
initialisations. Optuna is imported only by a call of `tune`.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ... import tree
from ...check import expect_count
from ...layers import Ensemble, has_batch_norm
from ..loop.compiled import evaluate
from ..loop.run import DamagedRun, Run
from ..loop.settings import check_arrays
from .parallel import TuningTask
from .search_space import Setting, Space, check_space, max_value, space_to_json
from .trial_table import Trial, TuningProgress, best_trial, simplest_trial
from .worker import run_workers


@dataclass(frozen=True)
class TuningResult:
    """Result of a search: the best trial, the simplest within one standard error, and the model.

    `trials` are in the order in which they finished. `model` is an ensemble trained with the best
    setting on all training data, `losses` its training curve. `importance` is the share of the
    variance of the error that each hyper-parameter explains.
    """

    best: Trial
    simplest: Trial
    trials: list[Trial]
    model: Any
    test_error: float | None
    losses: Float[np.ndarray, " epochs"]
    importance: Mapping[str, float]
    seconds: float


def tune(
    task: TuningTask,
    space: Space,
    *,
    trials: int = 60,
    folds: int = 5,
    repeats: int = 1,
    restarts: int = 1,
    members: int = 10,
    round_size: int = 10,
    workers: int = 1,
    folder: str | Path | None = None,
    on_progress: Callable[[TuningProgress], None] = lambda progress: None,
    key: PRNGKeyArray,
) -> TuningResult:
    """Searches hyper-parameters by cross-validation, then trains the best setting on all data.

    `trials` is the number of settings to evaluate, each by `folds`-fold cross-validation, done
    `repeats` times, with `restarts` initialisations per fold. At most `round_size` trials of one
    shape are trained together. `workers` is the number of single-threaded processes that share the
    study. The returned model is an ensemble of `members` networks. With a `folder` the study is
    kept there, and the same call resumes it: no finished trial is lost, however the process ended.
    `on_progress` is called with the progress whenever trials have started or finished.

    >>> from thetax.models import MLP
    >>> from thetax.train import Range
    >>> xs = jr.normal(jr.key(0), (60, 2))
    >>> make = lambda hidden, dropout, key: MLP.init(2, *hidden, 2, dropout=dropout, key=key)
    >>> task = TuningTask((xs, (xs[:, 0] > 0).astype(jnp.int32)), make)
    >>> result = tune(
    ...     task,
    ...     {
    ...         "learning_rate": Range(1e-3, 1e-1, log=True),
    ...         "width": 8,
    ...         "epochs": 30,
    ...         "batch_size": 16,
    ...     },
    ...     trials=4,
    ...     folds=3,
    ...     members=2,
    ...     key=jr.key(1),
    ... )
    >>> len(result.trials), result.best.setting.width, result.best.error < 0.3
    (4, 8, True)
    """
    space = check_space(space)
    expect_count(
        "tune",
        trials=trials,
        restarts=restarts,
        members=members,
        round_size=round_size,
        workers=workers,
    )
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="thetax-")))
        counts = {"folds": folds, "repeats": repeats, "restarts": restarts}
        search = _check_search(
            task, space, folder, key, trials=trials, round_size=round_size, **counts
        )
        settings = {
            "task": task.name,
            "space": space_to_json(space),
            **counts,
            "key": search.key_data.tolist(),
        }
        lock = Run(folder).lock(settings)
        stack.callback(lambda: lock is None or os.close(lock))
        _run_search(search, workers, lambda: on_progress(search.progress(began)))
        finished = search.progress(began).trials
        best = best_trial(finished)
        run = Run(folder / f"trial-{best.number}-of-{members}")
        model, losses = _train_best(search, best, members, run)
        n_parameters = lambda s: tree.size(
            jax.eval_shape(partial(task.make, s.hidden, dropout=0.0), key=key)
        )
        test_error = None
        if task.test is not None:
            test_error = evaluate(model, task.test, {"error": task.metric})["error"]
        return TuningResult(
            best,
            simplest_trial(finished, n_parameters),
            finished,
            model,
            test_error,
            losses,
            search.importance(),
            seconds=time.monotonic() - began,
        )


def _check_search(
    task: TuningTask, space: Any, folder: Path, key: PRNGKeyArray, **counts: int
) -> Any:
    """The `Search`, after the task, the data and the space have been checked."""
    from .study import Search  # imports Optuna

    search = Search(task, space, folder, key_data=np.asarray(jr.key_data(key)), **counts)  # type: ignore[arg-type]
    model = jax.eval_shape(partial(task.make, Setting().hidden, dropout=0.0), key=key)
    if has_batch_norm(model):
        raise ValueError(
            "tune: networks with batch norms are not supported, as BatchNorm depends on the whole "
            "batch. Tune a network without it."
        )
    n = check_arrays("train", task.train, model)
    if task.test is not None:
        check_arrays("test", task.test, model)
    smallest = min(len(fold.train) for fold in search.trainer.folds)
    if (batch_size := max_value(space, "batch_size")) > smallest:
        raise ValueError(
            f"tune: batch_size must be at most {smallest}, the training examples of a fold (of {n} "
            f"in all); got {batch_size}."
        )
    return search


def _run_search(search: Any, workers: int, on_progress: Callable[[], None]) -> None:
    """Runs trials until the study has them all; trials of a killed process are run again."""
    before = -1
    try:
        while (finished := len(search.progress(0.0).trials)) < search.trials:
            if finished == before:
                raise RuntimeError(
                    f"tune: the workers exited after {finished} of {search.trials} trials."
                )
            before = finished
            search.fail_running_trials()
            if workers == 1:
                search.run_trials(on_progress)
            else:
                run_workers(search, workers, on_progress)
            on_progress()
    finally:
        search.fail_running_trials()


def _train_best(search: Any, best: Trial, members: int, run: Run) -> tuple[Ensemble, np.ndarray]:
    """Trains an ensemble with the best setting on all data, or loads it from the run's folder."""
    make, s, pool = search.task.make, best.setting, search.task.pool
    key = jr.fold_in(jr.wrap_key_data(jnp.asarray(search.key_data)), 1)
    shape = jax.eval_shape(
        partial(Ensemble.init, partial(make, s.hidden, dropout=s.dropout), members, pool=pool),
        key=key,
    )
    with suppress(DamagedRun):  # then train it again
        if run.is_finished:
            model, outcome = run.load_result(like=shape)
            return model, np.array(outcome["losses"])
    trained = search.trainer.train_on_all(s, members=members, key=key)
    model = jax.tree.unflatten(jax.tree.structure(shape), jax.tree.leaves(trained.state.model))
    losses = np.mean(trained.losses, axis=1)
    run.folder.mkdir(parents=True, exist_ok=True)
    run.finish(model, {"setting": s._asdict(), "losses": losses})
    return model, losses
