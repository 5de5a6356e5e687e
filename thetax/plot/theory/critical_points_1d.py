"""Figures of the critical points of a function of one variable, and of a loss along a chord."""

import numpy as np
from matplotlib.figure import Figure

from ...explain.loss_surface import Convexity, CriticalPoints
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(CriticalPoints)
def _critical(result: CriticalPoints, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    axes = figure.subplots()
    axes.plot(result.grid, result.grid_values, color=theme.blue)
    colours = {
        "global minimum": theme.green,
        "local minimum": theme.orange,
        "maximum": theme.purple,
        "inflection": theme.ink,
    }
    for kind, colour in colours.items():
        mask = [other == kind for other in result.kinds]
        if any(mask):
            axes.plot(
                result.points[mask],
                result.values[mask],
                "o",
                color=colour,
                markersize=7,
                label=kind,
            )
    axes.set(xlabel="θ", ylabel="h(θ)")
    if result.kinds:
        axes.legend(frameon=False, fontsize=8.5)
    return figure


@register_drawing(Convexity)
def _convexity(result: Convexity, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    axes = figure.subplots()
    axes.plot(result.fractions, result.losses, color=theme.blue, label="loss")
    axes.plot([0, 1], result.losses[[0, -1]], "--", color=theme.muted, linewidth=1.4, label="chord")
    axes.set(xlabel="weight λ of the first model", ylabel="loss")
    not_convex = result.excess > 0
    title = (
        f"not convex: {result.excess:.3g} above its chord"
        if not_convex
        else f"at least {-result.excess:.3g} below every chord"
    )
    axes.set_title(title, color=theme.orange if not_convex else theme.blue)
    axes.legend(frameon=False, fontsize=8.5)
    axes.set_xticks(np.linspace(0, 1, 5))
    return figure
