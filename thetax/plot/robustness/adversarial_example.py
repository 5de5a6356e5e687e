"""Figure of an image before and after an attack, and of the perturbation."""

import textwrap

import numpy as np
from matplotlib.figure import Figure

from ...attack import AdversarialExample
from ..draw import new_figure, register_drawing
from ..theme import Theme

MAX_NAME_LENGTH = 22  # characters


@register_drawing(AdversarialExample)
def _adversarial_example(result: AdversarialExample, theme: Theme) -> Figure:
    figure = new_figure(2.1)
    factor = (
        f"amplified {127.5 / result.max_perturbation:.0f} ×" if result.max_perturbation else "none"
    )
    names = [
        textwrap.shorten(name, MAX_NAME_LENGTH, placeholder="…") for name in result.predictions
    ]
    probabilities = [f"{100 * p:.1f} %" for p in result.probabilities]
    panels = {
        f"{names[0]}\n{probabilities[0]}": result.original,
        f"perturbation ≤ {result.max_perturbation}/255\n{factor}": result.perturbation_image,
        f"{names[1]}\n{probabilities[1]}": result.adversarial,
    }
    for axes, (title, image) in zip(figure.subplots(1, 3), panels.items()):
        axes.imshow(np.moveaxis(image, 0, -1), interpolation="nearest")
        axes.axis("off")
        axes.set_title(title, fontsize=8.5, pad=4)
    return figure
