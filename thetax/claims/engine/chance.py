"""Chance for the side of a claim that is computed in NumPy."""

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray


def chance(key: PRNGKeyArray) -> np.random.Generator:
    """NumPy's generator, seeded by a key.

    >>> bool(chance(jr.key(0)).integers(10) == chance(jr.key(0)).integers(10))
    True
    """
    return np.random.default_rng(np.asarray(jr.key_data(key)))
