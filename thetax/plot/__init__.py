"""Figures of results: `draw(result)` returns a Matplotlib figure, in a light or a dark theme.

Figures are made without `pyplot`, so there is no global state and no window. To draw a result of a
new type, register one function with `register_drawing`.
"""

from . import networks as networks
from . import predictions as predictions
from . import robustness as robustness
from . import theory as theory
from . import tuning as tuning
from .chart import Chart as Chart
from .chart import Panel as Panel
from .diagram import Arrow as Arrow
from .diagram import Box as Box
from .diagram import Diagram as Diagram
from .diagram import FigureGrid as FigureGrid
from .draw import draw as draw
from .draw import drawable_types as drawable_types
from .draw import new_figure as new_figure
from .draw import register_drawing as register_drawing
from .heatmap import Heatmap as Heatmap
from .predictions import DotColumn as DotColumn
from .predictions import DotPlot as DotPlot
from .predictions import as_images as as_images
from .theme import DARK as DARK
from .theme import LIGHT as LIGHT
from .theme import WIDTH as WIDTH
from .theme import Theme as Theme

__all__ = [
    "DARK",
    "LIGHT",
    "WIDTH",
    "Arrow",
    "Box",
    "Chart",
    "Diagram",
    "DotColumn",
    "DotPlot",
    "FigureGrid",
    "Heatmap",
    "Panel",
    "Theme",
    "as_images",
    "draw",
    "drawable_types",
    "new_figure",
    "register_drawing",
]
