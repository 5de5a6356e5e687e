r"""Tests the convexity of an objective on chords (§3 of the fundamentals).

$h$ is convex if

$$h(\lambda\theta + (1 - \lambda)\theta') \le \lambda h(\theta) + (1 - \lambda) h(\theta')$$

for all pairs of points. One violated chord disproves convexity; no number of satisfied chords
proves it.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...check import expect_count
from ...core import Batch, Objective
from .smoothness import MAX_BATCH_SIZE


@dataclass(frozen=True)
class Convexity:
    r"""The largest excess of $h$ over its chords (negative if $h$ is below all of them), the
    largest on each chord, and $h$ along the worst chord.
    """

    excess: float
    excesses: Float[np.ndarray, " t"]
    fractions: Float[np.ndarray, " s"]  # λ from 0 to 1
    losses: Float[np.ndarray, " s"]  # h along the worst chord


def convexity(
    objective: Objective, models: Any, others: Any, batch: Batch | None, *, n_points: int = 15
) -> Convexity:
    r"""The largest excess of $h$ over its chords,
    $h(\lambda\theta + (1 - \lambda)\theta') - \lambda h(\theta) - (1 - \lambda) h(\theta')$.

    Models are stacked, and each is paired with the one at the same index of `others`; $\lambda$
    takes `n_points` values between 0 and 1. For a convex $h$ no excess is positive, up to rounding.

    >>> result = convexity(
    ...     lambda w, batch: jnp.sin(w), jnp.array([0.0, 0.0]), jnp.array([-3.0, 3.0]), None
    ... )
    >>> result.excesses.round(2).tolist()
    [-0.1..., 0.9...]
    """
    expect_count("convexity", n_points=n_points)
    lengths = {leaf.shape[:1] for leaf in jax.tree.leaves((models, others))}
    if len(lengths) != 1 or lengths <= {(), (0,)}:
        raise ValueError(
            "convexity: models and others must be two stacks of equally many models, at least one, "
            f"along the first axis of every leaf; got first axes {sorted(lengths)}."
        )
    fractions = np.linspace(0, 1, n_points + 2)
    losses = np.asarray(
        _chord_losses(objective, models, others, batch, jnp.asarray(fractions)), np.float64
    )
    chords = fractions * losses[:, -1:] + (1 - fractions) * losses[:, :1]
    excesses = (losses - chords)[:, 1:-1].max(axis=1)
    worst = int(np.argmax(np.where(np.isnan(excesses), -np.inf, excesses)))
    return Convexity(float(excesses.max()), excesses, fractions, losses[worst])


@partial(jax.jit, static_argnames="objective")
def _chord_losses(
    objective: Objective, models: Any, others: Any, batch: Any, fractions: Any
) -> Float[Array, "t s"]:
    def loss(pair, fraction):
        mixture = jax.tree.map(
            lambda a, b: fraction.astype(a.dtype) * a + (1 - fraction).astype(a.dtype) * b, *pair
        )
        return objective(mixture, batch)

    def chord(pair):
        return jax.vmap(lambda fraction: loss(pair, fraction))(fractions)

    return jax.lax.map(chord, (models, others), batch_size=MAX_BATCH_SIZE)
