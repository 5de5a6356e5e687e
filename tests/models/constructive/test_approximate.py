"""Networks one can write down: polygons, staircases, random units (§2.5, §2.6)."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.layers import heaviside, relu, sigmoid, tanh
from thetax.models import MLP, interpolating_network, random_units, ridge_network, step_network

pytestmark = pytest.mark.usefixtures("x64", "strict")


def on(net, x):
    return np.asarray(jax.vmap(net)(jnp.asarray(x)[:, None]))[:, 0]


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), pieces=st.integers(1, 12))
def test_polygon_is_numpys(seed, pieces):
    """np.interp within the knots, the outer slopes beyond; m pieces take m + 1 units."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        knots = np.cumsum(rng.uniform(0.1, 2.0, pieces + 1))
        values = rng.normal(size=pieces + 1)
        net = interpolating_network(knots, values)
        inside = rng.uniform(knots[0], knots[-1], 50)
        assert np.allclose(on(net, inside), np.interp(inside, knots, values), atol=1e-10)
        assert np.allclose(on(net, knots), values, atol=1e-10)
        slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
        assert np.allclose(on(net, knots[-1:] + 3.0), values[-1] + 3 * slope, atol=1e-9)
        slope = (values[1] - values[0]) / (knots[1] - knots[0])
        assert np.allclose(on(net, knots[:1] - 3.0), values[0] - 3 * slope, atol=1e-9)
        assert isinstance(net, MLP)
        assert net.body.layers[0].W.shape == (pieces + 1, 1)
        assert net.body.layers[1].activation is relu


def test_polygon_takes_the_librarys_precision():
    with jax.enable_x64(False):
        assert interpolating_network(np.arange(3.0), np.ones(3))(jnp.ones(1)).dtype == jnp.float32


@pytest.mark.parametrize(
    ("xs", "ys", "words"),
    [
        (np.zeros(1), np.zeros(1), "vectors of equal length, at least 2"),
        (np.arange(3.0), np.zeros(2), "vectors of equal length, at least 2"),
        (np.array([0.0, 2.0, 1.0]), np.zeros(3), "increase strictly"),
        (np.array([0.0, 0.0]), np.zeros(2), "increase strictly"),
        (np.array([0.0, np.nan]), np.zeros(2), "increase strictly"),
        ([0, 1, 2], [1, np.nan, 2], r"ys\[1\] is nan"),
    ],
)
def test_bad_knots_are_refused(xs, ys, words, unchecked):
    with pytest.raises(ValueError, match=words):
        interpolating_network(xs, ys)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 7, 50])
def test_staircase_errs_by_the_modulus_of_continuity(width):
    """sin has slope at most 1, so ω(h/2) = h/2; each stair has the height of its middle."""
    net = step_network(jnp.sin, low=-1.0, high=3.0, width=width)
    h = 4 / (width + 1)
    x = np.linspace(-1, 3, 997)
    assert np.abs(on(net, x) - np.sin(x)).max() <= h / 2 + 1e-12
    cell = np.minimum(((x + 1) / h).astype(int), width)
    inner = np.abs((x + 1) / h - np.round((x + 1) / h)) > 1e-9
    assert np.allclose(on(net, x)[inner], np.sin(-1 + (cell + 0.5) * h)[inner], atol=1e-12)
    assert net.body.layers[0].W.shape == (width, 1)
    assert net.body.layers[1].activation is heaviside


