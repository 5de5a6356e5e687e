"""Linear separation: how far the examples lie from the boundary, and the version space in the
plane.
"""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from matplotlib.ticker import MaxNLocator

from ...explain import Cone, Margins, version_cone
from ..draw import new_figure, register_drawing
from ..theme import Theme

LABELLED = 8  # lines up to which each has its number


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
    axes.axvline(result.margin, color=theme.ink, linewidth=1, linestyle=":", label="least distance")
    wrong = result.distances <= 0
    told = f"margin {result.margin:.3g}" if result.separated else f"{wrong.sum()} on the wrong side"
    axes.set_title(told, loc="left")
    axes.set(xlabel="signed distance from the boundary (right side > 0)", ylabel="examples")
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
    """Bins from the least distance on, so that no example seems nearer; 0 is an edge where some are
    wrong.
    """
    count = min(40, 5 + len(result.distances) // 10)
    low = result.distances.min()
    high = result.distances.max()
    start = low if result.separated else 0.0
    width = max(high - min(low, start), 1e-12 * abs(high), np.finfo(float).tiny) / count
    below = np.ceil((start - low) / width)
    above = max(np.ceil((high - start) / width), 1)
    edges = start + width * np.arange(-below, above + 1)
    edges[0], edges[-1] = (
        low,
        max(edges[-1], high),
    )  # no bar left of the least, and rounding loses no example
    return edges


@register_drawing(Cone)
def _cone(result: Cone, theme: Theme) -> Figure:
    figure = new_figure(3.9, 4.2)
    axes = figure.subplots()
    n = len(result.normals)
    shown = range(1, n + 1) if n <= LABELLED else [1, n]  # each wedge within those before it
    for k in shown:
        part = version_cone(result.normals[:k], np.ones(k))
        if part.fraction > 0:
            ends = np.degrees([part.low, part.high])
            alpha = 0.75 / n if n <= LABELLED else 0.1 if k == 1 else 0.7
            axes.add_patch(Wedge((0, 0), 1, *ends, color=theme.blue, alpha=alpha, linewidth=0))
    told = range(n) if n <= LABELLED else _walls(result)
    for k, (a, b) in enumerate(
        result.normals / np.linalg.norm(result.normals, axis=1, keepdims=True)
    ):
        axes.plot(
            [-b, b], [a, -a], color=theme.muted, linewidth=1, alpha=1.0 if k in told else 0.25
        )
        if k in told:
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
    axes.set_title(f"{100 * result.fraction:.3g} % of directions left", loc="left")
    axes.grid(visible=False)
    return figure


def _walls(result: Cone) -> list[int]:
    """The data whose lines bound the cone: those that the two edges are at right angles to."""
    if result.fraction == 0:
        return []
    edges = np.array([[np.cos(angle), np.sin(angle)] for angle in (result.low, result.high)])
    return (
        np.abs(result.normals @ edges.T / np.linalg.norm(result.normals, axis=1, keepdims=True))
        .argmin(axis=0)
        .tolist()
    )
