"""The HTML report of a hyperparameter search: the best trials, the progress of the search, all
trials in parallel coordinates, and the importance of each hyperparameter.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .. import files as disk
from ..plot.tuning import ParallelCoordinates, ParameterImportance, learning_curves, search_progress
from ..train import Setting, Trial, TuningResult
from .figure import render
from .page import Section, page

MAX_SHOWN_TRIALS = 10  # trials in the table


def report_search(
    result: TuningResult,
    folder: str | Path,
    *,
    title: str = "Hyperparameter search",
    facts: Mapping[str, Any],
) -> Path:
    """Writes `report.html` and `figures/*.png` of a search into its folder, and returns the path of
    the page.
    """
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    sections = [_best(result)]
    for name, heading, description, drawable in _figures(result):
        svg, png = render(drawable, name, escape(heading))
        disk.write(folder / "figures" / f"{name}.png", png)
        sections.append(Section(name, heading, description, figure=svg))
    path = folder / "report.html"
    disk.write(
        path,
        page(
            title=title,
            summary=_summary(result),
            table=_table(result),
            facts=facts,
            sections=sections,
        ),
    )
    return path


def _summary(result: TuningResult) -> dict[str, str]:
    stopped = sum(trial.stopped for trial in result.trials)
    summary = (
        {} if result.test_error is None else {"test error": f"{100 * result.test_error:.2f} %"}
    )
    best = result.best
    summary |= {"validation error": f"{100 * best.error:.2f} ± {100 * best.standard_error:.2f} %"}
    return summary | {
        "trials": f"{len(result.trials)}, {stopped} stopped early",
        "time": f"{result.seconds:.1f} s",
    }


def _table(result: TuningResult) -> dict[str, dict[str, float]]:
    rows = {"best": result.best, "simplest within one standard error": result.simplest}
    parts = lambda t: {
        "trial": t.number,
        "validation error %": 100 * t.error,
        "layers": t.setting.depth,
    }
    return {
        name: {key: float(value) for key, value in parts(t).items()} for name, t in rows.items()
    }


def format_setting(setting: Setting) -> dict[str, str]:
    """The hyperparameters as text, with three significant digits.

    >>> format_setting(Setting())["learning_rate"]
    '0.001'
    """
    return {name: f"{value:.3g}" for name, value in setting._asdict().items()}


def best_trials(trials: Sequence[Trial], n_trials: int = MAX_SHOWN_TRIALS) -> list[Trial]:
    """The trials of lowest error, completed ones before those that were stopped early."""
    return sorted(trials, key=lambda trial: (trial.stopped, trial.error, trial.number))[:n_trials]


def _best(result: TuningResult) -> Section:
    rows = [
        {
            "trial": str(t.number),
            "error %": f"{100 * t.error:.2f}",
            "±": f"{100 * t.standard_error:.2f}",
            **format_setting(t.setting),
            "": "stopped early" if t.stopped else "",
        }
        for t in best_trials(result.trials)
    ]
    description = (
        "The trials with the lowest validation error: the mean over folds and restarts, ± its "
        "standard error. Differences smaller than the standard error are noise; among such "
        "settings prefer the simplest."
    )
    return Section("best", "Best trials", description, rows=rows)


def _figures(result: TuningResult) -> list[tuple[str, str, str, Any]]:
    figures: list[tuple[str, str, str, Any]] = [
        (
            "progress",
            "Progress of the search",
            "Validation error of each trial, in the order in which they finished, and the best so "
            "far. A trial that was stopped early is shown with its error at that epoch.",
            search_progress(result.trials),
        ),
        (
            "settings",
            "Hyperparameters of the trials",
            "Parallel coordinates: each line is a trial, and each axis a hyperparameter or the "
            "error. Where the orange lines, the best trials, cross an axis close together, the "
            "error depends on that hyperparameter.",
            ParallelCoordinates(result.trials),
        ),
        (
            "curves",
            "Learning curves of the best trials",
            "Mean validation error over folds and restarts after each epoch.",
            learning_curves(result.trials),
        ),
    ]
    if result.importance:
        description = (
            "The share of the variance of the error over all trials that each hyperparameter "
            "explains on its own (fANOVA, Hutter et al. 2014). A hyperparameter that was searched "
            "over a narrow range explains little."
        )
        figures.insert(
            2,
            (
                "importance",
                "Hyperparameter importance",
                description,
                ParameterImportance(result.importance),
            ),
        )
    return figures
