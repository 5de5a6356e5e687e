"""Figures of optimisation: loss landscape, convergence rates with theoretical bounds, smoothness
and gradient dominance.
"""

from itertools import cycle, pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...explain.loss_surface import (
    ConvergenceRates,
    GradientDominance,
    LossLandscape,
    Smoothness,
    TrainingConvergence,
)
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme

N_LEVELS = 12
LINE_STYLES = ("-", (0, (9, 1.5)), (0, (9, 1.5, 2, 1.5)))  # of measured curves
BOUND_STYLES = ((0, (3, 2)), ":", (0, (4, 2, 1, 2)), (0, (1, 3)))  # of theoretical bounds
MAX_INSIDE_LEGEND = 4  # names up to which the legend is inside the axes


@register_drawing(LossLandscape)
def _landscape(result: LossLandscape, theme: Theme) -> Figure:
    figure = new_figure(4.3)
    axes = figure.subplots()
    losses, log = result.losses, False
    finite = losses[np.isfinite(losses)]
    if not finite.size:
        raise ValueError(
            "draw: no loss of the landscape is finite; use a smaller range of alphas and betas."
        )
    low = float(finite.min())
    high = float(finite.max())
    if low > 0 and high > 20 * low:
        levels = np.geomspace(low, high, N_LEVELS)
        log = True
    else:
        levels = np.linspace(low, high if high > low else low + 1, N_LEVELS)
    losses = np.where(np.isfinite(losses), losses, high)
    # a single colour, which the page can replace by that of its theme
    for level, (below, above) in enumerate(pairwise(levels)):
        axes.contourf(
            result.alphas,
            result.betas,
            losses,
            levels=[below, above],
            colors=[theme.blue],
            alpha=0.04 + 0.5 * level / N_LEVELS,
        )
    lines = axes.contour(
        result.alphas, result.betas, losses, levels=levels[1:-1], colors=theme.blue, linewidths=0.9
    )
    axes.clabel(lines, levels=levels[1:-1:2], fmt="%.3g", fontsize=8, colors=theme.ink)
    if result.path is not None:
        axes.plot(*result.path.T, color=theme.orange, linewidth=1.3, marker=".", markersize=3)
    axes.plot(0, 0, "o", color=theme.orange, markersize=7)
    axes.annotate(
        f"θ: {result.loss:.3g}",
        (0, 0),
        xytext=(8, 8),
        textcoords="offset points",
        color=theme.orange,
        bbox={"boxstyle": "round,pad=0.2", "fc": theme.paper, "ec": "none"},
        zorder=5,
    )
    axes.set(xlabel="first direction", ylabel="second direction")
    axes.set(
        xlim=(result.alphas.min(), result.alphas.max()),
        ylim=(result.betas.min(), result.betas.max()),
    )
    axes.set_title(f"loss{' (logarithmic contour levels)' if log else ''}")
    axes.grid(visible=False)
    return figure


@register_drawing(ConvergenceRates)
def _rates(result: ConvergenceRates, theme: Theme) -> Figure:
    bounds = _bounds(result)
    n_curves = len(result.gaps) + len(bounds)
    figure = new_figure(3.8 if n_curves <= MAX_INSIDE_LEGEND else 3.6 + 0.09 * n_curves)
    axes = figure.subplots()
    geometric = sum(decay.law == "geometric" for decay in result.rates.values()) * 2 >= len(
        result.rates
    )
    styles = _styles(theme, list(result.gaps))
    for name, gap in result.gaps.items():
        decay = result.rates[name]
        t = np.arange(len(gap))
        rate = f"ρ = {decay.factor:.4g}" if decay.law == "geometric" else f"1/t^{decay.power:.3g}"
        axes.plot(t, np.where(gap > 0, gap, np.nan), label=f"{name}: {rate}", **styles[name])
    for dash, (name, curve) in zip(cycle(BOUND_STYLES), bounds.items()):
        colour = next(
            (style["color"] for method, style in styles.items() if _is_about(name, method)),
            theme.muted,
        )
        axes.plot(
            np.arange(len(curve)),
            np.where(np.isfinite(curve), curve, np.nan),
            color=colour,
            linestyle=dash,
            linewidth=1.2,
            label=f"bound: {name}",
        )
    axes.set(xlabel="step", ylabel="loss minus minimum", yscale="log")
    if not geometric:
        axes.set(xscale="log", xlim=(1, None))
    positive = np.concatenate([gap[np.isfinite(gap) & (gap > 0)] for gap in result.gaps.values()])
    if positive.size:
        axes.set_ylim(max(positive.min(), 1e-17 * positive.max()) / 2, 4 * positive.max())
    below = (
        {}
        if n_curves <= MAX_INSIDE_LEGEND
        else {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}
    )
    axes.legend(frameon=False, fontsize=8.5, handlelength=2.8, **below)
    return figure


