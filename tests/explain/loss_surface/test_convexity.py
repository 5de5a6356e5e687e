"""Chords, against a loop in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.explain import convexity

pytestmark = pytest.mark.usefixtures("x64")


def cubic(w, batch):
    return (w["a"] ** 3).sum() + w["b"] ** 2


def test_excess_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, 30, 3))
    b = rng.normal(size=(2, 30))
    left, right = ({"a": jnp.asarray(a[i]), "b": jnp.asarray(b[i])} for i in (0, 1))
    found = convexity(cubic, left, right, None, n_points=9)
    h = lambda a, b: (a**3).sum() + b**2
    for i in range(30):
        above = [
            h(s * a[0, i] + (1 - s) * a[1, i], s * b[0, i] + (1 - s) * b[1, i])
            - (s * h(a[0, i], b[0, i]) + (1 - s) * h(a[1, i], b[1, i]))
            for s in np.linspace(0, 1, 11)[1:-1]
        ]
        assert np.isclose(found.excesses[i], max(above))
    assert found.excess == found.excesses.max()
    worst = found.excesses.argmax()
    assert np.isclose(found.losses[-1], h(a[0, worst], b[0, worst]))
    assert np.isclose(found.losses[0], h(a[1, worst], b[1, worst]))


@given(seed=st.integers(0, 10**6))
def test_curvature_of_a_quadratic_is_its_matrix(seed):
    """At λ = 1/2 the excess is −δᵀHδ/8."""
    rng = np.random.default_rng(seed)
    H = rng.normal(size=(3, 3))
    ends = rng.normal(size=(2, 5, 3))
    H = H + H.T
    found = convexity(
        lambda w, batch: w @ jnp.asarray(H) @ w / 2, *map(jnp.asarray, ends), None, n_points=1
    )
    delta = ends[0] - ends[1]
    assert np.allclose(found.excesses, -np.einsum("ti,ij,tj->t", delta, H, delta) / 8)


@pytest.mark.parametrize(
    ("left", "right", "points"),
    [
        (jnp.ones((2, 3)), jnp.ones((3, 3)), 5),
        (jnp.ones(()), jnp.ones(()), 5),
        (jnp.ones((2, 3)), jnp.ones((2, 3)), 0),
    ],
)
def test_stacks_that_do_not_match_are_rejected(left, right, points):
    with pytest.raises(
        ValueError, match=r"two stacks of equally many models|n_points must be an integer >= 1"
    ):
        convexity(lambda w, batch: w.sum(), left, right, None, n_points=points)
