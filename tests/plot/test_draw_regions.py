"""Tests of the figures of linear regions and decision boundaries."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from thetax.explain import decision_boundary, enumerate_regions, input_plane, input_plane_through
from thetax.layers import Chain, Linear, relu
from thetax.models import MLP, Perceptron
from thetax.plot import DARK, LIGHT, draw
from thetax.plot.theory.regions import class_colours


def cielab(rgb):
    """CIE 1976 L*a*b* under D65, from sRGB."""
    c = np.asarray(rgb)
    c = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    M = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = M @ c / M.sum(axis=1)
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def kinds(figure, kind):
    return [artist for artist in figure.axes[0].collections if isinstance(artist, kind)]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_regions_are_polygons_with_their_activation_patterns(theme):
    net = Chain(
        Linear(jnp.array([[1.0, 0.2], [-0.3, 1.0], [1.0, 1.0]]), jnp.array([0.0, 0.1, -0.5])), relu
    )
    found = enumerate_regions(net, input_plane(-1.0, 1.0))
    figure = draw(found, theme=theme)
    (cells,) = kinds(figure, PolyCollection)
    assert len(cells.get_paths()) == 7
    assert {text.get_text() for text in figure.axes[0].texts} == {
        "".join(map(str, row)) for row in found.patterns
    }
    assert "7 linear regions" in figure.axes[0].get_title(loc="left")


def test_decision_boundary_with_regions_and_examples():
    net = MLP.init(2, 8, 3, key=jr.key(0))
    xs = np.random.default_rng(0).normal(size=(30, 2))
    found = decision_boundary(
        net,
        input_plane(-2.0, 2.0),
        examples=(xs, np.arange(30) % 3),
        classes=("a", "b", "c"),
        grid=20,
    )
    figure = draw(found)
    assert len(kinds(figure, LineCollection)[0].get_segments()) == len(found.segments)
    assert len(figure.axes[0].images) == 1
    assert {text.get_text() for text in figure.legends[0].get_texts()} <= {"a", "b", "c"}


def test_a_decision_boundary_without_regions():
    net = MLP.init(2, 8, 3, activation=jnp.tanh, key=jr.key(0))
    figure = draw(decision_boundary(net, input_plane(-2.0, 2.0), grid=20))
    assert not kinds(figure, PolyCollection)
    assert figure.axes[0].get_title(loc="left") == ""


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_class_colours_are_distinguishable(theme):
    """In CIELAB no two of ten classes are closer than 20; a difference of 2 is just visible."""
    lab = np.array([cielab(colour) for colour in class_colours(theme, 10)])
    apart = np.linalg.norm(lab[:, None] - lab[None], axis=2) + 1000 * np.eye(10)
    assert apart.min() > 20
    assert len(set(class_colours(LIGHT, 16))) == 16
    assert len(class_colours(LIGHT, 40)) == 40


def test_the_boundary_of_a_perceptron_is_a_line():
    figure = draw(
        decision_boundary(Perceptron(jnp.array([2.0, 1.0])), input_plane(-2.0, 2.0), grid=20)
    )
    assert [len(lines.get_segments()) for lines in kinds(figure, LineCollection)] == [1]


def test_the_three_examples_of_the_plane_are_large():
    xs = np.random.default_rng(0).normal(size=(40, 5)) * [1, 1, 1e-2, 1e-2, 1e-2]
    found = decision_boundary(
        MLP.init(5, 6, 2, key=jr.key(0)),
        input_plane_through(xs[:3]),
        examples=(xs, np.arange(40) % 2),
        grid=8,
    )
    sizes = draw(found).axes[0].collections[-1].get_sizes()
    assert (sizes == sizes.max()).sum() == 3
    assert sizes.max() > 4 * sizes.min()
