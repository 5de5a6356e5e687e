"""`Chart`: lines, points and bands on one or several panels side by side.

A `Panel` has named lines, points, bands, bounds and vertical lines.
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
    """One pair of axes, a figure of its own or a part of a `Chart`. `bounds` are drawn as dashed
    lines, such as the bound of a theorem; `bands` are `(x, low, high)`.
    """

    x: str
    y: str
    lines: Mapping[str, Curve] = field(default_factory=dict)
    points: Mapping[str, Curve] = field(default_factory=dict)
    bounds: Mapping[str, Curve] = field(default_factory=dict)
    bands: Mapping[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    vertical_lines: Mapping[str, float] = field(default_factory=dict)
    log: str = ""  # "x", "y" or "xy"
    equal_aspect: bool = False  # the same scale on both axes
    title: str = ""


@dataclass(frozen=True, init=False)
class Chart:
    """Panels in a row.

    >>> loss = Panel("t", "loss", lines={"descent": ([1, 2, 4], [1.0, 0.5, 0.2])}, log="xy")
    >>> from thetax.plot import draw
    >>> len(draw(loss).axes), len(draw(Chart(loss, loss)).axes)
    (1, 2)
    """

    panels: tuple[Panel, ...]

    def __init__(self, *panels: Panel):
        if not panels:
            raise ValueError("Chart: expected at least one Panel; got none.")
        object.__setattr__(self, "panels", panels)


@register_drawing(Chart)
def _chart(result: Chart, theme: Theme) -> Figure:
    figure = new_figure(3.4 if len(result.panels) < 3 else 2.9)
    for axes, panel in zip(figure.subplots(1, len(result.panels), squeeze=False)[0], result.panels):
        draw_panel(axes, panel, theme)
    return figure


@register_drawing(Panel)
def _panel(result: Panel, theme: Theme) -> Figure:
    return _chart(Chart(result), theme)


def draw_panel(axes: Any, panel: Panel, theme: Theme) -> None:
    """Draws one panel on the given axes."""
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
    for name, position in panel.vertical_lines.items():
        axes.axvline(position, color=theme.muted, linewidth=1, linestyle=":")
        axes.annotate(
            name,
            (position, 0.98),
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
            log_axis(axis, *_limits(axes, axis.axis_name))
    if panel.equal_aspect:
        axes.set_aspect("equal")
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(frameon=False, fontsize=8.5, handlelength=1.4)


def _limits(axes: Any, which: str) -> tuple[float, float]:
    """The limits that Matplotlib chooses for the data on a logarithmic axis."""
    axes.set(**{f"{which}scale": "log"})
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    return float(low), float(high)


def _colours(panel: Panel, theme: Theme) -> Sequence[str]:
    count = len(panel.bands) + len(panel.lines) + len(panel.points)
    return (theme.lines * (count // len(theme.lines) + 1))[:count]
