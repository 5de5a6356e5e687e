"""Trials of a hyper-parameter search: the best, and the simplest within one standard error."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .search_space import Setting


class Trial(NamedTuple):
    """An evaluated setting: its mean error over folds and restarts, and the standard error.

    The error of a trial that was stopped early is its error at that epoch.
    """

    number: int
    setting: Setting
    error: float
    standard_error: float
    stopped: bool  # early, because it was not among the best third
    curve: Float[np.ndarray, " epochs"]  # mean validation error after each epoch
    seconds: float


class TuningProgress(NamedTuple):
    """Progress of a search; `trials` holds the finished trials."""

    trials: list[Trial]
    running: int
    total: int
    seconds: float


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial with the lowest error among those not stopped early; the earlier one on a tie.

    >>> trial = lambda n, e, stopped: Trial(n, Setting(), e, 0.01, stopped, np.array([e]), 0.0)
    >>> best_trial([trial(0, 0.3, False), trial(1, 0.1, True), trial(2, 0.2, False)]).number
    2
    """
    if not (complete := [trial for trial in trials if not trial.stopped]):
        raise ValueError("tune: every trial was stopped early. Increase trials.")
    return min(complete, key=lambda trial: (trial.error, trial.number))


def simplest_trial(trials: Sequence[Trial], size: Callable[[Setting], int]) -> Trial:
    """The smallest network within one standard error of the best (Breiman et al. 1984).

    `size` is the number of parameters of the network with a setting.

    >>> small, large = Setting(width=8), Setting(width=64)
    >>> trials = [
    ...     Trial(n, s, e, 0.02, False, np.array([e]), 0.0)
    ...     for n, s, e in [(0, small, 0.11), (1, large, 0.1)]
    ... ]
    >>> simplest_trial(trials, lambda setting: setting.width).number
    0
    """
    best = best_trial(trials)
    threshold = best.error + best.standard_error
    near_best = [trial for trial in trials if not trial.stopped and trial.error <= threshold]
    return min(near_best, key=lambda trial: (size(trial.setting), trial.error, trial.number))
