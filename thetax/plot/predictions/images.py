"""Figures of convolutional networks: filters, feature maps, saliency, translation equivariance."""

import math
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ...explain.attribution import Equivariance, FeatureMaps, Filters, Saliency
from ..draw import new_figure, register_drawing
from ..networks.depth import MAX_ROWS
from ..theme import WIDTH, Theme
from .classification import as_images

MAX_KERNELS = 32  # kernels shown
N_COLUMNS = 8  # images in a row
MIN_ERROR = 1e-7  # smaller errors are rounding errors


def signed(values: np.ndarray, theme: Theme, *, max_value: float | None = None) -> np.ndarray:
    """An image `h w 4` of signed values: positive in blue, negative in orange, transparent at 0.

    The colour is full at `max_value`, by default the largest absolute value.
    """
    scale = max(np.abs(values).max() if max_value is None else max_value, 1e-12)
    tint = np.where((values > 0)[..., None], to_rgb(theme.blue), to_rgb(theme.orange))
    return np.concatenate([tint, np.clip(np.abs(values) / scale, 0, 1)[..., None]], axis=-1)


def _grid(figure: Any, rows: int, columns: int) -> np.ndarray:
    """Panels without axes."""
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
    """A title that may be wider than its panel and does not affect the layout."""
    axes.text(
        0, 1.06, text, transform=axes.transAxes, fontsize=8.5, fontweight="bold"
    ).set_in_layout(False)


def draw_image(axes: Any, image: np.ndarray) -> None:
    """Draws a grey or colour image, scaled to its range."""
    low = image.min()
    high = image.max()
    axes.imshow(
        (image - low) / max(high - low, 1e-12),
        cmap="gray",
        interpolation="nearest",
        vmin=0,
        vmax=1,
    )


@register_drawing(Filters)
def _filters(result: Filters, theme: Theme) -> Figure:
    # kernels of a signal become images with one row
    W = result.kernels if result.kernels.ndim == 4 else result.kernels[:, :, None]
    is_colour = W.shape[1] == 3
    planes = W if is_colour or W.shape[1] == 1 else W.reshape(-1, 1, *W.shape[2:])
    shown = planes[:MAX_KERNELS]
    max_value = float(np.abs(planes).max())
    rows = math.ceil(len(shown) / N_COLUMNS)
    figure = new_figure(0.35 + 0.68 * rows)
    for axes, kernel in zip(_grid(figure, rows, N_COLUMNS).ravel(), shown):
        _frame(axes, theme)
        if is_colour:
            axes.imshow(np.moveaxis(0.5 + kernel / (2 * max_value), 0, -1), interpolation="nearest")
        else:
            axes.imshow(signed(kernel[0], theme, max_value=max_value), interpolation="nearest")
    m, c, *window = result.kernels.shape
    size = " × ".join(map(str, window))
    note = f"; the first {MAX_KERNELS} of {len(planes)}" if len(planes) > MAX_KERNELS else ""
    figure.suptitle(
        f"{m} kernels of {size}{f' on {c} channels' if c > 1 else ''}{note}",
        x=0.01,
        ha="left",
        fontsize=9,
    )
    return figure


@register_drawing(FeatureMaps)
def _feature_maps(result: FeatureMaps, theme: Theme) -> Figure:
    shown = np.unique(
        np.linspace(0, len(result.maps) - 1, min(len(result.maps), 6)).round().astype(int)
    )
    figure = new_figure(0.15 + 0.84 * len(shown))
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.15 / figure.get_figheight()))  # type: ignore[union-attr]
    panels = _grid(figure, len(shown), N_COLUMNS)
    for i, (row, at) in enumerate(zip(panels, shown)):
        maps = result.maps[at] if result.maps[at].ndim == 3 else result.maps[at][:, None]
        if not i and (images := as_images(result.x[None])) is not None:
            draw_image(row[0], images[0])
        strongest = np.argsort(-np.abs(maps).max(axis=(1, 2)), kind="stable")[: N_COLUMNS - 1]
        for axes, channel in zip(row[1:], sorted(strongest)):
            _frame(axes, theme)
            axes.imshow(
                signed(maps[channel], theme, max_value=float(np.abs(maps).max())),
                interpolation="nearest",
            )
        size = "×".join(map(str, result.maps[at].shape[1:]))
        _name(row[1], f"{result.layers[at]}, {size}")
    return figure


