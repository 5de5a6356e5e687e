"""Figure of the predictive entropy of correct and wrong predictions, and of the most uncertain
examples.
"""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...explain.predictions import DropoutUncertainty
from ..draw import new_figure, register_drawing
from ..theme import Theme
from .classification import as_images

COLUMNS = 4


@register_drawing(DropoutUncertainty)
def _dropout_uncertainty(result: DropoutUncertainty, theme: Theme) -> Figure:
    images = as_images(result.x)
    if images is None:
        figure = new_figure(3.0)
        _histograms(figure, result, theme)
        return figure
    rows = math.ceil(len(images) / COLUMNS)
    figure = new_figure(3.0 + 1.75 * rows)
    parts: Any = figure.subfigures(2, 1, height_ratios=(3.0, 1.75 * rows))
    above, below = parts
    _histograms(above, result, theme)
    panels = below.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in panels:
        axes.axis("off")
    for axes, image, i in zip(panels, images, result.indices):
        _draw_image(axes, image, result, int(i), theme)
    return figure


def _histograms(figure: Any, result: DropoutUncertainty, theme: Theme) -> None:
    max_entropy = math.log(result.prediction.probability.shape[1])
    entropy = np.clip(result.prediction.entropy, 0, max_entropy)
    parts = ("correct", result.correct, theme.blue), ("wrong", ~result.correct, theme.orange)
    for axes, (name, mask, colour) in zip(figure.subplots(2, 1, sharex=True), parts):
        axes.hist(entropy[mask], bins=np.linspace(0, max_entropy, 31), color=colour, alpha=0.7)
        axes.set_title(f"{mask.sum():,} {name}", color=colour)
        axes.set(yscale="symlog", ylabel="examples", xlim=(0, max_entropy), ylim=(0, None))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("predictive entropy (nats)")


def _draw_image(
    axes: Any, image: np.ndarray, result: DropoutUncertainty, i: int, theme: Theme
) -> None:
    low = image.min()
    high = image.max()
    axes.imshow(
        (image - low) / max(high - low, 1e-12),
        cmap="gray",
        interpolation="nearest",
        vmin=0,
        vmax=1,
    )
    first, second = np.argsort(-result.prediction.probability[i])[:2]
    name = lambda j: result.classes[j][:10]
    axes.set_title(f"{name(first)} or {name(second)}?", fontsize=9, loc="center", pad=3)
    outcome = "correct" if result.correct[i] else f"true: {name(result.truth[i])}"
    note = f"{outcome}, {result.prediction.entropy[i]:.2f} nats"
    colour = theme.muted if result.correct[i] else theme.orange
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
