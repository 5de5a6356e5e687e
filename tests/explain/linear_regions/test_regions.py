"""Regions in a window: against linear programs, closed forms, bounds, and degenerate cuts."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetax.explain import (
    InputPlane,
    TooManyRegions,
    activation_patterns,
    arrangement_cells,
    count_regions,
    enumerate_regions,
    input_plane,
    input_plane_around,
    input_plane_through,
)
from thetax.layers import Chain, Linear, relu
from thetax.models import MLP

pytestmark = pytest.mark.versions


def biased(*sizes, seed=0):
    leaves, structure = jax.tree.flatten(MLP.init(*sizes, key=jr.key(seed)))
    draw = lambda i, a: a if a.ndim > 1 else jr.normal(jr.fold_in(jr.key(seed + 1), i), a.shape)
    return jax.tree.unflatten(structure, [draw(i, a) for i, a in enumerate(leaves)])


def layer(W, b):
    return Chain(Linear(jnp.asarray(W, float), jnp.asarray(b, float)), relu)


@pytest.mark.slow
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_polygons_and_linear_programs_agree(seed):
    net = biased(2, 5, 4, 1, seed=seed)
    low = np.array([-1.5, -1.0])
    high = np.array([1.0, 2.0])
    assert enumerate_regions(net, input_plane(low, high)).n_regions == count_regions(net, low, high)


def test_three_kinds_of_count_in_the_whole_plane():
    rng = np.random.default_rng(0)
    W = rng.normal(size=(6, 2))
    b = rng.normal(size=6)
    everywhere = np.full(2, np.inf)
    cells = arrangement_cells(
        W.astype(np.float32).astype(float), b.astype(np.float32).astype(float)
    )
    assert count_regions(layer(W, b), -everywhere, everywhere) == len(cells) == 22
    assert enumerate_regions(layer(W, b), input_plane(-1e4, 1e4)).n_regions == 22


@pytest.mark.parametrize(("d", "count"), [(1, 4), (2, 7), (3, 8), (4, 8)])
def test_three_units_in_more_dimensions(d, count):
    net = layer(
        np.random.default_rng(1).normal(size=(3, d)), np.random.default_rng(2).normal(size=3)
    )
    assert count_regions(net, np.full(d, -np.inf), np.full(d, np.inf)) == count


def test_scalar_window_applies_to_all_sides():
    net = biased(3, 5, 4, 1)
    assert count_regions(net, -1, 1) == count_regions(net, -np.ones(3), np.ones(3))
    assert count_regions(net, -1.0, np.array([1.0, 2.0, 3.0])) == count_regions(
        net, -np.ones(3), np.arange(1.0, 4)
    )
    with pytest.raises(ValueError, match="give low and high as arrays"):
        count_regions(relu, -1.0, 1.0)


@pytest.mark.slow
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_every_pattern_of_a_box_is_counted(seed):
    """Random points have at most as many patterns as there are cells, and almost as many."""
    net = biased(3, 4, 3, 1, seed=seed)
    xs = np.random.default_rng(seed).uniform(-1, 1, (200_000, 3))
    seen = len(np.unique(activation_patterns(net, xs), axis=0))
    count = count_regions(net, -1.0, 1.0)
    assert 0.8 * count <= seen <= count


def test_two_kinks_a_unit():
    net = Chain(Linear(jnp.eye(2)), jax.nn.hard_tanh)
    assert enumerate_regions(net, input_plane(-2.0, 2.0)).n_regions == 9
    assert count_regions(net, np.full(2, -2.0), np.full(2, 2.0)) == 9
    assert count_regions(net, np.full(2, -0.5), np.full(2, 2.0)) == 4


@pytest.mark.slow
def test_no_cell_is_missed_by_a_fine_grid():
    net = biased(2, 8, 8, 1)
    found = enumerate_regions(net, input_plane(-3.0, 3.0))
    t = np.linspace(-3, 3, 400)
    seen = activation_patterns(net, np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2))
    known = {row.tobytes() for row in found.patterns}
    on_grid = {row.tobytes() for row in np.unique(seen, axis=0)}
    assert on_grid <= known
    large = found.areas > 4 * (6 / 400) ** 2 * 30
    assert {row.tobytes() for row in found.patterns[large]} <= on_grid


@pytest.mark.slow
def test_concurrent_lines():
    """Without biases every unit of every layer passes through the origin; rounding must not open a
    gap there.
    """
    net = MLP.init(2, 30, 30, 1, key=jr.key(3))
    found = enumerate_regions(net, input_plane(-1.0, 1.0))
    turned = input_plane_around(np.array([[-1.0, -1.0], [1.0, 1.0]]), margin=0.0)
    assert enumerate_regions(net, turned).n_regions == found.n_regions
    angle = np.linspace(0, 2 * np.pi, 200_001)
    around = activation_patterns(net, 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    assert found.n_regions == len(np.unique(around, axis=0))
    at_origin = (np.abs(found.corners).max(axis=2) < 1e-9).any(axis=1)
    assert at_origin.all()


@pytest.mark.parametrize("k", range(3, 9))
def test_lines_through_any_point(k, x64):
    angle = np.pi * np.arange(k) / k + 0.1
    W = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert enumerate_regions(layer(W, -W @ [0.3, -0.7]), input_plane(-2.0, 2.0)).n_regions == 2 * k


def test_cuts_through_corners_and_along_sides():
    net = layer(
        [[1.0, -1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0, -1.0, 1.0, 0.0]
    )
    found = enumerate_regions(
        net, input_plane(-1.0, 1.0)
    )  # both diagonals, two sides of the window, and a line through the middle
    assert found.n_regions == 6
    assert found.areas.sum() == pytest.approx(4)


@pytest.mark.parametrize(("gap", "cells"), [(1e-8, 3), (1e-12, 2)])
def test_thin_cells(gap, cells):
    """A cell wider than 1e-10 of the window is found, and a thinner one is lost with no harm to the
    others.
    """
    with jax.enable_x64(True):
        found = enumerate_regions(
            layer([[1.0, 0.5], [1.0, 0.5]], [0.0, gap]), input_plane(-1.0, 1.0)
        )
    assert found.n_regions == cells
    assert found.areas.sum() == pytest.approx(4, abs=1e-9)


@pytest.mark.parametrize(("low", "high"), [(1e6, 1e6 + 1), (-1e-6, 1e-6), (-1e9, 1e9)])
def test_windows_of_any_size(low, high):
    centre = (low + high) / 2
    half = (high - low) / 2
    W = np.array([[1.0, 0.3], [-0.4, 1.0], [1.0, 1.0]])
    b = np.array([0.1, 0.2, -0.3])
    with jax.enable_x64(True):
        found = enumerate_regions(layer(W, half * b - W @ [centre, centre]), input_plane(low, high))
    assert found.n_regions == 7


def test_a_unit_that_is_zero():
    """Two units that cancel: the third is zero everywhere, and off."""
    first = Linear(jnp.array([[1.0, 0.3], [1.0, 0.3]]), jnp.array([0.1, 0.1]))
    net = Chain(first, relu, Linear(jnp.array([[1.0, -1.0], [1.0, 1.0]]), jnp.zeros(2)), relu)
    found = enumerate_regions(net, input_plane(-1.0, 1.0))
    assert found.n_regions == 2
    assert (found.patterns[:, 2] == 0).all()
    assert count_regions(net, np.full(2, -1.0), np.full(2, 1.0)) == 2


def test_the_same_map_on_several_cells():
    dead = Chain(Linear(jnp.eye(2)), relu, Linear(jnp.zeros((1, 2)), jnp.ones(1)))
    found = enumerate_regions(dead, input_plane(-1.0, 1.0))
    assert (found.n_regions, found.n_affine_maps) == (4, 1)


@pytest.mark.slow
def test_plane_through_three_examples():
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(3, 4, 3))
    plane = input_plane_through(xs)
    coordinates = plane.coordinates(xs)
    assert np.allclose(plane.inputs(coordinates), xs)
    distances = lambda points: np.linalg.norm(
        (points[:, None] - points[None]).reshape(9, -1), axis=1
    )
    assert np.allclose(distances(coordinates), distances(xs))
    assert (coordinates > plane.low).all()
    assert (coordinates < plane.high).all()
    net = biased(12, 6, 5, 2)
    found = enumerate_regions(net, plane)
    outputs = np.asarray(jax.vmap(net)(jnp.asarray(plane.inputs(found.centres))))
    assert np.allclose(
        np.einsum("pmd,pd->pm", found.A, found.centres) + found.c, outputs, atol=1e-4
    )
    assert (activation_patterns(net, plane.inputs(found.centres)) == found.patterns).all()
    assert (plane.zoom(0.5).high - plane.zoom(0.5).low == (plane.high - plane.low) / 2).all()


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="low must be below high"):
        input_plane(1.0, -1.0)
    with pytest.raises(ValueError, match="both finite"):
        input_plane(0.0, np.inf)
    with pytest.raises(ValueError, match="do not lie on a line"):
        input_plane_through(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
    with pytest.raises(
        ValueError, match=r"expected examples of two numbers, \(n, 2\); got \(4, 3\)"
    ):
        input_plane_around(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="low must be below high, each a scalar"):
        count_regions(layer(np.eye(2), np.zeros(2)), np.zeros(2), np.zeros(2))
    with pytest.raises(TooManyRegions, match="more than 10 cells meet the input plane"):
        enumerate_regions(biased(2, 16, 1), input_plane(-3.0, 3.0), max_regions=10)


def test_one_example_is_a_window_of_its_own():
    around = input_plane_around(np.array([[2.0, 3.0]]))
    assert isinstance(around, InputPlane)
    assert np.allclose((around.low + around.high) / 2, [2.0, 3.0])
