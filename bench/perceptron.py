"""The perceptron algorithm: ten thousand small data sets at once, and one of a million points.

Ours is `thetax.models.fit_perceptron` as anyone calls it. Scikit-learn's `Perceptron` runs
unshuffled for exactly the sweeps that are needed, which it cannot know: in practice it runs a fixed
number. Coordinates are multiples of 1/64, so that both sides make the same updates to the last bit.
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

SHOWN = 200  # of the small data sets, those on which the peer is timed and compared


class Sets:
    """Points that a hyperplane separates, `gap` away from it: some data sets of one size."""

    def __init__(self, count: int, n: int, d: int, *, gap: float):
        self.count, self.n, self.d, self.gap = count, n, d, gap

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Points of shape (count, n, d) and labels, in NumPy."""
        chance = np.random.default_rng(0)
        xs = chance.standard_normal((self.count, self.n, self.d), np.float32)
        u = chance.normal(size=(self.count, self.d))
        u = (u / np.linalg.norm(u, axis=1, keepdims=True)).astype(np.float32)
        ys = np.sign(np.einsum("knd,kd->kn", xs, u))
        xs += self.gap * ys[..., None] * u[:, None]
        return np.round(64 * xs) / 64, ys

    @cached_property
    def on_device(self) -> tuple[jax.Array, jax.Array]:
        """The same, where JAX computes."""
        return jnp.asarray(self.data[0]), jnp.asarray(self.data[1])

    @cached_property
    def ours(self) -> Callable[[], PerceptronFit]:
        """Every data set fitted: mapped where there are many."""
        many = jax.jit(jax.vmap(fit_perceptron))
        if self.count > 1:
            return lambda: many(*self.on_device)
        return lambda: fit_perceptron(self.data[0][0], self.data[1][0])

    @cached_property
    def found(self) -> PerceptronFit:
        """What we find, each part with a leading axis."""
        return jax.tree.map(
            lambda a: np.asarray(a).reshape(self.count, *a.shape[self.count > 1 :]), self.ours()
        )

    def theirs(self, k: int) -> Any:
        """The peer's fit of one data set."""
        peer = library("sklearn.linear_model").Perceptron
        return peer(shuffle=False, tol=None, max_iter=int(self.found.epochs[k])).fit(
            self.data[0][k], self.data[1][k]
        )

    def our_cost(self) -> float:
        """Milliseconds for all data sets."""
        began = time.perf_counter()
        jax.block_until_ready(self.ours())
        return 1e3 * (time.perf_counter() - began)

    def their_cost(self) -> float:
        """Milliseconds for all data sets, from those that are shown."""
        shown = min(self.count, SHOWN)
        self.theirs(0)
        began = time.perf_counter()
        for k in range(shown):
            self.theirs(k)
        return 1e3 * (time.perf_counter() - began) * self.count / shown

    def agree(self) -> None:
        """Raises unless every set was separated and both sides have the same weights, to the last
        bit.
        """
        assert self.found.separated.all(), "some data set was not separated"
        for k in range(min(self.count, SHOWN)):
            peer = self.theirs(k)
            np.testing.assert_array_equal(peer.coef_[0], self.found.model.w[k])
            np.testing.assert_array_equal(peer.intercept_[0], np.asarray(self.found.model.b)[k])

    @property
    def work(self) -> Work:
        """A product and a sum for each feature of each point in each sweep; the points, read
        once.
        """
        points = int(self.found.epochs.sum()) * self.n
        return Work(2 * points * (self.d + 1), 4 * self.count * self.n * self.d)


@cache
def sets() -> tuple[Sets, Sets]:
    """Many small ones, and a large one."""
    return Sets(10_000, 50, 5, gap=0.05), Sets(1, 1_000_000, 20, gap=0.05)


def count() -> str:
    """What is measured."""
    many, one = sets()
    return (
        f"The perceptron algorithm until nothing is misclassified. {many.count:,} data sets of "
        f"{many.n} points in {many.d} dimensions, {many.found.epochs.mean():.1f} sweeps each (at "
        f"most {many.found.epochs.max()}); one of {one.n:,} points in {one.d}, "
        f"{one.found.epochs[0]} sweeps."
    )


def rows() -> list[Row]:
    """Scikit-learn's Perceptron, one fit after another; ours from device arrays, or from NumPy
    where there is one.
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
