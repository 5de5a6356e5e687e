"""`DotPlot`: named values with error bars as rows of dots; and permutation importance."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from ...explain.predictions import PermutationImportance
from ..draw import new_figure, register_drawing
from ..theme import Theme

MAX_FEATURES = 15  # features shown


@dataclass(frozen=True)
class DotColumn:
    """One quantity: value and error by name, and named vertical lines to compare with."""

    x: str
    dots: Mapping[str, tuple[float, float]]
    vertical_lines: Mapping[str, float] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True, init=False)
class DotPlot:
    """Columns side by side, with a row per name, the first on top.

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
                "DotPlot: expected at least one DotColumn, and the same names in the same order in "
                "all of them."
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
    for name, position in column.vertical_lines.items():
        axes.axvline(position, color=theme.orange, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            name,
            (position, 0.02),
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


@register_drawing(PermutationImportance)
def _importance(result: PermutationImportance, theme: Theme) -> Figure:
    top = result.ranking[:MAX_FEATURES]
    dots = {result.features[j]: (float(result.increase[j]), float(result.error[j])) for j in top}
    return _dots(DotPlot(DotColumn("increase of the error when permuted", dots)), theme)
