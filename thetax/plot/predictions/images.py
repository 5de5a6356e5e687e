"""Images: what a convolution looks for and finds, what a judgement hangs on, and whether layers
move with the image.
"""

import math
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ...explain import Equivariance, FeatureMaps, Filters, Saliency
from ..draw import new_figure, register_drawing
from ..networks.depth import ROWS
from ..theme import WIDTH, Theme
from .judgement import as_images

MOST = 32  # kernels shown
ACROSS = 8  # pictures in a row
FLOOR = 1e-7  # errors below this are rounding


def signed(values: np.ndarray, theme: Theme, *, most: float | None = None) -> np.ndarray:
    """A picture `h w 4` of numbers of both signs: blue above zero and orange below, clear at
    zero.
    """
    scale = max(np.abs(values).max() if most is None else most, 1e-12)
    tint = np.where((values > 0)[..., None], to_rgb(theme.blue), to_rgb(theme.orange))
    return np.concatenate([tint, np.clip(np.abs(values) / scale, 0, 1)[..., None]], axis=-1)


def _grid(figure: Any, rows: int, columns: int) -> np.ndarray:
    """Empty panels, side by side."""
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.ravel():
        axes.axis("off")
    return panels


def _frame(axes: Any, theme: Theme) -> None:
    axes.axis("on")
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, color=theme.grid)


def _name(axes: Any, text: str) -> None:
    """A title that may be wider than its panel, and makes no room for itself."""
    axes.text(
        0, 1.06, text, transform=axes.transAxes, fontsize=8.5, fontweight="bold"
    ).set_in_layout(False)


def grey(axes: Any, picture: np.ndarray) -> None:
    """A picture, grey or coloured, from its darkest to its lightest number."""
    low = picture.min()
    high = picture.max()
    axes.imshow(
        (picture - low) / max(high - low, 1e-12),
        cmap="gray",
        interpolation="nearest",
        vmin=0,
        vmax=1,
    )


@register_drawing(Filters)
def _filters(result: Filters, theme: Theme) -> Figure:
    W = (
        result.kernels if result.kernels.ndim == 4 else result.kernels[:, :, None]
    )  # of a signal: one row
    coloured = W.shape[1] == 3
    planes = W if coloured or W.shape[1] == 1 else W.reshape(-1, 1, *W.shape[2:])
    shown = planes[:MOST]
    most = float(np.abs(planes).max())
    rows = math.ceil(len(shown) / ACROSS)
    figure = new_figure(0.35 + 0.68 * rows)
    for axes, kernel in zip(_grid(figure, rows, ACROSS).ravel(), shown):
        _frame(axes, theme)
        if coloured:
            axes.imshow(np.moveaxis(0.5 + kernel / (2 * most), 0, -1), interpolation="nearest")
        else:
            axes.imshow(signed(kernel[0], theme, most=most), interpolation="nearest")
    m, c, *window = result.kernels.shape
    size = " × ".join(map(str, window))
    left = f"; the first {MOST} of {len(planes)}" if len(planes) > MOST else ""
    figure.suptitle(
        f"{m} kernels of {size}{f' on {c} channels' if c > 1 else ''}{left}",
        x=0.01,
        ha="left",
        fontsize=9,
    )
    return figure


@register_drawing(FeatureMaps)
def _feature_maps(result: FeatureMaps, theme: Theme) -> Figure:
    some = np.unique(
        np.linspace(0, len(result.maps) - 1, min(len(result.maps), 6)).round().astype(int)
    )
    figure = new_figure(0.15 + 0.84 * len(some))
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.15 / figure.get_figheight()))  # type: ignore[union-attr]
    panels = _grid(figure, len(some), ACROSS)
    for i, (row, at) in enumerate(zip(panels, some)):
        maps = result.maps[at] if result.maps[at].ndim == 3 else result.maps[at][:, None]
        if not i and (pictures := as_images(result.x[None])) is not None:
            grey(row[0], pictures[0])
        strong = np.argsort(-np.abs(maps).max(axis=(1, 2)), kind="stable")[: ACROSS - 1]
        for axes, channel in zip(row[1:], sorted(strong)):
            _frame(axes, theme)
            axes.imshow(
                signed(maps[channel], theme, most=float(np.abs(maps).max())),
                interpolation="nearest",
            )
        size = "×".join(map(str, result.maps[at].shape[1:]))
        _name(row[1], f"{result.layers[at]}, {size}")
    return figure


