"""Learning curves: one panel for each quantity, one line for each role, named where it ends."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...explain import Curves
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme


@register_drawing(Curves)
def _curves(result: Curves, theme: Theme) -> Figure:
    if not result.panels:
        raise ValueError("draw: the history is empty; there are no curves to draw.")
    figure = new_figure(0.5 + 1.6 * len(result.panels))
    panels = figure.subplots(len(result.panels), 1, sharex=True, squeeze=False)[:, 0]
    roles = list(dict.fromkeys(role for lines in result.panels.values() for role in lines if role))
    colours = {"": theme.blue} | dict(
        zip(roles, theme.lines)
    )  # a role has one colour in every panel
    for axes, (quantity, lines) in zip(panels, result.panels.items()):
        axes.set_title(quantity)
        _scale(axes, list(lines.values()))
        for role, values in lines.items():
            epochs = np.arange(1, len(values) + 1)
            axes.plot(
                epochs,
                values,
                color=colours[role],
                marker="o" if len(values) == 1 else "",
                label=role,
            )
        if len(roles) > 1 and any(lines):
            axes.legend(
                frameon=False, loc="best", ncols=4, labelcolor="linecolor", handlelength=1.2
            )
    panels[-1].set_xlabel("epoch")
    if result.epochs > 1:
        panels[-1].set_xlim(1, result.epochs)
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        panels[-1].set(xlim=(0.5, 1.5), xticks=[1])
    return figure


def _scale(axes, lines) -> None:
    """Logarithmic where the values are positive and span more than a factor of 20."""
    values = np.concatenate(lines)
    values = values[np.isfinite(values)]
    if values.min() > 0 and values.max() > 20 * values.min():
        log_axis(axes.yaxis, values.min() / 1.3, values.max() * 1.3)
