"""Figure of the shrinkage factors of weight decay and early stopping against curvature, with the
effective number of parameters.
"""

import numpy as np
from matplotlib.figure import Figure

from ...explain import early_stopping_factor, weight_decay_factor
from ...explain.signal import EffectiveParameters
from ..draw import log_axis, new_figure, register_drawing
from ..theme import Theme


@register_drawing(EffectiveParameters)
def _effective_parameters(result: EffectiveParameters, theme: Theme) -> Figure:
    figure = new_figure(3.5)
    axes = figure.subplots()
    positive = result.curvatures > 0
    low, high = _range(result)
    grid = np.geomspace(low, high, 300)
    decay = weight_decay_factor(grid, strength=result.strength)
    if result.strength:
        axes.plot(grid, decay, color=theme.blue, label=f"weight decay {result.strength:.3g}")
    if result.learning_rate is not None and result.steps is not None:
        early_stopping = early_stopping_factor(
            grid + result.strength, learning_rate=result.learning_rate, steps=result.steps
        )
        label = f"{result.steps} steps of learning rate {result.learning_rate:.3g}"
        axes.plot(
            grid,
            early_stopping * decay,
            color=theme.green,
            label=f"weight decay, {label}" if result.strength else label,
        )
    axes.plot(
        result.curvatures[positive],
        result.factors[positive],
        "o",
        color=theme.orange,
        markersize=5,
        clip_on=False,
        zorder=5,
        label="largest Hessian eigenvalues",
    )
    axes.set(xlabel="curvature (eigenvalue of the Hessian)", ylabel="shrinkage factor")
    log_axis(axes.xaxis, low, high)
    axes.set_ylim(
        0, max([1.05, *np.minimum(1.05 * result.factors[positive], 2.1)])
    )  # factors oscillate around 1 if the learning rate exceeds 1 / curvature
    count = float(f"{result.effective:.1e}")  # two digits: small eigenvalues are inexact
    axes.set_title(
        f"about {count:,g} effective parameters of {result.parameters:,}", color=theme.orange
    )
    axes.legend(frameon=False, loc="lower right")
    return figure


def _range(result: EffectiveParameters) -> tuple[float, float]:
    """The range of curvatures to draw: where the factors are 1/2, and the computed eigenvalues."""
    halves = [
        result.strength,
        1 / (result.learning_rate * result.steps) if result.learning_rate and result.steps else 0.0,
    ]
    values = [value for value in (*halves, *result.curvatures) if value > 0] or [1.0]
    return min(values) / 10, max(values) * 1.5
