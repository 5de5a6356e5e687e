"""Hyper-parameter tuning on the digits with sixty trials, against scikit-learn on the same folds.

Both search the space of `thetax tune digits` with two processes and train the best setting on all
data. Scikit-learn's `MLPClassifier` has no dropout, label smoothing, ensembles or learning rate
decay; its settings are sampled from the same space, with the same penalty (alpha = weight decay ×
batch size) and its own early stopping.
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
from thetax.train import Choice, Range, Setting, TuningTask, k_folds, tune
from thetax.train.tuning.parallel import ParallelTrainer

from .row import Result, Row, library

TRIALS, FOLDS, WORKERS = 60, 5, 2
SEEDS = (20, 21, 22, 23)  # of the splits, none of them used to select the space


class SearchResult(NamedTuple):
    """The time of a search, and the test error of its model in percent."""

    seconds: float
    error: float


@cache
def task(seed: int) -> TuningTask:
    """The digits, with the split of the recipe."""
    return find_tunable("digits").task(jr.key(seed))


@cache
def programs(seed: int) -> Any:
    """A temporary folder for the compilation cache."""
    return tempfile.TemporaryDirectory(prefix="bench-")


@cache
def ours(seed: int, warm: bool) -> SearchResult:
    """Our search, with an empty compilation cache or with that of a first search."""
    if warm:
        ours(seed, False)
    before = getattr(jax.config, "jax_compilation_cache_dir", None)
    jax.config.update("jax_compilation_cache_dir", programs(seed).name)
    start = time.perf_counter()
    result = tune(
        task(seed),
        find_tunable("digits").space,
        trials=TRIALS,
        folds=FOLDS,
        workers=WORKERS,
        key=jr.key(seed),
    )
    seconds = time.perf_counter() - start
    jax.config.update("jax_compilation_cache_dir", before)
    jax.clear_caches()
    assert len(result.trials) == TRIALS
    assert result.test_error is not None
    return SearchResult(seconds, 100 * result.test_error)


def sample_settings(seed: int) -> list[Setting]:
    """Random settings of our space."""
    rng = np.random.default_rng(seed)
    space = find_tunable("digits").space

    def sample(values: Any) -> Any:
        if isinstance(values, Choice):
            return values.options[rng.integers(len(values.options))]
        assert isinstance(values, Range)
        if values.is_integer:
            return int(rng.integers(int(values.low), int(values.high) + 1))
        if values.log:
            return float(np.exp(rng.uniform(np.log(values.low), np.log(values.high))))
        return float(rng.uniform(values.low, values.high))

    return [
        Setting(**{name: sample(values) for name, values in space.items()}) for _ in range(TRIALS)
    ]


def flat(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images as rows."""
    return np.asarray(batch[0]).reshape(len(batch[0]), -1), np.asarray(batch[1])


@cache
def theirs(seed: int) -> SearchResult:
    """Scikit-learn's search."""
    xs, ys = flat(task(seed).train)
    folds = [
        (fold.train, fold.valid) for fold in k_folds(len(ys), FOLDS, key=jr.key(seed), stratify=ys)
    ]
    grid = [
        {name: [value] for name, value in _sklearn_settings(setting).items()}
        for setting in sample_settings(seed)
    ]
    search = library("sklearn.model_selection").RandomizedSearchCV(
        _classifier(seed), grid, n_iter=TRIALS, cv=folds, n_jobs=WORKERS, random_state=seed
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence
        search.fit(xs, ys)
    seconds = time.perf_counter() - start
    test = flat(task(seed).test)
    return SearchResult(seconds, 100 * (1 - search.score(*test)))


def _classifier(seed: int) -> Any:
    return library("sklearn.neural_network").MLPClassifier(solver="adam", random_state=seed)


def _sklearn_settings(s: Setting) -> dict[str, Any]:
    """A setting in the names of scikit-learn."""
    settings = {
        "hidden_layer_sizes": s.hidden,
        "learning_rate_init": s.learning_rate,
        "batch_size": s.batch_size,
    }
    return settings | {"alpha": s.weight_decay * s.batch_size, "max_iter": s.epochs}


def agree() -> None:
    """Raises unless both sides have about the same error for a setting without dropout."""
    setting = Setting(
        width=64, depth=1, weight_decay=1e-4, learning_rate=3e-3, batch_size=32, epochs=30
    )
    xs, ys = flat(task(0).train)
    folds = k_folds(len(ys), FOLDS, key=jr.key(0), stratify=ys)
    trainer = ParallelTrainer(task(0), folds, jr.key(0), use_dropout=False)
    candidate = trainer.init_candidate(setting)
    trainer.train_until([candidate], lambda s: s.epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = library("sklearn.model_selection").cross_val_score(
            _classifier(0).set_params(**_sklearn_settings(setting)),
            xs,
            ys,
            cv=[(fold.train, fold.valid) for fold in folds],
        )
    ours_error = float(np.mean(candidate.errors[-1]))
    theirs_error = 1 - float(np.mean(scores))
    assert abs(ours_error - theirs_error) < 0.012, (
        f"{ours_error:.4f} against {theirs_error:.4f}"
    )  # three standard errors of the difference


def describe() -> str:
    """A description of the work."""
    return (
        f"{TRIALS} settings of eight parameters, {FOLDS} folds of 1,438 digits, {WORKERS} "
        "processes; the error is that of the best setting on 359 test digits. Scikit-learn has no "
        "dropout and no label smoothing."
    )


def _seeds(measure: Any) -> Any:
    """The next seed at every turn, after a warm-up."""
    turns = counting(-1)
    return lambda: measure(SEEDS[max(0, next(turns)) % len(SEEDS)])


def error(measure: Any) -> Any:
    """The mean test error over the seeds."""
    return lambda: float(np.mean([measure(seed).error for seed in SEEDS]))


def remark(result: Result) -> str:
    """The errors of each seed."""
    errors = [f"{ours(seed, False).error:.2f} against {theirs(seed).error:.2f}" for seed in SEEDS]
    return f"test errors in percent, ours against theirs: {'; '.join(errors)}"


def rows() -> list[Row]:
    """Seconds with a cold and with a warm compilation cache, and the test error in percent."""
    peer = "scikit-learn RandomizedSearchCV"
    cold = partial(ours, warm=False)
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
        timed("cold", cold),
        timed("warm", partial(ours, warm=True)),
        Row(
            "test error",
            peer,
            error(cold),
            error(theirs),
            "%",
            agree,
            pairs=1,
            target=1.0,
            remark=remark,
        ),
    ]
