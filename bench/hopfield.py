"""Storage and asynchronous recall in a large Hopfield network.

Ours updates the overlaps with the patterns and needs no weight matrix. One peer does the same in a
NumPy loop over the units; the other forms W first. All update the units in the same order and must
agree in every sign. Several cues are one compiled program for us, and one loop with arrays over the
cues for NumPy.
"""

import time
from collections.abc import Callable
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax.explain import flip_signs
from thetax.models import AsynchronousRecall, Hebbian, asynchronous_recall

from .row import Row, Work

D, N, FLIPPED = 10_000, 1_000, 0.1


@jax.jit
def _recall_all(memory: Hebbian, xs: jax.Array) -> AsynchronousRecall:
    return jax.vmap(lambda x: asynchronous_recall(memory, x))(xs)


class Job:
    """A network and several cues."""

    def __init__(self, cues: int):
        self.cues = cues

    @cached_property
    def patterns(self) -> np.ndarray:
        """Random patterns."""
        return np.asarray(jr.rademacher(jr.key(0), (N, D), jnp.float32))

    @cached_property
    def starts(self) -> np.ndarray:
        """The first patterns, a tenth of their signs flipped."""
        return np.asarray(
            flip_signs(jnp.asarray(self.patterns[: self.cues]), fraction=FLIPPED, key=jr.key(1))
        )

    @cached_property
    def sweeps(self) -> int:
        """Sweeps over all units until the last cue has converged."""
        return int(_recall_all(Hebbian(self.patterns), jnp.asarray(self.starts)).sweeps.max())

    def ours(self) -> np.ndarray:
        """Storage and recall."""
        return np.asarray(_recall_all(Hebbian(self.patterns), jnp.asarray(self.starts)).x)

    def by_overlaps(self) -> np.ndarray:
        """The same algorithm in NumPy for one cue."""
        columns = np.ascontiguousarray(self.patterns.T)
        x = self.starts[0].copy()
        m = self.patterns @ x
        flips = 1
        while flips:
            flips = 0
            for i in range(D):
                new = 1.0 if columns[i] @ m - N * x[i] >= 0 else -1.0
                if new != x[i]:
                    m += (new - x[i]) * columns[i]
                    x[i], flips = new, flips + 1
        return x[None]

    def by_overlaps_at_once(self) -> np.ndarray:
        """The same algorithm in NumPy for several cues at once."""
        columns = np.ascontiguousarray(self.patterns.T)
        x = self.starts.copy()
        m = x @ columns
        flips = 1
        while flips:
            flips = 0
            for i in range(D):
                new = np.where(m @ columns[i] >= N * x[:, i], np.float32(1), np.float32(-1))
                (at,) = np.nonzero(new != x[:, i])
                if at.size:
                    m[at] += (new - x[:, i])[at, None] * columns[i]
                    x[:, i], flips = new, flips + at.size
        return x

    def by_matrix(self) -> np.ndarray:
        """The weight matrix once, then a product with one of its rows per update."""
        W = self.patterns.T @ self.patterns
        x = self.starts[0].copy()
        flips = 1
        np.fill_diagonal(W, 0)
        while flips:
            flips = 0
            for i in range(D):
                new = 1.0 if W[i] @ x >= 0 else -1.0
                x[i], flips = new, flips + (new != x[i])
        return x[None]

    @property
    def work(self) -> Work:
        """Two products of a column per update; the patterns are read in each sweep."""
        return Work(4 * self.cues * N * D * self.sweeps, 4 * N * D * self.sweeps)


def _cost(recall: Callable[[], np.ndarray]) -> float:
    start = time.perf_counter()
    recall()
    return time.perf_counter() - start


def agree(job: Job, theirs: Callable[[], np.ndarray]) -> None:
    """Raises unless both final states are equal and close to the patterns."""
    ours = job.ours()
    np.testing.assert_array_equal(ours, theirs())
    assert (ours * job.patterns[: job.cues]).mean() > 0.99, "the patterns were not recalled"


def describe() -> str:
    """A description of the work."""
    return (
        f"Storing {N:,} random patterns of {D:,} signs and recalling some of them, a tenth of "
        "the signs flipped."
    )


def rows() -> list[Row]:
    """One cue and sixteen, against NumPy with the same algorithm and with the weight matrix."""
    one = Job(1)
    several = Job(16)

    def row(
        job: Job, peer: str, theirs: Callable[[], np.ndarray], pairs: int, target: float
    ) -> Row:
        name = f"Hopfield recall, {D:,} units, {N:,} patterns, {job.cues} cue{'s' * (job.cues > 1)}"
        costs = partial(_cost, job.ours), partial(_cost, theirs)
        check = partial(agree, job, theirs)
        return Row(
            name, peer, *costs, "s", check, pairs=pairs, target=target, work=job.work, seconds=1.0
        )

    return [
        row(one, "numpy, overlaps", one.by_overlaps, 5, 1.0),
        row(one, "numpy, matrix", one.by_matrix, 3, 10.0),
        row(several, "numpy, overlaps", several.by_overlaps_at_once, 5, 1.0),
    ]
