"""Linear regions as polygons, and the decision boundary through them."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import ListedColormap, to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ...explain import Boundary, Regions, Window
from ..draw import new_figure, register_drawing
from ..theme import Theme

MANY = 3000  # polygons that are still drawn as shapes; more become a picture
NAMED = 12  # classes in the legend, and so few examples as are drawn large
SHOWN = 400  # examples
LABELLED = 9  # cells that still have room for their patterns
MORE = (
    "#e6bd00",
    "#00c2d6",
    "#99cc00",
    "#7a4a21",
    "#8a94a0",
    "#4a2fd0",
)  # yellow, cyan, lime, brown, grey, violet
NEAR = 0.1  # of the window's longer side: how far from the plane an example may lie


def class_colours(theme: Theme, k: int) -> list[tuple[float, float, float]]:
    """A colour for each class: the theme's four, six more for ten digits, then mixtures of two of
    these.
    """
    own = [to_rgb(colour) for colour in (*theme.lines, *MORE)]
    mixed = [
        tuple((np.array(own[i]) + 2 * np.array(own[j])) / 3)
        for i in range(10)
        for j in range(10)
        if i != j
    ]
    return [(own + mixed)[j % (len(own) + len(mixed))] for j in range(k)]


@register_drawing(Regions)
def _regions(result: Regions, theme: Theme) -> Figure:
    """Each cell in a tint of its own output, or of its pattern where there are several outputs."""
    figure, axes = _plane(result.window)
    value = np.einsum("pmd,pd->pm", result.A, result.centres) + result.c
    one = value.shape[1] == 1
    tint = value[:, 0] if one else result.patterns.sum(axis=1).astype(float)
    cells = _cells(axes, result, theme, linewidth=0.7)
    cells.set(array=tint, cmap="cividis", alpha=0.75)
    bar = figure.colorbar(cells, ax=axes, label="output" if one else "units that are on", pad=0.02)
    if not one:
        bar.locator = MaxNLocator(6, integer=True)
        bar.update_ticks()
    bar.outline.set_visible(False)  # type: ignore[operator]
    axes.set_title(f"{result.count:,} linear region{'s' if result.count != 1 else ''}")
    if result.patterns.shape[1] and result.count <= LABELLED:
        for place, pattern in zip(result.centres, result.patterns):
            word = "".join(map(str, pattern))
            axes.annotate(
                word,
                place,
                ha="center",
                va="center",
                fontsize=9,
                color="white",
                fontweight="bold",
                bbox={"boxstyle": "round,pad=0.2", "fc": "black", "ec": "none", "alpha": 0.45},
            )
    return figure


@register_drawing(Boundary)
def _boundary(result: Boundary, theme: Theme) -> Figure:
    """The class of each point in a soft colour, the cells in thin lines, the border in a strong
    one, the examples.
    """
    figure, axes = _plane(result.window)
    k = max(len(result.classes), int(result.image.max()) + 1)
    colours = class_colours(theme, k)
    extent = (
        result.window.low[0],
        result.window.high[0],
        result.window.low[1],
        result.window.high[1],
    )
    soft = ListedColormap([to_rgba(colour, 0.28) for colour in colours])
    axes.imshow(
        result.image,
        origin="lower",
        extent=extent,
        cmap=soft,
        vmin=-0.5,
        vmax=k - 0.5,
        zorder=1,
        interpolation="nearest",
        aspect="auto",
    )
    if result.regions is not None:
        lines = _cells(
            axes, result.regions, theme, linewidth=0.45 if result.regions.count <= MANY else 0.2
        )
        lines.set(facecolor="none", zorder=2)
        axes.set_title(
            f"{result.regions.count:,} linear region{'s' if result.regions.count != 1 else ''}"
        )
    if result.regions is not None or len(result.segments):
        border = LineCollection(
            list(result.segments), colors=theme.ink, linewidths=1.9, capstyle="round", zorder=3
        )
        axes.add_collection(border)
    else:
        middles = [
            low + (np.arange(len(result.image)) + 0.5) / len(result.image) * (high - low)
            for low, high in zip(result.window.low, result.window.high)
        ]
        for j in np.unique(result.image)[1:]:  # what separates all but one separates the one
            axes.contour(
                *middles,
                result.image == j,
                levels=[0.5],
                colors=theme.ink,
                linewidths=1.5,
                zorder=3,
            )
    _examples(axes, result, colours, theme)
    present = np.union1d(np.unique(result.image), result.labels[_near(result)])
    names = [
        Patch(color=colours[j], label=result.classes[j]) for j in present if j < len(result.classes)
    ]
    if len(names) <= NAMED:
        figure.legend(
            handles=names,
            loc="outside lower center",
            ncols=min(6, len(names)),
            frameon=False,
            fontsize=8.5,
        )
    return figure


def _plane(window: Window) -> tuple[Figure, Axes]:
    across, up = window.high - window.low
    figure = new_figure(float(np.clip(4.3 * up / across, 3.2, 5.4)))
    axes = figure.subplots()
    own = window.origin.shape == (2,) and (window.axes == np.eye(2)).all()
    names = (
        ("first input", "second input")
        if own
        else ("distance along the plane", "distance across it")
    )
    axes.set(xlabel=names[0], ylabel=names[1])
    axes.set(xlim=(window.low[0], window.high[0]), ylim=(window.low[1], window.high[1]))
    axes.grid(visible=False)
    return figure, axes


def _cells(axes: Axes, found: Regions, theme: Theme, *, linewidth: float) -> PolyCollection:
    many = found.count > MANY
    cells = PolyCollection(
        found.polygons, edgecolors=theme.muted, linewidths=linewidth, rasterized=many
    )
    axes.add_collection(cells)
    return cells


def _near(result: Boundary) -> np.ndarray:
    """The examples in the window that lie near the plane, the nearest last; the others would
    deceive.
    """
    low, high = result.window.low, result.window.high
    near = result.distances <= NEAR * (high - low).max()
    inside = np.flatnonzero(near & ((result.places >= low) & (result.places <= high)).all(axis=1))
    return inside[np.argsort(result.distances[inside])[:SHOWN]][::-1]


def _examples(axes: Axes, result: Boundary, colours: list, theme: Theme) -> None:
    shown = _near(result)
    if not len(shown):
        return
    size = 34 if len(shown) <= NAMED else 13
    on = result.distances[shown] <= 1e-5 * np.abs(result.window.high - result.window.low).max()
    away = result.distances[shown] / max(float(result.distances[shown].max()), 1e-30)
    alpha = np.where(on, 1.0, np.clip(0.75 - 0.6 * away, 0.15, 0.75))
    fill = [to_rgba(colours[label], a) for label, a in zip(result.labels[shown], alpha)]
    large = on & (on.sum() == 3)  # those through which the plane was laid
    edges = [to_rgba(theme.ink if big else theme.paper, a) for big, a in zip(large, alpha)]
    axes.scatter(
        *result.places[shown].T,
        s=np.where(large, 150, size),
        c=fill,
        edgecolors=edges,
        linewidths=np.where(large, 1.4, 0.6).tolist(),
        zorder=4,
    )
