"""Figure of a network as a graph of units, with the input on the left."""

from itertools import pairwise

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from ...explain.signal import NetworkGraph
from ..draw import new_figure, register_drawing
from ..theme import Theme

MAX_NODES = 12  # nodes drawn per layer; of a wider layer the first and the last five


def _heights(width: int) -> np.ndarray:
    """The vertical positions of the nodes of a layer, centred at 0."""
    if width <= MAX_NODES:
        return np.arange(width) - (width - 1) / 2
    return np.concatenate([np.arange(-5, 0) - 0.5, np.arange(1, 6) + 0.5])


@register_drawing(NetworkGraph)
def _network_graph(result: NetworkGraph, theme: Theme) -> Figure:
    columns = [_heights(width) for width in result.widths]
    tall = max(np.ptp(column) for column in columns)
    figure = new_figure(1.3 + 0.26 * (tall + 1))
    axes = figure.subplots()
    edges = [
        [(x, low), (x + 1, high)]
        for x, (left, right) in enumerate(pairwise(columns))
        for low in left
        for high in right
    ]
    axes.add_collection(
        LineCollection(
            edges, colors=theme.muted, linewidths=0.6, alpha=min(1.0, 8 / len(edges) ** 0.5)
        )
    )
    for x, (column, width, name) in enumerate(zip(columns, result.widths, result.names)):
        colour = theme.blue if 0 < x < len(columns) - 1 else theme.orange
        axes.scatter(
            np.full(len(column), x), column, s=70, color=colour, edgecolors=theme.paper, zorder=3
        )
        if width > MAX_NODES:
            axes.annotate("⋮", (x, 0), ha="center", va="center", fontsize=14, color=theme.muted)
        axes.annotate(f"{name}\n{width}", (x, -tall / 2 - 0.7), ha="center", va="top", fontsize=9)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-tall / 2 - 2.4, tall / 2 + 0.6))
    axes.set_title(f"{result.nodes:,} nodes, {result.edges:,} edges")
    axes.set_axis_off()
    return figure
