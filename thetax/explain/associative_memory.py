r"""Associative memories (§1.4): cross-talk between patterns, storage capacity, recall from noise.

With Hebb's couplings the field at pattern $t$ is $x_{t,i} \frac{d-1}{d} + C_{t,i}$: a signal plus
the cross-talk of the other patterns. A site flips if its cross-talk is opposite to the signal and
larger.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import erfc

from ..core import Model, predict
from ..layers import spin
from ..models import Hebbian, asynchronous_recall
from ..models.associative_memory.memory import Patterns, as_patterns, as_signs


def crosstalk(patterns: Patterns) -> Float[Array, "n d"]:
    r"""Cross-talk: the influence of the other patterns on pattern $t$ at site $i$ (§1.4):

    $$C_{t,i} = \frac1d \sum_{j \ne i} \sum_{r \ne t} x_{r,i} x_{r,j} x_{t,j}$$

    For random signs it has mean 0 and variance $(n-1)(d-1)/d^2$, and is normal in the limit.
    Departs: the notes keep $j = i$, which adds $\frac{n-1}{d} x_{t,i}$, also to the mean.

    >>> crosstalk(jnp.array([[1, 1, 1, 1], [1, 1, 1, -1]])).tolist()
    [[0.25, 0.25, 0.25, -0.75], [0.25, 0.25, 0.25, 0.75]]
    """
    X = as_patterns("crosstalk", patterns)
    n, d = X.shape
    others = (X @ X.T) * (1 - jnp.eye(n, dtype=X.dtype))
    return (others @ X - (n - 1) * X) / d


def flip_probability(n: ArrayLike, d: ArrayLike, *, degree: int = 2) -> np.ndarray | np.floating:
    r"""The probability that a site of a stored pattern is unstable, with $n$ random patterns of $d$
    sites stored (§1.4):

    $$P(-x_{t,i} C_{t,i} \ge 1) \to \sqrt{\frac{d}{2\pi n}} \int_1^\infty e^{-d z^2 / 2n} \, dz
      = \tfrac12 \Big(1 - \mathrm{erf} \sqrt{\frac{d}{2n}}\Big)$$

    For a dense associative memory of degree $p$, $d^{p-1} / (2p-3)!!$ replaces $d$ (Krotov &
    Hopfield 2016). For finite $n$ and $d$ the variances are exact with $n - 1$ and $d - 1$ in their
    place. Departs: the printed integral lacks the factor before it.

    >>> float(flip_probability(138, 1000).round(5))
    0.00355
    """
    n = np.asarray(n, float)
    d = np.asarray(d, float)
    if degree < 2 or not ((n > 0).all() and (d > 0).all()):
        raise ValueError(
            f"flip_probability: n and d must be positive and degree at least 2; got {n}, {d}, "
            f"{degree}."
        )
    return 0.5 * erfc(
        np.sqrt(d ** (degree - 1) / (2 * n * math.prod(range(2 * degree - 3, 0, -2))))
    )


def flip_signs(
    x: Float[Array, "*s d"], *, fraction: float, key: PRNGKeyArray
) -> Float[Array, "*s d"]:
    r"""Corrupts patterns with noise: flips the signs of $\mathrm{round}(\mathrm{fraction} \cdot d)$
    random sites of each.

    >>> flip_signs(jnp.ones((2, 8)), fraction=0.25, key=jr.key(0)).sum(axis=1).tolist()
    [4.0, 4.0]
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"flip_signs: fraction must be between 0 and 1; got {fraction}.")
    d = x.shape[-1]
    flips = jnp.broadcast_to(
        jnp.where(jnp.arange(d) < round(fraction * d), -1.0, 1.0).astype(x.dtype), x.shape
    )
    return x * jr.permutation(key, flips, axis=-1, independent=True)


@dataclass(frozen=True)
class MemoryRecall:
    """The patterns that each memory recalled from corrupted ones."""

    recalled: Float[np.ndarray, "memories n d"]
    overlaps: Float[np.ndarray, "memories n"]  # of recalled and stored pattern; 1 is exact
    stored: Float[np.ndarray, "n d"]
    corrupted: Float[np.ndarray, "n d"]
    names: tuple[str, ...]

    @property
    def exact(self) -> Float[np.ndarray, " memories"]:
        """The fraction of the patterns that each memory recalled exactly."""
        return (self.overlaps == 1).mean(axis=1)


