"""Cells of hyperplanes: against sampling, closed forms, degenerate positions."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.explain import arrangement_cells, arrangement_patterns
from thetax.explain.linear_regions.arrangement import chebyshev_centre


def sampled(W, b, count=20_000):
    xs = 3 * np.random.default_rng(0).normal(size=(count, W.shape[1]))
    return {tuple(row) for row in np.where(xs @ W.T + b > 0, 1, -1)}


@given(m=st.integers(1, 6), n=st.integers(1, 4), seed=st.integers(0, 1000))
def test_general_position(m, n, seed):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(m, n))
    b = rng.normal(size=m)
    cells = arrangement_cells(W, b)
    assert len(cells) == sum(comb(m, i) for i in range(n + 1))
    assert sampled(W, b, 2000) <= {tuple(row) for row in cells}
    assert (arrangement_patterns(W, b) == (cells > 0)).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_scale_does_not_matter(scale):
    rng = np.random.default_rng(1)
    W = rng.normal(size=(5, 2))
    b = rng.normal(size=5)
    lengths = rng.uniform(0.01, 100, 5)
    assert (
        arrangement_cells(lengths[:, None] * W, scale * lengths * b) == arrangement_cells(W, b)
    ).all()


def test_degenerate_positions():
    lines = lambda angles: np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert len(arrangement_cells(np.tile([[1.0, 2.0]], (4, 1)), np.arange(4.0))) == 5
    assert len(arrangement_cells(lines(np.arange(4.0)), np.zeros(4))) == 8
    assert len(arrangement_cells(np.ones((3, 2)), np.ones(3))) == 2
    W = np.array([[1.0], [-1.0], [2.0]])
    b = np.array([0.0, 0.0, -2.0])
    assert {tuple(row) for row in arrangement_cells(W, b)} == {(-1, 1, -1), (1, -1, -1), (1, -1, 1)}
    assert arrangement_patterns(W, b).tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 0, 1]]


def test_rows_without_a_direction():
    W = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    b = np.array([2.0, 1.0, 0.0, -1.0])
    assert arrangement_cells(W, b).tolist() == [[1, -1, -1, -1], [1, 1, -1, -1]]
    assert arrangement_cells(np.zeros((0, 3)), np.zeros(0)).shape == (1, 0)


def test_deepest_is_the_inscribed_circle():
    triangle = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.array([0.0, 0.0, 1.0])
    radius, centre = chebyshev_centre(*triangle)
    r = 1 / (2 + np.sqrt(2))
    assert radius == pytest.approx(r)
    assert np.allclose(centre, r)
    assert chebyshev_centre(np.array([[1.0], [-1.0]]), np.array([-1.0, -1.0])).radius < 0
    assert (
        chebyshev_centre(
            np.array([[1.0], [-1.0]]), np.array([-1.0, -1.0]), strict=np.zeros(2, bool)
        ).radius
        < 0
    )
    assert chebyshev_centre(np.zeros((0, 2)), np.zeros(0)).radius == 1


def test_bad_input(unchecked):
    with pytest.raises(
        ValueError,
        match=r"W must have shape \(m, n\), one normal per row, and b shape \(m,\); got \(3,\)"
        r" and \(3,\)",
    ):
        arrangement_cells(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="must be finite"):
        arrangement_cells(np.full((1, 1), np.nan), np.ones(1))
