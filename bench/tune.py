"""A search of sixty settings on the digits against scikit-learn's, trial by trial, on the same
folds.

Both search the space of `thetax tune digits` with two processes, and train the winner on
everything. Scikit-learn's `MLPClassifier` has no dropout, no smoothing of labels and no averaging
of restarts, and its rate does not fall; else its settings are drawn from the same space, its
penalty is ours (alpha = decay × batch), and it may stop early as it does by itself.
"""

import tempfile
import time
import warnings
from functools import cache, partial
from itertools import count as counting
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np

from thetax.recipes import find_tunable
from thetax.train import Choice, Range, Setting, Task, folds, tune
from thetax.train.tuning.parallel import Lanes

from .row import Result, Row, library

TRIALS, FOLDS, WORKERS = 60, 5, 2
SEEDS = (20, 21, 22, 23)  # four ways to part the data, none of them seen when the space was chosen


class Found(NamedTuple):
    """What a search took, and how the model it found does on the test part."""

    seconds: float
    error: float


@cache
def task(seed: int) -> Task:
    """The digits, parted as the recipe parts them."""
    return find_tunable("digits").task(jr.key(seed))


@cache
def programs(seed: int) -> Any:
    """A folder for compiled programs, empty at first."""
    return tempfile.TemporaryDirectory(prefix="bench-")


@cache
def ours(seed: int, remembered: bool) -> Found:
    """Our search; the second time the programs of the first are there."""
    if remembered:
        ours(seed, False)
    before = getattr(jax.config, "jax_compilation_cache_dir", None)
    jax.config.update("jax_compilation_cache_dir", programs(seed).name)
    began = time.perf_counter()
    found = tune(
        task(seed),
        find_tunable("digits").space,
        trials=TRIALS,
        folds=FOLDS,
        workers=WORKERS,
        key=jr.key(seed),
    )
    spent = time.perf_counter() - began
    jax.config.update("jax_compilation_cache_dir", before)
    jax.clear_caches()
    assert len(found.trials) == TRIALS
    assert found.test_error is not None
    return Found(spent, 100 * found.test_error)


def draw(seed: int) -> list[Setting]:
    """Settings drawn at random from our space."""
    chance = np.random.default_rng(seed)
    space = find_tunable("digits").space

    def one(place: Any) -> Any:
        if isinstance(place, Choice):
            return place.options[chance.integers(len(place.options))]
        assert isinstance(place, Range)
        if place.whole:
            return int(chance.integers(int(place.low), int(place.high) + 1))
        if place.log:
            return float(np.exp(chance.uniform(np.log(place.low), np.log(place.high))))
        return float(chance.uniform(place.low, place.high))

    return [Setting(**{name: one(place) for name, place in space.items()}) for _ in range(TRIALS)]


def flat(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images as rows."""
    return np.asarray(batch[0]).reshape(len(batch[0]), -1), np.asarray(batch[1])


@cache
def theirs(seed: int) -> Found:
    """Scikit-learn's search."""
    xs, ys = flat(task(seed).train)
    parts = [(part.train, part.valid) for part in folds(len(ys), FOLDS, key=jr.key(seed), by=ys)]
    grid = [{name: [value] for name, value in _words(setting).items()} for setting in draw(seed)]
    search = library("sklearn.model_selection").RandomizedSearchCV(
        _classifier(seed), grid, n_iter=TRIALS, cv=parts, n_jobs=WORKERS, random_state=seed
    )
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it has not converged
        search.fit(xs, ys)
    spent = time.perf_counter() - began
    test = flat(task(seed).test)
    return Found(spent, 100 * (1 - search.score(*test)))


def _classifier(seed: int) -> Any:
    return library("sklearn.neural_network").MLPClassifier(solver="adam", random_state=seed)


def _words(s: Setting) -> dict[str, Any]:
    """A setting as scikit-learn has it."""
    words = {
        "hidden_layer_sizes": s.hidden,
        "learning_rate_init": s.learning_rate,
        "batch_size": s.batch_size,
    }
    return words | {"alpha": s.weight_decay * s.batch_size, "max_iter": s.epochs}


def agree() -> None:
    """Raises unless one setting, without dropout, has about the same error on the same folds on
    both sides.
    """
    setting = Setting(
        width=64, depth=1, weight_decay=1e-4, learning_rate=3e-3, batch_size=32, epochs=30
    )
    xs, ys = flat(task(0).train)
    parts = folds(len(ys), FOLDS, key=jr.key(0), by=ys)
    lanes = Lanes(task(0), parts, jr.key(0), thinned=False)
    candidate = lanes.begin(setting)
    lanes.advance([candidate], lambda s: s.epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = library("sklearn.model_selection").cross_val_score(
            _classifier(0).set_params(**_words(setting)),
            xs,
            ys,
            cv=[(part.train, part.valid) for part in parts],
        )
    here = float(np.mean(candidate.errors[-1]))
    there = 1 - float(np.mean(scores))
    assert abs(here - there) < 0.012, (
        f"{here:.4f} against {there:.4f}"
    )  # three standard errors of the difference


def count() -> str:
    """What is measured."""
    return (
        f"{TRIALS} settings of eight parameters, {FOLDS} folds of 1,438 digits, {WORKERS} "
        "processes; the error is that "
        "of the winner on 359 others. Scikit-learn has no dropout and no smoothing."
    )


def _seeds(measure: Any) -> Any:
    """One seed a turn; the warm-up is the first turn."""
    turns = counting(-1)
    return lambda: measure(SEEDS[max(0, next(turns)) % len(SEEDS)])


def error(measure: Any) -> Any:
    """The mean test error over the seeds."""
    return lambda: float(np.mean([measure(seed).error for seed in SEEDS]))


def remark(result: Result) -> str:
    """The errors one by one."""
    found = [f"{ours(seed, False).error:.2f} against {theirs(seed).error:.2f}" for seed in SEEDS]
    return f"test errors in percent, ours against theirs: {'; '.join(found)}"


def rows() -> list[Row]:
    """Seconds with programs compiled anew, seconds with those of an earlier run, and the test error
    in percent.
    """
    peer = "scikit-learn RandomizedSearchCV"
    apart = partial(ours, remembered=False)
    seconds = lambda measure: _seeds(lambda seed: measure(seed).seconds)
    timed = lambda name, measure: Row(
        f"60 trials, {name}",
        peer,
        seconds(measure),
        seconds(theirs),
        "s",
        agree,
        pairs=len(SEEDS),
        target=5.0,
        seconds=1.0,
    )
    return [
        timed("cold", apart),
        timed("warm", partial(ours, remembered=True)),
        Row(
            "test error",
            peer,
            error(apart),
            error(theirs),
            "%",
            agree,
            pairs=1,
            target=1.0,
            remark=remark,
        ),
    ]
