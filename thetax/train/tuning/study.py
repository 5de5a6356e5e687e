"""The search itself: Optuna proposes, the lanes train, what is hopeless is stopped, and a file
remembers.

A round asks for several candidates of one shape. After a ninth and after a third of their epochs
each reports its error, and goes on only if it is among the best third of its round and of all that
have come so far (successive halving: Jamieson & Talwalkar 2016, Li et al. 2018). The study is a
journal on disk, which several processes share; a process that dies loses the candidates it had in
hand and no others.
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
except ImportError:  # on Windows Optuna's own lock must do
    fcntl = None

from .cross_validation import folds, standard_error
from .parallel import Candidate, Lanes, Task
from .search_space import SHAPE, Choice, Range, Setting, largest
from .trial_table import Standing, Trial

optuna.logging.set_verbosity(optuna.logging.WARNING)
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
RUNGS = (1 / 9, 1 / 3)
KEPT = 1 / 3
NAME = "tune"


class Flock:
    """A lock that goes with the process, however that ends; the file it guards always ends with a
    whole line.
    """

    def __init__(self, path: Path):
        self.path, self.descriptor = path, -1

    def acquire(self) -> bool:
        """Waits for the lock; what a killed process left half-written is cut off."""
        self.descriptor = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)  # type: ignore[union-attr]
        if self.path.exists():
            self._mend()
        return True

    def _mend(self) -> None:
        with open(self.path, "rb+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            if end and file.read(1) != b"\n":  # a write was cut short
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)

    def release(self) -> None:
        """Lets the next one in."""
        os.close(self.descriptor)


class BestThird(optuna.pruners.BasePruner):
    """Stops a trial that is not among the best third of all that have reported at its step."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether the trial is to be stopped, by its last report."""
        step = trial.last_step
        if step is None:
            return False
        others = study.get_trials(deepcopy=False)
        reports = sorted(
            t.intermediate_values[step] for t in others if step in t.intermediate_values
        )
        return trial.intermediate_values[step] > reports[math.ceil(KEPT * len(reports)) - 1]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


