"""The share that is proven right within a radius, beside what attacks of some radii leave."""

import numpy as np
from matplotlib.figure import Figure

from ...certify import CertifiedRadii
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(CertifiedRadii)
def _certificates(result: CertifiedRadii, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    axes = figure.subplots()
    places = np.unique([0.0, *result.radius, result.most])
    axes.step(
        places,
        100 * result.proven(places),
        where="pre",
        color=theme.blue,
        label="proven right, smoothed",
    )
    axes.plot(
        result.tried,
        100 * result.stands,
        "o",
        color=theme.orange,
        label="right after an attack, not smoothed",
    )
    axes.axvline(result.most, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        "most that so many\ndraws can prove",
        (result.most, 3),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        color=theme.muted,
        fontsize=8.5,
    )
    axes.set(
        xlabel="Euclidean radius", ylabel="images, %", xlim=(0, 1.03 * result.most), ylim=(0, 102)
    )
    axes.legend(frameon=False, fontsize=8.5, loc="lower left")
    return figure