@register_drawing(Saliency)
def _saliency(result: Saliency, theme: Theme) -> Figure:
    pictures = as_images(result.x)
    sizes = as_images(result.size)
    if pictures is None or sizes is None:
        return _salient_numbers(result, theme)
    columns = min(4, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    figure = new_figure(0.15 + 0.85 * rows, WIDTH * columns / 4)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.15 / figure.get_figheight()))  # type: ignore[union-attr]
    pairs = _grid(figure, rows, 2 * columns).reshape(-1, 2)
    for (left, right), picture, size, guess in zip(pairs, pictures, sizes, result.guess):
        grey(left, picture)
        _frame(right, theme)
        right.imshow(signed(size, theme), interpolation="nearest")
        _name(left, result.classes[guess])
    return figure


def _salient_numbers(result: Saliency, theme: Theme) -> Figure:
    size = result.size.reshape(len(result.x), -1).mean(axis=0)
    order = np.argsort(-size)[:ROWS]
    figure = new_figure(0.8 + 0.22 * len(order))
    axes = figure.subplots()
    axes.barh(range(len(order)), size[order], color=theme.blue, height=0.6)
    axes.set_yticks(range(len(order)), [f"x{j + 1}" for j in order])
    axes.set(xlabel="mean slope of the chosen logit", ylim=(len(order) - 0.4, -0.6))
    axes.grid(visible=False, axis="y")
    return figure


@register_drawing(Equivariance)
def _equivariance(result: Equivariance, theme: Theme) -> Figure:
    strides, last = np.unique(result.stride, return_inverse=True)
    chosen = [
        int(np.flatnonzero(last == i)[-1]) for i in range(len(strides))
    ]  # the last layer of each stride
    figure = new_figure(5.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 4))
    for colour, i in zip(theme.lines * len(chosen), chosen):
        inside, everywhere = (
            np.maximum(errors[i], FLOOR) for errors in (result.inside, result.everywhere)
        )
        dots = np.where(np.isnan(inside), everywhere, inside)
        whole = result.whole[i]
        name = f"{result.layers[i]}, stride {result.stride[i]}"
        for at, fill, label in ((whole, colour, name), (~whole, theme.paper, None)):
            above.plot(result.shifts[at], inside[at], color=colour, linewidth=1.4)
            above.plot(result.shifts[at], everywhere[at], ":", color=colour, linewidth=1.4)
            above.plot(
                result.shifts[at], dots[at], "o", color=colour, markerfacecolor=fill, label=label
            )
    above.set(yscale="log", ylim=(FLOOR / 2, 4), ylabel="relative error")
    above.set_yticks(
        [FLOOR, 1e-5, 1e-3, 1e-1], [r"$\leq 10^{-7}$", "$10^{-5}$", "$10^{-3}$", "$10^{-1}$"]
    )
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8.5, handlelength=1.2)
    note = "solid: interior, dotted: everywhere, hollow: between strides"
    above.set_title(note, fontsize=8.5, fontweight="normal", color=theme.muted)
    below.plot(
        result.shifts, 100 * result.output, "o-", color=theme.blue, label="change of the output, %"
    )
    below.plot(
        result.shifts,
        100 * (1 - result.kept),
        "o-",
        color=theme.orange,
        label="examples that change class, %",
    )
    below.set(xlabel="pixels to the right", ylim=(0, None), xticks=result.shifts)
    below.legend(frameon=False, fontsize=8.5)
    return figure
