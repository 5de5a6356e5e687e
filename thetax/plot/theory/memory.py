"""Memories at work: pictures stored, corrupted and recalled, and how much is left of a pattern by
the load.
"""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ...explain.memory_capacity import Capacity, Recall
from ..draw import new_figure, register_drawing
from ..predictions.judgement import as_images
from ..theme import WIDTH, Theme

COLUMNS = 10  # pictures in a row that are still told apart


@register_drawing(Recall)
def _recall(result: Recall, theme: Theme) -> Figure:
    rows = {
        "stored": result.stored,
        "corrupted": result.corrupted,
        **dict(zip(result.names, result.recalled)),
    }
    shown = min(COLUMNS, len(result.stored))
    notes = [None, None, *(f"{100 * exact:.0f} % exact" for exact in result.exact)]
    overlaps = [None, None, *result.overlaps]
    figure = new_figure(0.25 + 0.56 * len(rows), WIDTH)
    panels = figure.subplots(len(rows), shown, squeeze=False)
    for line, (name, states), note, overlap in zip(panels, rows.items(), notes, overlaps):
        for t, (axes, picture) in enumerate(zip(line, _pictures(states[:shown]))):
            axes.imshow(
                picture,
                cmap=ListedColormap([theme.grid, theme.ink]),
                vmin=-1,
                vmax=1,
                interpolation="nearest",
            )
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if overlap is not None and overlap[t] < 1:
                axes.spines[:].set(visible=True, color=theme.orange, linewidth=1.6)
        label = name if note is None else f"{name}\n{note}"
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
    if (result.overlaps[:, :shown] < 1).any():
        figure.supxlabel(
            "framed: not what was stored", fontsize=8.5, color=theme.orange, ha="right", x=0.99
        )
    return figure


def _pictures(states: np.ndarray) -> np.ndarray:
    """Squares where the sites make one, a row of sites otherwise."""
    pictures = as_images(states)
    return states[:, None] if pictures is None else pictures


@register_drawing(Capacity)
def _capacity(result: Capacity, theme: Theme) -> Figure:
    figure = new_figure(3.0)
    axes = figure.subplots()
    low = result.overlaps.min(axis=1)
    high = result.overlaps.max(axis=1)
    axes.fill_between(
        result.loads, low, high, color=theme.blue, alpha=0.2, linewidth=0, label="least to greatest"
    )
    axes.plot(
        result.loads,
        result.overlap,
        "o-",
        color=theme.blue,
        label=f"mean overlap, d = {result.sites:,}",
    )
    axes.axvline(0.138, color=theme.muted, linewidth=1, linestyle=":", label="0.138")
    axes.set(
        xlabel="patterns per site, n / d",
        ylabel="overlap with the stored pattern",
        ylim=(-0.05, 1.05),
    )
    axes.legend(frameon=False, fontsize=8.5)
    return figure
