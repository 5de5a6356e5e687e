"""Figures of sequence models: gradients through time, eigenvalues of the recurrence, attention
alignment.
"""

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ...explain.attribution import AttentionAlignment
from ...explain.signal import GradientsThroughTime, RecurrenceEigenvalues
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme

MIN_NORM = 1e-16  # smaller norms are not drawn


@register_drawing(GradientsThroughTime)
def _through_time(result: GradientsThroughTime, theme: Theme) -> Figure:
    n_lags = result.norms.shape[1]
    lag = np.arange(1, n_lags + 1)
    figure = new_figure(4.6)
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    norms = np.where(result.norms > MIN_NORM, result.norms, np.nan)
    if len(norms) > 1:
        above.fill_between(
            lag, norms.min(axis=0), norms.max(axis=0), color=theme.blue, alpha=0.2, linewidth=0
        )
    above.plot(lag, np.exp(np.log(norms).mean(axis=0)), color=theme.blue, label="Jacobian norm")
    shown = [*norms[np.isfinite(norms)], 1.0]
    if result.bound is not None:
        bound = np.clip(result.bound, MIN_NORM, 1 / MIN_NORM)
        above.plot(
            lag, bound, "--", color=theme.muted, linewidth=1.4, label="upper bound from the weights"
        )
        shown += [*bound]
    log_axis(above.yaxis, min(shown) / 2, max(shown) * 2)
    above.set(xlabel="lag (steps)", ylabel="norm", xlim=(0, n_lags + 1))
    figure.legend(loc="outside upper right", frameon=False, fontsize=8.5, ncols=2, handlelength=1.4)
    _steps(below, result, theme)
    return figure


def _steps(axes: Any, result: GradientsThroughTime, theme: Theme) -> None:
    """The extreme singular values of each step."""
    values = np.maximum([result.max_singular_values, result.min_singular_values], MIN_NORM)
    mean = np.exp(np.log(values).mean(axis=1))
    time = np.arange(-mean.shape[1] + 1, 1)
    for line, colour, name in zip(mean, (theme.blue, theme.orange), ("largest", "smallest")):
        axes.plot(time, line, color=colour, label=name)
    log_axis(axes.yaxis, float(min(mean.min(), 1) / 2), float(max(mean.max(), 1) * 2))
    axes.axhline(1, color=theme.muted, linewidth=1, linestyle=":")
    axes.set(xlabel="time step before the last", ylabel="singular value")
    axes.set_title("Jacobian of each step", fontsize=9)
    corner = {"loc": "lower right", "bbox_to_anchor": (1, 0.98), "borderpad": 0}
    axes.legend(frameon=False, fontsize=8.5, ncols=2, handlelength=1.4, **corner)


@register_drawing(RecurrenceEigenvalues)
def _eigenvalues(result: RecurrenceEigenvalues, theme: Theme) -> Figure:
    figure = new_figure(2.9)
    disk, times = figure.subplots(1, 2)
    real = np.real(result.values)
    imaginary = np.imag(result.values)
    angle = np.linspace(0, 2 * np.pi, 200)
    disk.plot(np.cos(angle), np.sin(angle), color=theme.muted, linewidth=1)
    dot = float(np.clip(30 / np.sqrt(len(result.values)), 2.5, 6))
    for mask, colour in ((~result.is_unstable, theme.blue), (result.is_unstable, theme.orange)):
        disk.plot(real[mask], imaginary[mask], "o", color=colour, markersize=dot, alpha=0.7)
    reach = max(1.08, 1.08 * result.spectral_radius)
    disk.set(
        xlim=(-reach, reach), ylim=(-reach, reach), xlabel="real part", ylabel="imaginary part"
    )
    disk.set_aspect("equal")
    _times(times, np.sort(result.time_constants)[::-1], dot, theme)
    return figure


def _times(axes: Any, times: np.ndarray, dot: float, theme: Theme) -> None:
    """The finite time constants, the longest first, and the number of infinite ones."""
    decays = np.isfinite(times) & (times > 0)
    rank = np.arange(1, len(times) + 1)
    axes.set(xlabel="rank", ylabel="time constant (steps)", xlim=(0, len(times) + 1))
    if n_infinite := int(np.isinf(times).sum()):
        axes.set_title(f"{n_infinite} of {len(times)} do not decay", fontsize=9)
    if not decays.any():
        axes.set_axis_off()
        return
    axes.plot(rank[decays], times[decays], "o", color=theme.blue, markersize=dot, clip_on=False)
    log_axis(axes.yaxis, times[decays].min() / 2, times[decays].max() * 2)


@register_drawing(AttentionAlignment)
def _alignment(result: AttentionAlignment, theme: Theme) -> Figure:
    s, t = result.weights.shape
    figure = new_figure(min(1.0 + 0.26 * s, 7.0), min(1.4 + 0.3 * t, 8.0))
    axes = figure.subplots()
    tint = np.broadcast_to(to_rgb(theme.blue), (s, t, 3))
    image = np.concatenate([tint, result.weights[..., None]], axis=2)
    axes.imshow(image, interpolation="nearest", aspect="auto")
    long = max(map(len, result.source), default=0) > 2
    axes.set_xticks(range(t), result.source, rotation=90 if long else 0)
    axes.set_yticks(range(s), result.target)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor=theme.ink)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set(xlabel="source", ylabel="target")
    axes.xaxis.set_label_position("top")
    return figure