@register_drawing(Saliency)
def _saliency(result: Saliency, theme: Theme) -> Figure:
    images = as_images(result.x)
    magnitudes = as_images(result.magnitude)
    if images is None or magnitudes is None:
        return _saliency_bars(result, theme)
    columns = min(4, len(images))
    rows = math.ceil(len(images) / columns)
    figure = new_figure(0.15 + 0.85 * rows, WIDTH * columns / 4)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.15 / figure.get_figheight()))  # type: ignore[union-attr]
    pairs = _grid(figure, rows, 2 * columns).reshape(-1, 2)
    for (left, right), image, size, predicted in zip(pairs, images, magnitudes, result.predicted):
        draw_image(left, image)
        _frame(right, theme)
        right.imshow(signed(size, theme), interpolation="nearest")
        _name(left, result.classes[predicted])
    return figure


def _saliency_bars(result: Saliency, theme: Theme) -> Figure:
    size = result.magnitude.reshape(len(result.x), -1).mean(axis=0)
    order = np.argsort(-size)[:MAX_ROWS]
    figure = new_figure(0.8 + 0.22 * len(order))
    axes = figure.subplots()
    axes.barh(range(len(order)), size[order], color=theme.blue, height=0.6)
    axes.set_yticks(range(len(order)), [f"x{j + 1}" for j in order])
    axes.set(xlabel="mean absolute gradient of the predicted logit", ylim=(len(order) - 0.4, -0.6))
    axes.grid(visible=False, axis="y")
    return figure


@register_drawing(Equivariance)
def _equivariance(result: Equivariance, theme: Theme) -> Figure:
    strides, last = np.unique(result.stride, return_inverse=True)
    # the last layer of each stride
    layers = [int(np.flatnonzero(last == i)[-1]) for i in range(len(strides))]
    figure = new_figure(5.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 4))
    for colour, i in zip(theme.lines * len(layers), layers):
        interior, everywhere = (
            np.maximum(errors[i], MIN_ERROR) for errors in (result.interior, result.everywhere)
        )
        dots = np.where(np.isnan(interior), everywhere, interior)
        is_multiple = result.is_multiple[i]
        name = f"{result.layers[i]}, stride {result.stride[i]}"
        for mask, fill, label in ((is_multiple, colour, name), (~is_multiple, theme.paper, None)):
            above.plot(result.shifts[mask], interior[mask], color=colour, linewidth=1.4)
            above.plot(result.shifts[mask], everywhere[mask], ":", color=colour, linewidth=1.4)
            above.plot(
                result.shifts[mask],
                dots[mask],
                "o",
                color=colour,
                markerfacecolor=fill,
                label=label,
            )
    above.set(yscale="log", ylim=(MIN_ERROR / 2, 4), ylabel="equivariance error")
    above.set_yticks(
        [MIN_ERROR, 1e-5, 1e-3, 1e-1], [r"$\leq 10^{-7}$", "$10^{-5}$", "$10^{-3}$", "$10^{-1}$"]
    )
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8.5, handlelength=1.2)
    note = "solid: interior, dotted: all, hollow: not a multiple of the stride"
    above.set_title(note, fontsize=8.5, fontweight="normal", color=theme.muted)
    below.plot(
        result.shifts,
        100 * result.output,
        "o-",
        color=theme.blue,
        label="relative change of the output (%)",
    )
    below.plot(
        result.shifts,
        100 * (1 - result.unchanged),
        "o-",
        color=theme.orange,
        label="predictions changed (%)",
    )
    below.set(xlabel="shift to the right (pixels)", ylim=(0, None), xticks=result.shifts)
    below.legend(frameon=False, fontsize=8.5)
    return figure
