"""Regions and boundaries are drawn in both themes, few cells as shapes and many as a picture."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from thetax.explain import boundary, regions, window
from thetax.layers import Chain, Linear, relu
from thetax.models import MLP
from thetax.plot import DARK, LIGHT, draw
from thetax.plot.regions import class_colours


def kinds(figure, kind):
    return [artist for artist in figure.axes[0].collections if isinstance(artist, kind)]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_regions_are_polygons_with_their_patterns(theme):
    net = Chain(Linear(jnp.array([[1.0, 0.2], [-0.3, 1.0], [1.0, 1.0]]), jnp.array([0.0, 0.1, -0.5])), relu)
    found = regions(net, window(-1.0, 1.0))
    figure = draw(found, theme=theme)
    (cells,) = kinds(figure, PolyCollection)
    assert len(cells.get_paths()) == 7
    assert {text.get_text() for text in figure.axes[0].texts} == {"".join(map(str, row)) for row in found.patterns}
    assert "7 linear regions" in figure.axes[0].get_title(loc="left")


def test_boundary_is_drawn_with_what_it_found():
    net = MLP.init(2, 8, 3, key=jr.key(0))
    xs = np.random.default_rng(0).normal(size=(30, 2))
    found = boundary(net, window(-2.0, 2.0), examples=(xs, np.arange(30) % 3), classes=("a", "b", "c"), grid=20)
    figure = draw(found)
    assert len(kinds(figure, LineCollection)[0].get_segments()) == len(found.segments)
    assert len(figure.axes[0].images) == 1
    assert {text.get_text() for text in figure.legends[0].get_texts()} <= {"a", "b", "c"}


def test_a_boundary_without_cells():
    net = MLP.init(2, 8, 3, activation=jnp.tanh, key=jr.key(0))
    figure = draw(boundary(net, window(-2.0, 2.0), grid=20))
    assert not kinds(figure, PolyCollection)
    assert figure.axes[0].get_title(loc="left") == ""


def test_colours_differ():
    assert len(set(class_colours(LIGHT, 16))) == 16
    assert len(class_colours(LIGHT, 40)) == 40
