"""The infinite-width tangent kernel between all pairs of many examples, against NumPy.

For three hidden ReLU layers the cost is a matrix product and, for every pair and layer, an angle,
its sine and some sums. NumPy computes the same recursion in float32, with BLAS for the product.
"""

import time
from collections.abc import Callable
from functools import cache

import jax
import jax.random as jr
import numpy as np

from thetax.explain import infinite_width_limit
from thetax.layers import ntk_parametrisation
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
    net = MLP.init(D, *[8] * DEPTH, 1, initialiser=ntk_parametrisation(), key=jr.key(0))
    return infinite_width_limit(net).ntk


def ours() -> np.ndarray:
    """Computes all entries."""
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
    """Raises unless all entries are the same; in float32 an angle of 0 is accurate to 1e-3."""
    a = ours()
    b = theirs()
    off = ~np.eye(N, dtype=bool)
    np.testing.assert_allclose(a[off], b[off], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.diag(a), np.diag(b), rtol=1e-2)


def milliseconds(once: Callable[[], object]) -> Callable[[], float]:
    """A function that times one call."""

    def measure() -> float:
        start = time.perf_counter()
        once()
        return 1e3 * (time.perf_counter() - start)

    return measure


def entries_per_second(result: Result) -> str:
    """Entries per second."""
    return "" if result.ours is None else f"{N * N / result.ours / 1e3:.0f} million entries/s"


def describe() -> str:
    """A description of the work."""
    return (
        f"The tangent kernel of an infinite-width network with {DEPTH} hidden ReLU layers between "
        f"{N:,} examples of {D} features: {N * N:,} entries, of which half have to be computed."
    )


def rows() -> list[Row]:
    """One comparison."""
    work = Work(N * N * D, 4 * N * N)  # the product of one half, and every entry written
    name = f"ntk of infinite width, {DEPTH} layers"
    return [
        Row(
            name,
            "numpy",
            milliseconds(ours),
            milliseconds(theirs),
            "ms",
            agree,
            target=1.0,
            work=work,
            remark=entries_per_second,
        )
    ]
