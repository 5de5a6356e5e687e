r"""What a memory remembers (§1.4): why patterns disturb one another, how many it holds, what it
makes of noise.

With Hebb's couplings the field at pattern $t$ is $x_{t,i} \frac{d-1}{d} + C_{t,i}$: a signal, and
the cross-talk of the other patterns. A site whose cross-talk opposes it by more than the signal
flips.
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
from ..models import Hebbian, asynchronous
from ..models.associative_memory.memory import Patterns, as_patterns, signs


def crosstalk(patterns: Patterns) -> Float[Array, "n d"]:
    r"""What the other patterns do to pattern $t$ at site $i$ (§1.4):

    $$C_{t,i} = \frac1d \sum_{j \ne i} \sum_{r \ne t} x_{r,i} x_{r,j} x_{t,j}$$

    Of random signs it has mean 0 and variance $(n-1)(d-1)/d^2$, and is normal in the limit.
    Departs: the notes keep $j = i$, which adds $\frac{n-1}{d} x_{t,i}$ and makes the mean that.

    >>> crosstalk(jnp.array([[1, 1, 1, 1], [1, 1, 1, -1]])).tolist()
    [[0.25, 0.25, 0.25, -0.75], [0.25, 0.25, 0.25, 0.75]]
    """
    X = as_patterns("crosstalk", patterns)
    n, d = X.shape
    others = (X @ X.T) * (1 - jnp.eye(n, dtype=X.dtype))
    return (others @ X - (n - 1) * X) / d


def flip_probability(n: ArrayLike, d: ArrayLike, *, degree: int = 2) -> np.ndarray | np.floating:
    r"""The chance that a site of a stored pattern is unstable among $n$ random patterns of $d$
    sites (§1.4):

    $$P(-x_{t,i} C_{t,i} \ge 1) \to \sqrt{\frac{d}{2\pi n}} \int_1^\infty e^{-d z^2 / 2n} \, dz
      = \tfrac12 \Big(1 - \mathrm{erf} \sqrt{\frac{d}{2n}}\Big)$$

    A dense memory of degree $p$ has $d^{p-1} / (2p-3)!!$ for $d$ (Krotov & Hopfield 2016). For
    finite $n$ and $d$ the variances are exact with $n - 1$ and $d - 1$ in their place. Departs: the
    printed integral lacks the factor before it.

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


def corrupt(x: Float[Array, "*s d"], *, share: float, key: PRNGKeyArray) -> Float[Array, "*s d"]:
    r"""Flips a share of the signs of every pattern, exactly
    $\mathrm{round}(\mathrm{share} \cdot d)$ of them, anywhere.

    >>> corrupt(jnp.ones((2, 8)), share=0.25, key=jr.key(0)).sum(axis=1).tolist()
    [4.0, 4.0]
    """
    if not 0 <= share <= 1:
        raise ValueError(f"corrupt: share is between 0 and 1; got {share}.")
    d = x.shape[-1]
    flips = jnp.broadcast_to(
        jnp.where(jnp.arange(d) < round(share * d), -1.0, 1.0).astype(x.dtype), x.shape
    )
    return x * jr.permutation(key, flips, axis=-1, independent=True)


@dataclass(frozen=True)
class Recall:
    """What each memory made of the corrupted patterns."""

    recalled: Float[np.ndarray, "memories n d"]
    overlaps: Float[
        np.ndarray, "memories n"
    ]  # of what was recalled with what was stored; 1 is exact
    stored: Float[np.ndarray, "n d"]
    corrupted: Float[np.ndarray, "n d"]
    names: tuple[str, ...]

    @property
    def exact(self) -> Float[np.ndarray, " memories"]:
        """The share of the patterns that each memory recalled without a fault."""
        return (self.overlaps == 1).mean(axis=1)


def recall(memories: Mapping[str, Model], patterns: Patterns, noisy: Patterns) -> Recall:
    r"""Shows each memory `noisy[t]`, which was pattern $x_t$, and measures its answer's overlap
    $\frac1d x^\top x_t$.

    A memory is any model of one state; of real answers the signs are taken.

    >>> from thetax.models import hebb
    >>> patterns = jnp.array([[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, -1, -1, -1, -1]])
    >>> found = recall({"Hebb": hebb(patterns)}, patterns, patterns.at[:, 0].set(-1))
    >>> found.overlaps.tolist(), found.exact.tolist()
    ([[1.0, 1.0]], [1.0])
    """
    stored = as_patterns("recall", patterns)
    corrupted = signs("recall", noisy)
    if stored.shape != corrupted.shape:
        raise ValueError(
            f"recall: noisy[t] is patterns[t] corrupted, so both have one shape; "
            f"got patterns {stored.shape} and noisy {corrupted.shape}."
        )
    if not isinstance(memories, Mapping) or not memories:
        raise ValueError(
            f"recall: expected a mapping of names to memories, e.g. {{'Hebb': hebb(patterns)}}; "
            f"got {'an empty one' if isinstance(memories, Mapping) else type(memories).__name__}."
        )
    answers = np.stack(
        [np.asarray(spin(predict(memory, corrupted))) for memory in memories.values()]
    )
    overlaps = np.mean(answers * np.asarray(stored)[None], axis=2)
    return Recall(answers, overlaps, np.asarray(stored), np.asarray(corrupted), tuple(memories))


@dataclass(frozen=True)
class Capacity:
    r"""How much of a stored pattern is left when the dynamics started at it has settled, by the
    load $n/d$.
    """

    overlap: Float[np.ndarray, " loads"]  # the mean
    loads: Float[np.ndarray, " loads"]
    overlaps: Float[np.ndarray, "loads tested"]
    sites: int


def capacity(
    d: int,
    loads: Sequence[float] | Float[np.ndarray, " loads"],
    *,
    tested: int = 6,
    key: PRNGKeyArray,
) -> Capacity:
    r"""Stores $n = \mathrm{load} \cdot d$ random patterns by Hebb's rule and starts at `tested` of
    them (§1.4).

    In the limit of many sites retrieval breaks down at once, at $n/d \approx 0.138$ (Amit,
    Gutfreund & Sompolinsky 1985). Departs: the notes print $d/n$.

    >>> found = capacity(100, [0.06, 0.5], key=jr.key(0))
    >>> bool(found.overlap[0] > 0.95 > 0.6 > found.overlap[1])
    True
    """
    sizes = [round(load * d) for load in loads]
    if not sizes or not 1 <= tested <= min(sizes):
        raise ValueError(
            f"capacity: from 1 to {min(sizes, default=0)} patterns can be tested, as many as the "
            f"least load stores; got {tested}, with loads {list(loads)} of {d} sites."
        )
    overlaps = np.stack(
        [_final_overlaps(n, d, tested, jr.fold_in(key, i)) for i, n in enumerate(sizes)]
    )
    return Capacity(overlaps.mean(axis=1), np.array(sizes) / d, overlaps, d)


def _final_overlaps(n: int, d: int, tested: int, key: PRNGKeyArray) -> np.ndarray:
    key_draw, key_order = jr.split(key)
    memory = Hebbian(jr.rademacher(key_draw, (n, d), jnp.zeros(()).dtype))
    starts = memory.patterns[:tested]
    order = jr.permutation(key_order, d)
    ends = jax.vmap(lambda x: asynchronous(memory, x, order=order).x)(starts)
    return np.asarray((ends * starts).mean(axis=1))
