"""Figures of MC dropout: entropy and mutual information; and of the penalty that dropout adds."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from ...explain.predictions import DropoutPenalty, MCDropout
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(MCDropout)
def _mc_dropout(result: MCDropout, theme: Theme) -> Figure:
    figure = new_figure(3.4)
    left, right = figure.subplots(1, 2)
    max_entropy = np.log(result.probability.shape[1])
    aleatoric = np.maximum(result.entropy - result.mutual_information, 0)
    left.plot(
        aleatoric,
        result.mutual_information,
        "o",
        markersize=3.5,
        alpha=0.5,
        markeredgewidth=0,
        color=theme.blue,
    )
    left.set(xlabel="mean entropy over masks (nats)", ylabel="mutual information (nats)")
    left.set(xlim=(-0.02 * max_entropy, 1.03 * max_entropy), ylim=(-0.02 * max_entropy, None))
    edges = np.linspace(0, max_entropy, 31)
    total = np.clip(result.entropy, 0, max_entropy)
    right.hist(total, bins=edges, color=theme.blue, alpha=0.5, label="entropy")
    right.hist(
        np.clip(result.mutual_information, 0, max_entropy),
        bins=edges,
        histtype="step",
        color=theme.orange,
        linewidth=1.6,
        label="mutual information",
    )
    right.set(xlabel="uncertainty (nats)", ylabel="examples", yscale="symlog")
    right.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    right.legend(frameon=False)
    return figure


@register_drawing(DropoutPenalty)
def _penalty(result: DropoutPenalty, theme: Theme) -> Figure:
    figure = new_figure(1.9)
    axes = figure.subplots()
    names = ("without dropout", "with dropout", "second-order approximation")
    penalty = np.array([0.0, result.value, result.quadratic])
    error = np.array([0.0, result.error, result.quadratic_error])
    row = np.arange(3)
    axes.barh(row, result.objective, color=theme.blue, alpha=0.5, height=0.6)
    axes.barh(row, penalty, left=result.objective, color=theme.orange, alpha=0.8, height=0.6)
    axes.errorbar(
        result.objective + penalty[1:],
        row[1:],
        xerr=2 * error[1:],
        fmt="none",
        color=theme.ink,
        capsize=3,
    )
    axes.set_yticks(row, names)
    axes.set(xlabel="objective (orange: added by dropout)", ylim=(2.6, -0.6))
    axes.grid(visible=False, axis="y")
    return figure
