"""Algorithms of the first chapters: perceptron, Hopfield recall, linear regions, Cover's count."""

import time
from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import linprog

from thetax.certify import cover_count, dichotomies

from . import hopfield, perceptron, regions
from .row import Row

N, D = 12, 4


@cache
def points() -> np.ndarray:
    """Points in general position."""
    return np.random.default_rng(0).normal(size=(N, D))


def by_labelling() -> np.ndarray:
    """A linear program for each of the 2^n labellings, up to the sign."""
    separable = []
    for rest in product((-1, 1), repeat=N - 1):
        rows = np.array([1, *rest])[:, None] * points()
        if (
            linprog(
                np.zeros(D), A_ub=-rows, b_ub=-np.ones(N), bounds=[(None, None)] * D, method="highs"
            ).status
            == 0
        ):
            separable.append([1, *rest])
    half = np.array(separable)
    return np.unique(np.concatenate([half, -half]), axis=0)


def agree() -> None:
    """Raises unless both find the same labellings, and Cover's number of them."""
    ours = dichotomies(points())
    np.testing.assert_array_equal(ours, by_labelling())
    assert len(ours) == cover_count(N, D)


def _milliseconds(work) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def describe() -> str:
    """A description of the work."""
    cover = (
        f"Cover's count of {N} points in {D} dimensions: {cover_count(N, D):,} of {2**N:,} "
        "labellings."
    )
    return " ".join([perceptron.describe(), hopfield.describe(), regions.describe(), cover])


def rows() -> list[Row]:
    """Each algorithm against an alternative."""
    ours = lambda: _milliseconds(lambda: dichotomies(points()))
    theirs = lambda: _milliseconds(by_labelling)
    cover = Row(
        f"Cover's count, n = {N}",
        "a linear program per labelling",
        ours,
        theirs,
        "ms",
        agree,
        pairs=3,
    )
    return [*perceptron.rows(), *hopfield.rows(), *regions.rows(), cover]
