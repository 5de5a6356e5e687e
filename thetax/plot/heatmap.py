"""`Heatmap`: a matrix as an image, positive values in blue and negative ones in orange."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from .draw import new_figure, register_drawing
from .predictions.images import signed
from .theme import Theme


@dataclass(frozen=True)
class Heatmap:
    """A matrix, and the names of its columns (`x`) and rows (`y`).

    >>> from thetax.plot import draw
    >>> len(draw(Heatmap(np.eye(3), "key", "query")).axes)
    1
    """

    values: Float[np.ndarray, "h w"]
    x: str
    y: str
    title: str = ""


@register_drawing(Heatmap)
def _heatmap(result: Heatmap, theme: Theme) -> Figure:
    figure = new_figure(3.4)
    axes = figure.subplots()
    axes.imshow(signed(result.values, theme), interpolation="nearest", aspect="auto")
    axes.grid(visible=False)
    axes.set(xlabel=result.x, ylabel=result.y, title=result.title)
    return figure
