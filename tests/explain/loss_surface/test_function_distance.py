"""Uniform distance and best approximation (§2.5)."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from numpy.polynomial import Chebyshev

from thetax.explain import minimax_approximation, uniform_distance
from thetax.models import MLP
from thetax.plot import draw

pytestmark = pytest.mark.usefixtures("x64")


def powers(n):
    return lambda x: jnp.stack([x**k for k in range(n + 1)])


@pytest.mark.parametrize("points", [11, 101, 1001])
def test_the_margin_covers_what_the_grid_misses(points):
    """|sin − cos| on [0, 2π] is at most √2, reached between the points of most grids."""
    found = uniform_distance(
        jnp.sin, jnp.cos, low=0.0, high=2 * np.pi, n_points=points, lipschitz=np.sqrt(2)
    )
    assert found.value <= np.sqrt(2) + 1e-12 <= found.value + found.margin + 1e-12
    assert np.isclose(abs(np.sin(found.point) - np.cos(found.point)), found.value)
    assert np.isclose(found.margin, np.sqrt(2) * np.pi / (points - 1))


def test_largest_slope_replaces_the_lipschitz_constant():
    found = uniform_distance(lambda x: 3 * x, lambda x: -x, low=0.0, high=2.0, n_points=5)
    assert np.isclose(found.lipschitz, 4.0)
    assert np.isclose(found.value, 8.0)
    assert np.isclose(found.point, 2.0)


def test_boxes_and_models():
    """In the plane: half a diagonal of a cell, points as rows; a model is a function like any
    other.
    """
    found = uniform_distance(
        lambda x: x @ x, lambda x: 0.0, low=-np.ones(2), high=np.array([1.0, 3.0]), n_points=21
    )
    assert np.isclose(found.value, 10.0)
    assert np.allclose(np.abs(found.point), [1.0, 3.0])
    assert np.isclose(found.margin, found.lipschitz * np.hypot(0.1, 0.2) / 2)
    net = MLP.init(2, 4, 1, key=jr.key(0))
    same = uniform_distance(net, net, low=np.zeros(2), high=np.ones(2), n_points=5)
    assert same.value == 0.0
    assert same.margin == 0.0
    other = uniform_distance(
        net, lambda x: net(x) + 0.5, low=np.zeros(2), high=np.ones(2), n_points=5
    )
    assert np.isclose(other.value, 0.5)


def test_nan_is_reported():
    found = uniform_distance(
        lambda x: jnp.where(x > 0.9, jnp.nan, x), lambda x: x, low=0.0, high=1.0, n_points=11
    )
    assert np.isnan(found.value)
    assert found.point > 0.9


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_chebyshevs_polynomials(n):
    """x^{n+1} less its best approximation of degree n is T_{n+1} / 2^n."""
    found = minimax_approximation(
        lambda x: x ** (n + 1), powers(n), low=-1.0, high=1.0, n_points=801
    )
    assert np.isclose(found.value, 0.5**n, atol=1e-3)
    error = Chebyshev.basis(n + 1)(found.grid) / 2**n
    assert np.allclose(found.target - found.approximation, error, atol=2e-3)


def test_function_in_the_span_has_distance_zero():
    found = minimax_approximation(lambda x: 2 - 3 * x + x**2, powers(2), low=-2.0, high=1.0)
    assert found.value < 1e-7
    assert np.allclose(found.coefficients, [2, -3, 1], atol=1e-6)


def test_minimax_approximation_is_optimal():
    found = minimax_approximation(jnp.exp, powers(2), low=0.0, high=1.0, n_points=201)
    rng = np.random.default_rng(0)
    x = found.grid
    for c in found.coefficients + 0.01 * rng.normal(size=(200, 3)):
        assert np.abs(np.exp(x) - c @ np.stack([x**0, x, x**2])).max() >= found.value - 1e-9
    assert np.isclose(np.abs(found.target - found.approximation).max(), found.value, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"low": 1.0, "high": 0.0}, "low < high"),
        ({"low": np.zeros(2), "high": np.ones(3)}, "must have the same shape"),
        ({"low": 0.0, "high": 1.0, "n_points": 1}, "n_points must be >= 2"),
        ({"low": np.zeros(6), "high": np.ones(6), "n_points": 101}, "too large"),
    ],
)
def test_bad_boxes_are_rejected(settings, words, unchecked):
    with pytest.raises(ValueError, match=words):
        uniform_distance(jnp.sum, jnp.sum, **settings)
    with pytest.raises(ValueError, match=words):
        minimax_approximation(jnp.sum, powers(1), **settings)


def test_bad_functions_are_rejected():
    with pytest.raises(ValueError, match="a scalar and basis to a vector"):
        minimax_approximation(lambda x: jnp.stack([x, x]), powers(1), low=0.0, high=1.0)
    with pytest.raises(ValueError, match="a scalar and basis to a vector"):
        minimax_approximation(jnp.sin, jnp.sin, low=0.0, high=1.0)


def test_best_approximations_are_drawn():
    figure = draw(minimax_approximation(jnp.exp, powers(1), low=0.0, high=1.0))
    assert [axes.get_xlabel() for axes in figure.axes] == ["x", "x"]
    plane = minimax_approximation(
        lambda x: x @ x, lambda x: jnp.append(x, 1.0), low=np.zeros(2), high=np.ones(2), n_points=5
    )
    with pytest.raises(ValueError, match="functions of one variable only"):
        draw(plane)
