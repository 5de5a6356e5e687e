"""What decay and stopping leave of each direction, by its curvature, and how many parameters count
in all.
"""

import numpy as np
from matplotlib.figure import Figure

from ...explain import Shrinkage, decay_factor, stopping_factor
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme


@register_drawing(Shrinkage)
def _shrinkage(result: Shrinkage, theme: Theme) -> Figure:
    figure = new_figure(3.5)
    axes = figure.subplots()
    up = result.curvatures > 0
    low, high = _range(result)
    grid = np.geomspace(low, high, 300)
    decay = decay_factor(grid, strength=result.strength)
    if result.strength:
        axes.plot(grid, decay, color=theme.blue, label=f"decay {result.strength:.3g}")
    if result.rate is not None and result.steps is not None:
        reached = stopping_factor(grid + result.strength, rate=result.rate, steps=result.steps)
        after = f"{result.steps} steps at rate {result.rate:.3g}"
        axes.plot(
            grid,
            reached * decay,
            color=theme.green,
            label=f"decay, {after}" if result.strength else after,
        )
    axes.plot(
        result.curvatures[up],
        result.factors[up],
        "o",
        color=theme.orange,
        markersize=5,
        clip_on=False,
        zorder=5,
        label="leading directions",
    )
    axes.set(
        xlabel="curvature of the loss in a direction", ylabel="share of the minimiser that is left"
    )
    log_axis(axes.xaxis, low, high)
    axes.set_ylim(
        0, max([1.05, *np.minimum(1.05 * result.factors[up], 2.1)])
    )  # beyond 1/η steps swing about 1
    count = float(f"{result.effective:.1e}")  # two digits: Lanczos blurs the small curvatures
    axes.set_title(
        f"about {count:,g} of {result.parameters:,} parameters count", color=theme.orange
    )
    axes.legend(frameon=False, loc="lower right")
    return figure


def _range(result: Shrinkage) -> tuple[float, float]:
    """The curvatures at which something happens: where the factors are a half, and those of the
    directions.
    """
    halves = [
        result.strength,
        1 / (result.rate * result.steps) if result.rate and result.steps else 0.0,
    ]
    places = [place for place in (*halves, *result.curvatures) if place > 0] or [1.0]
    return min(places) / 10, max(places) * 1.5
