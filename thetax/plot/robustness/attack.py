"""Attacks: what stands at which radius, how near the boundary is, who is fragile, and how the loss
lies around one.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...attack import DistancesByNorm, LeastRobust, LossSurface
from ...certify import RobustnessCurves
from ..draw import new_figure, register_drawing
from ..predictions.images import signed
from ..predictions.judgement import as_images
from ..theme import WIDTH, Theme

ROUND = {"Linf": "largest change of a number", "L2": "length of the change"}
BINS, LEVELS = 24, 12  # at most; of the loss
STRONG = 0.995  # of the changes are drawn in full; larger ones are cut
ROWS = 6  # changed features shown of an example


def _reach(distances: np.ndarray) -> float:
    """How far an axis of radii goes: to the end of nearly all distances."""
    found = distances[np.isfinite(distances) & (distances > 0)]
    return 1.08 * float(np.quantile(found, 0.99)) if found.size else 1.0


@register_drawing(RobustnessCurves)
def _curves(result: RobustnessCurves, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    panels = figure.subplots(1, len(result.distances), sharey=True, squeeze=False)[0]
    for axes, (norm, distances) in zip(panels, result.distances.items()):
        r = np.linspace(0, _reach(distances), 400)
        axes.plot(r, result.empirical(norm, r), color=theme.blue, label="attacked")
        if norm in result.radii:
            axes.plot(r, result.proven(norm, r), color=theme.green, label="proven")
            between = result.proven(norm, r), result.empirical(norm, r)
            axes.fill_between(r, *between, color=theme.muted, alpha=0.12, linewidth=0)
        axes.set(xlabel=ROUND.get(norm, norm), xlim=(0, r[-1]), ylim=(0, 1.02))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_title(norm)
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    panels[0].set_ylabel("right within the radius")
    panels[-1].legend(frameon=False, loc="upper right")
    return figure


@register_drawing(DistancesByNorm)
def _distances(result: DistancesByNorm, theme: Theme) -> Figure:
    figure = new_figure(2.7)
    panels = figure.subplots(1, len(result.by_norm), sharey=True, squeeze=False)[0]
    for axes, (norm, distances) in zip(panels, result.by_norm.items()):
        top = _reach(distances)
        median = result.median(norm)
        shown = np.minimum(distances[np.isfinite(distances) & (distances > 0)], top)
        bins = int(np.clip(len(shown) // 6, 6, BINS))
        axes.hist(shown, bins=np.linspace(0, top, bins + 1).tolist(), color=theme.blue, alpha=0.6)
        if np.isfinite(median):
            axes.axvline(median, color=theme.orange, linewidth=1.5)
            axes.set_title(f"median {median:.3g}", color=theme.orange, loc="right", fontsize=9.5)
        axes.set(xlabel=ROUND.get(norm, norm), xlim=(0, top))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_title(norm)
    panels[0].set_ylabel("examples")
    return figure


@register_drawing(LeastRobust)
def _fragile(result: LeastRobust, theme: Theme) -> Figure:
    if not len(result.index):
        figure = new_figure(1.0)
        figure.text(0.5, 0.5, "no example was moved across a boundary", ha="center", va="center")
        return figure
    before = as_images(result.found.x)
    return (
        _changed_numbers(result, theme)
        if before is None
        else _changed_pictures(result, before, theme)
    )


def _changed_pictures(result: LeastRobust, before: np.ndarray, theme: Theme) -> Figure:
    found = result.found
    m = len(before)
    after = np.asarray(as_images(found.nearest))
    change = after - before
    low = float(min(before.min(), after.min()))
    high = float(max(before.max(), after.max()))
    factor = _plain((high - low) / max(float(np.quantile(np.abs(change), STRONG)), 1e-12))
    columns = max(m, 4)
    figure = new_figure(0.6 + 3 * WIDTH / (columns + 0.6), WIDTH)
    panels = figure.subplots(3, columns, squeeze=False)
    for axes in panels.ravel():
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    gap = ", " if max(map(len, result.classes)) <= 3 else "\n"
    for at in range(m):
        for row, pictures in enumerate((before, after)):
            panels[row, at].imshow(
                (pictures[at] - low) / (high - low),
                cmap="gray",
                interpolation="nearest",
                vmin=0,
                vmax=1,
            )
            said = (
                f"{result.classes[found.guess[row, at]][:9]}{gap}{100 * found.sure[row, at]:.0f} %"
            )
            panels[row, at].set_title(said, fontsize=8.5, fontweight="normal", loc="center", pad=3)
        panels[2, at].imshow(
            _enlarged(change[at], (high - low) / factor, theme), interpolation="nearest"
        )
        panels[2, at].set_title(
            f"{found.distance[at]:.2g}", fontsize=8.5, fontweight="normal", loc="center", pad=3
        )
        panels[2, at].spines[:].set(visible=True, color=theme.grid)
    for axes, name in zip(panels[:, 0], ("before", "after", f"change × {factor:g}")):
        axes.set_ylabel(name, fontsize=8.5)
    return figure


def _plain(factor: float) -> float:
    """A factor in two figures, not above what it was."""
    unit = 10.0 ** (np.floor(np.log10(max(factor, 1e-12))) - 1)
    return float(np.floor(factor / unit) * unit)


def _enlarged(change: np.ndarray, most: float, theme: Theme) -> np.ndarray:
    """What was added in blue and what was taken away in orange; of coloured pictures the colours,
    around grey.
    """
    return (
        signed(change, theme, most=most)
        if change.ndim == 2
        else np.clip(0.5 + change / (2 * most), 0, 1)
    )


def _changed_numbers(result: LeastRobust, theme: Theme) -> Figure:
    found = result.found
    change = (found.nearest - found.x).reshape(len(found.x), -1)
    shown = min(len(change), 4)
    rows = min(ROWS, change.shape[1])
    figure = new_figure((0.75 + 0.2 * rows) * ((shown + 1) // 2))
    panels = figure.subplots((shown + 1) // 2, min(shown, 2), squeeze=False).ravel()
    for axes in panels[shown:]:
        axes.axis("off")
    for at, axes in zip(range(shown), panels):
        order = np.argsort(-np.abs(change[at]), kind="stable")[:rows]
        colours = [theme.blue if change[at, j] > 0 else theme.orange for j in order]
        axes.barh(range(rows), change[at, order], color=colours, height=0.6)
        axes.set_yticks(range(rows), [_feature(result, int(j)) for j in order], fontsize=8)
        axes.axvline(0, color=theme.muted, linewidth=0.8)
        axes.set_ylim(rows - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        first, then = (result.classes[guess][:11] for guess in found.guess[:, at])
        axes.set_title(f"{first} → {then}, {found.distance[at]:.2g}", fontsize=9)
    return figure


def _feature(result: LeastRobust, j: int) -> str:
    return result.features[j][:14] if len(result.features) > j else f"x{j + 1}"


@register_drawing(LossSurface)
def _surface(result: LossSurface, theme: Theme) -> Figure:
    figure = new_figure(3.1)
    plane, cuts = figure.subplots(1, 2)
    _plane(plane, result, theme)
    _cuts(cuts, result, theme)
    return figure


def _plane(axes: Any, result: LossSurface, theme: Theme) -> None:
    s = result.steps
    losses = np.nan_to_num(result.losses, posinf=float(np.nanmax(result.losses)))
    low = float(losses.min())
    high = float(losses.max())
    levels = np.linspace(low, high if high > low else low + 1, LEVELS + 1)
    for level in range(LEVELS):  # one colour, so that the page can exchange it
        axes.contourf(
            s,
            s,
            losses,
            levels=levels[level : level + 2],
            colors=[theme.blue],
            alpha=0.03 + 0.6 * level / LEVELS,
        )
    if result.margins.min() < 0 < result.margins.max():
        axes.contour(s, s, result.margins, levels=[0.0], colors=[theme.orange], linewidths=1.8)
    axes.add_patch(
        Circle(
            (0, 0),
            result.radius,
            fill=False,
            edgecolor=theme.ink,
            linewidth=1,
            linestyle=(0, (4, 3)),
        )
    )
    axes.plot(0, 0, "o", color=theme.ink, markersize=4)
    axes.set(xlabel="along the gradient", ylabel="along a random direction")
    axes.set_box_aspect(1)
    axes.grid(visible=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    axes.set_title("loss")


def _cuts(axes: Any, result: LossSurface, theme: Theme) -> None:
    s = result.steps
    middle = len(result.steps) // 2
    along = result.losses[middle]
    across = result.losses[:, middle]
    axes.plot(s, across, color=theme.green, label="random")
    axes.plot(s, along, color=theme.blue, label="gradient")
    axes.axvspan(-result.radius, result.radius, color=theme.muted, alpha=0.12, linewidth=0)
    top = max(float(along.max()), float(across.max()))
    axes.set(xlabel="step", xlim=(s[0], s[-1]), ylim=(0, 1.06 * top if top > 0 else 1))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_box_aspect(1)
    axes.set_title("loss along each")
    axes.legend(frameon=False, fontsize=8.5, loc="upper left", reverse=True)
