"""Learning curves: one panel per quantity, one line per data set."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...explain.signal import TrainingCurves
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme

SPLIT_NAMES = {"train": "training", "valid": "validation"}
QUANTITY_NAMES = {"gradient": "gradient norm"}


@register_drawing(TrainingCurves)
def _curves(result: TrainingCurves, theme: Theme) -> Figure:
    if not result.panels:
        raise ValueError("draw: the training history is empty.")
    figure = new_figure(0.6 + 1.25 * len(result.panels))
    panels = figure.subplots(len(result.panels), 1, sharex=True, squeeze=False)[:, 0]
    splits = list(dict.fromkeys(name for lines in result.panels.values() for name in lines if name))
    colours = {"": theme.blue} | dict(zip(splits, theme.lines))  # the same in every panel
    for axes, (quantity, lines) in zip(panels, result.panels.items()):
        axes.set_title(QUANTITY_NAMES.get(quantity, quantity))
        _scale(axes, list(lines.values()))
        for split, values in lines.items():
            epochs = np.arange(1, len(values) + 1)
            axes.plot(
                epochs,
                values,
                color=colours[split],
                marker="o" if len(values) == 1 else "",
                label=SPLIT_NAMES.get(split, split),
            )
        if len(splits) > 1 and any(lines):
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
    """Makes the axis logarithmic if the values are positive and span more than a factor of 20."""
    values = np.concatenate(lines)
    values = values[np.isfinite(values)]
    if values.min() > 0 and values.max() > 20 * values.min():
        log_axis(axes.yaxis, values.min() / 1.3, values.max() * 1.3)
