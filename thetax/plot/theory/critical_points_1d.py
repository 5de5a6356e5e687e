"""One function of one number: where it stands still, and whether it lies below a chord."""

import numpy as np
from matplotlib.figure import Figure

from ...explain import Convexity, Critical
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(Critical)
def _critical(result: Critical, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    axes = figure.subplots()
    axes.plot(result.grid, result.heights, color=theme.blue)
    colours = {
        "global minimum": theme.green,
        "local minimum": theme.orange,
        "maximum": theme.purple,
        "pause": theme.ink,
    }
    for kind, colour in colours.items():
        chosen = [other == kind for other in result.kinds]
        if any(chosen):
            axes.plot(
                result.places[chosen],
                result.values[chosen],
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
    axes.plot(result.shares, result.losses, color=theme.blue, label="objective")
    axes.plot([0, 1], result.losses[[0, -1]], "--", color=theme.muted, linewidth=1.4, label="chord")
    axes.set(xlabel="share of the first model", ylabel="loss along the worst chord")
    above = result.excess > 0
    where = (
        f"{result.excess:.3g} above its chord"
        if above
        else f"{-result.excess:.3g} below its chord at least"
    )
    axes.set_title(where, color=theme.orange if above else theme.blue)
    axes.legend(frameon=False, fontsize=8.5)
    axes.set_xticks(np.linspace(0, 1, 5))
    return figure
