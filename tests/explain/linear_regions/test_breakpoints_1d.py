"""Pieces of functions of one number: in fractions, in floats, and as cells of the line."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import activation_patterns, breakpoints_1d, count_regions
from thetax.layers import Chain, Linear, relu
from thetax.models import MLP, interpolating_network

pytestmark = pytest.mark.usefixtures("x64")


def biased(*sizes, seed=0):
    leaves, structure = jax.tree.flatten(MLP.init(*sizes, key=jr.key(seed)))
    draw = lambda i, a: a if a.ndim > 1 else jr.normal(jr.fold_in(jr.key(seed + 1), i), a.shape)
    return jax.tree.unflatten(structure, [draw(i, a) for i, a in enumerate(leaves)])


@pytest.mark.parametrize("seed", range(4))
def test_fractions_floats_programs_and_a_grid_agree(seed):
    net = biased(1, 6, 5, 4, 2, seed=seed)
    exact = breakpoints_1d(net, -3.0, 3.0, exact=True)
    rounded = breakpoints_1d(net, -3.0, 3.0)
    assert exact.n_pieces == rounded.n_pieces
    assert exact.n_cells == rounded.n_cells == count_regions(net, -3.0, 3.0)
    assert np.allclose(np.asarray(exact.breakpoints, float), rounded.breakpoints)
    assert all(isinstance(knot, Fraction) for knot in exact.breakpoints)
    x = np.linspace(-3, 3, 20_001)[:, None]
    assert len(np.unique(activation_patterns(net, x), axis=0)) <= exact.n_cells
    where = np.searchsorted(rounded.breakpoints, x[:, 0])
    y = rounded.slopes[where] * x + rounded.offsets[where]
    assert np.allclose(y, np.asarray(jax.vmap(net)(jnp.asarray(x))), atol=1e-9)


def test_neighbours_on_one_line_are_one_piece():
    straight = Chain(
        Linear(jnp.array([[1.0], [-1.0]]), jnp.zeros(2)), relu, Linear(jnp.array([[1.0, -1.0]]))
    )
    found = breakpoints_1d(straight, exact=True)
    assert (found.n_pieces, found.n_cells, len(found.breakpoints)) == (1, 2, 0)
    assert breakpoints_1d(straight).n_pieces == 1


def test_an_interpolant_has_its_own_knots():
    knots = np.array([-1.0, 0.3, 0.7, 2.0])
    found = breakpoints_1d(interpolating_network(knots, np.array([0.0, 1.0, -1.0, 0.5])))
    assert np.allclose(found.breakpoints, knots[1:-1])
    assert np.allclose(found.slopes[:, 0], np.diff([0.0, 1.0, -1.0, 0.5]) / np.diff(knots))


def test_kinks_that_differ_by_rounding_are_one():
    third = 1 / 3
    net = Chain(Linear(jnp.array([[3.0], [1.0]]), jnp.array([-1.0, -third])), relu)
    assert breakpoints_1d(net).n_cells == 2


def test_bad_input():
    with pytest.raises(ValueError, match="low must be below high"):
        breakpoints_1d(relu, 1.0, 1.0)
