"""Cover's count: closed form, enumeration, probabilities (§1.2)."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls
from scipy.stats import binom

from thetax.certify import cover_count, cover_fraction, dichotomies, in_general_position


def realisable(zs):
    """By Farkas: nonnegative least squares finds no convex combination of the rows that is 0."""
    return nnls(np.vstack([zs.T, np.ones(len(zs))]), np.eye(zs.shape[1] + 1)[-1])[1] > 1e-7


@given(st.integers(1, 40), st.integers(1, 40))
def test_recursion_and_boundary_values(n, d):
    assert cover_count(1, d) == cover_count(n, 1) == 2
    assert cover_count(n + 1, d + 1) == cover_count(n, d + 1) + cover_count(n, d)
    assert np.isclose(float(cover_fraction(n, d)), binom.cdf(d - 1, n - 1, 0.5))
    assert cover_fraction(2 * d, d) == Fraction(1, 2)


@given(st.integers(0, 10**6))
def test_dichotomies_are_those_of_brute_force(seed):
    """In any position: points on a small grid are often dependent."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 7)
    d = rng.integers(1, 4)
    xs = rng.integers(-2, 3, (n, d)).astype(float)
    found = {tuple(y) for y in dichotomies(xs).tolist()}
    assert found == {y for y in product((-1, 1), repeat=n) if realisable(np.array(y)[:, None] * xs)}
    if in_general_position(xs):
        assert len(found) == cover_count(int(n), int(d))
    else:
        assert len(found) < cover_count(int(n), int(d))


@pytest.mark.slow
def test_twelve_points():
    xs = np.random.default_rng(0).normal(size=(12, 4))
    found = dichotomies(xs)
    assert len(found) == cover_count(12, 4) == 464
    assert len(np.unique(found, axis=0)) == 464


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="must be an integer >= 1"):
        cover_count(0, 3)
    with pytest.raises(ValueError, match="must be an integer >= 1"):
        cover_fraction(3, 0)
    for bad in (np.zeros((0, 2)), np.ones(3), np.array([[np.nan, 1.0]])):
        with pytest.raises(ValueError, match=r"finite point, of shape \(n, d\)"):
            dichotomies(bad)
