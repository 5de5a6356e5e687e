"""A picture before an attack, what was added to it, and after."""

import textwrap

import numpy as np
from matplotlib.figure import Figure

from ...attack import AdversarialExample
from ..draw import new_figure, register_drawing
from ..theme import Theme

LONG = 22  # letters of a line


@register_drawing(AdversarialExample)
def _disguise(result: AdversarialExample, theme: Theme) -> Figure:
    figure = new_figure(2.1)
    large = f"{127.5 / result.most:.0f} times enlarged" if result.most else "none"
    seen = [textwrap.shorten(name, LONG, placeholder="…") for name in result.names]
    likely = [f"{100 * p:.1f} %" for p in result.probability]
    panels = {
        f"{seen[0]}\n{likely[0]}": result.before,
        f"+ at most {result.most}/255\n{large}": result.difference,
        f"= {seen[1]}\n{likely[1]}": result.after,
    }
    for axes, (title, picture) in zip(figure.subplots(1, 3), panels.items()):
        axes.imshow(np.moveaxis(picture, 0, -1), interpolation="nearest")
        axes.axis("off")
        axes.set_title(title, fontsize=8.5, pad=4)
    return figure
