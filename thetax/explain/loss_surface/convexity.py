r"""Whether an objective lies below its chords (§3 of the fundamentals).

$$h(\lambda\theta + (1 - \lambda)\theta') \le \lambda h(\theta) + (1 - \lambda) h(\theta')$$

for every two points is convexity. One chord that is crossed refutes it; that none of many is
crossed proves nothing.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core import Batch, Objective
from .smoothness import CHUNK


@dataclass(frozen=True)
class Convexity:
    r"""The most by which $h$ passes above a chord, negative if it lies below; per pair; and along
    the worst chord.
    """

    excess: float
    seen: Float[np.ndarray, " t"]
    shares: Float[np.ndarray, " s"]  # λ from 0 to 1
    losses: Float[np.ndarray, " s"]  # h along the worst chord


def convexity(
    objective: Objective, models: Any, others: Any, batch: Batch | None, *, points: int = 15
) -> Convexity:
    r"""How far $h$ passes above its chords:
    $h(\lambda\theta + (1 - \lambda)\theta') - \lambda h - (1 - \lambda) h'$.

    The models are stacked, and each is joined with its like among the others; $\lambda$ runs over
    so many points between 0 and 1. For a convex $h$ nothing found is positive, up to rounding.

    >>> found = convexity(
    ...     lambda w, batch: jnp.sin(w), jnp.array([0.0, 0.0]), jnp.array([-3.0, 3.0]), None
    ... )
    >>> found.seen.round(2).tolist()
    [-0.1..., 0.9...]
    """
    lengths = {leaf.shape[:1] for leaf in jax.tree.leaves((models, others))}
    if points < 1 or len(lengths) != 1 or lengths <= {(), (0,)}:
        raise ValueError(
            "convexity: needs two stacks of as many models, along a first axis of every leaf, and "
            "at least one point "
            f"between them; got first axes {sorted(lengths)} and points={points}."
        )
    shares = np.linspace(0, 1, points + 2)
    losses = np.asarray(_chords(objective, models, others, batch, jnp.asarray(shares)), np.float64)
    chord = shares * losses[:, -1:] + (1 - shares) * losses[:, :1]
    seen = (losses - chord)[:, 1:-1].max(axis=1)
    worst = int(np.argmax(np.where(np.isnan(seen), -np.inf, seen)))
    return Convexity(float(seen.max()), seen, shares, losses[worst])


@partial(jax.jit, static_argnames="objective")
def _chords(
    objective: Objective, models: Any, others: Any, batch: Any, shares: Any
) -> Float[Array, "t s"]:
    def at(pair, share):
        mixed = jax.tree.map(
            lambda a, b: share.astype(a.dtype) * a + (1 - share).astype(a.dtype) * b, *pair
        )
        return objective(mixed, batch)

    def along(pair):
        return jax.vmap(lambda share: at(pair, share))(shares)

    return jax.lax.map(along, (models, others), batch_size=CHUNK)
