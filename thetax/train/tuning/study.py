"""The hyper-parameter search: Optuna proposes trials, which are trained in parallel and pruned by
successive halving.

A round asks Optuna for several candidates of one shape. After 1/9 and after 1/3 of its epochs each
reports its error, and it continues only if it is among the best third of its round and of all
trials so far (successive halving: Jamieson & Talwalkar 2016, Li et al. 2018). The study is a
journal file that several processes share; a process that is killed loses only the trials it was
training.
"""

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optuna
from jaxtyping import UInt
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

try:
    import fcntl
except ImportError:  # Windows: use Optuna's own lock
    fcntl = None

from .cross_validation import k_folds, standard_error
from .parallel import Candidate, ParallelTrainer, TuningTask
from .search_space import SHAPE_PARAMETERS, Choice, Range, Setting, max_value
from .trial_table import Trial, TuningProgress

optuna.logging.set_verbosity(optuna.logging.WARNING)
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
RUNG_FRACTIONS = (1 / 9, 1 / 3)  # of the epochs, after which trials are compared
KEEP_FRACTION = 1 / 3
STUDY_NAME = "tune"
RESULT = "result"  # the attribute of a trial in the study that holds its errors and losses


class FileLock:
    """A file lock that the system releases when the process ends, however it ends.

    Taking it also repairs the guarded file: a line that a killed process left half-written is cut.
    """

    def __init__(self, path: Path):
        self.path, self.descriptor = path, -1

    def acquire(self) -> bool:
        """Waits for the lock and repairs the file."""
        self.descriptor = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)  # type: ignore[union-attr]
        if self.path.exists():
            self._repair()
        return True

    def _repair(self) -> None:
        with open(self.path, "rb+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            if end and file.read(1) != b"\n":  # the last write was interrupted
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)

    def release(self) -> None:
        """Releases the lock."""
        os.close(self.descriptor)


class TopThirdPruner(optuna.pruners.BasePruner):
    """Prunes a trial that is not among the best third of all trials that reported at its step."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether the trial should be stopped, by its last report."""
        step = trial.last_step
        if step is None:
            return False
        others = study.get_trials(deepcopy=False)
        reports = sorted(
            t.intermediate_values[step] for t in others if step in t.intermediate_values
        )
        return (
            trial.intermediate_values[step] > reports[math.ceil(KEEP_FRACTION * len(reports)) - 1]
        )


@contextlib.contextmanager
def _ignore_experimental_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


