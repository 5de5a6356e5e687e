"""Figure of predictions with intervals against the true values, and of the coverage of intervals of
every level.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...explain.predictions import IntervalCoverage
from ..draw import new_figure, register_drawing
from ..theme import Theme

LEVEL = 0.95  # of the error bars


@register_drawing(IntervalCoverage)
def _intervals(result: IntervalCoverage, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    left, right = figure.subplots(1, 2)
    _predictions(left, result, theme)
    _coverage(right, result, theme)
    return figure


def _predictions(axes: Any, result: IntervalCoverage, theme: Theme) -> None:
    half = result.half_width(LEVEL)
    inside = np.abs(result.truth - result.mean) <= half
    for mask, colour, name in (
        (inside, theme.blue, "inside"),
        (~inside, theme.orange, "outside"),
    ):
        if mask.any():
            axes.errorbar(
                result.truth[mask],
                result.mean[mask],
                half[mask],
                label=f"{name}: {mask.sum()}",
                fmt="o",
                color=colour,
                markersize=2.5,
                elinewidth=0.8,
                alpha=0.6,
            )
    ends = [min(result.truth.min(), result.mean.min()), max(result.truth.max(), result.mean.max())]
    axes.plot(ends, ends, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="true value", ylabel="prediction", title=f"{100 * LEVEL:g} % intervals")
    axes.legend(frameon=False, fontsize=8.5, handlelength=0.8)


def _coverage(axes: Any, result: IntervalCoverage, theme: Theme) -> None:
    p = result.levels
    spread = 1.96 * result.coverage_std
    axes.fill_between(p, p - spread, p + spread, color=theme.muted, alpha=0.2, linewidth=0)
    axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot(p, result.coverage, "o-", color=theme.blue, markersize=3.5)
    axes.annotate("underconfident", (0.04, 0.93), color=theme.muted, fontsize=9)
    axes.annotate("overconfident", (0.97, 0.03), color=theme.muted, ha="right", fontsize=9)
    axes.set(
        xlabel="nominal level",
        ylabel="coverage",
        xlim=(0, 1),
        ylim=(0, 1.02),
        title="Coverage of intervals",
    )
