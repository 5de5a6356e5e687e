"""Figures of attacks: robust accuracy, distances to the boundary, least robust examples, and the
loss surface around an example.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...attack import DistancesByNorm, LeastRobust, LossSurface
from ...certify import RobustnessCurves
from ..draw import new_figure, register_drawing
from ..predictions.classification import as_images
from ..predictions.images import signed
from ..theme import WIDTH, Theme

NORM_NAMES = {"Linf": "Linf norm of the perturbation", "L2": "L2 norm of the perturbation"}
MAX_BINS = 24  # of a histogram
N_LEVELS = 12  # contour levels of the loss
CLIP_QUANTILE = 0.995  # of the changes of pixels; larger ones are clipped
MAX_ROWS = 6  # changed features shown per example


def _axis_limit(distances: np.ndarray) -> float:
    """The upper limit of an axis of radii, beyond nearly all distances."""
    finite = distances[np.isfinite(distances) & (distances > 0)]
    return 1.08 * float(np.quantile(finite, 0.99)) if finite.size else 1.0


@register_drawing(RobustnessCurves)
def _curves(result: RobustnessCurves, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    panels = figure.subplots(1, len(result.distances), sharey=True, squeeze=False)[0]
    for axes, (norm, distances) in zip(panels, result.distances.items()):
        r = np.linspace(0, _axis_limit(distances), 400)
        axes.plot(r, result.empirical_accuracy(norm, r), color=theme.blue, label="under attack")
        if norm in result.radii:
            axes.plot(r, result.certified_accuracy(norm, r), color=theme.green, label="certified")
            bounds = result.certified_accuracy(norm, r), result.empirical_accuracy(norm, r)
            axes.fill_between(r, *bounds, color=theme.muted, alpha=0.12, linewidth=0)
        axes.set(xlabel=NORM_NAMES.get(norm, norm), xlim=(0, r[-1]), ylim=(0, 1.02))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_title(norm)
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    panels[0].set_ylabel("robust accuracy")
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


@register_drawing(DistancesByNorm)
def _distances(result: DistancesByNorm, theme: Theme) -> Figure:
    figure = new_figure(2.7)
    panels = figure.subplots(1, len(result.by_norm), sharey=True, squeeze=False)[0]
    for axes, (norm, distances) in zip(panels, result.by_norm.items()):
        top = _axis_limit(distances)
        median = result.median(norm)
        shown = np.minimum(distances[np.isfinite(distances) & (distances > 0)], top)
        bins = int(np.clip(len(shown) // 6, 6, MAX_BINS))
        axes.hist(shown, bins=np.linspace(0, top, bins + 1).tolist(), color=theme.blue, alpha=0.6)
        if np.isfinite(median):
            axes.axvline(median, color=theme.orange, linewidth=1.5)
            axes.set_title(f"median {median:.3g}", color=theme.orange, loc="right", fontsize=9.5)
        axes.set(xlabel=NORM_NAMES.get(norm, norm), xlim=(0, top))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_title(norm)
    panels[0].set_ylabel("examples")
    return figure


@register_drawing(LeastRobust)
def _least_robust(result: LeastRobust, theme: Theme) -> Figure:
    if not len(result.indices):
        figure = new_figure(1.0)
        figure.text(0.5, 0.5, "no attack succeeded", ha="center", va="center")
        return figure
    before = as_images(result.examples.xs)
    if before is None:
        return _draw_features(result, theme)
    return _draw_images(result, before, theme)


def _draw_images(result: LeastRobust, before: np.ndarray, theme: Theme) -> Figure:
    examples = result.examples
    m = len(before)
    after = np.asarray(as_images(examples.nearest))
    change = after - before
    low = float(min(before.min(), after.min()))
    high = float(max(before.max(), after.max()))
    factor = _two_digits(
        (high - low) / max(float(np.quantile(np.abs(change), CLIP_QUANTILE)), 1e-12)
    )
    columns = max(m, 4)
    figure = new_figure(0.6 + 3 * WIDTH / (columns + 0.6), WIDTH)
    panels = figure.subplots(3, columns, squeeze=False)
    for axes in panels.ravel():
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    gap = ", " if max(map(len, result.class_names)) <= 3 else "\n"
    for i in range(m):
        for row, images in enumerate((before, after)):
            panels[row, i].imshow(
                (images[i] - low) / (high - low),
                cmap="gray",
                interpolation="nearest",
                vmin=0,
                vmax=1,
            )
            predicted = result.class_names[examples.predictions[row, i]][:9]
            title = f"{predicted}{gap}{100 * examples.confidences[row, i]:.0f} %"
            panels[row, i].set_title(title, fontsize=8.5, fontweight="normal", loc="center", pad=3)
        panels[2, i].imshow(
            _amplify(change[i], (high - low) / factor, theme), interpolation="nearest"
        )
        panels[2, i].set_title(
            f"{examples.distances[i]:.2g}", fontsize=8.5, fontweight="normal", loc="center", pad=3
        )
        panels[2, i].spines[:].set(visible=True, color=theme.grid)
    for axes, name in zip(panels[:, 0], ("before", "after", f"change × {factor:g}")):
        axes.set_ylabel(name, fontsize=8.5)
    return figure


def _two_digits(factor: float) -> float:
    """Rounds down to two significant digits."""
    unit = 10.0 ** (np.floor(np.log10(max(factor, 1e-12))) - 1)
    return float(np.floor(factor / unit) * unit)


def _amplify(change: np.ndarray, max_change: float, theme: Theme) -> np.ndarray:
    """An image of the change: blue was added and orange subtracted; colour images around grey."""
    if change.ndim == 2:
        return signed(change, theme, max_value=max_change)
    return np.clip(0.5 + change / (2 * max_change), 0, 1)


def _draw_features(result: LeastRobust, theme: Theme) -> Figure:
    examples = result.examples
    change = (examples.nearest - examples.xs).reshape(len(examples.xs), -1)
    shown = min(len(change), 4)
    rows = min(MAX_ROWS, change.shape[1])
    figure = new_figure((0.75 + 0.2 * rows) * ((shown + 1) // 2))
    panels = figure.subplots((shown + 1) // 2, min(shown, 2), squeeze=False).ravel()
    for axes in panels[shown:]:
        axes.axis("off")
    for i, axes in zip(range(shown), panels):
        order = np.argsort(-np.abs(change[i]), kind="stable")[:rows]
        colours = [theme.blue if change[i, j] > 0 else theme.orange for j in order]
        axes.barh(range(rows), change[i, order], color=colours, height=0.6)
        axes.set_yticks(range(rows), [_feature(result, int(j)) for j in order], fontsize=8)
        axes.axvline(0, color=theme.muted, linewidth=0.8)
        axes.set_ylim(rows - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        before, after = (result.class_names[label][:11] for label in examples.predictions[:, i])
        axes.set_title(f"{before} → {after}, {examples.distances[i]:.2g}", fontsize=9)
    return figure


def _feature(result: LeastRobust, j: int) -> str:
    return result.feature_names[j][:14] if len(result.feature_names) > j else f"x{j + 1}"


@register_drawing(LossSurface)
def _surface(result: LossSurface, theme: Theme) -> Figure:
    figure = new_figure(3.1)
    plane, sections = figure.subplots(1, 2)
    _draw_plane(plane, result, theme)
    _draw_sections(sections, result, theme)
    return figure


def _draw_plane(axes: Any, result: LossSurface, theme: Theme) -> None:
    s = result.offsets
    losses = np.nan_to_num(result.losses, posinf=float(np.nanmax(result.losses)))
    low = float(losses.min())
    high = float(losses.max())
    levels = np.linspace(low, high if high > low else low + 1, N_LEVELS + 1)
    for level in range(
        N_LEVELS
    ):  # a single colour, which the page can replace by that of its theme
        axes.contourf(
            s,
            s,
            losses,
            levels=levels[level : level + 2],
            colors=[theme.blue],
            alpha=0.03 + 0.6 * level / N_LEVELS,
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


def _draw_sections(axes: Any, result: LossSurface, theme: Theme) -> None:
    s = result.offsets
    middle = len(result.offsets) // 2
    along_gradient = result.losses[middle]
    along_random = result.losses[:, middle]
    axes.plot(s, along_random, color=theme.green, label="random direction")
    axes.plot(s, along_gradient, color=theme.blue, label="gradient")
    axes.axvspan(-result.radius, result.radius, color=theme.muted, alpha=0.12, linewidth=0)
    top = max(float(along_gradient.max()), float(along_random.max()))
    axes.set(xlabel="offset", xlim=(s[0], s[-1]), ylim=(0, 1.06 * top if top > 0 else 1))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_box_aspect(1)
    axes.set_title("loss along each direction")
    axes.legend(frameon=False, fontsize=8.5, loc="upper left", reverse=True)