def test_steep_sigmoids_become_steps():
    x = np.linspace(-1, 1, 63)  # no edge of the 9 cells
    steps = step_network(jnp.cos, low=-1.0, high=1.0, width=8)
    gaps = [
        np.abs(
            on(step_network(jnp.cos, low=-1.0, high=1.0, width=8, steepness=k), x) - on(steps, x)
        ).max()
        for k in (1e1, 1e2, 1e4)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-8
    assert (
        step_network(jnp.cos, low=0.0, high=1.0, width=2, steepness=5.0).body.layers[1].activation
        is sigmoid
    )


@pytest.mark.parametrize("f", [np.sin, math.sin, lambda x: math.sin(x) if x > 0 else -math.sin(-x)])
def test_the_staircase_of_a_function_that_is_not_jaxs(f):
    by_jax = step_network(jnp.sin, low=-1.0, high=3.0, width=9)
    assert np.allclose(
        on(step_network(f, low=-1.0, high=3.0, width=9), np.arange(3.0)), on(by_jax, np.arange(3.0))
    )


@pytest.mark.parametrize(
    "settings", [{"low": 1.0}, {"width": 0}, {"steepness": 0.0}, {"steepness": -1.0}]
)
def test_bad_stairs_are_refused(settings):
    with pytest.raises(ValueError, match="step_network"):
        step_network(jnp.sin, **{"low": 0.0, "high": 1.0, "width": 3} | settings)
    with pytest.raises(ValueError, match="a scalar to a scalar"):
        step_network(lambda x: jnp.stack([x, x]), low=0.0, high=1.0, width=3)


def test_random_units_vanish_in_the_box():
    """On an interval each unit crosses zero between the least and the largest example, as steeply
    as was asked.
    """
    xs = jnp.asarray(np.random.default_rng(0).uniform(2, 5, (30, 1)))
    units = random_units(xs, width=4000, spread=3.0, key=jr.key(0))
    zeros = -np.asarray(units.b) / np.asarray(units.W)[:, 0]
    assert xs.min() <= zeros.min()
    assert zeros.max() <= xs.max()
    assert abs(zeros.mean() - 3.5) < 0.15  # uniform between about 2 and 5
    assert abs(units.W.std() - 3.0) < 4 * 3.0 / np.sqrt(2 * 4000)


def test_ridge_network_is_least_squares():
    """Its output weights are LAPACK's, for several outputs at once."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(60, 3))
    ys = rng.normal(size=(60, 2))
    net = ridge_network(jnp.asarray(xs), jnp.asarray(ys), width=10, activation=tanh, key=jr.key(0))
    units, _, output = net.body.layers
    features = np.c_[np.tanh(xs @ np.asarray(units.W).T + np.asarray(units.b)), np.ones(60)]
    expected = np.linalg.lstsq(features, ys, rcond=None)[0]
    assert np.allclose(np.c_[output.W, output.b].T, expected, atol=1e-8)


def test_plain_numpy_is_taken_quietly():
    """Doubles and whole numbers become the library's floats, with no warning."""
    xs = np.arange(12).reshape(6, 2)
    ys = np.arange(6)
    with jax.enable_x64(False):
        made = [
            ridge_network(x, y, width=3, key=jr.key(0)) for x, y in ((xs, ys), (xs * 1.0, ys * 1.0))
        ]
        assert {leaf.dtype for net in made for leaf in jax.tree.leaves(net)} == {
            jnp.dtype("float32")
        }
        assert jnp.allclose(made[0](jnp.ones(2)), made[1](jnp.ones(2)))
        assert random_units(xs * 1.0, width=3, key=jr.key(0)).W.dtype == jnp.float32


def test_words_are_no_numbers(unchecked):
    with pytest.raises(ValueError, match="ridge_network: expected numbers, but the dtype is <U1"):
        ridge_network(np.ones((2, 1)), np.array(["a", "b"]), width=2, key=jr.key(0))


def test_bad_ridge_networks_are_refused(unchecked):
    xs = jnp.ones((4, 2))
    with pytest.raises(ValueError, match="4 xs and 3 ys"):
        ridge_network(xs, jnp.ones(3), width=2, key=jr.key(0))
    with pytest.raises(ValueError, match="width >= 1"):
        ridge_network(xs, jnp.ones(4), width=0, key=jr.key(0))
    with pytest.raises(ValueError, match="spread > 0"):
        random_units(xs, width=2, spread=0.0, key=jr.key(0))
