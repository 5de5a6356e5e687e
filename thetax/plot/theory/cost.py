"""Figure of the cost of derivatives: counted FLOPs and measured seconds."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...explain.signal import DerivativeCost
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme


@register_drawing(DerivativeCost)
def _cost(result: DerivativeCost, theme: Theme) -> Figure:
    passes = {
        "value": result.value,
        "one reverse pass (VJP)": result.reverse,
        "one forward pass (JVP)": result.forward,
    }
    bars = {name: cost.flops for name, cost in passes.items()}
    jacobian = {f"whole Jacobian, {name}": count for name, count in result.jacobian_flops.items()}
    timed = {name: cost.seconds for name, cost in passes.items() if np.isfinite(cost.seconds)}
    figure = new_figure(2.6 + (1.1 if timed else 0))
    above, *rest = np.ravel(
        figure.subplots(1 + bool(timed), 1, height_ratios=(6, 3) if timed else None)
    )
    colours = [theme.blue] * 3 + [theme.orange] * 3
    _bars(above, bars | jacobian, colours, "FLOPs")
    for axes in rest:
        _bars(axes, timed, colours, "seconds (fastest of several runs)")
    n, m = result.n_inputs, result.n_outputs
    above.set_title(f"{n:,} input{'s' * (n != 1)}, {m:,} output{'s' * (m != 1)}")
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
    for y, size in zip(row, sizes):
        axes.annotate(
            f"{size:.3g}",
            (size, y),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
