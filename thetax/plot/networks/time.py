"""Time: what is left of a signal after each lag, the eigenvalues that say why, and where a
translation looks.
"""

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ...explain import Alignment, Eigenvalues, ThroughTime
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme

FLOOR = 1e-16  # smaller norms are not drawn


@register_drawing(ThroughTime)
def _through_time(result: ThroughTime, theme: Theme) -> Figure:
    times = result.norms.shape[1]
    lag = np.arange(1, times + 1)
    figure = new_figure(4.6)
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    norms = np.where(result.norms > FLOOR, result.norms, np.nan)
    if len(norms) > 1:
        above.fill_between(
            lag, norms.min(axis=0), norms.max(axis=0), color=theme.blue, alpha=0.2, linewidth=0
        )
    above.plot(
        lag, np.exp(np.log(norms).mean(axis=0)), color=theme.blue, label="what is left of a change"
    )
    shown = [*norms[np.isfinite(norms)], 1.0]
    if result.bound is not None:
        bound = np.clip(result.bound, FLOOR, 1 / FLOOR)
        above.plot(
            lag, bound, "--", color=theme.muted, linewidth=1.4, label="at most, by the weights"
        )
        shown += [*bound]
    log_axis(above.yaxis, min(shown) / 2, max(shown) * 2)
    above.set(xlabel="steps between", ylabel="norm", xlim=(0, times + 1))
    figure.legend(loc="outside upper right", frameon=False, fontsize=8.5, ncols=2, handlelength=1.4)
    _steps(below, result, theme)
    return figure


def _steps(axes: Any, result: ThroughTime, theme: Theme) -> None:
    """The extreme singular values of each step; those that are nearly one look so."""
    values = np.maximum([result.largest, result.smallest], FLOOR)
    middle = np.exp(np.log(values).mean(axis=1))
    time = np.arange(-middle.shape[1] + 1, 1)
    for line, colour, name in zip(middle, (theme.blue, theme.orange), ("largest", "smallest")):
        axes.plot(time, line, color=colour, label=name)
    log_axis(axes.yaxis, float(min(middle.min(), 1) / 2), float(max(middle.max(), 1) * 2))
    axes.axhline(1, color=theme.muted, linewidth=1, linestyle=":")
    axes.set(xlabel="time, up to the last", ylabel="singular value")
    axes.set_title("of each step", fontsize=9)
    corner = {"loc": "lower right", "bbox_to_anchor": (1, 0.98), "borderpad": 0}
    axes.legend(frameon=False, fontsize=8.5, ncols=2, handlelength=1.4, **corner)


@register_drawing(Eigenvalues)
def _eigenvalues(result: Eigenvalues, theme: Theme) -> Figure:
    figure = new_figure(2.9)
    disk, clock = figure.subplots(1, 2)
    across = np.real(result.values)
    up = np.imag(result.values)
    turn = np.linspace(0, 2 * np.pi, 200)
    disk.plot(np.cos(turn), np.sin(turn), color=theme.muted, linewidth=1)
    dot = float(np.clip(30 / np.sqrt(len(result.values)), 2.5, 6))
    for chosen, colour in ((~result.outside, theme.blue), (result.outside, theme.orange)):
        disk.plot(across[chosen], up[chosen], "o", color=colour, markersize=dot, alpha=0.7)
    reach = max(1.08, 1.08 * result.radius)
    disk.set(
        xlim=(-reach, reach), ylim=(-reach, reach), xlabel="real part", ylabel="imaginary part"
    )
    disk.set_aspect("equal")
    _clock(clock, np.sort(result.times)[::-1], dot, theme)
    return figure


def _clock(axes: Any, times: np.ndarray, dot: float, theme: Theme) -> None:
    """The time constants, the longest first; those that never fade are counted."""
    fade = np.isfinite(times) & (times > 0)
    place = np.arange(1, len(times) + 1)
    axes.set(
        xlabel="eigenvalue, by size", ylabel="steps until 1/e is left", xlim=(0, len(times) + 1)
    )
    if never := int(np.isinf(times).sum()):
        axes.set_title(f"{never} of {len(times)} never fade", fontsize=9)
    if not fade.any():
        axes.set_axis_off()
        return
    axes.plot(place[fade], times[fade], "o", color=theme.blue, markersize=dot, clip_on=False)
    log_axis(axes.yaxis, times[fade].min() / 2, times[fade].max() * 2)


@register_drawing(Alignment)
def _alignment(result: Alignment, theme: Theme) -> Figure:
    s, t = result.weights.shape
    figure = new_figure(min(1.0 + 0.26 * s, 7.0), min(1.4 + 0.3 * t, 8.0))
    axes = figure.subplots()
    tint = np.broadcast_to(to_rgb(theme.blue), (s, t, 3))
    picture = np.concatenate([tint, result.weights[..., None]], axis=2)
    axes.imshow(picture, interpolation="nearest", aspect="auto")
    long = max(map(len, result.source), default=0) > 2
    axes.set_xticks(range(t), result.source, rotation=90 if long else 0)
    axes.set_yticks(range(s), result.written)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor=theme.ink)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set(xlabel="source", ylabel="written")
    axes.xaxis.set_label_position("top")
    return figure
