"""Figures of a classifier: calibration, confusion matrix, most confident mistakes."""

import math

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from ...explain.predictions import Calibration, ConfidentMistakes, ConfusionMatrix
from ..draw import new_figure, register_drawing
from ..theme import WIDTH, Theme


@register_drawing(Calibration)
def _calibration(result: Calibration, theme: Theme) -> Figure:
    figure = new_figure(4.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    bins = len(result.count)
    has_examples = result.count > 0
    above.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    low, high = result.interval
    above.vlines(
        result.confidence[has_examples],
        low[has_examples],
        high[has_examples],
        color=theme.blue,
        alpha=0.35,
        linewidth=2,
    )
    area = 12 + 110 * np.sqrt(result.count[has_examples] / result.count.max())
    above.scatter(
        result.confidence[has_examples],
        result.accuracy[has_examples],
        s=area,
        color=theme.blue,
        linewidths=0,
        zorder=3,
    )
    above.annotate("underconfident", (0.03, 0.94), color=theme.muted)
    above.annotate("overconfident", (0.97, 0.03), color=theme.muted, ha="right")
    above.set(ylabel="accuracy", xlim=(0, 1.02), ylim=(-0.02, 1.04))
    below.stairs(result.count, np.linspace(0, 1, bins + 1), fill=True, color=theme.blue, alpha=0.5)
    below.set(xlabel="confidence", ylabel="examples", yscale="symlog")
    below.set_ylim(bottom=0)
    below.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    return figure


@register_drawing(ConfusionMatrix)
def _confusion(result: ConfusionMatrix, theme: Theme) -> Figure:
    k = len(result.classes)
    side = min(2.4 + 0.32 * k, WIDTH) + 0.08 * max(k - 30, 0)
    figure = new_figure(side * 0.92, side)
    axes = figure.subplots()
    total = np.maximum(result.counts.sum(axis=1, keepdims=True), 1)
    share = result.counts / total
    right = np.eye(k, dtype=bool)
    tint = np.where(right[..., None], to_rgb(theme.blue), to_rgb(theme.orange))
    # a pale diagonal, and mistakes that are visible from 2 % on
    alpha = np.where(right, 0.45 * share, np.clip(0.3 + 2 * share, 0, 0.95) * (result.counts > 0))
    axes.imshow(np.concatenate([tint, alpha[..., None]], axis=2), interpolation="nearest")
    if k <= 20:
        size = 9.5 if k <= 12 else 7
        for i, j in zip(*np.nonzero(result.counts)):
            axes.text(j, i, str(result.counts[i, j]), ha="center", va="center", fontsize=size)
    every = 1 if k <= 40 else math.ceil(k / 40)
    long = max(len(name) for name in result.classes) > 3
    axes.set_xticks(
        range(0, k, every), result.classes[::every], rotation=90 if long and k > 4 else 0
    )
    axes.set_yticks(range(0, k, every), result.classes[::every])
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    return figure


@register_drawing(ConfidentMistakes)
def _confident_mistakes(result: ConfidentMistakes, theme: Theme) -> Figure:
    images = as_images(result.x)
    if not len(result.indices):
        figure = new_figure(1.0)
        figure.text(
            0.5, 0.5, f"no mistakes among {result.n_examples} examples", ha="center", va="center"
        )
        return figure
    return _draw_bars(result, theme) if images is None else _draw_images(result, images, theme)


def as_images(x: np.ndarray) -> np.ndarray | None:
    """Examples as images `n h w` or `n h w 3`, or None if they are not images.

    An image has the shape `h w`, or `c h w` with 1 or 3 channels, or is a vector of a square length
    of at least 25. Integers are token ids, not images.

    >>> (
    ...     as_images(np.zeros((2, 64))).shape,
    ...     as_images(np.zeros((2, 3, 8, 8))).shape,
    ...     as_images(np.zeros((2, 7))),
    ... )
    ((2, 8, 8), (2, 8, 8, 3), None)
    """
    if np.issubdtype(x.dtype, np.signedinteger):
        return None
    if x.ndim == 2:
        side = math.isqrt(x.shape[1])
        return x.reshape(len(x), side, side) if side**2 == x.shape[1] and side >= 5 else None
    if x.ndim == 4 and x.shape[1] in (1, 3):
        return x[:, 0] if x.shape[1] == 1 else np.moveaxis(x, 1, -1)
    return x if x.ndim == 3 and min(x.shape[1:]) > 1 else None


def _draw_images(result: ConfidentMistakes, images: np.ndarray, theme: Theme) -> Figure:
    columns = min(4, len(images))
    rows = math.ceil(len(images) / columns)
    figure = new_figure(1.7 * rows, WIDTH * columns / 4)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    names = result.classes
    gap = " " if max(map(len, names)) <= 4 else "\n"
    for axes in panels:
        axes.axis("off")
    for i, (axes, image) in enumerate(zip(panels, images)):
        low = image.min()
        high = image.max()
        axes.imshow(
            (image - low) / max(high - low, 1e-12),
            cmap="gray",
            interpolation="nearest",
            vmin=0,
            vmax=1,
        )
        predicted = names[result.predicted[i]][:14]
        truth = names[result.truth[i]][:14]
        axes.set_title(f"{predicted},{gap}not {truth}", fontsize=9, loc="center", pad=3)
        confidence = f"confidence {100 * result.confidence[i]:.0f} %"
        axes.text(
            0.5,
            -0.04,
            confidence,
            transform=axes.transAxes,
            ha="center",
            va="top",
            fontsize=8.5,
            color=theme.muted,
        )
    return figure


def _draw_bars(result: ConfidentMistakes, theme: Theme) -> Figure:
    m = len(result.indices)
    figure = new_figure(0.9 + 0.27 * m)
    axes = figure.subplots()
    row = np.arange(m)
    axes.hlines(row, result.truth_probability, result.confidence, color=theme.grid, linewidth=3)
    axes.plot(result.truth_probability, row, "o", color=theme.blue, label="true class")
    axes.plot(result.confidence, row, "o", color=theme.orange, label="predicted class")
    name = lambda i: (
        f"{result.classes[result.predicted[i]]}, not {result.classes[result.truth[i]]}  (example "
        f"{result.indices[i]})"
    )
    axes.set_yticks(row, [name(i) for i in row])
    axes.set(xlim=(-0.02, 1.02), ylim=(m - 0.5, -0.5), xlabel="predicted probability")
    axes.grid(visible=False, axis="y")
    figure.legend(loc="outside upper right", ncols=2, frameon=False, labelcolor="linecolor")
    return figure
