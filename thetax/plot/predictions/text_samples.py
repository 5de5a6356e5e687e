"""Figures of language models: bits per token against the context length, and n-gram precisions of
translations.
"""

import numpy as np
from matplotlib.figure import Figure

from ...explain.generation import TextSamples, Translations
from ..chart import Panel, draw_panel
from ..draw import new_figure, register_drawing
from ..theme import Theme


@register_drawing(TextSamples)
def _text_samples(result: TextSamples, theme: Theme) -> Figure:
    figure = new_figure(3.0)
    centres = np.sqrt(np.concatenate([[1.0], result.positions[:-1] + 1]) * result.positions)
    panel = Panel(
        "tokens read", "bits per token", lines={"cross-entropy": (centres, result.bits)}, log="x"
    )
    draw_panel(figure.subplots(), panel, theme)
    return figure


@register_drawing(Translations)
def _translations(result: Translations, theme: Theme) -> Figure:
    figure = new_figure(2.4)
    axes = figure.subplots()
    orders = range(1, len(result.precision) + 1)
    axes.bar(orders, 100 * result.precision, width=0.6, color=theme.blue)
    axes.set(xlabel="n", ylabel="n-gram precision (%)", xticks=list(orders), ylim=(0, 100))
    return figure
