"""A NumPy random generator, for the side of a claim that is computed in NumPy."""

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray


def numpy_rng(key: PRNGKeyArray) -> np.random.Generator:
    """NumPy's random generator, seeded by a JAX key.

    >>> bool(numpy_rng(jr.key(0)).integers(10) == numpy_rng(jr.key(0)).integers(10))
    True
    """
    return np.random.default_rng(np.asarray(jr.key_data(key)))