def _styles(theme: Theme, names: list[str]) -> dict[str, dict[str, Any]]:
    """A colour for each of four lines; the next four repeat the colours in another line style."""
    colours = len(theme.lines)
    line_style = lambda i: LINE_STYLES[i // colours % len(LINE_STYLES)]
    return {
        name: {"color": theme.lines[i % colours], "linestyle": line_style(i)}
        for i, name in enumerate(names)
    }


def _is_about(bound: str, method: str) -> bool:
    """Whether a bound is about a method: its name begins with a word of the method's name."""
    return bound.split()[0].lower() in method.lower().split()


def _bounds(result: ConvergenceRates) -> dict[str, np.ndarray]:
    """The bounds for the methods shown; all bounds if none names a method."""
    matching = {
        name: curve
        for name, curve in result.bounds.items()
        if any(_is_about(name, method) for method in result.gaps)
    }
    return matching or result.bounds


@register_drawing(TrainingConvergence)
def _training_convergence(result: TrainingConvergence, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    axes = figure.subplots()
    decay = result.rate
    t = np.arange(1, len(result.losses) + 1)
    axes.plot(t, result.losses, color=theme.blue, marker="o", markersize=3, label="training loss")
    law = (
        f"× {decay.factor:.3g} per epoch"
        if decay.law == "geometric"
        else f"epoch to the power −{decay.power:.2g}"
    )
    axes.plot(t, decay.at(t), "--", color=theme.orange, linewidth=1.4, label=law)
    axes.set(xlabel="epoch", ylabel="loss", xlim=(1, max(len(t), 2)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    shown = result.losses[np.isfinite(result.losses) & (result.losses > 0)]
    log_axis(axes.yaxis, shown.min() / 1.5, shown.max() * 1.5)
    axes.legend(frameon=False, loc="upper right")
    return figure


@register_drawing(Smoothness)
def _smoothness(result: Smoothness, theme: Theme) -> Figure:
    return _constants(result, theme, "curvature", "largest")


@register_drawing(GradientDominance)
def _dominance(result: GradientDominance, theme: Theme) -> Figure:
    return _constants(result, theme, "gradient dominance", "smallest")


def _constants(
    result: Smoothness | GradientDominance, theme: Theme, name: str, which: str
) -> Figure:
    figure = new_figure(3.0)
    axes = figure.subplots()
    values = np.where(np.isfinite(result.values), result.values, np.nan)
    axes.plot(
        np.arange(1, len(values) + 1),
        values,
        "o" if len(values) < 200 else ",",
        color=theme.blue,
        markersize=4,
    )
    axes.axhline(result.constant, color=theme.orange, linewidth=1.2)
    axes.set(xlabel="point", ylabel=name, xlim=(0.5, len(values) + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    article = "an" if result.bound[0] in "aeiou" else "a"
    axes.set_title(f"{which} {result.constant:.4g}, {article} {result.bound}", color=theme.orange)
    return figure
