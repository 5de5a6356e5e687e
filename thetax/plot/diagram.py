"""`Diagram`: labelled boxes and arrows, for networks and computations; `FigureGrid`: panels and
diagrams in rows of two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from .chart import Panel, draw_panel
from .draw import new_figure, register_drawing
from .theme import Theme

ROW_HEIGHT = 2.5  # inches


@dataclass(frozen=True)
class Box:
    """A rectangle centred at a point, with text in it."""

    x: float | int
    y: float | int
    width: float | int
    height: float | int
    text: str = ""
    frame: bool = True  # False draws the text only


@dataclass(frozen=True)
class Arrow:
    """An arrow from one box to another, with a label at a fraction `along` of its length."""

    start: str
    end: str
    text: str = ""
    along: float | int = 0.5
    bend: float | int = 0.0  # sagitta relative to the length; positive bends to the right


@dataclass(frozen=True)
class Diagram:
    """Named boxes, and arrows between them.

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
                f"Diagram: an arrow refers to the box {unknown[0]!r}, which does not exist; the "
                f"boxes are {list(self.boxes)}."
            )


@dataclass(frozen=True, init=False)
class FigureGrid:
    """Panels and diagrams in rows of two.

    >>> from thetax.plot import draw
    >>> grid = FigureGrid(
    ...     Panel("t", "loss", lines={"a": ([0, 1], [1, 0])}), Diagram({"x": Box(0, 0, 1, 1)})
    ... )
    >>> len(draw(grid).axes)
    2
    """

    parts: tuple[Panel | Diagram, ...]

    def __init__(self, *parts: Panel | Diagram):
        if not parts:
            raise ValueError("FigureGrid: expected at least one Panel or Diagram; got none.")
        object.__setattr__(self, "parts", parts)


@register_drawing(Diagram)
def _draw_diagram(result: Diagram, theme: Theme) -> Figure:
    figure = new_figure(3.4)
    _diagram(figure.subplots(), result, theme)
    return figure


@register_drawing(FigureGrid)
def _draw_grid(result: FigureGrid, theme: Theme) -> Figure:
    rows = (len(result.parts) + 1) // 2
    figure = new_figure(ROW_HEIGHT * rows)
    panels = figure.subplots(rows, 2, squeeze=False).ravel()
    for axes, part in zip(panels, result.parts):
        if isinstance(part, Panel):
            draw_panel(axes, part, theme)
        else:
            _diagram(axes, part, theme)
    for axes in panels[len(result.parts) :]:
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
        if arrow.text:
            x = (1 - arrow.along) * a.x + arrow.along * b.x
            y = (1 - arrow.along) * a.y + arrow.along * b.y
            # the middle of the arc
            x += arrow.bend * (b.y - a.y) / 2
            y -= arrow.bend * (b.x - a.x) / 2
            axes.text(
                x,
                y,
                arrow.text,
                ha="center",
                va="center",
                fontsize=8,
                color=theme.orange,
                bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 1},
            )
    axes.set(title=diagram.title)
    axes.margins(0.03)
    axes.autoscale_view()  # before hiding: text outside the view would enlarge it
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
    axes.text(box.x, box.y, box.text, ha="center", va="center", fontsize=8, color=theme.ink)
    return patch