def memory_recall(
    memories: Mapping[str, Model], patterns: Patterns, noisy: Patterns
) -> MemoryRecall:
    r"""Recall of stored patterns: runs each memory on `noisy[t]`, a corrupted pattern $x_t$, and
    measures the overlap $\frac1d x^\top x_t$ of its output $x$.

    A memory is any model that maps one state to a state; real outputs are replaced by their signs.

    >>> from thetax.models import hebb
    >>> patterns = jnp.array([[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, -1, -1, -1, -1]])
    >>> result = memory_recall({"Hebb": hebb(patterns)}, patterns, patterns.at[:, 0].set(-1))
    >>> result.overlaps.tolist(), result.exact.tolist()
    ([[1.0, 1.0]], [1.0])
    """
    stored = as_patterns("memory_recall", patterns)
    corrupted = as_signs("memory_recall", noisy)
    if stored.shape != corrupted.shape:
        raise ValueError(
            "memory_recall: patterns and noisy must have the same shape; "
            f"got patterns {stored.shape} and noisy {corrupted.shape}."
        )
    if not isinstance(memories, Mapping) or not memories:
        given = "an empty mapping" if isinstance(memories, Mapping) else type(memories).__name__
        raise ValueError(
            "memory_recall: memories must be a non-empty mapping of names to models, e.g. "
            f"{{'Hebb': hebb(patterns)}}; got {given}."
        )
    recalled = np.stack(
        [np.asarray(spin(predict(memory, corrupted))) for memory in memories.values()]
    )
    overlaps = np.mean(recalled * np.asarray(stored)[None], axis=2)
    return MemoryRecall(
        recalled, overlaps, np.asarray(stored), np.asarray(corrupted), tuple(memories)
    )


@dataclass(frozen=True)
class MemoryCapacity:
    """Overlap of stored patterns with the fixed points reached from them, for each load $n/d$."""

    overlap: Float[np.ndarray, " loads"]  # mean over the tested patterns
    loads: Float[np.ndarray, " loads"]
    overlaps: Float[np.ndarray, "loads tested"]
    sites: int


def memory_capacity(
    d: int,
    loads: Sequence[float] | Float[np.ndarray, " loads"],
    *,
    n_tested: int = 6,
    key: PRNGKeyArray,
) -> MemoryCapacity:
    r"""Storage capacity of a Hopfield network with $d$ sites, measured (§1.4).

    Stores $n = \mathrm{load} \cdot d$ random patterns by Hebb's rule, starts the asynchronous
    dynamics at `n_tested` of them, and measures the overlap of each pattern with its end state. In
    the limit of many sites retrieval breaks down at once, at $n/d \approx 0.138$ (Amit,
    Gutfreund & Sompolinsky 1985). Departs: the notes print $d/n$.

    >>> result = memory_capacity(100, [0.06, 0.5], key=jr.key(0))
    >>> bool(result.overlap[0] > 0.95 > 0.6 > result.overlap[1])
    True
    """
    sizes = [round(load * d) for load in loads]
    if not sizes or not 1 <= n_tested <= min(sizes):
        raise ValueError(
            f"memory_capacity: n_tested must be between 1 and {min(sizes, default=0)}, the number "
            f"of patterns at the smallest load; got {n_tested}, with loads {list(loads)} and {d} "
            "sites."
        )
    overlaps = np.stack(
        [_final_overlaps(n, d, n_tested, jr.fold_in(key, i)) for i, n in enumerate(sizes)]
    )
    return MemoryCapacity(overlaps.mean(axis=1), np.array(sizes) / d, overlaps, d)


def _final_overlaps(n: int, d: int, n_tested: int, key: PRNGKeyArray) -> np.ndarray:
    key_patterns, key_order = jr.split(key)
    memory = Hebbian(jr.rademacher(key_patterns, (n, d), jnp.zeros(()).dtype))
    starts = memory.patterns[:n_tested]
    order = jr.permutation(key_order, d)
    ends = jax.vmap(lambda x: asynchronous_recall(memory, x, order=order).x)(starts)
    return np.asarray((ends * starts).mean(axis=1))
