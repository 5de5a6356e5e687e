"""Figures of linear separation: signed distances from the hyperplane, and the version space in two
dimensions.
"""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from matplotlib.ticker import MaxNLocator

from ...explain import version_cone
from ...explain.predictions import Margins, VersionCone
from ..draw import new_figure, register_drawing
from ..theme import Theme

MAX_LABELLED = 8  # with more lines only those that bound the cone are numbered


@register_drawing(Margins)
def _margins(result: Margins, theme: Theme) -> Figure:
    figure = new_figure(3.6)
    axes = figure.subplots()
    negative, positive = (result.distances[result.truth == sign] for sign in (-1, 1))
    names = [f"negative examples ({len(negative)})", f"positive examples ({len(positive)})"]
    axes.hist(
        [negative, positive],
        _edges(result).tolist(),
        stacked=True,
        color=[theme.orange, theme.blue],
        label=names,
    )
    axes.axvline(0, color=theme.ink, linewidth=1.2, label="boundary")
    axes.axvline(
        result.margin, color=theme.ink, linewidth=1, linestyle=":", label="smallest distance"
    )
    wrong = result.distances <= 0
    title = f"margin {result.margin:.3g}" if result.separated else f"{wrong.sum()} misclassified"
    axes.set_title(title, loc="left")
    axes.set(xlabel="signed distance from the hyperplane (> 0: correct)", ylabel="examples")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8.5,
    )
    return figure


def _edges(result: Margins) -> np.ndarray:
    """Bin edges: the first is the smallest distance, and 0 is an edge if some examples are
    misclassified.
    """
    count = min(40, 5 + len(result.distances) // 10)
    low = result.distances.min()
    high = result.distances.max()
    start = low if result.separated else 0.0
    width = max(high - min(low, start), 1e-12 * abs(high), np.finfo(float).tiny) / count
    below = np.ceil((start - low) / width)
    above = max(np.ceil((high - start) / width), 1)
    edges = start + width * np.arange(-below, above + 1)
    # no bar starts below the smallest distance, and rounding drops no example
    edges[0], edges[-1] = low, max(edges[-1], high)
    return edges


@register_drawing(VersionCone)
def _version_cone(result: VersionCone, theme: Theme) -> Figure:
    figure = new_figure(3.9, 4.2)
    axes = figure.subplots()
    n = len(result.normals)
    shown = (
        range(1, n + 1) if n <= MAX_LABELLED else [1, n]
    )  # each wedge lies within the previous one
    for k in shown:
        part = version_cone(result.normals[:k], np.ones(k))
        if part.fraction > 0:
            ends = np.degrees([part.low, part.high])
            alpha = 0.75 / n if n <= MAX_LABELLED else 0.1 if k == 1 else 0.7
            axes.add_patch(Wedge((0, 0), 1, *ends, color=theme.blue, alpha=alpha, linewidth=0))
    labelled = range(n) if n <= MAX_LABELLED else _bounding_lines(result)
    for k, (a, b) in enumerate(
        result.normals / np.linalg.norm(result.normals, axis=1, keepdims=True)
    ):
        axes.plot(
            [-b, b], [a, -a], color=theme.muted, linewidth=1, alpha=1.0 if k in labelled else 0.25
        )
        if k in labelled:
            tip = 1.12 * np.array([-b, a]) * (1 if a >= 0 else -1)
            axes.text(
                tip[0],
                tip[1],
                str(k + 1),
                ha="center",
                va="center",
                color=theme.muted,
                fontsize=8.5,
            )
    axes.set(
        xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal", xlabel=r"$w_1$", ylabel=r"$w_2$"
    )
    axes.set_title(f"version space: {100 * result.fraction:.3g} % of directions", loc="left")
    axes.grid(visible=False)
    return figure


def _bounding_lines(result: VersionCone) -> list[int]:
    """The examples whose lines bound the cone: they are orthogonal to its two edges."""
    if result.fraction == 0:
        return []
    edges = np.array([[np.cos(angle), np.sin(angle)] for angle in (result.low, result.high)])
    return (
        np.abs(result.normals @ edges.T / np.linalg.norm(result.normals, axis=1, keepdims=True))
        .argmin(axis=0)
        .tolist()
    )
