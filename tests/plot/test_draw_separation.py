"""Tests of the figures of margins and version spaces."""

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
    axes = figure.axes[0]
    title = axes.get_title(loc="left")
    assert title == (
        f"margin {result.margin:.3g}" if push else f"{round(60 * result.error)} misclassified"
    )
    bars = [bar for bar in axes.patches if bar.get_height() > 0]
    assert sum(bar.get_height() for bar in bars) == 60
    assert np.isclose(min(bar.get_x() for bar in axes.patches), result.margin)
    starts = np.array([bar.get_x() for bar in axes.patches])
    assert push or np.abs(starts).min() < 1e-9
    wrong = sum(bar.get_height() for bar in bars if bar.get_x() + bar.get_width() < 1e-9)
    assert wrong == round(60 * result.error)
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    kinds = {
        f"{kind} examples ({int((ys == y).sum())})"
        for kind, y in (("negative", -1), ("positive", 1))
    }
    assert names == kinds | {"boundary", "smallest distance"}


def test_margins_of_one_example():
    """A single distance, large or tiny, is one bar."""
    for far in (1e-30, 3.0, 1e30):
        figure = draw(margins(Perceptron(jnp.ones(1)), (jnp.array([[far]]), jnp.ones(1))))
        assert sum(bar.get_height() for bar in figure.axes[0].patches) == 1


def test_cone():
    xs = np.array([[1.0, 0.2], [0.1, 1.0], [1.0, 1.0]])
    figure = draw(version_cone(xs, np.ones(3)))
    assert len(figure.axes[0].patches) == 3
    assert len(figure.axes[0].lines) == 3
    empty = draw(version_cone(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1, -1])))
    assert len(empty.axes[0].patches) == 1


def test_cone_of_many_examples():
    """Only the two lines that bound the cone have a number, and they are those whose loss would
    widen it.
    """
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(60, 2))
    ys = np.sign(xs @ np.array([1.0, 0.5]))
    cone = version_cone(xs, ys)
    axes = draw(cone).axes[0]
    without = [version_cone(np.delete(xs, k, 0), np.delete(ys, k)).fraction for k in range(60)]
    widened = np.flatnonzero(np.array(without) > cone.fraction + 1e-9).tolist()
    assert sorted(int(text.get_text()) - 1 for text in axes.texts) == widened
    assert axes.get_title(loc="left") == (
        f"version space: {100 * cone.fraction:.3g} % of directions"
    )
    empty = draw(version_cone(xs, np.where(np.arange(60) == 7, -ys, ys)))
    assert not empty.axes[0].texts
