"""What a derivative costs: operations counted beside seconds measured."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...explain import Cost
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme


@register_drawing(Cost)
def _cost(result: Cost, theme: Theme) -> Figure:
    passes = {
        "value": result.value,
        "one pass of reverse mode": result.reverse,
        "one of forward mode": result.forward,
    }
    bars = {name: found.operations for name, found in passes.items()}
    whole = {f"all derivatives, {name}": count for name, count in result.jacobian.items()}
    timed = {name: found.seconds for name, found in passes.items() if np.isfinite(found.seconds)}
    figure = new_figure(2.6 + (1.1 if timed else 0))
    above, *rest = np.ravel(
        figure.subplots(1 + bool(timed), 1, height_ratios=(6, 3) if timed else None)
    )
    colours = [theme.blue] * 3 + [theme.orange] * 3
    _bars(above, bars | whole, colours, "operations")
    for axes in rest:
        _bars(axes, timed, colours, "seconds, the shortest of several runs")
    above.set_title(f"numbers in: {result.inputs:,}, out: {result.outputs:,}")
    return figure


def _bars(axes: Axes, lengths: Mapping[str, float | int], colours: list[str], label: str) -> None:
    sizes = np.array(list(lengths.values()), float)
    row = np.arange(len(lengths))
    axes.barh(row, sizes, color=colours[: len(row)], height=0.6)
    axes.set_yticks(row, list(lengths))
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(label)
    log_axis(axes.xaxis, sizes.min() / 3, sizes.max() * 8)
    for place, size in zip(row, sizes):
        axes.annotate(
            f"{size:.3g}",
            (size, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
