"""The tangent kernel of infinite width between all pairs of many examples, beside the same
recursion in NumPy.

A network of three hidden layers of ReLUs is a product of matrices and, for every pair and layer, an
angle, its sine and some sums; NumPy does them one after another in float32, its product by BLAS.
"""

import time
from collections.abc import Callable
from functools import cache

import jax
import jax.random as jr
import numpy as np

from thetax.explain import infinite
from thetax.layers import tangent
from thetax.models import MLP

from .row import Result, Row, Work

N, D, DEPTH = 2000, 784, 3


@cache
def examples() -> np.ndarray:
    """Noise."""
    return np.random.default_rng(0).standard_normal((N, D), np.float32)


@cache
def limit() -> Callable[..., jax.Array]:
    """Ours."""
    return infinite(MLP.init(D, *[8] * DEPTH, 1, initialiser=tangent(), key=jr.key(0))).ntk


def ours() -> np.ndarray:
    """Every entry, waited for."""
    return np.asarray(limit()(examples()))


def theirs() -> np.ndarray:
    """The recursion of the arc-cosine kernels."""
    xs = examples()
    S = xs @ xs.T
    S *= np.float32(2 / D)
    T = S.copy()
    for _ in range(DEPTH):
        r = np.sqrt(np.diag(S))
        r = np.outer(r, r)
        u = np.clip(S / r, -1, 1)
        angle = np.arccos(u)
        share = 1 - angle / np.float32(np.pi)
        S = r * (np.sqrt(1 - u * u) / np.float32(np.pi) + u * share)
        T = S + T * share
    return T


def agree() -> None:
    """Raises unless all entries are the same; in float32 an angle of 0 is known to 1e-3."""
    a = ours()
    b = theirs()
    off = ~np.eye(N, dtype=bool)
    np.testing.assert_allclose(a[off], b[off], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.diag(a), np.diag(b), rtol=1e-2)


def milliseconds(once: Callable[[], object]) -> Callable[[], float]:
    """How long it takes."""

    def measure() -> float:
        began = time.perf_counter()
        once()
        return 1e3 * (time.perf_counter() - began)

    return measure


def told(result: Result) -> str:
    """Entries in a second."""
    return "" if result.ours is None else f"{N * N / result.ours / 1e3:.0f} million entries/s"


def count() -> str:
    """What is measured."""
    return (
        f"The tangent kernel of an infinitely wide network of {DEPTH} hidden ReLU layers between "
        f"{N:,} examples of {D} "
        f"numbers: {N * N:,} entries, of which at the least one half has to be computed."
    )


def rows() -> list[Row]:
    """One."""
    work = Work(N * N * D, 4 * N * N)  # the product of one half, and every entry written
    name = f"ntk of infinite width, {DEPTH} layers"
    wanted = 1.0
    return [
        Row(
            name,
            "numpy",
            milliseconds(ours),
            milliseconds(theirs),
            "ms",
            agree,
            target=wanted,
            work=work,
            remark=told,
        )
    ]
