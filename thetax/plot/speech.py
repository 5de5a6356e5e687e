"""How surprised a language model is, the more it has read."""

import numpy as np
from matplotlib.figure import Figure

from ..explain import Speech
from .chart import Panel, draw_panel
from .draw import blank, draws
from .theme import Theme


@draws(Speech)
def _speech(result: Speech, theme: Theme) -> Figure:
    figure = blank(3.0)
    middle = np.sqrt(np.concatenate([[1.0], result.until[:-1] + 1]) * result.until)
    panel = Panel("tokens read", "bits for the next token", lines={"surprise": (middle, result.bits)}, log="x")
    draw_panel(figure.subplots(), panel, theme)
    return figure
