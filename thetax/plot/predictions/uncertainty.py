"""Doubt: whether the wrong answers are the doubtful ones, and the examples doubted most."""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...explain import Doubt
from ..draw import new_figure, register_drawing
from ..theme import Theme
from .judgement import as_images

COLUMNS = 4


@register_drawing(Doubt)
def _doubt(result: Doubt, theme: Theme) -> Figure:
    pictures = as_images(result.x)
    if pictures is None:
        figure = new_figure(3.0)
        _histograms(figure, result, theme)
        return figure
    rows = math.ceil(len(pictures) / COLUMNS)
    figure = new_figure(3.0 + 1.75 * rows)
    parts: Any = figure.subfigures(2, 1, height_ratios=(3.0, 1.75 * rows))
    above, below = parts
    _histograms(above, result, theme)
    panels = below.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in panels:
        axes.axis("off")
    for axes, picture, i in zip(panels, pictures, result.index):
        _picture(axes, picture, result, int(i), theme)
    return figure


def _histograms(figure: Any, result: Doubt, theme: Theme) -> None:
    most = math.log(result.belief.probability.shape[1])
    doubt = np.clip(result.belief.entropy, 0, most)
    parts = ("right", result.right, theme.blue), ("wrong", ~result.right, theme.orange)
    for axes, (name, chosen, colour) in zip(figure.subplots(2, 1, sharex=True), parts):
        axes.hist(doubt[chosen], bins=np.linspace(0, most, 31), color=colour, alpha=0.7)
        axes.set_title(f"{chosen.sum():,} {name}", color=colour)
        axes.set(yscale="symlog", ylabel="examples", xlim=(0, most), ylim=(0, None))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("doubt: entropy of the mean prediction (nats)")


def _picture(axes: Any, picture: np.ndarray, result: Doubt, i: int, theme: Theme) -> None:
    low = picture.min()
    high = picture.max()
    axes.imshow(
        (picture - low) / max(high - low, 1e-12),
        cmap="gray",
        interpolation="nearest",
        vmin=0,
        vmax=1,
    )
    first, second = np.argsort(-result.belief.probability[i])[:2]
    name = lambda j: result.classes[j][:10]
    axes.set_title(f"{name(first)} or {name(second)}?", fontsize=9, loc="center", pad=3)
    fate = "right" if result.right[i] else f"it is {name(result.truth[i])}"
    note = f"{fate}, {result.belief.entropy[i]:.2f} nats"
    colour = theme.muted if result.right[i] else theme.orange
    axes.text(
        0.5,
        -0.04,
        note,
        transform=axes.transAxes,
        ha="center",
        va="top",
        fontsize=8.5,
        color=colour,
    )
