"""Figure of certified accuracy against the radius, with the accuracy under attack."""

import numpy as np
from matplotlib.figure import Figure

from ...certify import CertifiedRadii
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(CertifiedRadii)
def _certified_radii(result: CertifiedRadii, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    axes = figure.subplots()
    radii = np.unique([0.0, *result.radii, result.max_radius])
    axes.step(
        radii,
        100 * result.certified_accuracy(radii),
        where="pre",
        color=theme.blue,
        label="certified accuracy, smoothed",
    )
    axes.plot(
        result.attack_radii,
        100 * result.attack_accuracy,
        "o",
        color=theme.orange,
        label="accuracy under attack, not smoothed",
    )
    axes.axvline(result.max_radius, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        "largest radius that this\nnumber of samples can certify",
        (result.max_radius, 100),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        color=theme.muted,
        fontsize=8.5,
    )
    axes.set(
        xlabel="L2 radius", ylabel="accuracy (%)", xlim=(0, 1.03 * result.max_radius), ylim=(0, 102)
    )
    axes.legend(frameon=False, fontsize=8.5, loc="lower left")
    return figure
