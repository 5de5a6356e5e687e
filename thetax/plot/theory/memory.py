"""Figures of associative memories: stored, corrupted and recalled patterns, and overlap by load."""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ...explain.associative_memory import MemoryCapacity, MemoryRecall
from ..draw import new_figure, register_drawing
from ..predictions.classification import as_images
from ..theme import WIDTH, Theme

MAX_COLUMNS = 10  # patterns shown


@register_drawing(MemoryRecall)
def _recall(result: MemoryRecall, theme: Theme) -> Figure:
    rows = {
        "stored": result.stored,
        "corrupted": result.corrupted,
        **dict(zip(result.names, result.recalled)),
    }
    shown = min(MAX_COLUMNS, len(result.stored))
    notes = [None, None, *(f"{100 * exact:.0f} % exact" for exact in result.exact)]
    overlaps = [None, None, *result.overlaps]
    figure = new_figure(0.25 + 0.56 * len(rows), WIDTH)
    panels = figure.subplots(len(rows), shown, squeeze=False)
    for row, (name, states), note, overlap in zip(panels, rows.items(), notes, overlaps):
        for i, (axes, image) in enumerate(zip(row, _as_images(states[:shown]))):
            axes.imshow(
                image,
                cmap=ListedColormap([theme.grid, theme.ink]),
                vmin=-1,
                vmax=1,
                interpolation="nearest",
            )
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if overlap is not None and overlap[i] < 1:
                axes.spines[:].set(visible=True, color=theme.orange, linewidth=1.6)
        label = name if note is None else f"{name}\n{note}"
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
    if (result.overlaps[:, :shown] < 1).any():
        figure.supxlabel(
            "orange frame: recalled with errors",
            fontsize=8.5,
            color=theme.orange,
            ha="right",
            x=0.99,
        )
    return figure


def _as_images(states: np.ndarray) -> np.ndarray:
    """Square images if the number of units is a square, otherwise images with one row."""
    images = as_images(states)
    return states[:, None] if images is None else images


@register_drawing(MemoryCapacity)
def _capacity(result: MemoryCapacity, theme: Theme) -> Figure:
    figure = new_figure(3.0)
    axes = figure.subplots()
    low = result.overlaps.min(axis=1)
    high = result.overlaps.max(axis=1)
    axes.fill_between(
        result.loads,
        low,
        high,
        color=theme.blue,
        alpha=0.2,
        linewidth=0,
        label="smallest to largest",
    )
    axes.plot(
        result.loads,
        result.overlap,
        "o-",
        color=theme.blue,
        label=f"mean overlap, d = {result.sites:,}",
    )
    axes.axvline(0.138, color=theme.muted, linewidth=1, linestyle=":", label="critical load 0.138")
    axes.set(
        xlabel="load n / d (patterns per unit)",
        ylabel="overlap with the stored pattern",
        ylim=(-0.05, 1.05),
    )
    axes.legend(frameon=False, fontsize=8.5)
    return figure
