"""A chart of lines and points on one or several panels: the figure of a claim whose result is a few
curves.

A `Panel` holds named lines, named points, named bands and named levels; a `Chart` is panels side by
side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .draw import log_axis, new_figure, register_drawing
from .theme import Theme

Curve = tuple[Any, Any]  # x and y


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `bounds` are dashed lines: what a theorem allows; `bands` are (x, low,
    high).
    """

    x: str
    y: str
    lines: Mapping[str, Curve] = field(default_factory=dict)
    points: Mapping[str, Curve] = field(default_factory=dict)
    bounds: Mapping[str, Curve] = field(default_factory=dict)
    bands: Mapping[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    vertical_lines: Mapping[str, float] = field(default_factory=dict)  # vertical lines, by name
    log: str = ""  # "x", "y" or "xy"
    equal_aspect: bool = False  # one unit is as long across as up
    title: str = ""


@dataclass(frozen=True, init=False)
class Chart:
    """Panels in a row.

    >>> chart = Chart(Panel("t", "loss", lines={"descent": ([1, 2, 4], [1.0, 0.5, 0.2])}, log="xy"))
    >>> from thetax.plot import draw
    >>> len(draw(chart).axes)
    1
    """

    panels: tuple[Panel, ...]

    def __init__(self, *panels: Panel):
        if not panels:
            raise ValueError("Chart: there is nothing to draw; give at least one Panel.")
        object.__setattr__(self, "panels", panels)


@register_drawing(Chart)
def _chart(result: Chart, theme: Theme) -> Figure:
    figure = new_figure(3.4 if len(result.panels) < 3 else 2.9)
    for axes, panel in zip(figure.subplots(1, len(result.panels), squeeze=False)[0], result.panels):
        draw_panel(axes, panel, theme)
    return figure


def draw_panel(axes: Any, panel: Panel, theme: Theme) -> None:
    """One panel onto axes that are there."""
    colours = iter(_colours(panel, theme))
    for name, (x, low, high) in panel.bands.items():
        axes.fill_between(x, low, high, color=next(colours), alpha=0.2, linewidth=0, label=name)
    for name, (x, y) in panel.lines.items():
        axes.plot(np.asarray(x), np.asarray(y), color=next(colours), label=name)
    for name, (x, y) in panel.points.items():
        axes.plot(
            np.asarray(x), np.asarray(y), "o", color=next(colours), markersize=4.5, label=name
        )
    for name, (x, y) in panel.bounds.items():
        axes.plot(np.asarray(x), np.asarray(y), "--", color=theme.muted, linewidth=1.4, label=name)
    for name, place in panel.vertical_lines.items():
        axes.axvline(place, color=theme.muted, linewidth=1, linestyle=":")
        axes.annotate(
            name,
            (place, 0.98),
            xycoords=("data", "axes fraction"),
            va="top",
            fontsize=8.5,
            rotation=90,
            xytext=(3, 0),
            textcoords="offset points",
            color=theme.muted,
        )
    axes.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.axis_name in panel.log:
            log_axis(axis, *_span(axes, axis.axis_name))
    if panel.equal_aspect:
        axes.set_aspect("equal")
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(frameon=False, fontsize=8.5, handlelength=1.4)


def _span(axes: Any, which: str) -> tuple[float, float]:
    """From the least positive number on an axis to the largest, with a little room."""
    axes.set(**{f"{which}scale": "log"})
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    return float(low), float(high)


def _colours(panel: Panel, theme: Theme) -> Sequence[str]:
    count = len(panel.bands) + len(panel.lines) + len(panel.points)
    return (theme.lines * (count // len(theme.lines) + 1))[:count]
