"""Forecasts with their intervals against the truth, and how often the truth lies in the interval of
each level.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...explain import Intervals
from ..draw import new_figure, register_drawing
from ..theme import Theme

LEVEL = 0.95  # of the bars


@register_drawing(Intervals)
def _intervals(result: Intervals, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    left, right = figure.subplots(1, 2)
    _forecasts(left, result, theme)
    _coverage(right, result, theme)
    return figure


def _forecasts(axes: Any, result: Intervals, theme: Theme) -> None:
    half = result.half(LEVEL)
    inside = np.abs(result.truth - result.mean) <= half
    for chosen, colour, name in (
        (inside, theme.blue, "inside"),
        (~inside, theme.orange, "outside"),
    ):
        if chosen.any():
            axes.errorbar(
                result.truth[chosen],
                result.mean[chosen],
                half[chosen],
                label=f"{name}: {chosen.sum()}",
                fmt="o",
                color=colour,
                markersize=2.5,
                elinewidth=0.8,
                alpha=0.6,
            )
    ends = [min(result.truth.min(), result.mean.min()), max(result.truth.max(), result.mean.max())]
    axes.plot(ends, ends, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="truth", ylabel="forecast", title=f"{100 * LEVEL:g} % intervals")
    axes.legend(frameon=False, fontsize=8.5, handlelength=0.8)


def _coverage(axes: Any, result: Intervals, theme: Theme) -> None:
    p = result.levels
    spread = 1.96 * result.chance
    axes.fill_between(p, p - spread, p + spread, color=theme.muted, alpha=0.2, linewidth=0)
    axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot(p, result.coverage, "o-", color=theme.blue, markersize=3.5)
    axes.annotate("too modest", (0.04, 0.93), color=theme.muted, fontsize=9)
    axes.annotate("too sure", (0.97, 0.03), color=theme.muted, ha="right", fontsize=9)
    axes.set(
        xlabel="level of the interval",
        ylabel="share inside",
        xlim=(0, 1),
        ylim=(0, 1.02),
        title="Calibration",
    )
