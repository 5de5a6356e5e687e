"""What happens through depth: one row for each layer, the input above and the output below."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...explain import Activations, Gradients, Weights
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme

ROWS = 24  # more layers than these are drawn closer and named now and then


def _height(layers: int) -> float:
    return 0.26 * layers if layers <= ROWS else 0.26 * ROWS


def _dot(layers: int) -> float:
    return 5.0 if layers <= ROWS else 3.0


def _name_rows(axes: Axes, names: tuple[str, ...]) -> None:
    every = math.ceil(len(names) / ROWS)
    axes.set_yticks(range(0, len(names), every), names[::every])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


@register_drawing(Weights)
def _weights(result: Weights, theme: Theme) -> Figure:
    layers = len(result.layers)
    shown = np.unique(np.linspace(0, layers - 1, min(layers, 14)).round().astype(int))
    figure = new_figure(0.7 + 0.5 * len(shown))
    axes = figure.subplots()
    for row, i in enumerate(shown):
        step = result.density[i] / result.density[i].max()
        foot = len(shown) - 1 - row
        axes.stairs(
            foot + 0.82 * step,
            result.edges[i],
            baseline=foot,
            fill=True,
            color=theme.blue,
            alpha=0.3,
        )
        axes.stairs(
            foot + 0.82 * step, result.edges[i], baseline=foot, color=theme.blue, linewidth=1.1
        )
        note = f"σ {result.std[i]:.3g}"
        beside = {
            "xycoords": ("axes fraction", "data"),
            "xytext": (6, 0),
            "textcoords": "offset points",
        }
        axes.annotate(note, (1, foot + 0.25), **beside, color=theme.muted, va="center", fontsize=9)
    axes.set_yticks(
        [len(shown) - 1 - row + 0.25 for row in range(len(shown))],
        [result.layers[i] for i in shown],
    )
    axes.set(xlabel="value of a parameter", ylim=(-0.1, len(shown)))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    return figure


@register_drawing(Activations)
def _activations(result: Activations, theme: Theme) -> Figure:
    layers = len(result.layers)
    row = np.arange(layers)
    figure = new_figure(1.0 + _height(layers))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(4, 3))
    left.hlines(
        row,
        result.mean - result.std,
        result.mean + result.std,
        color=theme.blue,
        alpha=0.4,
        linewidth=_dot(layers),
    )
    left.plot(result.mean, row, "o", color=theme.blue, markersize=_dot(layers))
    left.set(xlabel="output: mean ± one std")
    right.plot(
        100 * result.zeros, row, "o-", color=theme.blue, linewidth=1, markersize=_dot(layers)
    )
    right.plot(
        100 * result.dead, row, "o-", color=theme.orange, linewidth=1, markersize=_dot(layers)
    )
    right.set(xlabel="%", xlim=(-4, 104))
    right.set_title("zeros", color=theme.blue, fontsize=9)
    right.set_title("dead units", color=theme.orange, fontsize=9, loc="right")
    _name_rows(left, result.layers)
    right.tick_params(axis="y", length=0)
    right.grid(visible=False, axis="y")
    right.spines["left"].set_visible(False)
    return figure


@register_drawing(Gradients)
def _gradients(result: Gradients, theme: Theme) -> Figure:
    l = len(result.layers)
    m = len(result.holders)
    figure = new_figure(1.6 + _height(l) + _height(m))
    above, below = figure.subplots(2, 1, height_ratios=(max(_height(l), 0.8), max(_height(m), 0.8)))
    parts = (
        (above, result.layers, result.outputs, theme.blue, "∂ loss / ∂ output of the layer"),
        (below, result.holders, result.weights, theme.orange, "∂ loss / ∂ parameters of the layer"),
    )
    for axes, names, sizes, colour, title in parts:
        row = np.arange(len(names))
        shown = np.where(sizes > 0, sizes, np.nan)
        axes.plot(shown, row, "o-", color=colour, linewidth=1, markersize=_dot(len(names)))
        axes.set_title(title, color=colour)
        if np.isfinite(shown).any():
            # at least a factor of four, so that noise looks flat
            log_axis(axes.xaxis, np.nanmin(shown) / 2, np.nanmax(shown) * 2)
        _name_rows(axes, names)
    below.set_xlabel("Euclidean norm")
    return figure
