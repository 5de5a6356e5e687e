"""Recall in a large Hopfield network: from corrupted patterns to rest, site by site, learning
included.

Ours keeps the overlaps with the patterns and no matrix of couplings. One peer does the same in
numpy, a loop over the sites; the other is the textbook's, which forms W first. All visit the sites
in the same order and must agree in every sign. Several cues at once are one program for us, and for
numpy one loop over the sites with all cues in its arrays.
"""

import time
from collections.abc import Callable
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax.explain import corrupt
from thetax.models import AsynchronousRecall, Hebbian, asynchronous

from .row import Row, Work

D, N, SHARE = 10_000, 1_000, 0.1


@jax.jit
def _recall_all(memory: Hebbian, xs: jax.Array) -> AsynchronousRecall:
    return jax.vmap(lambda x: asynchronous(memory, x))(xs)


class Job:
    """A number of cues for one network."""

    def __init__(self, cues: int):
        self.cues = cues

    @cached_property
    def patterns(self) -> np.ndarray:
        """Random signs, in memory."""
        return np.asarray(jr.rademacher(jr.key(0), (N, D), jnp.float32))

    @cached_property
    def starts(self) -> np.ndarray:
        """The first patterns, a tenth of their signs flipped."""
        return np.asarray(
            corrupt(jnp.asarray(self.patterns[: self.cues]), share=SHARE, key=jr.key(1))
        )

    @cached_property
    def sweeps(self) -> int:
        """How often every site is visited before the last cue has settled."""
        return int(_recall_all(Hebbian(self.patterns), jnp.asarray(self.starts)).sweeps.max())

    def ours(self) -> np.ndarray:
        """Patterns checked and stored, cues recalled."""
        return np.asarray(_recall_all(Hebbian(self.patterns), jnp.asarray(self.starts)).x)

    def by_overlaps(self) -> np.ndarray:
        """The same bookkeeping in numpy, one cue: a visit costs a product with the patterns at that
        site.
        """
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
        """The same for several cues: a visit serves all of them."""
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
        """The textbook's: W once, then a row of it against the state at every visit."""
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
        """Two products of a column with the overlaps at every visit; the patterns, read once a
        sweep.
        """
        return Work(4 * self.cues * N * D * self.sweeps, 4 * N * D * self.sweeps)


def _cost(recall: Callable[[], np.ndarray]) -> float:
    began = time.perf_counter()
    recall()
    return time.perf_counter() - began


def agree(job: Job, theirs: Callable[[], np.ndarray]) -> None:
    """Raises unless both end in the same states, and these are all but the patterns."""
    ours = job.ours()
    np.testing.assert_array_equal(ours, theirs())
    assert (ours * job.patterns[: job.cues]).mean() > 0.99, "nothing was recalled"


def count() -> str:
    """What is measured."""
    return (
        f"Storing {N:,} random patterns of {D:,} signs and recalling some of them, a tenth of "
        "the signs flipped."
    )


def rows() -> list[Row]:
    """One cue and sixteen, against the same algorithm in numpy and against the matrix of
    couplings.
    """
    one = Job(1)
    several = Job(16)

    def row(
        job: Job, peer: str, theirs: Callable[[], np.ndarray], pairs: int, target: float
    ) -> Row:
        name = f"Hopfield recall, {D:,} sites, {N:,} patterns, {job.cues} cue{'s' * (job.cues > 1)}"
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
