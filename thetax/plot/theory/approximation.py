"""How near one function comes to another."""

import numpy as np
from matplotlib.figure import Figure

from ...explain import Minimax
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(Minimax)
def _minimax(result: Minimax, theme: Theme) -> Figure:
    if result.grid.ndim > 1 and result.grid.shape[1] > 1:
        raise ValueError(
            "draw: a best approximation is drawn on an interval; this one has "
            f"{result.grid.shape[1]} inputs."
        )
    figure = new_figure(3.2)
    x = result.grid.reshape(-1)
    left, right = figure.subplots(1, 2)
    left.plot(x, result.target, color=theme.muted, label="function")
    left.plot(x, result.approximation, color=theme.blue, label="best of the span")
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
        xlabel="x", ylabel="function less approximation", title=f"distance {result.value:.4g}"
    )
    return figure
