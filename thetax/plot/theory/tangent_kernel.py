"""The tangent kernel: its spectrum, its drift, its picture by class, and the linearised network
beside the true one.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...explain import Drift, KernelMap, Laziness, TangentSpectrum, WideBeliefs, Widths
from ..draw import log_axis, new_figure, register_drawing
from ..networks.depth import ROWS
from ..predictions.images import signed
from ..theme import Theme

PAIRS = 400  # of examples, of either kind, that are drawn
FLOOR = 1e-7  # of the largest number: below is rounding


@register_drawing(TangentSpectrum)
def _spectrum(result: TangentSpectrum, theme: Theme) -> Figure:
    figure = new_figure(5.0)
    grid = figure.add_gridspec(2, 2)
    _eigenvalues(figure.add_subplot(grid[0, 0]), result, theme)
    _dimension(figure.add_subplot(grid[0, 1]), result, theme)
    axes = figure.add_subplot(grid[1, :])
    n = len(result.values)
    count = np.arange(1, n + 1)
    axes.plot(count, result.learnt, color=theme.blue, label="of the targets")
    axes.plot(
        count,
        count / n,
        color=theme.muted,
        linewidth=1.2,
        linestyle=(0, (4, 3)),
        label="of noise, on average",
    )
    axes.set(xlabel="first eigenvectors", ylabel="share along them", ylim=(0, 1.03))
    log_axis(axes.xaxis, 1.0, float(n))
    axes.set_title(f"alignment with the targets {result.alignment:.2f}")
    axes.legend(frameon=False, loc="best")
    return figure


def _eigenvalues(axes: Any, result: TangentSpectrum, theme: Theme) -> None:
    seen = result.values > FLOOR * result.values[0]
    axes.plot(
        np.arange(1, len(seen) + 1)[seen], result.values[seen], ".", color=theme.blue, markersize=4
    )
    axes.set(xlabel="rank", ylabel="eigenvalue of K / n")
    log_axis(axes.xaxis, 0.9, len(seen) * 1.1)
    log_axis(axes.yaxis, result.values[seen][-1] / 1.5, result.values[0] * 1.5)


def _dimension(axes: Any, result: TangentSpectrum, theme: Theme) -> None:
    positive = result.values[result.values > FLOOR * result.values[0]]
    places = [positive[-1] / 3, positive[0] * 3, *([result.ridge] if result.ridge else [])]
    ridge = np.geomspace(min(places), max(places), 200)
    axes.plot(ridge, result.dimension(ridge), color=theme.green)
    if result.ridge:
        axes.plot(
            result.ridge,
            result.dimension(result.ridge),
            "o",
            color=theme.orange,
            clip_on=False,
            zorder=5,
        )
        axes.annotate(
            "weight\ndecay",
            (result.ridge, result.dimension(result.ridge)),
            xytext=(1, -32),
            textcoords="offset points",
            color=theme.orange,
            fontsize=8.5,
        )
    axes.set(xlabel="ridge λ", ylabel="effective dimension", ylim=(0, None))
    log_axis(axes.xaxis, ridge[0], ridge[-1])


@register_drawing(Drift)
def _drift(result: Drift, theme: Theme) -> Figure:
    figure = new_figure(3.5)
    pairs, way = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _pairs(pairs, result, theme)
    _along(way, result, theme) if len(result.times) > 2 else _layers(way, result, theme)
    figure.suptitle(
        f"{result.verdict}: the kernel changed by {100 * result.change:.0f} %",
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    return figure


def _pairs(axes: Any, result: Drift, theme: Theme) -> None:
    """The kernel of pairs of examples at the end against that at the start."""
    n = len(result.start)
    ys = result.targets
    rows, columns = np.tril_indices(n, -1)
    same = (
        ys[rows] == ys[columns]
        if ys.ndim == 1 and not np.issubdtype(ys.dtype, np.inexact)
        else None
    )
    kinds = (
        {"": np.ones(len(rows), bool)}
        if same is None
        else {"of two classes": ~same, "of one class": same}
    )
    for colour, (name, chosen) in zip((theme.orange, theme.blue), kinds.items()):
        at = np.flatnonzero(chosen)
        at = at[np.linspace(0, len(at) - 1, min(len(at), PAIRS)).astype(int)]
        axes.plot(
            result.start[rows[at], columns[at]],
            result.end[rows[at], columns[at]],
            ".",
            color=colour,
            markersize=3.5,
            alpha=0.45,
            markeredgewidth=0,
            label=name,
        )
    both = np.concatenate([kernel[rows, columns] for kernel in (result.start, result.end)])
    low, high = np.quantile(both, [0.001, 0.999]) + 0.04 * np.ptp(both) * np.array([-1, 1])
    axes.plot([low, high], [low, high], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(
        xlabel="kernel of a pair, at the start",
        ylabel="at the end",
        xlim=(low, high),
        ylim=(low, high),
    )
    axes.set_box_aspect(1)
    if same is not None:
        axes.legend(frameon=False, fontsize=8.5, markerscale=2, handletextpad=0.1, loc="upper left")


def _layers(axes: Any, result: Drift, theme: Theme) -> None:
    """How far each layer moved; where there are many, the most moved of neighbours that share a
    bar.
    """
    moved = np.where(np.isfinite(result.layer_moved), result.layer_moved, np.nan)
    every = -(-len(moved) // ROWS)
    groups = [slice(at, at + every) for at in range(0, len(moved), every)]
    shown = [np.nanmax(np.append(moved[part], 0.0)) for part in groups]
    row = np.arange(len(shown))
    axes.barh(row, shown, color=theme.green, height=0.7)
    axes.set_yticks(
        row, [result.layers[part][0] for part in groups], fontsize=9 if len(row) < 15 else 6.5
    )
    axes.set(xlabel="change of θ, relative", ylim=(len(row) - 0.4, -0.6))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(visible=False, axis="y")


def _along(axes: Any, result: Drift, theme: Theme) -> None:
    axes.plot(result.times, result.drift, "o-", color=theme.blue, markersize=3.5, label="kernel, S")
    axes.plot(
        result.times,
        result.moved,
        "o-",
        color=theme.green,
        markersize=3.5,
        label="parameters, relative",
    )
    axes.set(xlabel="time", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8.5)


@register_drawing(KernelMap)
def _kernel_map(result: KernelMap, theme: Theme) -> Figure:
    figure = new_figure(3.1)
    whole, means = figure.subplots(1, 2)
    others = ~np.eye(len(result.values), dtype=bool)
    middle = float(result.values[others].mean())
    most = float(np.quantile(np.abs(result.values[others] - middle), 0.99))
    for axes, values in ((whole, result.values), (means, result.means)):
        axes.imshow(
            signed(np.nan_to_num(values - middle), theme, most=most), interpolation="nearest"
        )
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set(visible=True, color=theme.grid)
    _name_classes(whole, result)
    k = len(result.classes)
    names = [name[:9] for name in result.classes]
    long = max(map(len, names)) > 2
    every = -(-k // 20)
    means.set_xticks(
        range(0, k, every), names[::every], rotation=90 if long and k > 3 else 0, fontsize=8
    )
    means.set_yticks(range(0, k, every), names[::every], fontsize=8)
    if k <= 10:
        for (i, j), value in np.ndenumerate(result.means):
            text = "" if np.isnan(value) else f"{value:.2f}".lstrip("0").replace("-0", "−")
            means.text(j, i, text, ha="center", va="center", fontsize=9 if k < 6 else 6)
    whole.set_title("pairs of examples")
    means.set_title("means of classes")
    return figure


def _name_classes(axes: Any, result: KernelMap) -> None:
    """The name of each class at the middle of its rows."""
    present = np.unique(result.truth)
    middles = [np.flatnonzero(result.truth == label).mean() for label in present]
    every = -(-len(present) // 20)
    names = [result.classes[label][:9] for label in present]
    axes.set_yticks(middles[::every], names[::every], fontsize=8)
    axes.set_xticks([])


@register_drawing(Laziness)
def _laziness(result: Laziness, theme: Theme) -> Figure:
    figure = new_figure(3.3)
    learnt, judged = figure.subplots(1, 2)
    later = result.steps > 0
    steps = result.steps[later]
    rows = ("linearised", theme.orange, (0, (4, 2))), ("true", theme.blue, "-")
    for (name, colour, stroke), losses, errors in zip(rows, result.losses, result.errors):
        learnt.plot(steps, losses[later], color=colour, linestyle=stroke, label=name)
        judged.plot(steps, errors[later], color=colour, linestyle=stroke)
    for axes in (learnt, judged):
        axes.set_xlabel("steps")
        log_axis(axes.xaxis, 1.0, float(steps[-1]))
    finite = result.losses[:, later][
        (result.losses[:, later] > 0) & np.isfinite(result.losses[:, later])
    ]
    log_axis(learnt.yaxis, max(finite.min(), FLOOR * finite.max()) / 1.3, finite.max() * 1.3)
    learnt.set_title(f"squared error, {result.examples} examples")
    judged.set_title("test error" if result.classes else "variance unexplained, test")
    top = min(float(np.nanmax(result.errors[:, later])), 3.0)
    judged.set_ylim(0, 1.08 * max(top, 0.02))
    if result.classes:
        judged.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    learnt.legend(frameon=False, loc="lower left")
    return figure


@register_drawing(Widths)
def _widths(result: Widths, theme: Theme) -> Figure:
    figure = new_figure(3.6)
    axes = figure.subplots()
    rows = {
        "kernel from its limit": (result.distance, theme.blue),
        "kernel changed in training": (result.change, theme.orange),
        "parameters moved": (result.moved, theme.green),
    }
    for (name, (values, colour)), power in zip(rows.items(), result.powers):
        axes.plot(result.widths, values, ".", color=colour, alpha=0.5, markersize=5)
        mean = np.exp(np.log(values).mean(axis=1))
        axes.plot(
            result.widths, mean, color=colour, label=f"{name}: power {power:.2f}".replace("-", "−")
        )
    low = result.widths[0] / 1.3
    high = result.widths[-1] * 1.3
    values = np.concatenate([values.ravel() for values, _ in rows.values()])
    guide = 1.6 * values.max() * np.sqrt(result.widths[0] / np.array([low, high]))
    axes.plot(
        [low, high],
        guide,
        color=theme.muted,
        linewidth=1.2,
        linestyle=(0, (4, 3)),
        label="power −1/2",
    )
    axes.set(xlabel="width", ylabel="relative to what it was")
    log_axis(axes.xaxis, low, high)
    log_axis(axes.yaxis, values.min() / 1.5, guide[0] * 1.3)
    axes.legend(frameon=False, fontsize=8.5, loc="lower left")
    return figure


@register_drawing(WideBeliefs)
def _wide_beliefs(result: WideBeliefs, theme: Theme) -> Figure:
    figure = new_figure(2.9)
    rows = zip(figure.subplots(1, 2), ("mean", "deviation"), (result.mean, result.deviation))
    for (axes, name, (limit, finite)), agreement, colour in zip(
        rows, result.agreement, (theme.blue, theme.green)
    ):
        at = np.linspace(0, limit.size - 1, min(limit.size, 2 * PAIRS)).astype(int)
        x = limit.ravel()[at]
        y = finite.ravel()[at]
        axes.plot(x, y, ".", color=colour, markersize=3.5, alpha=0.45, markeredgewidth=0)
        ends = [min(x.min(), y.min()), max(x.max(), y.max())]
        axes.plot(ends, ends, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
        axes.set(
            xlabel="infinite width", ylabel="trained networks", title=f"{name}, r = {agreement:.2f}"
        )
        axes.set_box_aspect(1)
    return figure
