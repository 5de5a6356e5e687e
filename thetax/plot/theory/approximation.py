"""Figure of a minimax approximation and its error."""

import numpy as np
from matplotlib.figure import Figure

from ...explain.loss_surface import MinimaxApproximation
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(MinimaxApproximation)
def _minimax(result: MinimaxApproximation, theme: Theme) -> Figure:
    if result.grid.ndim > 1 and result.grid.shape[1] > 1:
        raise ValueError(
            "draw: a MinimaxApproximation can be drawn for functions of one variable only; this "
            f"one has {result.grid.shape[1]} inputs."
        )
    figure = new_figure(3.2)
    x = result.grid.reshape(-1)
    left, right = figure.subplots(1, 2)
    left.plot(x, result.target, color=theme.muted, label="function")
    left.plot(x, result.approximation, color=theme.blue, label="best approximation")
    left.set(xlabel="x", ylabel="value")
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8.5, handlelength=1.4)
    right.plot(x, result.target - result.approximation, color=theme.blue)
    right.hlines(
        [-result.value, result.value],
        *np.quantile(x, [0, 1]),
        color=theme.muted,
        linestyle="--",
        linewidth=1.2,
    )
    right.set(
        xlabel="x", ylabel="function minus approximation", title=f"largest error {result.value:.4g}"
    )
    return figure
