"""Figures of linear regions as polygons, and of the decision boundary."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import ListedColormap, to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ...explain import InputPlane, LinearRegions
from ...explain.predictions import DecisionBoundary
from ..draw import new_figure, register_drawing
from ..theme import Theme

MAX_VECTOR_POLYGONS = 3000  # more polygons are rasterised
MAX_LEGEND = 12  # classes in the legend; and examples that are drawn large
MAX_EXAMPLES = 400
MAX_LABELLED = 9  # regions up to which their activation patterns are written in
EXTRA_COLOURS = (
    "#e6bd00",
    "#00c2d6",
    "#99cc00",
    "#7a4a21",
    "#8a94a0",
    "#4a2fd0",
)  # yellow, cyan, lime, brown, grey, violet
MAX_DISTANCE = 0.1  # of the shown examples from the plane, relative to its longer side


def class_colours(theme: Theme, k: int) -> list[tuple[float, float, float]]:
    """A colour for each class: the theme's four, six more, then mixtures of two of these."""
    own = [to_rgb(colour) for colour in (*theme.lines, *EXTRA_COLOURS)]
    mixed = [
        tuple((np.array(own[i]) + 2 * np.array(own[j])) / 3)
        for i in range(10)
        for j in range(10)
        if i != j
    ]
    return [(own + mixed)[j % (len(own) + len(mixed))] for j in range(k)]


@register_drawing(LinearRegions)
def _regions(result: LinearRegions, theme: Theme) -> Figure:
    """Each region coloured by its output, or by its number of active units if there are several."""
    figure, axes = _plane(result.plane)
    value = np.einsum("pmd,pd->pm", result.A, result.centres) + result.c
    is_scalar = value.shape[1] == 1
    tint = value[:, 0] if is_scalar else result.patterns.sum(axis=1).astype(float)
    cells = _draw_regions(axes, result, theme, linewidth=0.7)
    cells.set(array=tint, cmap="cividis", alpha=0.75)
    bar = figure.colorbar(cells, ax=axes, label="output" if is_scalar else "active units", pad=0.02)
    if not is_scalar:
        bar.locator = MaxNLocator(6, integer=True)
        bar.update_ticks()
    bar.outline.set_visible(False)  # type: ignore[operator]
    axes.set_title(f"{result.n_regions:,} linear region{'s' if result.n_regions != 1 else ''}")
    if result.patterns.shape[1] and result.n_regions <= MAX_LABELLED:
        for centre, pattern in zip(result.centres, result.patterns):
            text = "".join(map(str, pattern))
            axes.annotate(
                text,
                centre,
                ha="center",
                va="center",
                fontsize=9,
                color="white",
                fontweight="bold",
                bbox={"boxstyle": "round,pad=0.2", "fc": "black", "ec": "none", "alpha": 0.45},
            )
    return figure


@register_drawing(DecisionBoundary)
def _decision_boundary(result: DecisionBoundary, theme: Theme) -> Figure:
    """The predicted class of each point (pale colour), regions (thin lines), decision boundary
    (thick lines), and examples.
    """
    figure, axes = _plane(result.plane)
    k = max(len(result.classes), int(result.image.max()) + 1)
    colours = class_colours(theme, k)
    extent = (
        result.plane.low[0],
        result.plane.high[0],
        result.plane.low[1],
        result.plane.high[1],
    )
    pale = ListedColormap([to_rgba(colour, 0.28) for colour in colours])
    axes.imshow(
        result.image,
        origin="lower",
        extent=extent,
        cmap=pale,
        vmin=-0.5,
        vmax=k - 0.5,
        zorder=1,
        interpolation="nearest",
        aspect="auto",
    )
    if result.regions is not None:
        lines = _draw_regions(
            axes,
            result.regions,
            theme,
            linewidth=0.45 if result.regions.n_regions <= MAX_VECTOR_POLYGONS else 0.2,
        )
        lines.set(facecolor="none", zorder=2)
        axes.set_title(
            f"{result.regions.n_regions:,} linear "
            f"region{'s' if result.regions.n_regions != 1 else ''}"
        )
    if result.regions is not None or len(result.segments):
        border = LineCollection(
            list(result.segments), colors=theme.ink, linewidths=1.9, capstyle="round", zorder=3
        )
        axes.add_collection(border)
    else:
        middles = [
            low + (np.arange(len(result.image)) + 0.5) / len(result.image) * (high - low)
            for low, high in zip(result.plane.low, result.plane.high)
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
    if len(names) <= MAX_LEGEND:
        figure.legend(
            handles=names,
            loc="outside lower center",
            ncols=min(6, len(names)),
            frameon=False,
            fontsize=8.5,
        )
    return figure


def _plane(plane: InputPlane) -> tuple[Figure, Axes]:
    width, height = plane.high - plane.low
    figure = new_figure(float(np.clip(4.3 * height / width, 3.2, 5.4)))
    axes = figure.subplots()
    is_input_space = plane.origin.shape == (2,) and (plane.axes == np.eye(2)).all()
    names = (
        ("first input", "second input")
        if is_input_space
        else ("first coordinate in the plane", "second coordinate in the plane")
    )
    axes.set(xlabel=names[0], ylabel=names[1])
    axes.set(xlim=(plane.low[0], plane.high[0]), ylim=(plane.low[1], plane.high[1]))
    axes.grid(visible=False)
    return figure, axes


def _draw_regions(
    axes: Axes, regions: LinearRegions, theme: Theme, *, linewidth: float
) -> PolyCollection:
    rasterized = regions.n_regions > MAX_VECTOR_POLYGONS
    cells = PolyCollection(
        regions.polygons, edgecolors=theme.muted, linewidths=linewidth, rasterized=rasterized
    )
    axes.add_collection(cells)
    return cells


def _near(result: DecisionBoundary) -> np.ndarray:
    """The examples within the view and near the plane, the nearest last."""
    low, high = result.plane.low, result.plane.high
    near = result.distances <= MAX_DISTANCE * (high - low).max()
    inside = np.flatnonzero(near & ((result.points >= low) & (result.points <= high)).all(axis=1))
    return inside[np.argsort(result.distances[inside])[:MAX_EXAMPLES]][::-1]


def _examples(axes: Axes, result: DecisionBoundary, colours: list, theme: Theme) -> None:
    shown = _near(result)
    if not len(shown):
        return
    size = 34 if len(shown) <= MAX_LEGEND else 13
    on = result.distances[shown] <= 1e-5 * np.abs(result.plane.high - result.plane.low).max()
    away = result.distances[shown] / max(float(result.distances[shown].max()), 1e-30)
    alpha = np.where(on, 1.0, np.clip(0.75 - 0.6 * away, 0.15, 0.75))
    fill = [to_rgba(colours[label], a) for label, a in zip(result.labels[shown], alpha)]
    large = on & (on.sum() == 3)  # the three that define the plane
    edges = [to_rgba(theme.ink if big else theme.paper, a) for big, a in zip(large, alpha)]
    axes.scatter(
        *result.points[shown].T,
        s=np.where(large, 150, size),
        c=fill,
        edgecolors=edges,
        linewidths=np.where(large, 1.4, 0.6).tolist(),
        zorder=4,
    )
