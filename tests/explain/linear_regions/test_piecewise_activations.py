"""Kinks, slopes and offsets of activations, against the activations themselves."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from thetax.explain.linear_regions.piecewise_activations import (
    PIECEWISE_LINEAR,
    piecewise_linear_form,
)
from thetax.layers import leaky_relu


@pytest.mark.parametrize("slope", [None, -0.5, 0.3])
def test_each_piece_is_a_line_of_the_activation(slope):
    """At points of every piece, kinks included, for which both neighbouring lines hold."""
    given = list(PIECEWISE_LINEAR) if slope is None else [partial(leaky_relu, negative_slope=slope)]
    for f in given:
        kinks, slopes, offsets = piecewise_linear_form(f)
        assert len(kinks) + 1 == len(slopes) == len(offsets)
        edges = [-9.0, *kinks, 9.0]
        for low, high, a, b in zip(edges[:-1], edges[1:], slopes, offsets):
            ts = np.linspace(low, high, 5)
            np.testing.assert_allclose(f(jnp.asarray(ts)), a * ts + b, atol=1e-5)