@dataclass(frozen=True, eq=False)
class Search:
    """A search as each worker process gets it; the folder holds the study."""

    task: TuningTask
    space: dict[str, Any]
    folder: Path
    trials: int
    folds: int
    repeats: int
    restarts: int
    round_size: int  # candidates that are trained together, at most
    key_data: UInt[np.ndarray, "..."]

    @cached_property
    def trainer(self) -> ParallelTrainer:
        """The trainer of candidates, with the same folds in every process."""
        key_folds, key = jr.split(jr.wrap_key_data(jnp.asarray(self.key_data)))
        ys = np.asarray(jax.tree.leaves(self.task.train)[-1])
        is_classification = np.issubdtype(ys.dtype, np.integer) and ys.ndim == 1
        folds = k_folds(
            len(ys),
            self.folds,
            stratify=ys if is_classification else None,
            repeats=self.repeats,
            key=key_folds,
        )
        # An accelerator needs many lanes to be busy.
        slots = 1 if jax.default_backend() == "cpu" else self.round_size
        return ParallelTrainer(
            self.task,
            folds,
            key,
            self.restarts,
            slots,
            use_dropout=max_value(self.space, "dropout") > 0,
            classes=self._classes,
        )

    @property
    def _classes(self) -> int:
        """The number of classes to smooth labels over: the network's outputs, or 0 if the space has
        no label smoothing.
        """
        if max_value(self.space, "label_smoothing") == 0:
            return 0
        xs, ys = self.task.train
        model = self.task.make(Setting().hidden, dropout=0.0, key=jr.key(0))
        outputs = jax.eval_shape(model, xs[0]).shape
        if not np.issubdtype(ys.dtype, np.integer) or len(outputs) != 1 or outputs[0] < 2:
            raise ValueError(
                "tune: label_smoothing needs integer labels and a network with one output per "
                f"class, for two or more classes; got labels of dtype {ys.dtype} and an output of "
                f"shape {outputs}. Leave label_smoothing at 0."
            )
        return outputs[0]

    @cached_property
    def study(self) -> optuna.Study:
        """The Optuna study in the folder; created if there is none."""
        path = self.folder / "study.log"
        lock = FileLock(path) if fcntl is not None else None
        with _ignore_experimental_warnings():
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))  # type: ignore[arg-type]
            exists = STUDY_NAME in optuna.get_all_study_names(storage)
            open_study = optuna.load_study if exists else optuna.create_study
            return open_study(storage=storage, study_name=STUDY_NAME, pruner=TopThirdPruner())

    @cached_property
    def distributions(self) -> dict[str, Any]:
        """The space as Optuna distributions, without the hyper-parameters that are fixed."""
        distributions: dict[str, Any] = {}
        for name, domain in self.space.items():
            if isinstance(domain, Choice):
                distributions[name] = CategoricalDistribution(domain.options)
            elif isinstance(domain, Range):
                kind = IntDistribution if domain.is_integer else FloatDistribution
                distributions[name] = kind(domain.low, domain.high, log=domain.log)  # type: ignore[arg-type]
        return distributions

    def setting(self, params: dict[str, Any]) -> Setting:
        """The setting of a trial with these searched hyper-parameters."""
        fixed = {
            name: domain for name, domain in self.space.items() if name not in self.distributions
        }
        return Setting(**fixed | params)

    def progress(self, began: float) -> TuningProgress:
        """The finished trials in the order in which they finished, and the number of running
        ones.
        """
        trials = self.study.get_trials(deepcopy=False)
        finished = sorted(
            (t for t in trials if t.state in FINISHED),
            key=lambda t: (t.datetime_complete, t.number),
        )
        running = sum(t.state == TrialState.RUNNING for t in trials)
        seconds = time.monotonic() - began
        return TuningProgress([self._trial(t) for t in finished], running, self.trials, seconds)

    def _trial(self, t: FrozenTrial) -> Trial:
        result = t.user_attrs[RESULT]
        return Trial(
            t.number,
            self.setting(t.params),
            error=float("inf") if t.value is None else t.value,
            standard_error=standard_error(np.array(result["lane_errors"])),
            stopped=t.state == TrialState.PRUNED,
            curve=np.array(result["errors"]),
            seconds=result["seconds"],
        )

    def fail_running_trials(self) -> None:
        """Marks running trials as failed: their process is gone. Others will replace them."""
        for trial in self.study.get_trials(states=(TrialState.RUNNING,), deepcopy=False):
            self.study.tell(trial.number, state=TrialState.FAIL)

    def importance(self) -> dict[str, float]:
        """Importance of each hyper-parameter: the share of the variance of the error it explains
        (fANOVA: Hutter et al. 2014).
        """
        finite = [
            t
            for t in self.study.get_trials(deepcopy=False)
            if t.state in FINISHED and np.isfinite(t.value or 0)
        ]
        if len(finite) < 4 or len({t.value for t in finite}) < 2 or len(self.distributions) < 2:
            return {}
        unpruned = optuna.create_study()  # pruned trials count too, with the error they had
        for t in finite:
            unpruned.add_trial(
                optuna.trial.create_trial(
                    params=t.params, distributions=t.distributions, value=t.value
                )
            )
        return optuna.importance.get_param_importances(
            unpruned, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )

    def ask(self) -> list[optuna.Trial]:
        """The trials of the next round, all of one shape; none when all have been proposed."""
        with contextlib.ExitStack() as stack, _ignore_experimental_warnings():
            if fcntl is not None:
                ask_lock = FileLock(self.folder / ".asking")
                ask_lock.acquire()
                stack.callback(ask_lock.release)
            trials = self.study.get_trials(deepcopy=False)
            remaining = self.trials - sum(
                t.state in (*FINISHED, TrialState.RUNNING) for t in trials
            )
            if remaining < 1:
                return []
            seed = (int(self.key_data.ravel()[-1]) + len(trials)) % 2**32
            tpe_sampler = lambda n_random: optuna.samplers.TPESampler(
                n_startup_trials=n_random, multivariate=True, seed=seed
            )
            # A round has one shape, so shapes are sampled rarely: explore them for longer.
            self.study.sampler = tpe_sampler(self.trials // 2)
            first = self.study.ask(self.distributions)
            shape = {
                name: value for name, value in first.params.items() if name in SHAPE_PARAMETERS
            }
            self.study.sampler = optuna.samplers.PartialFixedSampler(
                shape, tpe_sampler(2 * self.round_size)
            )
            # The last rounds are shorter, so that all workers finish at about the same time.
            n_trials = min(self.round_size, math.ceil(remaining / 2))
            return [first] + [self.study.ask(self.distributions) for _ in range(n_trials - 1)]

    def run_trials(self, on_progress: Callable[[], None] = lambda: None) -> None:
        """Runs round after round until there are enough trials.

        `on_progress` is called whenever trials have started or finished.
        """
        while trials := self.ask():
            on_progress()
            candidates = [
                (trial, self.trainer.init_candidate(self.setting(trial.params))) for trial in trials
            ]
            self._run_round(candidates, on_progress)

    def _run_round(
        self, alive: list[tuple[optuna.Trial, Candidate]], on_progress: Callable[[], None]
    ) -> None:
        """Trains a round to each rung in turn and stops the trials that fall behind."""
        began = time.monotonic()
        size = len(alive)
        for rung, fraction in enumerate((*RUNG_FRACTIONS, 1.0)):
            until = lambda setting: max(1, round(fraction * setting.epochs))  # noqa: B023
            self.trainer.train_until([c for _, c in alive], until)
            seconds = (time.monotonic() - began) / size
            errors = [_mean_error(c, until(c.setting)) for _, c in alive]
            if fraction < 1:
                for (trial, _), error in zip(alive, errors):
                    trial.report(error, rung)
            kept = sorted(errors)[: max(1, round(KEEP_FRACTION * len(errors)))]
            ends = [
                fraction == 1 or error > kept[-1] or trial.should_prune()
                for (trial, _), error in zip(alive, errors)
            ]
            for (trial, c), end in zip(alive, ends):
                if end:
                    self._finish_trial(trial, c, until(c.setting), seconds, stopped=fraction < 1)
            alive = [pair for pair, end in zip(alive, ends) if not end]
            on_progress()

    def _finish_trial(
        self, trial: optuna.Trial, c: Candidate, epoch: int, seconds: float, *, stopped: bool
    ) -> None:
        result = {
            "lane_errors": [float(value) for value in c.errors[epoch - 1]],
            "errors": [float(np.mean(row)) for row in c.errors[:epoch]],
            "losses": [float(np.mean(row)) for row in c.losses[:epoch]],
            "seconds": round(seconds, 3),
        }
        trial.set_user_attr(RESULT, result)
        if stopped:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, _mean_error(c, epoch))


def _mean_error(c: Candidate, epoch: int) -> float:
    """The mean error of a candidate's lanes; infinite if training has diverged."""
    mean = float(np.mean(c.errors[epoch - 1]))
    return mean if np.isfinite(mean) else float("inf")
