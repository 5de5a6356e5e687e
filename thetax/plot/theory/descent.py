"""Descent: the loss on a plane, the constants along a way, and rates measured beside rates
promised.
"""

from itertools import cycle, pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...explain import Dominance, Landscape, Rates, Smoothness, Trajectory
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme

LEVELS = 12
STROKES = ("-", (0, (9, 1.5)), (0, (9, 1.5, 2, 1.5)))  # of what was measured
DASHES = ((0, (3, 2)), ":", (0, (4, 2, 1, 2)), (0, (1, 3)))  # of what is promised
BESIDE = 4  # names that fit beside the curves; more are put below


@register_drawing(Landscape)
def _landscape(result: Landscape, theme: Theme) -> Figure:
    figure = new_figure(4.3)
    axes = figure.subplots()
    losses, log = result.losses, False
    finite = losses[np.isfinite(losses)]
    if not finite.size:
        raise ValueError("draw: no loss of the landscape is finite; look at a smaller plane.")
    low = float(finite.min())
    high = float(finite.max())
    if low > 0 and high > 20 * low:
        levels = np.geomspace(low, high, LEVELS)
        log = True
    else:
        levels = np.linspace(low, high if high > low else low + 1, LEVELS)
    losses = np.where(np.isfinite(losses), losses, high)
    for level, (below, above) in enumerate(
        pairwise(levels)
    ):  # one colour, so that the page can exchange it
        axes.contourf(
            result.alphas,
            result.betas,
            losses,
            levels=[below, above],
            colors=[theme.blue],
            alpha=0.04 + 0.5 * level / LEVELS,
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
    axes.set(xlabel="step along the first direction", ylabel="step along the second direction")
    axes.set(
        xlim=(result.alphas.min(), result.alphas.max()),
        ylim=(result.betas.min(), result.betas.max()),
    )
    axes.set_title(f"loss{', levels in equal ratios' if log else ''}")
    axes.grid(visible=False)
    return figure


@register_drawing(Rates)
def _rates(result: Rates, theme: Theme) -> Figure:
    promised = _promised(result)
    names = len(result.gaps) + len(promised)
    figure = new_figure(3.8 if names <= BESIDE else 3.6 + 0.09 * names)
    axes = figure.subplots()
    geometric = sum(decay.law == "geometric" for decay in result.decays.values()) * 2 >= len(
        result.decays
    )
    looks = _looks(theme, list(result.gaps))
    for name, gap in result.gaps.items():
        decay = result.decays[name]
        t = np.arange(len(gap))
        rate = f"ρ = {decay.factor:.4g}" if decay.law == "geometric" else f"1/t^{decay.power:.3g}"
        axes.plot(t, np.where(gap > 0, gap, np.nan), label=f"{name}: {rate}", **looks[name])
    for dash, (name, curve) in zip(cycle(DASHES), promised.items()):
        colour = next(
            (look["color"] for method, look in looks.items() if _of(name, method)), theme.muted
        )
        axes.plot(
            np.arange(len(curve)),
            np.where(np.isfinite(curve), curve, np.nan),
            color=colour,
            linestyle=dash,
            linewidth=1.2,
            label=f"promised: {name}",
        )
    axes.set(xlabel="step", ylabel="loss above its least value", yscale="log")
    if not geometric:
        axes.set(xscale="log", xlim=(1, None))
    seen = np.concatenate([gap[np.isfinite(gap) & (gap > 0)] for gap in result.gaps.values()])
    if seen.size:
        axes.set_ylim(max(seen.min(), 1e-17 * seen.max()) / 2, 4 * seen.max())
    below = (
        {}
        if names <= BESIDE
        else {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}
    )
    axes.legend(frameon=False, fontsize=8.5, handlelength=2.8, **below)
    return figure


def _looks(theme: Theme, names: list[str]) -> dict[str, dict[str, Any]]:
    """A colour for each of four lines; the next four have the colours again and another stroke."""
    colours = len(theme.lines)
    stroke = lambda i: STROKES[i // colours % len(STROKES)]
    return {
        name: {"color": theme.lines[i % colours], "linestyle": stroke(i)}
        for i, name in enumerate(names)
    }


def _of(promise: str, method: str) -> bool:
    """Whether a promise is made to a method: it begins with a word of its name."""
    return promise.split()[0].lower() in method.lower().split()


def _promised(result: Rates) -> dict[str, np.ndarray]:
    """The promises made to the methods shown; all of them where none names a method."""
    made = {
        name: curve
        for name, curve in result.promises.items()
        if any(_of(name, method) for method in result.gaps)
    }
    return made or result.promises


@register_drawing(Trajectory)
def _trajectory(result: Trajectory, theme: Theme) -> Figure:
    figure = new_figure(3.2)
    axes = figure.subplots()
    decay = result.decay
    t = np.arange(1, len(result.losses) + 1)
    axes.plot(t, result.losses, color=theme.blue, marker="o", markersize=3, label="training loss")
    law = (
        f"× {decay.factor:.3g} an epoch"
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
    return _constants(result, theme, "curvature seen", "largest")


@register_drawing(Dominance)
def _dominance(result: Dominance, theme: Theme) -> Figure:
    return _constants(result, theme, "gradient dominance seen", "smallest")


def _constants(result: Smoothness | Dominance, theme: Theme, name: str, which: str) -> Figure:
    figure = new_figure(3.0)
    axes = figure.subplots()
    seen = np.where(np.isfinite(result.seen), result.seen, np.nan)
    axes.plot(
        np.arange(1, len(seen) + 1),
        seen,
        "o" if len(seen) < 200 else ",",
        color=theme.blue,
        markersize=4,
    )
    axes.axhline(result.constant, color=theme.orange, linewidth=1.2)
    axes.set(xlabel="point", ylabel=name, xlim=(0.5, len(seen) + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    article = "an" if result.bound[0] in "aeiou" else "a"
    axes.set_title(f"{which} {result.constant:.4g}, {article} {result.bound}", color=theme.orange)
    return figure
