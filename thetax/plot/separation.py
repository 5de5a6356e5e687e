"""Linear separation: how far the examples lie from the boundary, and the version space in the plane."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Wedge

from ..explain import Cone, Margins, version_cone
from .draw import blank, draws
from .theme import Theme


@draws(Margins)
def _margins(result: Margins, theme: Theme) -> Figure:
    figure = blank(3.3)
    axes = figure.subplots()
    low, high = min(result.distances.min(), 0.0), max(result.distances.max(), 0.0)
    edges = np.histogram_bin_edges([low, high], bins=min(40, 5 + len(result.distances) // 10)).tolist()
    wrong = result.distances <= 0
    for sign, colour, name in ((-1, theme.orange, "negative"), (1, theme.blue, "positive")):
        found = result.distances[result.truth == sign]
        axes.hist(found, edges, histtype="stepfilled", color=colour, alpha=0.35, label=f"{name} examples")
    axes.axvline(0, color=theme.ink, linewidth=1.2)
    axes.axvline(result.margin, color=theme.muted, linewidth=1, linestyle=":")
    told = f"margin {result.margin:.3g}" if result.separated else f"{wrong.sum()} on the wrong side"
    axes.set_title(told, loc="right", fontsize=9.5, color=theme.muted)
    axes.set(xlabel="signed distance from the boundary (right side > 0)", ylabel="examples")
    axes.legend(frameon=False, fontsize=8.5)
    return figure


@draws(Cone)
def _cone(result: Cone, theme: Theme) -> Figure:
    figure = blank(3.9, 4.2)
    axes = figure.subplots()
    n = len(result.normals)
    for k in range(1, n + 1):  # each wedge within those before it
        part = version_cone(result.normals[:k], np.ones(k))
        if part.fraction > 0:
            wedge = Wedge((0, 0), 1, *np.degrees([part.low, part.high]), color=theme.blue, alpha=0.75 / n, linewidth=0)
            axes.add_patch(wedge)
    for k, (a, b) in enumerate(result.normals / np.linalg.norm(result.normals, axis=1, keepdims=True)):
        axes.plot([-b, b], [a, -a], color=theme.muted, linewidth=1)
        tip = 1.12 * np.array([-b, a]) * (1 if a >= 0 else -1)
        axes.text(tip[0], tip[1], str(k + 1), ha="center", va="center", color=theme.muted, fontsize=8.5)
    axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal", xlabel=r"$w_1$", ylabel=r"$w_2$")
    axes.set_title(f"{100 * result.fraction:.1f} % of directions left", loc="right", fontsize=9.5, color=theme.muted)
    axes.grid(visible=False)
    return figure
