"""Figures of the neural tangent kernel: spectrum, drift in training, kernel by class, linearised
against full training, and width.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...explain import (
    InfiniteWidthComparison,
    KernelDrift,
    KernelMap,
    LinearisedComparison,
    TangentSpectrum,
    WidthScaling,
)
from ..draw import log_axis, new_figure, register_drawing
from ..networks.depth import MAX_ROWS
from ..predictions.images import signed
from ..theme import Theme

MAX_PAIRS = 400  # pairs of examples drawn
MIN_RELATIVE = 1e-7  # values below this fraction of the largest are rounding errors


@register_drawing(TangentSpectrum)
def _spectrum(result: TangentSpectrum, theme: Theme) -> Figure:
    figure = new_figure(5.0)
    grid = figure.add_gridspec(2, 2)
    _eigenvalues(figure.add_subplot(grid[0, 0]), result, theme)
    _dimension(figure.add_subplot(grid[0, 1]), result, theme)
    axes = figure.add_subplot(grid[1, :])
    n = len(result.eigenvalues)
    count = np.arange(1, n + 1)
    axes.plot(count, result.cumulative_fractions, color=theme.blue, label="targets")
    axes.plot(
        count,
        count / n,
        color=theme.muted,
        linewidth=1.2,
        linestyle=(0, (4, 3)),
        label="noise (expected)",
    )
    axes.set(xlabel="leading eigenvectors", ylabel="share in their span", ylim=(0, 1.03))
    log_axis(axes.xaxis, 1.0, float(n))
    axes.set_title(f"kernel-target alignment {result.alignment:.2f}")
    axes.legend(frameon=False, loc="best")
    return figure


def _eigenvalues(axes: Any, result: TangentSpectrum, theme: Theme) -> None:
    positive = result.eigenvalues > MIN_RELATIVE * result.eigenvalues[0]
    axes.plot(
        np.arange(1, len(positive) + 1)[positive],
        result.eigenvalues[positive],
        ".",
        color=theme.blue,
        markersize=4,
    )
    axes.set(xlabel="rank", ylabel="eigenvalue of K / n")
    log_axis(axes.xaxis, 0.9, len(positive) * 1.1)
    log_axis(axes.yaxis, result.eigenvalues[positive][-1] / 1.5, result.eigenvalues[0] * 1.5)


def _dimension(axes: Any, result: TangentSpectrum, theme: Theme) -> None:
    positive = result.eigenvalues[result.eigenvalues > MIN_RELATIVE * result.eigenvalues[0]]
    ridges = [
        positive[-1] / 3,
        positive[0] * 3,
        *([result.weight_decay] if result.weight_decay else []),
    ]
    ridge = np.geomspace(min(ridges), max(ridges), 200)
    axes.plot(ridge, result.effective_dimension(ridge), color=theme.green)
    if result.weight_decay:
        axes.plot(
            result.weight_decay,
            result.effective_dimension(result.weight_decay),
            "o",
            color=theme.orange,
            clip_on=False,
            zorder=5,
        )
        axes.annotate(
            "weight\ndecay",
            (result.weight_decay, result.effective_dimension(result.weight_decay)),
            xytext=(1, -32),
            textcoords="offset points",
            color=theme.orange,
            fontsize=8.5,
        )
    axes.set(xlabel="ridge λ", ylabel="effective dimension", ylim=(0, None))
    log_axis(axes.xaxis, ridge[0], ridge[-1])


@register_drawing(KernelDrift)
def _drift(result: KernelDrift, theme: Theme) -> Figure:
    figure = new_figure(3.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _pairs(left, result, theme)
    if len(result.times) > 2:
        _over_time(right, result, theme)
    else:
        _layers(right, result, theme)
    figure.suptitle(
        f"{result.verdict.capitalize()}: the kernel changed by {100 * result.kernel_change:.0f} %",
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    return figure


def _pairs(axes: Any, result: KernelDrift, theme: Theme) -> None:
    """Kernel values of pairs of examples after training against before."""
    n = len(result.initial_kernel)
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
        else {"different classes": ~same, "same class": same}
    )
    for colour, (name, mask) in zip((theme.orange, theme.blue), kinds.items()):
        at = np.flatnonzero(mask)
        at = at[np.linspace(0, len(at) - 1, min(len(at), MAX_PAIRS)).astype(int)]
        axes.plot(
            result.initial_kernel[rows[at], columns[at]],
            result.final_kernel[rows[at], columns[at]],
            ".",
            color=colour,
            markersize=3.5,
            alpha=0.45,
            markeredgewidth=0,
            label=name,
        )
    both = np.concatenate(
        [kernel[rows, columns] for kernel in (result.initial_kernel, result.final_kernel)]
    )
    low, high = np.quantile(both, [0.001, 0.999]) + 0.04 * np.ptp(both) * np.array([-1, 1])
    axes.plot([low, high], [low, high], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(
        xlabel="kernel before training",
        ylabel="kernel after training",
        xlim=(low, high),
        ylim=(low, high),
    )
    axes.set_box_aspect(1)
    if same is not None:
        axes.legend(
            fontsize=8.5,
            markerscale=2,
            handletextpad=0.1,
            loc="upper left",
            facecolor=theme.paper,
            edgecolor="none",
            framealpha=0.85,
        )


def _layers(axes: Any, result: KernelDrift, theme: Theme) -> None:
    """The relative change of the parameters of each layer; neighbouring layers share a bar if there
    are many, which shows the largest change.
    """
    changes = np.where(np.isfinite(result.layer_change), result.layer_change, np.nan)
    group_size = -(-len(changes) // MAX_ROWS)
    groups = [slice(i, i + group_size) for i in range(0, len(changes), group_size)]
    shown = [np.nanmax(np.append(changes[part], 0.0)) for part in groups]
    row = np.arange(len(shown))
    axes.barh(row, shown, color=theme.green, height=0.7)
    axes.set_yticks(
        row, [result.layers[part][0] for part in groups], fontsize=9 if len(row) < 15 else 6.5
    )
    axes.set(xlabel="relative change", ylim=(len(row) - 0.4, -0.6))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(visible=False, axis="y")


def _over_time(axes: Any, result: KernelDrift, theme: Theme) -> None:
    axes.plot(
        result.times,
        result.distance,
        "o-",
        color=theme.blue,
        markersize=3.5,
        label="kernel distance S",
    )
    axes.plot(
        result.times,
        result.parameter_change,
        "o-",
        color=theme.green,
        markersize=3.5,
        label="relative parameter change",
    )
    axes.set(xlabel="training time", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8.5)


@register_drawing(KernelMap)
def _kernel_map(result: KernelMap, theme: Theme) -> Figure:
    figure = new_figure(3.1)
    pairs, means = figure.subplots(1, 2)
    others = ~np.eye(len(result.values), dtype=bool)
    mean = float(result.values[others].mean())
    max_value = float(np.quantile(np.abs(result.values[others] - mean), 0.99))
    for axes, values in ((pairs, result.values), (means, result.class_means)):
        axes.imshow(
            signed(np.nan_to_num(values - mean), theme, max_value=max_value),
            interpolation="nearest",
        )
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set(visible=True, color=theme.grid)
    _name_classes(pairs, result)
    k = len(result.classes)
    names = [name[:9] for name in result.classes]
    long = max(map(len, names)) > 2
    every = -(-k // 20)
    means.set_xticks(
        range(0, k, every), names[::every], rotation=90 if long and k > 3 else 0, fontsize=8
    )
    means.set_yticks(range(0, k, every), names[::every], fontsize=8)
    if k <= 10:
        for (i, j), value in np.ndenumerate(result.class_means):
            text = "" if np.isnan(value) else f"{value:.2f}".lstrip("0").replace("-0", "−")
            means.text(j, i, text, ha="center", va="center", fontsize=9 if k < 6 else 6)
    pairs.set_title("pairs of examples")
    means.set_title("class means")
    return figure


def _name_classes(axes: Any, result: KernelMap) -> None:
    """Labels the rows of each class at their centre."""
    present = np.unique(result.labels)
    middles = [np.flatnonzero(result.labels == label).mean() for label in present]
    every = -(-len(present) // 20)
    names = [result.classes[label][:9] for label in present]
    axes.set_yticks(middles[::every], names[::every], fontsize=8)
    axes.set_xticks([])


@register_drawing(LinearisedComparison)
def _linearised_comparison(result: LinearisedComparison, theme: Theme) -> Figure:
    figure = new_figure(3.3)
    training, test = figure.subplots(1, 2)
    later = result.steps > 0
    steps = result.steps[later]
    rows = ("linearised", theme.orange, (0, (4, 2))), ("full network", theme.blue, "-")
    for (name, colour, line_style), losses, errors in zip(rows, result.losses, result.errors):
        training.plot(steps, losses[later], color=colour, linestyle=line_style, label=name)
        test.plot(steps, errors[later], color=colour, linestyle=line_style)
    for axes in (training, test):
        axes.set_xlabel("steps")
        log_axis(axes.xaxis, 1.0, float(steps[-1]))
    finite = result.losses[:, later][
        (result.losses[:, later] > 0) & np.isfinite(result.losses[:, later])
    ]
    log_axis(
        training.yaxis, max(finite.min(), MIN_RELATIVE * finite.max()) / 1.3, finite.max() * 1.3
    )
    training.set_title(f"training loss, {result.n_examples} examples")
    test.set_title("test error" if result.is_classification else "unexplained variance, test")
    top = min(float(np.nanmax(result.errors[:, later])), 3.0)
    test.set_ylim(0, 1.08 * max(top, 0.02))
    if result.is_classification:
        test.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    training.legend(frameon=False, loc="lower left")
    return figure


@register_drawing(WidthScaling)
def _width_scaling(result: WidthScaling, theme: Theme) -> Figure:
    figure = new_figure(3.6)
    axes = figure.subplots()
    rows = {
        "distance to the limit": (result.limit_distance, theme.blue),
        "kernel change": (result.kernel_change, theme.orange),
        "parameter change": (result.parameter_change, theme.green),
    }
    for (name, (values, colour)), power in zip(rows.items(), result.exponents):
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
    axes.set(xlabel="width", ylabel="relative distance")
    log_axis(axes.xaxis, low, high)
    log_axis(axes.yaxis, values.min() / 1.5, guide[0] * 1.3)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8.5)
    return figure


@register_drawing(InfiniteWidthComparison)
def _infinite_width(result: InfiniteWidthComparison, theme: Theme) -> Figure:
    figure = new_figure(2.9)
    rows = zip(figure.subplots(1, 2), ("mean", "std"), (result.mean, result.std))
    for (axes, name, (limit, finite)), agreement, colour in zip(
        rows, result.agreement, (theme.blue, theme.green)
    ):
        at = np.linspace(0, limit.size - 1, min(limit.size, 2 * MAX_PAIRS)).astype(int)
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
