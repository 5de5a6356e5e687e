"""The perceptron algorithm: ten thousand small data sets at once, and one of a million points.

Ours is `thetax.models.fit_perceptron`. Scikit-learn's `Perceptron` runs without shuffling for the
number of epochs that ours needs. Coordinates are multiples of 1/64, so that the updates of both
sides are bitwise equal.
"""

import time
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thetax.models import PerceptronFit, fit_perceptron

from .row import Row, Work, library

N_COMPARED = 200  # small data sets on which the peer is timed and compared


class Sets:
    """Linearly separable data sets of one size, with margin `gap`."""

    def __init__(self, count: int, n: int, d: int, *, gap: float):
        self.count, self.n, self.d, self.gap = count, n, d, gap

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Points of shape (count, n, d) and labels, in NumPy."""
        rng = np.random.default_rng(0)
        xs = rng.standard_normal((self.count, self.n, self.d), np.float32)
        u = rng.normal(size=(self.count, self.d))
        u = (u / np.linalg.norm(u, axis=1, keepdims=True)).astype(np.float32)
        ys = np.sign(np.einsum("knd,kd->kn", xs, u))
        xs += self.gap * ys[..., None] * u[:, None]
        return np.round(64 * xs) / 64, ys

    @cached_property
    def on_device(self) -> tuple[jax.Array, jax.Array]:
        """The same on the device of JAX."""
        return jnp.asarray(self.data[0]), jnp.asarray(self.data[1])

    @cached_property
    def ours(self) -> Callable[[], PerceptronFit]:
        """The fits of all data sets, by `vmap` if there are several."""
        many = jax.jit(jax.vmap(fit_perceptron))
        if self.count > 1:
            return lambda: many(*self.on_device)
        return lambda: fit_perceptron(self.data[0][0], self.data[1][0])

    @cached_property
    def result(self) -> PerceptronFit:
        """Our fits, with a leading axis."""
        return jax.tree.map(
            lambda a: np.asarray(a).reshape(self.count, *a.shape[self.count > 1 :]), self.ours()
        )

    def theirs(self, k: int) -> Any:
        """The peer's fit of one data set."""
        peer = library("sklearn.linear_model").Perceptron
        return peer(shuffle=False, tol=None, max_iter=int(self.result.epochs[k])).fit(
            self.data[0][k], self.data[1][k]
        )

    def our_cost(self) -> float:
        """Milliseconds for all data sets."""
        start = time.perf_counter()
        jax.block_until_ready(self.ours())
        return 1e3 * (time.perf_counter() - start)

    def their_cost(self) -> float:
        """Milliseconds for all data sets, extrapolated from some."""
        n = min(self.count, N_COMPARED)
        self.theirs(0)
        start = time.perf_counter()
        for k in range(n):
            self.theirs(k)
        return 1e3 * (time.perf_counter() - start) * self.count / n

    def agree(self) -> None:
        """Raises unless every set was separated and the weights of both sides are bitwise equal."""
        assert self.result.separated.all(), "a data set was not separated"
        for k in range(min(self.count, N_COMPARED)):
            peer = self.theirs(k)
            np.testing.assert_array_equal(peer.coef_[0], self.result.model.w[k])
            np.testing.assert_array_equal(peer.intercept_[0], np.asarray(self.result.model.b)[k])

    @property
    def work(self) -> Work:
        """A product and a sum per feature, point and epoch; the points are read once."""
        points = int(self.result.epochs.sum()) * self.n
        return Work(2 * points * (self.d + 1), 4 * self.count * self.n * self.d)


@cache
def sets() -> tuple[Sets, Sets]:
    """Many small sets and a large one."""
    return Sets(10_000, 50, 5, gap=0.05), Sets(1, 1_000_000, 20, gap=0.05)


def describe() -> str:
    """A description of the work."""
    many, one = sets()
    return (
        f"The perceptron algorithm until nothing is misclassified. {many.count:,} data sets of "
        f"{many.n} points in {many.d} dimensions, {many.result.epochs.mean():.1f} epochs each (at "
        f"most {many.result.epochs.max()}); one of {one.n:,} points in {one.d}, "
        f"{one.result.epochs[0]} epochs."
    )


def rows() -> list[Row]:
    """Scikit-learn's Perceptron, one fit after another; ours from arrays on the device, or from
    NumPy for the single set.
    """
    row = lambda name, job, target: Row(
        name,
        "scikit-learn",
        job.our_cost,
        job.their_cost,
        "ms",
        job.agree,
        target=target,
        work=job.work,
    )
    many, one = sets()
    return [
        row("perceptron, 10,000 sets", many, 20.0),
        row("perceptron, 1,000,000 points", one, 1.0),
    ]
