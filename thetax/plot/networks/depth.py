"""Figures with one row per layer, from the input (top) to the output (bottom): weights,
activations, gradients.
"""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...explain.signal import ActivationStatistics, GradientNorms, WeightStatistics
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme

MAX_ROWS = 24  # with more layers, rows are closer and only some are labelled


def _height(layers: int) -> float:
    return 0.26 * layers if layers <= MAX_ROWS else 0.26 * MAX_ROWS


def _marker_size(layers: int) -> float:
    return 5.0 if layers <= MAX_ROWS else 3.0


def _name_rows(axes: Axes, names: tuple[str, ...]) -> None:
    stride = math.ceil(len(names) / MAX_ROWS)
    axes.set_yticks(range(0, len(names), stride), names[::stride])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


@register_drawing(WeightStatistics)
def _weights(result: WeightStatistics, theme: Theme) -> Figure:
    layers = len(result.layers)
    shown = np.unique(np.linspace(0, layers - 1, min(layers, 14)).round().astype(int))
    figure = new_figure(0.7 + 0.5 * len(shown))
    axes = figure.subplots()
    for row, i in enumerate(shown):
        height = result.density[i] / result.density[i].max()
        base = len(shown) - 1 - row
        axes.stairs(
            base + 0.82 * height,
            result.edges[i],
            baseline=base,
            fill=True,
            color=theme.blue,
            alpha=0.3,
        )
        axes.stairs(
            base + 0.82 * height, result.edges[i], baseline=base, color=theme.blue, linewidth=1.1
        )
        note = f"σ {result.std[i]:.3g}"
        position = {
            "xycoords": ("axes fraction", "data"),
            "xytext": (6, 0),
            "textcoords": "offset points",
        }
        axes.annotate(
            note, (1, base + 0.25), **position, color=theme.muted, va="center", fontsize=9
        )
    axes.set_yticks(
        [len(shown) - 1 - row + 0.25 for row in range(len(shown))],
        [result.layers[i] for i in shown],
    )
    axes.set(xlabel="parameter value", ylim=(-0.1, len(shown)))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    return figure


@register_drawing(ActivationStatistics)
def _activations(result: ActivationStatistics, theme: Theme) -> Figure:
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
        linewidth=_marker_size(layers),
    )
    left.plot(result.mean, row, "o", color=theme.blue, markersize=_marker_size(layers))
    left.set(xlabel="output: mean ± std")
    right.plot(
        100 * result.zeros,
        row,
        "o-",
        color=theme.blue,
        linewidth=1,
        markersize=_marker_size(layers),
    )
    right.plot(
        100 * result.dead,
        row,
        "o-",
        color=theme.orange,
        linewidth=1,
        markersize=_marker_size(layers),
    )
    right.set(xlabel="%", xlim=(-4, 104))
    right.set_title("zeros", color=theme.blue, fontsize=9)
    right.set_title("dead units", color=theme.orange, fontsize=9, loc="right")
    _name_rows(left, result.layers)
    right.tick_params(axis="y", length=0)
    right.grid(visible=False, axis="y")
    right.spines["left"].set_visible(False)
    return figure


@register_drawing(GradientNorms)
def _gradients(result: GradientNorms, theme: Theme) -> Figure:
    l = len(result.layers)
    m = len(result.parameter_layers)
    figure = new_figure(1.6 + _height(l) + _height(m))
    above, below = figure.subplots(2, 1, height_ratios=(max(_height(l), 0.8), max(_height(m), 0.8)))
    parts = (
        (
            above,
            result.layers,
            result.outputs,
            theme.blue,
            "gradient with respect to the layer output",
        ),
        (
            below,
            result.parameter_layers,
            result.weights,
            theme.orange,
            "gradient with respect to the layer parameters",
        ),
    )
    for axes, names, sizes, colour, title in parts:
        row = np.arange(len(names))
        shown = np.where(sizes > 0, sizes, np.nan)
        axes.plot(shown, row, "o-", color=colour, linewidth=1, markersize=_marker_size(len(names)))
        axes.set_title(title, color=colour)
        if np.isfinite(shown).any():
            # at least a factor of four, so that small variations look flat
            log_axis(axes.xaxis, np.nanmin(shown) / 2, np.nanmax(shown) * 2)
        _name_rows(axes, names)
    below.set_xlabel("L2 norm")
    return figure
