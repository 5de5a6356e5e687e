"""Named numbers as dots on a line, each with its error: a table to be seen. And the features a
model leans on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from ...explain import Importance
from ..draw import new_figure, register_drawing
from ..theme import Theme

SHOWN = 15  # features that are drawn


@dataclass(frozen=True)
class DotColumn:
    """One measure: the number and its error of each name, and named levels to compare with."""

    x: str
    dots: Mapping[str, tuple[float, float]]
    vertical_lines: Mapping[str, float] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True, init=False)
class DotPlot:
    """Columns side by side, with a line for each name, the first on top.

    >>> table = DotPlot(
    ...     DotColumn(
    ...         "test error, %",
    ...         {"linear": (5.1, 0.2), "network": (4.7, 0.2)},
    ...         vertical_lines={"null": 39.4},
    ...     )
    ... )
    >>> from thetax.plot import draw
    >>> [label.get_text() for label in draw(table).axes[0].get_yticklabels()]
    ['linear', 'network']
    """

    columns: tuple[DotColumn, ...]

    def __init__(self, *columns: DotColumn):
        if not columns or any(list(column.dots) != list(columns[0].dots) for column in columns):
            raise ValueError(
                "DotPlot: give at least one DotColumn; all must have the same names in the same "
                "order."
            )
        object.__setattr__(self, "columns", columns)


@register_drawing(DotPlot)
def _dots(result: DotPlot, theme: Theme) -> Figure:
    names = list(result.columns[0].dots)
    figure = new_figure(1.0 + 0.26 * len(names))
    for axes, column in zip(
        figure.subplots(1, len(result.columns), sharey=True, squeeze=False)[0], result.columns
    ):
        _column(axes, column, theme)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
    return figure


def _column(axes: Any, column: DotColumn, theme: Theme) -> None:
    for row, (value, error) in enumerate(column.dots.values()):
        axes.hlines(row, value - error, value + error, color=theme.blue, alpha=0.45, linewidth=3)
        axes.plot([value], [row], "o", color=theme.blue)
    for name, place in column.vertical_lines.items():
        axes.axvline(place, color=theme.orange, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            name,
            (place, 0.02),
            xycoords=("data", "axes fraction"),
            rotation=90,
            fontsize=8.5,
            ha="right",
            xytext=(-2, 0),
            textcoords="offset points",
            color=theme.orange,
        )
    axes.set(xlabel=column.x, title=column.title)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


@register_drawing(Importance)
def _importance(result: Importance, theme: Theme) -> Figure:
    chosen = result.order[:SHOWN]
    dots = {result.features[j]: (float(result.rise[j]), float(result.error[j])) for j in chosen}
    return _dots(DotPlot(DotColumn("rise of the error when the feature is shuffled", dots)), theme)
