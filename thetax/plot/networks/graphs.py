"""Figures of graph networks: predictions, smoothness by layer, influence by distance, graphs told
apart, attention and attribution drawn on the graph.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

from ...explain.graphs import (
    EdgeAttentionMaps,
    FeatureSmoothness,
    GraphAttribution,
    GraphSeparation,
    NodeInfluence,
    NodePredictions,
)
from ..chart import Panel, draw_panel
from ..draw import new_figure, register_drawing
from ..theme import Theme
from ..theory.regions import MAX_LEGEND, class_colours

MAX_NAMED_LAYERS = 8
MAX_NAMED_GRAPHS = 20
MAX_DRAWN_NODES = 200  # of a larger graph a part is drawn
MAX_NUMBERED_NODES = 40
LEGEND_CHARACTERS = 88  # that fit below a figure, with 6 for each coloured box
LAYOUT_STEPS = 100
NEGLIGIBLE = 1e-3  # importance of a node, relative to the largest, that is not drawn


def graph_layout(senders: Any, receivers: Any, n_nodes: int) -> Float[np.ndarray, "v 2"]:
    """Positions of the nodes for drawing, by springs along the edges (Fruchterman & Reingold 1991);
    the same for the same graph.

    >>> graph_layout(np.array([0]), np.array([1]), 2).shape
    (2, 2)
    """
    import networkx as nx

    graph = nx.empty_graph(n_nodes)
    graph.add_edges_from(zip(np.asarray(senders).tolist(), np.asarray(receivers).tolist()))
    positions = nx.spring_layout(graph, seed=0, iterations=LAYOUT_STEPS)
    return np.array([positions[i] for i in range(n_nodes)], np.float64).reshape(n_nodes, 2)


@register_drawing(NodePredictions)
def _node_predictions(result: NodePredictions, theme: Theme) -> Figure:
    figure = new_figure(3.3)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    colours = np.array(class_colours(theme, len(result.classes)))[result.predicted]
    degrees = np.bincount(result.receivers, minlength=len(result.predicted))
    importance = degrees + (degrees.max(initial=0) + 1) * result.mistakes
    shown = _surroundings(importance, result.senders, result.receivers)
    draw_graph(
        left,
        result.senders,
        result.receivers,
        theme,
        shown=shown,
        node_colours=colours,
        ringed=np.flatnonzero(result.mistakes),
    )
    known = bool((result.labels >= 0).any())
    left.set_title("predicted classes" + (", mistakes ringed" if known else ""), fontsize=9)
    wrong = result.mistakes
    size = float(np.clip(4000 / len(wrong), 3, 28))
    right.scatter(*result.points[~wrong].T, s=size, c=colours[~wrong], linewidths=0)
    right.scatter(
        *result.points[wrong].T,
        s=1.4 * size,
        c=colours[wrong],
        edgecolors=theme.ink,
        linewidths=0.2 * size**0.5,
    )
    right.set(xlabel="first component", ylabel="second component", xticks=[], yticks=[])
    right.set_title("features before the last layer", fontsize=9)
    if len(result.classes) <= MAX_LEGEND:
        handles = [
            Patch(color=colour, label=name)
            for colour, name in zip(class_colours(theme, len(result.classes)), result.classes)
        ]
        longest = max(map(len, result.classes))
        columns = int(np.clip(LEGEND_CHARACTERS // (longest + 6), 1, 4))
        figure.legend(
            handles=handles, frameon=False, fontsize=8, ncols=columns, loc="outside lower center"
        )
    return figure


@register_drawing(FeatureSmoothness)
def _feature_smoothness(result: FeatureSmoothness, theme: Theme) -> Figure:
    figure = new_figure(3.0)
    depth = np.arange(len(result.layers))
    panels = (
        Panel(
            "layer",
            "Dirichlet energy / ‖X‖²",
            lines={"energy": (depth, np.maximum(result.energy, 1e-16))},
            log="y" if (result.energy > 0).all() else "",
        ),
        Panel("layer", "mean cosine of two nodes", lines={"cosine": (depth, result.cosine)}),
    )
    for axes, panel in zip(figure.subplots(1, 2), panels):
        draw_panel(axes, panel, theme)
        axes.lines[0].set(marker="o", markersize=3.5 if len(depth) > 24 else 5)
        shown = np.unique(np.linspace(0, len(depth) - 1, min(len(depth), MAX_NAMED_LAYERS)).round())
        names = [result.layers[int(i)] for i in shown]
        axes.set_xticks(shown, names, rotation=45, ha="right", fontsize=8)
        axes.set_xlabel("")
    axes.set_ylim(min(-0.05, float(result.cosine.min()) - 0.05), 1.05)
    return figure


@register_drawing(NodeInfluence)
def _node_influence(result: NodeInfluence, theme: Theme) -> Figure:
    figure = new_figure(2.9)
    left, right = figure.subplots(1, 2)
    mean, share = result.mean_by_hop, result.share_by_hop
    reached = np.flatnonzero(np.nan_to_num(mean) > 0)
    panel = Panel(
        "distance of the nodes, in hops",
        "mean influence of a node",
        lines={"mean": (reached, mean[reached])},
        log="y" if len(reached) > 1 else "",
    )
    draw_panel(left, panel, theme)
    left.lines[0].set(marker="o", markersize=5)
    right.bar(np.arange(len(share)), 100 * share, color=theme.blue, width=0.7)
    right.set(xlabel="distance of the nodes, in hops", ylabel="share of the influence in %")
    right.grid(visible=False, axis="x")
    beyond = np.flatnonzero(share == 0)
    for axes in (left, right):
        axes.set_xlim(-0.6, len(share) - 0.4)
        if len(share) <= 12:
            axes.set_xticks(range(len(share)))
        if len(beyond) and beyond[0] > 0:
            axes.axvspan(beyond[0] - 0.5, len(share) - 0.4, color=theme.grid, alpha=0.5, zorder=0)
    if len(beyond) and beyond[0] > 0:
        left.set_title("shaded: out of reach", fontsize=8.5, color=theme.muted, weight="normal")
    return figure


@register_drawing(GraphSeparation)
def _graph_separation(result: GraphSeparation, theme: Theme) -> Figure:
    kinds = {
        "told apart by both": (result.by_model & result.by_wl, theme.grid),
        f"by {result.test} only": (result.by_wl & ~result.by_model, theme.orange),
        "by neither": (~result.by_wl & ~result.by_model, theme.muted),
        "by the model only": (result.by_model & ~result.by_wl, theme.blue),
    }
    n = len(result.names)
    image = np.ones((n, n, 4)) * (*to_rgb(theme.paper), 1.0)
    upper = np.triu(np.ones((n, n), bool), 1)
    for mask, colour in kinds.values():
        image[mask & ~np.eye(n, dtype=bool)] = (*to_rgb(colour), 1.0)
    figure = new_figure(4.4)
    axes = figure.subplots()
    axes.imshow(image, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_axisbelow(False)
    if n <= MAX_NAMED_GRAPHS:
        axes.set_xticks(range(n), result.names, rotation=90, fontsize=7.5)
        axes.set_yticks(range(n), result.names, fontsize=7.5)
    else:
        axes.set(xlabel="graph", ylabel="graph")
    handles = [
        Patch(color=colour, label=f"{name}: {int((mask & upper).sum()):,}")
        for name, (mask, colour) in kinds.items()
    ]
    axes.set_title(f"{n * (n - 1) // 2:,} pairs of graphs")
    figure.legend(handles=handles, frameon=False, fontsize=8.5, ncols=2, loc="outside lower center")
    return figure


@register_drawing(EdgeAttentionMaps)
def _edge_attention(result: EdgeAttentionMaps, theme: Theme) -> Figure:
    figure = new_figure(3.1)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    q = result.edges[-1].mean(axis=1)
    shown = _surroundings(result.degrees, result.senders, result.receivers)
    draw_graph(
        left, result.senders, result.receivers, theme, shown=shown, edge_values=q, signed=False
    )
    left.set_title(f"{result.layers[-1]}, mean over heads", fontsize=9)
    rng = np.random.default_rng(0)
    spread = 1 + 0.04 * rng.uniform(-1, 1, len(shown))  # so that equal degrees do not overlap
    colours = (theme.lines * (len(result.layers) // len(theme.lines) + 1))[: len(result.layers)]
    ends = [1.0, 1.0]
    for name, own, perplexity, colour in zip(
        result.layers, result.loops, result.perplexity, colours
    ):
        neighbours = np.maximum(result.degrees + (own > 0).any(axis=1), 1)
        ends[1] = max(ends[1], float(neighbours.max()))
        right.plot(
            neighbours[shown] * spread,
            perplexity.mean(axis=1)[shown],
            "o",
            color=colour,
            markersize=3.5,
            alpha=0.7,
            label=name,
        )
    right.plot(ends, ends, "--", color=theme.muted, linewidth=1.4, label="uniform")
    right.set(
        xscale="log",
        yscale="log",
        xlabel="neighbours, with the loop",
        ylabel="effective neighbours",
    )
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500) if t <= 1.3 * ends[1]]
    for axis in (right.xaxis, right.yaxis):
        axis.set_ticks(ticks, labels=[str(t) for t in ticks])
        axis.set_ticks([], minor=True)
    right.legend(frameon=False, fontsize=8, handlelength=1.4)
    return figure


@register_drawing(GraphAttribution)
def _graph_attribution(result: GraphAttribution, theme: Theme) -> Figure:
    figure = new_figure(3.1)
    importance = np.abs(result.node_gradient)
    for ends in (result.senders, result.receivers):
        np.maximum.at(importance, ends, np.abs(result.edge_gradient))
    if result.node is not None:
        importance[result.node] = np.inf
    shown = _most_important(importance)
    methods = {
        "gradient × input": (result.node_gradient, result.edge_gradient),
        "occlusion": (np.nan_to_num(result.node_occlusion), np.nan_to_num(result.edge_occlusion)),
    }
    for axes, (name, (nodes, edges)) in zip(figure.subplots(1, 2), methods.items()):
        draw_graph(
            axes,
            result.senders,
            result.receivers,
            theme,
            shown=shown,
            node_values=nodes,
            edge_values=edges,
            ringed=result.node,
        )
        axes.set_title(name)
    handles = [
        Patch(color=theme.blue, label="raises the output"),
        Patch(color=theme.orange, label="lowers it"),
    ]
    figure.legend(handles=handles, frameon=False, fontsize=8.5, ncols=2, loc="outside lower center")
    whose = "the graph" if result.node is None else f"node {result.node}"
    figure.suptitle(f"output {result.output} of {whose}: {result.value:.3g}", fontsize=9)
    return figure


def draw_graph(
    axes: Any,
    senders: Any,
    receivers: Any,
    theme: Theme,
    *,
    shown: Any,
    node_values: Any = None,
    node_colours: Any = None,
    edge_values: Any = None,
    ringed: Any = None,
    signed: bool = True,
) -> None:
    """Draws the part of a graph with the nodes `shown`: values of nodes as colours, values of edges
    as colours and widths, blue if positive and orange if negative; the nodes `ringed` get a ring.
    """
    number = np.full(max([*senders, *receivers, *shown], default=0) + 1, -1)
    number[shown] = np.arange(len(shown))
    kept = np.flatnonzero((number[senders] >= 0) & (number[receivers] >= 0))
    u, v = number[np.asarray(senders)[kept]], number[np.asarray(receivers)[kept]]
    places = graph_layout(u, v, len(shown))
    values = np.zeros(len(kept)) if edge_values is None else np.asarray(edge_values)[kept]
    strength = np.abs(values) / max(np.abs(values).max(initial=0), 1e-300)
    order = np.argsort(strength)  # the strongest on top
    segments = np.stack([places[u], places[v]], axis=1)[order]
    axes.add_collection(
        LineCollection(
            list(segments),
            colors=_shades(values, theme)[order],
            linewidths=(0.6 + (2.6 if signed else 3.4) * strength)[order],
            zorder=1,
        )
    )
    size = float(np.clip(2200 / max(len(shown), 1), 8, 90))
    nodes = np.zeros(len(shown)) if node_values is None else np.asarray(node_values)[shown]
    with_ring = np.isin(shown, [] if ringed is None else ringed)
    rings = [theme.ink if ring else theme.paper for ring in with_ring]
    axes.scatter(
        *places.T,
        s=size,
        c=_shades(nodes, theme) if node_colours is None else node_colours[shown],
        edgecolors=rings,
        linewidths=np.where(with_ring, 0.2, 0.06) * size**0.5,
        zorder=2,
    )
    if len(shown) <= MAX_NUMBERED_NODES:
        for place, i in zip(places, shown):
            axes.annotate(
                str(i),
                place,
                xytext=(0, 0.55 * size**0.5),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=6,
                color=theme.muted,
                zorder=3,
            )
    axes.margins(0.08)
    axes.set_axis_off()


def _shades(values: np.ndarray, theme: Theme) -> np.ndarray:
    """Colours from grey at 0 to blue at the largest absolute value, or orange below 0."""
    share = (np.abs(values) / max(np.abs(values).max(initial=0), 1e-300))[:, None] ** 0.7
    base = 0.55 * np.array(to_rgb(theme.grid)) + 0.45 * np.array(to_rgb(theme.muted))
    end = np.where(values[:, None] >= 0, to_rgb(theme.blue), to_rgb(theme.orange))
    return (1 - share) * base + share * end


def _most_important(importance: np.ndarray) -> np.ndarray:
    """The nodes that are drawn: all of a small graph, of a large one those that matter."""
    if len(importance) <= MAX_DRAWN_NODES:
        return np.arange(len(importance))
    largest = importance[np.isfinite(importance)].max()
    chosen = np.argsort(-importance, kind="stable")[:MAX_DRAWN_NODES]
    return np.sort(chosen[importance[chosen] > NEGLIGIBLE * largest])


def _surroundings(importance: np.ndarray, senders: Any, receivers: Any) -> np.ndarray:
    """The nodes that are drawn: those around the most important node, in the order of a
    breadth-first search; if its component is small, then those around the next one.
    """
    n = len(importance)
    if n <= MAX_DRAWN_NODES:
        return np.arange(n)
    A = coo_array((np.ones(len(senders)), (senders, receivers)), shape=(n, n)).tocsr()
    shown = np.zeros(n, bool)
    for start in np.argsort(-importance, kind="stable"):
        room = MAX_DRAWN_NODES - int(shown.sum())
        if room and not shown[start]:
            order = breadth_first_order(A, start, directed=False, return_predecessors=False)
            shown[order[:room]] = True
        if not room:
            break
    return np.flatnonzero(shown)
