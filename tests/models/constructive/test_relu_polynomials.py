"""Squares, products and maxima by deep narrow networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.layers import relu
from thetax.models import (
    MLP,
    interpolating_network,
    max_affine_network,
    product_network,
    square_network,
)

pytestmark = pytest.mark.usefixtures("x64", "strict")


def on(net, xs):
    return np.asarray(jax.vmap(net)(jnp.asarray(xs, float)))[:, 0]


def widths(net):
    return [len(part.W) for part in net.body.layers[:-1:2]]


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_square_is_the_polygon_through_the_squares(depth):
    """The interpolant at multiples of 2^-m, by another network of 2^m + 1 units; worst in the
    middle of each piece.
    """
    net = square_network(depth)
    knots = np.linspace(0, 1, 2**depth + 1)
    x = np.linspace(0, 1, 2**8 + 1)[:, None]
    assert np.allclose(on(net, x), on(interpolating_network(knots, knots**2), x), atol=1e-13)
    assert np.abs(on(net, x) - x[:, 0] ** 2).max() == 4.0 ** -(depth + 1)
    assert (on(net, x) >= x[:, 0] ** 2).all()
    assert widths(net) == [3] * depth
    assert isinstance(net, MLP)
    assert net.body.layers[1].activation is relu


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), factors=st.integers(2, 6), bound=st.floats(0.3, 4.0))
def test_product_keeps_its_bound(seed, factors, bound):
    with jax.enable_x64(True):
        net = product_network(factors, depth=4, bound=bound)
        levels = int(np.ceil(np.log2(factors)))
        xs = np.random.default_rng(seed).uniform(-bound, bound, (50, factors))
        xs = np.concatenate([xs, bound * np.sign(xs[:5])])
        limit = (2**levels - 1) * bound**factors * 4.0**-5
        assert np.abs(on(net, xs) - xs.prod(axis=1)).max() <= limit * (1 + 1e-9)
        assert len(widths(net)) == 5 * levels


def test_product_is_zero_with_a_zero_factor_and_odd_in_each():
    net = product_network(2, depth=3, bound=2.0)
    xs = np.random.default_rng(0).uniform(-2, 2, (20, 2))
    assert np.abs(on(net, xs * [1, 0])).max() < 1e-15
    assert np.allclose(on(net, xs * [1, -1]), -on(net, xs), atol=1e-14)


@given(
    seed=st.integers(0, 10**6),
    forms=st.integers(1, 6),
    d=st.integers(1, 4),
    low=st.floats(-3.0, 2.0),
)
def test_maximum_is_exact_above_low(seed, forms, d, low):
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(forms, d))
        b = rng.normal(size=forms)
        net = max_affine_network(A, b, low=low)
        xs = low + rng.exponential(size=(40, d))
        assert np.allclose(on(net, xs), (xs @ A.T + b).max(axis=1), atol=1e-11)
        assert widths(net) == [d + 1] * (forms - 1)


def test_maximum_is_lost_below_low():
    net = max_affine_network(np.array([[1.0], [-1.0]]), np.zeros(2))
    assert on(net, [[-3.0]])[0] != 3.0
    assert (
        on(max_affine_network(np.array([[1], [-1]]), np.array([0, 0]), low=-4.0), [[-3.0]])[0]
        == 3.0
    )


def test_networks_take_the_librarys_precision():
    with jax.enable_x64(False):
        for net, n in (
            (square_network(2), 1),
            (product_network(3, depth=2), 3),
            (max_affine_network(np.eye(2), np.ones(2)), 2),
        ):
            assert net(jnp.ones(n)).dtype == jnp.float32


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: square_network(0), "depth must be an integer >= 1; got 0"),
        (lambda: square_network(1.5), "got 1.5"),
        (lambda: product_network(1, depth=2), "factors must be at least 2; got 1"),
        (lambda: product_network(2, depth=0), "depth"),
        (
            lambda: product_network(2, depth=2, bound=0.0),
            "bound, the largest absolute value of a factor, must be positive and finite; got 0.0",
        ),
        (lambda: product_network(2, depth=2, bound=np.inf), "bound"),
        (lambda: max_affine_network(np.ones(3), np.ones(3)), r"got \(3,\) and \(3,\)"),
        (
            lambda: max_affine_network(np.ones((2, 3)), np.ones(3)),
            r"and b of shape \(n,\); got \(2, 3\) and \(3,\)",
        ),
        (
            lambda: max_affine_network(np.zeros((0, 3)), np.zeros(0)),
            r"expected A of shape \(n, d\) .* got \(0, 3\)",
        ),
        (lambda: max_affine_network(np.full((2, 3), np.nan), np.ones(2)), "finite"),
        (lambda: max_affine_network(np.ones((2, 3)), np.ones(2), low=-np.inf), "finite"),
    ],
)
def test_bad_numbers_are_refused(make, words, unchecked):
    with pytest.raises(ValueError, match=words):
        make()
