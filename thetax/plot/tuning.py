"""Figures of a hyperparameter search: its progress, the trials in parallel coordinates, learning
curves, and the importance of each hyperparameter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..train import Setting, Trial
from .chart import Chart, Panel
from .draw import new_figure, register_drawing
from .theme import Theme

LOG_SCALED = ("learning_rate", "weight_decay", "width", "batch_size")
N_BEST = 5  # trials that are highlighted


@dataclass(frozen=True)
class ParallelCoordinates:
    """Every trial as a line across its hyperparameters and its error; hyperparameters that do not
    vary are left out.
    """

    trials: Sequence[Trial]


@dataclass(frozen=True)
class ParameterImportance:
    """The share of the variance of the error that each hyperparameter explains."""

    shares: Mapping[str, float]


def search_progress(trials: Sequence[Trial]) -> Chart:
    """The error of each trial in the order in which they finished, and the best so far.

    >>> trial = lambda n, e, stopped: Trial(n, Setting(), e, 0.0, stopped, np.array([e]), 0.0)
    >>> panel = search_progress(
    ...     [trial(0, 0.3, False), trial(1, 0.5, True), trial(2, 0.2, False)]
    ... ).panels[0]
    >>> panel.lines["best so far"][1].tolist()
    [0.3, 0.3, 0.2]
    """
    order = np.arange(1, len(trials) + 1)
    errors = np.array([trial.error for trial in trials])
    stopped = np.array([trial.stopped for trial in trials])
    best = np.minimum.accumulate(np.where(stopped, np.inf, errors))
    finite = np.isfinite(best)
    points = {"completed": ~stopped, "stopped early": stopped}
    shown = {name: (order[which], errors[which]) for name, which in points.items() if which.any()}
    log = "y" if np.all(errors > 0) else ""
    line = {"best so far": (order[finite], best[finite])}
    return Chart(Panel("trial", "validation error", lines=line, points=shown, log=log))


def learning_curves(trials: Sequence[Trial]) -> Chart:
    """The validation error of the best trials, epoch by epoch."""
    completed = [trial for trial in trials if not trial.stopped]
    best = sorted(completed, key=lambda trial: trial.error)[:4]
    lines = {f"trial {t.number}": (np.arange(1, len(t.curve) + 1), t.curve) for t in best}
    log = "y" if all(np.all(t.curve > 0) for t in best) else ""
    return Chart(Panel("epoch", "validation error", lines=lines, log=log))


@register_drawing(ParallelCoordinates)
def _parallel_coordinates(result: ParallelCoordinates, theme: Theme) -> Figure:
    names = [
        n
        for n in Setting._fields
        if len({getattr(trial.setting, n) for trial in result.trials}) > 1
    ]
    columns = {
        name: np.array([getattr(t.setting, name) for t in result.trials], float) for name in names
    }
    columns["error"] = np.array([trial.error for trial in result.trials])
    heights = {name: _heights(name, values) for name, values in columns.items()}
    figure = new_figure(3.6)
    axes = figure.subplots()
    order = sorted(
        range(len(result.trials)), key=lambda i: (result.trials[i].stopped, result.trials[i].error)
    )
    for rank, i in reversed(list(enumerate(order))):  # the best are drawn last, on top
        completed = not result.trials[i].stopped
        is_best = completed and rank < N_BEST
        colour = theme.orange if is_best else theme.blue if completed else theme.muted
        alpha, width = (0.95, 1.6) if is_best else (0.45 if completed else 0.2, 0.9)
        axes.plot(
            [heights[name][i] for name in columns], color=colour, alpha=alpha, linewidth=width
        )
    for at, (name, values) in enumerate(columns.items()):
        axes.axvline(at, color=theme.grid, linewidth=1, zorder=0)
        _ticks(axes, at, values, heights[name], theme)
    axes.set_xticks(range(len(columns)), list(columns), fontsize=9 if len(columns) < 8 else 8)
    axes.tick_params(axis="x", length=0, labelcolor=theme.ink)
    axes.set(ylim=(-0.08, 1.08), xlim=(-0.35, len(columns) - 0.55), yticks=[])
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    for label, colour in (
        (f"best {N_BEST}", theme.orange),
        ("completed", theme.blue),
        ("stopped early", theme.muted),
    ):
        axes.plot([], color=colour, label=label)
    axes.legend(
        frameon=False,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        labelcolor="linecolor",
    )
    return figure


def _heights(name: str, values: np.ndarray) -> np.ndarray:
    """The values scaled to between 0 and 1, on a logarithmic scale where that is usual."""
    finite = np.where(
        np.isfinite(values), values, np.nanmax(values[np.isfinite(values)], initial=1.0)
    )
    scaled = np.log(finite) if name in (*LOG_SCALED, "error") and finite.min() > 0 else finite
    return (scaled - scaled.min()) / max(np.ptp(scaled), 1e-12)


def _ticks(axes, at: int, values: np.ndarray, heights: np.ndarray, theme: Theme) -> None:
    """Labels every value if there are at most five, otherwise the smallest and the largest."""
    distinct = np.unique(values)
    shown = distinct if len(distinct) <= 5 else (values.min(), values.max())
    for value in shown:
        height = heights[np.flatnonzero(values == value)[0]]
        label = f"{value:.2g}" if value < 10 else f"{value:g}"
        paper = {"facecolor": theme.paper, "edgecolor": "none", "pad": 0.8, "alpha": 0.75}
        axes.text(at + 0.06, height, label, fontsize=8, color=theme.muted, va="center", bbox=paper)


@register_drawing(ParameterImportance)
def _importance(result: ParameterImportance, theme: Theme) -> Figure:
    names = sorted(result.shares, key=lambda name: result.shares[name])
    figure = new_figure(0.7 + 0.32 * len(names))
    axes = figure.subplots()
    shares = [result.shares[name] for name in names]
    axes.barh(range(len(names)), shares, color=theme.blue, height=0.62)
    for row, share in enumerate(shares):
        axes.annotate(
            f"{100 * share:.0f} %",
            (share, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelcolor=theme.ink)
    axes.set(
        xlabel="share of the variance of the error explained",
        xlim=(0, 1.12 * max(shares, default=1.0) + 1e-9),
    )
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y", visible=False)
    return figure
