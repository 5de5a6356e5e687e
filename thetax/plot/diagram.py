"""Boxes and arrows, and several pictures on one sheet: how a network or a computation is drawn.

A `Diagram` holds boxes by name and arrows between them, which may carry words. A `FigureGrid` lays
panels and diagrams out in rows of two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from .chart import Panel, draw_panel
from .draw import new_figure, register_drawing
from .theme import Theme

ROW = 2.5  # inches


@dataclass(frozen=True)
class Box:
    """A rectangle around a point, with words in it."""

    x: float | int
    y: float | int
    width: float | int
    height: float | int
    words: str = ""
    frame: bool = True  # else words alone


@dataclass(frozen=True)
class Arrow:
    """From one box to another, with words a share of the way along it."""

    start: str
    end: str
    words: str = ""
    along: float | int = 0.5
    bend: float | int = (
        0.0  # how far the arc bulges, as a share of its length; positive to the right of the way
    )


@dataclass(frozen=True)
class Diagram:
    """Boxes by name, and arrows between them.

    >>> from thetax.plot import draw
    >>> boxes = {"x": Box(0, 0, 1, 3, "x"), "z": Box(2, 0, 1, 1, "z")}
    >>> len(draw(Diagram(boxes, [Arrow("x", "z", "C")])).axes)
    1
    """

    boxes: Mapping[str, Box]
    arrows: Sequence[Arrow] = ()
    title: str = ""

    def __post_init__(self):
        ends = {name for arrow in self.arrows for name in (arrow.start, arrow.end)}
        if unknown := sorted(ends - set(self.boxes)):
            raise ValueError(
                f"Diagram: an arrow names {unknown[0]!r}, which is no box; there are "
                f"{list(self.boxes)}."
            )


@dataclass(frozen=True, init=False)
class FigureGrid:
    """Panels and diagrams in rows of two.

    >>> from thetax.plot import draw
    >>> sheet = FigureGrid(
    ...     Panel("t", "loss", lines={"a": ([0, 1], [1, 0])}), Diagram({"x": Box(0, 0, 1, 1)})
    ... )
    >>> len(draw(sheet).axes)
    2
    """

    parts: tuple[Panel | Diagram, ...]

    def __init__(self, *parts: Panel | Diagram):
        if not parts:
            raise ValueError(
                "FigureGrid: there is nothing to draw; give at least one Panel or Diagram."
            )
        object.__setattr__(self, "parts", parts)


@register_drawing(Diagram)
def _alone(result: Diagram, theme: Theme) -> Figure:
    figure = new_figure(3.4)
    _diagram(figure.subplots(), result, theme)
    return figure


@register_drawing(FigureGrid)
def _sheet(result: FigureGrid, theme: Theme) -> Figure:
    rows = (len(result.parts) + 1) // 2
    figure = new_figure(ROW * rows)
    places = figure.subplots(rows, 2, squeeze=False).ravel()
    for axes, part in zip(places, result.parts):
        if isinstance(part, Panel):
            draw_panel(axes, part, theme)
        else:
            _diagram(axes, part, theme)
    for axes in places[len(result.parts) :]:
        axes.set_axis_off()
    return figure


def _diagram(axes: Any, diagram: Diagram, theme: Theme) -> None:
    patches = {name: _box(axes, box, theme) for name, box in diagram.boxes.items()}
    for arrow in diagram.arrows:
        a = diagram.boxes[arrow.start]
        b = diagram.boxes[arrow.end]
        style = {
            "arrowstyle": "-|>",
            "color": theme.muted,
            "shrinkA": 2,
            "shrinkB": 2,
            "linewidth": 1,
            "connectionstyle": f"arc3,rad={arrow.bend}",
        }
        axes.annotate(
            "",
            (b.x, b.y),
            (a.x, a.y),
            arrowprops=style | {"patchA": patches[arrow.start], "patchB": patches[arrow.end]},
        )
        if arrow.words:
            x = (1 - arrow.along) * a.x + arrow.along * b.x
            y = (1 - arrow.along) * a.y + arrow.along * b.y
            x, y = (
                x + arrow.bend * (b.y - a.y) / 2,
                y - arrow.bend * (b.x - a.x) / 2,
            )  # the middle of the arc
            axes.text(
                x,
                y,
                arrow.words,
                ha="center",
                va="center",
                fontsize=8,
                color=theme.orange,
                bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 1},
            )
    axes.set(title=diagram.title)
    axes.margins(0.03)
    axes.autoscale_view()  # now: words beyond the view would be given room outside it
    axes.set_axis_off()


def _box(axes: Any, box: Box, theme: Theme) -> FancyBboxPatch:
    patch = FancyBboxPatch(
        (box.x - box.width / 2, box.y - box.height / 2),
        box.width,
        box.height,
        boxstyle="square,pad=0",
        facecolor=theme.paper,
        edgecolor=theme.blue,
        linewidth=1.2,
        visible=box.frame,
    )
    axes.add_patch(patch)
    axes.text(box.x, box.y, box.words, ha="center", va="center", fontsize=8, color=theme.ink)
    return patch
