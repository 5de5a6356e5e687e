"""Uniform distance and best approximation (§2.5)."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from numpy.polynomial import Chebyshev

from thetax.explain import distance, minimax
from thetax.models import MLP
from thetax.plot import draw

pytestmark = pytest.mark.usefixtures("x64")


def powers(n):
    return lambda x: jnp.stack([x**k for k in range(n + 1)])


@pytest.mark.parametrize("points", [11, 101, 1001])
def test_the_margin_covers_what_the_grid_misses(points):
    """|sin − cos| on [0, 2π] is at most √2, reached between the points of most grids."""
    found = distance(jnp.sin, jnp.cos, low=0.0, high=2 * np.pi, points=points, lipschitz=np.sqrt(2))
    assert found.value <= np.sqrt(2) + 1e-12 <= found.value + found.margin + 1e-12
    assert np.isclose(abs(np.sin(found.at) - np.cos(found.at)), found.value)
    assert np.isclose(found.margin, np.sqrt(2) * np.pi / (points - 1))


def test_the_slope_stands_in_for_the_constant():
    found = distance(lambda x: 3 * x, lambda x: -x, low=0.0, high=2.0, points=5)
    assert np.isclose(found.lipschitz, 4.0)
    assert np.isclose(found.value, 8.0)
    assert np.isclose(found.at, 2.0)


def test_boxes_and_models():
    """In the plane: half a diagonal of a cell, points as rows; a model is a function like any
    other.
    """
    found = distance(
        lambda x: x @ x, lambda x: 0.0, low=-np.ones(2), high=np.array([1.0, 3.0]), points=21
    )
    assert np.isclose(found.value, 10.0)
    assert np.allclose(np.abs(found.at), [1.0, 3.0])
    assert np.isclose(found.margin, found.lipschitz * np.hypot(0.1, 0.2) / 2)
    net = MLP.init(2, 4, 1, key=jr.key(0))
    same = distance(net, net, low=np.zeros(2), high=np.ones(2), points=5)
    assert same.value == 0.0
    assert same.margin == 0.0
    other = distance(net, lambda x: net(x) + 0.5, low=np.zeros(2), high=np.ones(2), points=5)
    assert np.isclose(other.value, 0.5)


def test_not_a_number_is_seen():
    found = distance(
        lambda x: jnp.where(x > 0.9, jnp.nan, x), lambda x: x, low=0.0, high=1.0, points=11
    )
    assert np.isnan(found.value)
    assert found.at > 0.9


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_chebyshevs_polynomials(n):
    """x^{n+1} less its best approximation of degree n is T_{n+1} / 2^n."""
    found = minimax(lambda x: x ** (n + 1), powers(n), low=-1.0, high=1.0, points=801)
    assert np.isclose(found.value, 0.5**n, atol=1e-3)
    error = Chebyshev.basis(n + 1)(found.grid) / 2**n
    assert np.allclose(found.target - found.approximation, error, atol=2e-3)


def test_what_lies_in_the_span_is_reached():
    found = minimax(lambda x: 2 - 3 * x + x**2, powers(2), low=-2.0, high=1.0)
    assert found.value < 1e-7
    assert np.allclose(found.coefficients, [2, -3, 1], atol=1e-6)


def test_no_member_of_the_span_does_better():
    found = minimax(jnp.exp, powers(2), low=0.0, high=1.0, points=201)
    rng = np.random.default_rng(0)
    x = found.grid
    for c in found.coefficients + 0.01 * rng.normal(size=(200, 3)):
        assert np.abs(np.exp(x) - c @ np.stack([x**0, x, x**2])).max() >= found.value - 1e-9
    assert np.isclose(np.abs(found.target - found.approximation).max(), found.value, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"low": 1.0, "high": 0.0}, "low < high"),
        ({"low": np.zeros(2), "high": np.ones(3)}, "corners of one shape"),
        ({"low": 0.0, "high": 1.0, "points": 1}, "at least 2 points"),
        ({"low": np.zeros(6), "high": np.ones(6), "points": 101}, "too large"),
    ],
)
def test_bad_boxes_are_refused(settings, words, unchecked):
    with pytest.raises(ValueError, match=words):
        distance(jnp.sum, jnp.sum, **settings)
    with pytest.raises(ValueError, match=words):
        minimax(jnp.sum, powers(1), **settings)


def test_bad_functions_are_refused():
    with pytest.raises(ValueError, match="a number and basis to a vector"):
        minimax(lambda x: jnp.stack([x, x]), powers(1), low=0.0, high=1.0)
    with pytest.raises(ValueError, match="a number and basis to a vector"):
        minimax(jnp.sin, jnp.sin, low=0.0, high=1.0)


def test_best_approximations_are_drawn():
    figure = draw(minimax(jnp.exp, powers(1), low=0.0, high=1.0))
    assert [axes.get_xlabel() for axes in figure.axes] == ["x", "x"]
    plane = minimax(
        lambda x: x @ x, lambda x: jnp.append(x, 1.0), low=np.zeros(2), high=np.ones(2), points=5
    )
    with pytest.raises(ValueError, match="on an interval"):
        draw(plane)
