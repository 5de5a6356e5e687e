"""Figure of the density of the Hessian's eigenvalues, with the largest ones marked."""

import numpy as np
from matplotlib.figure import Figure

from ...explain.loss_surface import Curvature, HessianSpectrum
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(HessianSpectrum)
def _spectrum(result: HessianSpectrum, theme: Theme) -> Figure:
    figure = new_figure(3.5)
    axes = figure.subplots()
    count = np.maximum(result.density * result.parameters, 1e-30)
    floor = 0.05 / (result.grid[-1] - result.grid[0])
    axes.fill_between(
        result.grid, np.maximum(count, floor), floor, color=theme.blue, alpha=0.25, linewidth=0
    )
    axes.plot(result.grid, np.maximum(count, floor), color=theme.blue, linewidth=1.3)
    axes.set(yscale="log", ylim=(floor, 4 * count.max()), xlabel="eigenvalue of the Hessian")
    axes.set_ylabel("eigenvalue density")
    axes.plot(
        result.top,
        np.full(len(result.top), floor * 1.7),
        "|",
        color=theme.orange,
        markersize=12,
        clip_on=False,
    )
    axes.set_title(
        f"largest eigenvalue {result.top[0]:.3g}", color=theme.orange, loc="right", fontsize=9.5
    )
    return figure


@register_drawing(Curvature)
def _curvature(result: Curvature, theme: Theme) -> Figure:
    return _spectrum(result.spectrum, theme)
