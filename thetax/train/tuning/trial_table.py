"""What a search has to show: its trials, the best of them, and the simplest that is as good."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .search_space import Setting


class Trial(NamedTuple):
    """A setting that was tried: its mean error and the standard error over folds and restarts, and
    how it went.

    The error of a trial that was stopped early is that of the moment it was stopped.
    """

    number: int
    setting: Setting
    error: float
    spread: float
    stopped: bool
    curve: Float[np.ndarray, " epochs"]
    seconds: float


class Standing(NamedTuple):
    """How far a search has come; `trials` are those that have ended."""

    trials: list[Trial]
    running: int
    wanted: int
    seconds: float


def winner(trials: Sequence[Trial]) -> Trial:
    """The lowest error among the trials that went to their end, the earlier of two that are equal.

    >>> trial = lambda n, e, stopped: Trial(n, Setting(), e, 0.01, stopped, np.array([e]), 0.0)
    >>> winner([trial(0, 0.3, False), trial(1, 0.1, True), trial(2, 0.2, False)]).number
    2
    """
    if not (whole := [trial for trial in trials if not trial.stopped]):
        raise ValueError("tune: no trial went to its end; ask for more trials.")
    return min(whole, key=lambda trial: (trial.error, trial.number))


def simplest(trials: Sequence[Trial], size: Callable[[Setting], int]) -> Trial:
    """The smallest network within one standard error of the best (Breiman et al. 1984).

    >>> small, large = Setting(width=8), Setting(width=64)
    >>> trials = [
    ...     Trial(n, s, e, 0.02, False, np.array([e]), 0.0)
    ...     for n, s, e in [(0, small, 0.11), (1, large, 0.1)]
    ... ]
    >>> simplest(trials, lambda setting: setting.width).number
    0
    """
    best = winner(trials)
    near = [
        trial for trial in trials if not trial.stopped and trial.error <= best.error + best.spread
    ]
    return min(near, key=lambda trial: (size(trial.setting), trial.error, trial.number))
