"""`draw(result)` returns the figure of any result of the library.

Each type of result is drawn by one function, registered with `register_drawing`:

    @register_drawing(Calibration)
    def _(result, theme): ...
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from .theme import LIGHT, WIDTH, Theme


@singledispatch
def _drawing(result: Any, theme: Theme) -> Figure:
    raise TypeError(
        f"draw: no drawing is registered for {type(result).__name__}; the known types are "
        f"{', '.join(drawable_types())}. Register one with thetax.plot.register_drawing."
    )


def drawable_types() -> list[str]:
    """The names of the types of results that can be drawn."""
    return sorted(kind.__name__ for kind in _drawing.registry if kind is not object)


def register_drawing(
    kind: type,
) -> Callable[[Callable[[Any, Theme], Figure]], Callable[[Any, Theme], Figure]]:
    """Decorator: registers a function `(result, theme) -> Figure` for results of this type."""
    return _drawing.register(kind)


def draw(result: Any, *, theme: Theme = LIGHT) -> Figure:
    """The figure of a result. `figure.savefig(path)` saves it; a notebook displays it.

    >>> import numpy as np
    >>> from thetax.explain import training_curves
    >>> from thetax.plot import draw
    >>> history = {"train loss": np.array([1.0, 0.5]), "valid error": np.array([0.4, 0.3])}
    >>> len(draw(training_curves(history)).axes)
    2
    >>> draw(3)
    Traceback (most recent call last):
    TypeError: draw: no drawing is registered for int; the known types are ActivationStatistics, ...
    """
    with theme.apply():
        return _drawing(result, theme)


def log_axis(axis: Axis, low: float, high: float) -> None:
    """Makes an axis logarithmic; with plain decimal tick labels if it spans less than three
    decades.
    """
    if axis is axis.axes.xaxis:
        axis.axes.set(xscale="log", xlim=(low, high))
    else:
        axis.axes.set(yscale="log", ylim=(low, high))
    is_short = high < 1000 * low
    subs = (1.0, 2.0, 5.0) if high < 30 * low else (1.0, 3.0) if high < 300 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=12 if is_short else None))
    axis.set_minor_formatter(NullFormatter())
    if is_short:
        axis.set_major_formatter(FormatStrFormatter("%g"))


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of the common width, with constrained layout."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)  # type: ignore[union-attr]
    return figure
