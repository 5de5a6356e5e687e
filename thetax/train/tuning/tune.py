r"""Choosing width, depth, decay, dropout, smoothing, rate, batch and epochs by cross-validation,
many at a time.

The error of a setting is its mean over folds, repeats and restarts. Candidates of equal shape train
together (`lanes`), Optuna proposes them and those without hope are stopped early (`study`), and the
winner is trained again on everything, from several starts whose predictions are averaged. Optuna is
imported only by a call of `tune`.
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
from ...layers import Ensemble, has_batch_norm
from ..loop.compiled import evaluate
from ..loop.run import Damaged, Run
from ..loop.settings import check_arrays
from .parallel import Task
from .search_space import Setting, Space, check_space, described, largest
from .trial_table import Standing, Trial, simplest, winner
from .worker import share


@dataclass(frozen=True)
class Tuned:
    """The best setting, the simplest that is as good, all trials in the order in which they ended,
    and the model.

    `losses` are those of the model's training, by the best setting, on everything; `importance` is
    the share of the variation of the error that each parameter explains.
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
    task: Task,
    space: Space,
    *,
    trials: int = 60,
    folds: int = 5,
    repeats: int = 1,
    restarts: int = 1,
    members: int = 10,
    together: int = 10,
    workers: int = 1,
    key: PRNGKeyArray,
    folder: str | Path | None = None,
    watch: Callable[[Standing], None] = lambda standing: None,
) -> Tuned:
    """Searches the space by cross-validation until `trials` candidates are judged, then trains the
    best on everything.

    At most `together` candidates of one shape make a round. `workers` are processes of one thread
    each that share the study. `members` networks, whose predictions are averaged, are the model in
    the end. With a `folder` the study is kept there and the same call goes on where it stood:
    however the process ended, no finished trial is lost.

    >>> from thetax.models import MLP
    >>> from thetax.train import Range
    >>> xs = jr.normal(jr.key(0), (60, 2))
    >>> make = lambda hidden, dropout, key: MLP.init(2, *hidden, 2, dropout=dropout, key=key)
    >>> task = Task((xs, (xs[:, 0] > 0).astype(jnp.int32)), make)
    >>> found = tune(
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
    >>> len(found.trials), found.best.setting.width, found.best.error < 0.3
    (4, 8, True)
    """
    space = check_space(space)
    counts = {
        "trials": trials,
        "restarts": restarts,
        "members": members,
        "together": together,
        "workers": workers,
    }
    for name, value in counts.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"tune: {name} must be a whole number of at least 1; got {value!r}.")
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="thetax-")))
        asked = {"folds": folds, "repeats": repeats, "restarts": restarts}
        search = _search(task, space, folder, key, trials=trials, together=together, **asked)
        about = {
            "task": task.name,
            "space": described(space),
            **asked,
            "key": search.words.tolist(),
        }
        lock = Run(folder).claim(about)
        stack.callback(lambda: lock is None or os.close(lock))
        _run(search, workers, lambda: watch(search.standing(began)))
        found = search.standing(began).trials
        best = winner(found)
        run = Run(folder / f"trial-{best.number}-of-{members}")
        model, losses = _train(search, best, members, run)
        small = simplest(
            found,
            lambda s: tree.size(jax.eval_shape(partial(task.make, s.hidden, dropout=0.0), key=key)),
        )
        error = (
            None
            if task.test is None
            else evaluate(model, task.test, {"error": task.metric})["error"]
        )
        seconds = time.monotonic() - began
        return Tuned(best, small, found, model, error, losses, search.importance(), seconds)


def _search(task: Task, space: Any, folder: Path, key: PRNGKeyArray, **asked: int) -> Any:
    """The search, once everything that can be wrong with it has been looked at."""
    from .study import Search  # brings Optuna

    search = Search(task, space, folder, words=np.asarray(jr.key_data(key)), **asked)  # type: ignore[arg-type]
    model = jax.eval_shape(partial(task.make, Setting().hidden, dropout=0.0), key=key)
    if has_batch_norm(model):
        raise ValueError(
            "tune: batch norms see the examples of a batch together; tune a network without them."
        )
    n = check_arrays("train", task.train, model)
    if task.test is not None:
        check_arrays("test", task.test, model)
    least = min(len(part.train) for part in search.lanes.parts)
    if (batch_size := largest(space, "batch_size")) > least:
        raise ValueError(
            f"tune: batch_size={batch_size} is larger than the {least} of {n} examples that train "
            "in a fold."
        )
    return search


def _run(search: Any, workers: int, after: Callable[[], None]) -> None:
    """Until the study has all its trials; what a process that died had in hand is asked for
    again.
    """
    done = -1
    try:
        while (now := len(search.standing(0.0).trials)) < search.trials:
            if now == done:
                raise RuntimeError(
                    f"tune: the workers ended after {now} of {search.trials} trials."
                )
            done = now
            search.give_up()
            search.work(after) if workers == 1 else share(search, workers, after)
            after()
    finally:
        search.give_up()


def _train(search: Any, best: Trial, members: int, run: Run) -> tuple[Ensemble, np.ndarray]:
    """The best setting on everything, from several starts; kept in a folder, from which it is taken
    if it is there.
    """
    make, s, pool = search.task.make, best.setting, search.task.pool
    key = jr.fold_in(jr.wrap_key_data(jnp.asarray(search.words)), 1)
    shape = jax.eval_shape(
        partial(Ensemble.init, partial(make, s.hidden, dropout=s.dropout), members, pool=pool),
        key=key,
    )
    with suppress(Damaged):  # then it is trained again
        if run.done:
            model, told = run.finished(like=shape)
            return model, np.array(told["losses"])
    found = search.lanes.train_on_everything(s, members=members, key=key)
    model = jax.tree.unflatten(jax.tree.structure(shape), jax.tree.leaves(found.state.model))
    losses = np.mean(found.losses, axis=1)
    run.folder.mkdir(parents=True, exist_ok=True)
    run.finish(model, {"setting": s._asdict(), "losses": losses})
    return model, losses