@dataclass(frozen=True, eq=False)
class Search:
    """All that a process must know to take part in a search; the folder holds the study."""

    task: Task
    space: dict[str, Any]
    folder: Path
    trials: int
    folds: int
    repeats: int
    restarts: int
    together: int
    words: UInt[np.ndarray, "..."]  # the data of the key

    @cached_property
    def lanes(self) -> Lanes:
        """The programs; the same folds in every process."""
        key_folds, key = jr.split(jr.wrap_key_data(jnp.asarray(self.words)))
        ys = np.asarray(jax.tree.leaves(self.task.train)[-1])
        by = ys if np.issubdtype(ys.dtype, np.integer) and ys.ndim == 1 else None
        parts = folds(len(ys), self.folds, key=key_folds, by=by, repeats=self.repeats)
        slots = (
            1 if jax.default_backend() == "cpu" else self.together
        )  # an accelerator is idle with few
        acts = {"thinned": largest(self.space, "dropout") > 0, "classes": self._classes}
        return Lanes(self.task, parts, key, self.restarts, slots, **acts)

    @property
    def _classes(self) -> int:
        """Over how many classes labels are smoothed: the network's outputs, or 0 where the space
        has no smoothing.
        """
        if largest(self.space, "label_smoothing") == 0:
            return 0
        xs, ys = self.task.train
        model = self.task.make(Setting().hidden, dropout=0.0, key=jr.key(0))
        outputs = jax.eval_shape(model, xs[0]).shape
        if not np.issubdtype(ys.dtype, np.integer) or len(outputs) != 1 or outputs[0] < 2:
            raise ValueError(
                "tune: label_smoothing needs integer labels and a network with one output per "
                f"class, for two or more classes; here the labels are {ys.dtype} and the output "
                f"has shape {outputs}. Leave label_smoothing at 0."
            )
        return outputs[0]

    @cached_property
    def study(self) -> optuna.Study:
        """The study in the folder, begun if there is none."""
        path = self.folder / "study.log"
        lock = Flock(path) if fcntl is not None else None
        with _quiet():
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))  # type: ignore[arg-type]
            begun = NAME in optuna.get_all_study_names(storage)
            enter = optuna.load_study if begun else optuna.create_study
            return enter(storage=storage, study_name=NAME, pruner=BestThird())

    @cached_property
    def distributions(self) -> dict[str, Any]:
        """The space in Optuna's words; what is fixed is not searched."""
        found: dict[str, Any] = {}
        for name, place in self.space.items():
            if isinstance(place, Choice):
                found[name] = CategoricalDistribution(place.options)
            elif isinstance(place, Range):
                kind = IntDistribution if place.whole else FloatDistribution
                found[name] = kind(place.low, place.high, log=place.log)  # type: ignore[arg-type]
        return found

    def setting(self, params: dict[str, Any]) -> Setting:
        """The point of the space that a trial stands for."""
        fixed = {
            name: place for name, place in self.space.items() if name not in self.distributions
        }
        return Setting(**fixed | params)

    def standing(self, began: float) -> Standing:
        """The trials that have ended, in that order, and how many have not."""
        there = self.study.get_trials(deepcopy=False)
        ended = sorted(
            (t for t in there if t.state in FINISHED), key=lambda t: (t.datetime_complete, t.number)
        )
        running = sum(t.state == TrialState.RUNNING for t in there)
        return Standing(
            [self._trial(t) for t in ended], running, self.trials, time.monotonic() - began
        )

    def _trial(self, t: FrozenTrial) -> Trial:
        told = t.user_attrs["told"]
        error = float("inf") if t.value is None else t.value
        stopped = t.state == TrialState.PRUNED
        curve = np.array(told["curve"])
        spread = standard_error(np.array(told["each"]))
        return Trial(
            t.number, self.setting(t.params), error, spread, stopped, curve, told["seconds"]
        )

    def give_up(self) -> None:
        """Candidates that nobody trains any more are failed; others will be asked for in their
        place.
        """
        for trial in self.study.get_trials(states=(TrialState.RUNNING,), deepcopy=False):
            self.study.tell(trial.number, state=TrialState.FAIL)

    def importance(self) -> dict[str, float]:
        """How much of the variation of the error each parameter explains (fANOVA: Hutter et al.
        2014).
        """
        whole = [
            t
            for t in self.study.get_trials(deepcopy=False)
            if t.state in FINISHED and np.isfinite(t.value or 0)
        ]
        if len(whole) < 4 or len({t.value for t in whole}) < 2 or len(self.distributions) < 2:
            return {}
        plain = optuna.create_study()  # trials that were stopped count too, by the error they had
        for t in whole:
            plain.add_trial(
                optuna.trial.create_trial(
                    params=t.params, distributions=t.distributions, value=t.value
                )
            )
        return optuna.importance.get_param_importances(
            plain, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )

    def ask(self) -> list[optuna.Trial]:
        """The candidates of a round, all of one shape; none when enough have been asked for."""
        with contextlib.ExitStack() as stack, _quiet():
            if fcntl is not None:
                asking = Flock(self.folder / ".asking")
                asking.acquire()
                stack.callback(asking.release)
            there = self.study.get_trials(deepcopy=False)
            room = self.trials - sum(t.state in (*FINISHED, TrialState.RUNNING) for t in there)
            if room < 1:
                return []
            seed = (int(self.words.ravel()[-1]) + len(there)) % 2**32
            propose = lambda chance: optuna.samplers.TPESampler(
                n_startup_trials=chance, multivariate=True, seed=seed
            )
            self.study.sampler = propose(
                self.trials // 2
            )  # shapes come in few, so they are explored for longer
            first = self.study.ask(self.distributions)
            shape = {name: value for name, value in first.params.items() if name in SHAPE}
            self.study.sampler = optuna.samplers.PartialFixedSampler(
                shape, propose(2 * self.together)
            )
            many = min(
                self.together, math.ceil(room / 2)
            )  # towards the end rounds are short: all workers end together
            return [first] + [self.study.ask(self.distributions) for _ in range(many - 1)]

    def work(self, after: Callable[[], None] = lambda: None) -> None:
        """Trains round after round until there are trials enough; `after` is called whenever
        something has changed.
        """
        while asked := self.ask():
            after()
            self._round(
                [(trial, self.lanes.begin(self.setting(trial.params))) for trial in asked], after
            )

    def _round(
        self, alive: list[tuple[optuna.Trial, Candidate]], after: Callable[[], None]
    ) -> None:
        began = time.monotonic()
        size = len(alive)
        for rung, share in enumerate((*RUNGS, 1.0)):
            until = lambda setting: max(1, round(share * setting.epochs))  # noqa: B023
            self.lanes.advance([c for _, c in alive], until)
            seconds = (time.monotonic() - began) / size
            values = [_value(c, until(c.setting)) for _, c in alive]
            if share < 1:
                for (trial, _), value in zip(alive, values):
                    trial.report(value, rung)
            kept = sorted(values)[: max(1, round(KEPT * len(values)))]
            ends = [
                share == 1 or value > kept[-1] or t.should_prune()
                for (t, _), value in zip(alive, values)
            ]
            for (trial, c), end in zip(alive, ends):
                if end:
                    self._tell(trial, c, until(c.setting), seconds, stopped=share < 1)
            alive = [pair for pair, end in zip(alive, ends) if not end]
            after()

    def _tell(
        self, trial: optuna.Trial, c: Candidate, epoch: int, seconds: float, *, stopped: bool
    ) -> None:
        means = {
            name: [float(np.mean(row)) for row in getattr(c, name)[:epoch]]
            for name in ("errors", "losses")
        }
        each = [float(value) for value in c.errors[epoch - 1]]
        told = {
            "each": each,
            "curve": means["errors"],
            "losses": means["losses"],
            "seconds": round(seconds, 3),
        }
        trial.set_user_attr("told", told)
        if stopped:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, _value(c, epoch))


def _value(c: Candidate, epoch: int) -> float:
    """The mean error of a candidate's lanes; infinite where training has diverged."""
    mean = float(np.mean(c.errors[epoch - 1]))
    return mean if np.isfinite(mean) else float("inf")
