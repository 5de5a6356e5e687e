"""How surprised a language model is, the more it has read; how much of what a translation says was
meant.
"""

import numpy as np
from matplotlib.figure import Figure

from ...explain import Speech, Translations
from ..chart import Panel, draw_panel
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(Speech)
def _speech(result: Speech, theme: Theme) -> Figure:
    figure = new_figure(3.0)
    middle = np.sqrt(np.concatenate([[1.0], result.until[:-1] + 1]) * result.until)
    panel = Panel(
        "tokens read", "bits for the next token", lines={"surprise": (middle, result.bits)}, log="x"
    )
    draw_panel(figure.subplots(), panel, theme)
    return figure


@register_drawing(Translations)
def _translations(result: Translations, theme: Theme) -> Figure:
    figure = new_figure(2.4)
    axes = figure.subplots()
    runs = range(1, len(result.precision) + 1)
    axes.bar(runs, 100 * result.precision, width=0.6, color=theme.blue)
    axes.set(
        xlabel="tokens in a row", ylabel="meant, of those said, %", xticks=list(runs), ylim=(0, 100)
    )
    return figure
