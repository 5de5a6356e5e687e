"""Margins and version spaces are drawn, separated or not, empty or not."""

import jax.numpy as jnp
import numpy as np
import pytest
from contracts import normal

from thetax.explain import margins, version_cone
from thetax.models import Perceptron
from thetax.plot import DARK, LIGHT, draw


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("push", [0.0, 3.0], ids=["mixed", "separated"])
def test_margins(theme, push):
    xs = normal(0, 60, 2)
    ys = jnp.sign(xs[:, 0])
    xs = xs + push * ys[:, None] * jnp.array([[1.0, 0.0]])
    result = margins(Perceptron(jnp.array([1.0, 0.3])), (xs, ys))
    figure = draw(result, theme=theme)
    figure.canvas.draw()
    told = figure.axes[0].get_title(loc="right")
    assert told == (f"margin {result.margin:.3g}" if push else f"{round(60 * result.error)} on the wrong side")
    bars = sum(len(patch.get_xy()) > 0 for patch in figure.axes[0].patches)
    assert bars == 2


def test_cone():
    xs = np.array([[1.0, 0.2], [0.1, 1.0], [1.0, 1.0]])
    figure = draw(version_cone(xs, np.ones(3)))
    assert len(figure.axes[0].patches) == 3
    assert len(figure.axes[0].lines) == 3
    empty = draw(version_cone(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1, -1])))
    assert len(empty.axes[0].patches) == 1
