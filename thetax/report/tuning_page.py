"""The page of a search: what was found, how the search went, where the good settings lie, and what
mattered.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .. import files as disk
from ..plot.tuning import Coordinates, ParameterImportance, course, learning_curves
from ..train import Setting, Trial, Tuned
from .figure import render
from .page import Section, page

MAX_SHOWN_TRIALS = 10  # trials in the table


def report_search(
    found: Tuned, folder: str | Path, *, title: str = "A search", facts: Mapping[str, Any]
) -> Path:
    """Writes `report.html` and `figures/*.png` of a search into its folder; gives the path of the
    page.
    """
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    sections = [_best(found)]
    for name, title_, says, result in _figures(found):
        svg, png = render(result, name, escape(title_))
        disk.write(folder / "figures" / f"{name}.png", png)
        sections.append(Section(name, title_, says, figure=svg))
    path = folder / "report.html"
    disk.write(
        path,
        page(
            title=title,
            summary=_summary(found),
            table=_table(found),
            facts=facts,
            sections=sections,
        ),
    )
    return path


def _summary(found: Tuned) -> dict[str, str]:
    stopped = sum(trial.stopped for trial in found.trials)
    told = {} if found.test_error is None else {"test error": f"{100 * found.test_error:.2f} %"}
    told |= {"validation error": f"{100 * found.best.error:.2f} ± {100 * found.best.spread:.2f} %"}
    return told | {
        "trials": f"{len(found.trials)}, {stopped} stopped early",
        "took": f"{found.seconds:.1f} s",
    }


def _table(found: Tuned) -> dict[str, dict[str, float]]:
    rows = {"best": found.best, "simplest within one standard error": found.simplest}
    parts = lambda t: {
        "trial": t.number,
        "validation error %": 100 * t.error,
        "layers": t.setting.depth,
    }
    return {
        name: {key: float(value) for key, value in parts(t).items()} for name, t in rows.items()
    }


def words(setting: Setting) -> dict[str, str]:
    """A setting in short numbers.

    >>> words(Setting())["learning_rate"]
    '0.001'
    """
    return {name: f"{value:.3g}" for name, value in setting._asdict().items()}


def top(trials: Sequence[Trial], count: int = MAX_SHOWN_TRIALS) -> list[Trial]:
    """The best trials, those that went to their end first."""
    return sorted(trials, key=lambda trial: (trial.stopped, trial.error, trial.number))[:count]


def _best(found: Tuned) -> Section:
    rows = [
        {
            "trial": str(t.number),
            "error %": f"{100 * t.error:.2f}",
            "±": f"{100 * t.spread:.2f}",
            **words(t.setting),
            "": "stopped" if t.stopped else "",
        }
        for t in top(found.trials)
    ]
    says = (
        "The error of a trial is its mean over the folds and restarts, ± its standard error. "
        "Between settings whose "
        "errors differ by less than that, chance decides; then take the simplest."
    )
    return Section("best", "The best trials", says, rows=rows)


def _figures(found: Tuned) -> list[tuple[str, str, str, Any]]:
    figures: list[tuple[str, str, str, Any]] = [
        (
            "course",
            "The course of the search",
            "Each point is a trial, in the order in which they ended. One that was stopped early "
            "shows the error it had then, which it would have lowered.",
            course(found.trials),
        ),
        (
            "settings",
            "Where the good settings lie",
            "Each line is a trial; where the orange ones cross an axis close together, that "
            "parameter is decided.",
            Coordinates(found.trials),
        ),
        (
            "curves",
            "Learning curves of the best",
            "The mean error on what was held out, after every epoch.",
            learning_curves(found.trials),
        ),
    ]
    if found.importance:
        says = (
            "The share of the variation of the error, over all trials, that each parameter "
            "explains by itself (fANOVA, "
            "Hutter et al. 2014). What was searched narrowly cannot matter much."
        )
        figures.insert(
            2, ("importance", "What mattered", says, ParameterImportance(found.importance))
        )
    return figures
