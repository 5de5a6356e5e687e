"""How the crowd inside a network with dropout looks: its doubts, and its price."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from ...explain import DropoutBelief, DropoutPenalty
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(DropoutBelief)
def _belief(result: DropoutBelief, theme: Theme) -> Figure:
    figure = new_figure(3.4)
    left, right = figure.subplots(1, 2)
    most = np.log(result.probability.shape[1])
    own = np.maximum(result.entropy - result.information, 0)
    left.plot(
        own, result.information, "o", markersize=3.5, alpha=0.5, markeredgewidth=0, color=theme.blue
    )
    left.set(xlabel="doubt of the members (nats)", ylabel="disagreement between them (nats)")
    left.set(xlim=(-0.02 * most, 1.03 * most), ylim=(-0.02 * most, None))
    edges = np.linspace(0, most, 31)
    total = np.clip(result.entropy, 0, most)
    right.hist(total, bins=edges, color=theme.blue, alpha=0.5, label="in all")
    right.hist(
        np.clip(result.information, 0, most),
        bins=edges,
        histtype="step",
        color=theme.orange,
        linewidth=1.6,
        label="disagreement",
    )
    right.set(xlabel="doubt (nats)", ylabel="examples", yscale="symlog")
    right.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    right.legend(frameon=False)
    return figure


@register_drawing(DropoutPenalty)
def _penalty(result: DropoutPenalty, theme: Theme) -> Figure:
    figure = new_figure(1.9)
    axes = figure.subplots()
    names = ("without dropout", "with dropout", "to second order")
    added = np.array([0.0, result.value, result.quadratic])
    error = np.array([0.0, result.error, result.quadratic_error])
    row = np.arange(3)
    axes.barh(row, result.objective, color=theme.blue, alpha=0.5, height=0.6)
    axes.barh(row, added, left=result.objective, color=theme.orange, alpha=0.8, height=0.6)
    axes.errorbar(
        result.objective + added[1:],
        row[1:],
        xerr=2 * error[1:],
        fmt="none",
        color=theme.ink,
        capsize=3,
    )
    axes.set_yticks(row, names)
    axes.set(xlabel="objective, and what dropout adds to it", ylim=(2.6, -0.6))
    axes.grid(visible=False, axis="y")
    return figure
