"""The linear recurrence against a loop: sequential and parallel scans, gradients, memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.layers import linear_scan, prefix_scan, sequential_scan
from thetax.layers.recurrent.scan import combine

pytestmark = pytest.mark.usefixtures("x64")


def draw(seed, t, m, complex_=True):
    rng = np.random.default_rng(seed)
    a, b, z = (
        rng.normal(size=s) + 1j * complex_ * rng.normal(size=s) for s in [(t, m), (t, m), (m,)]
    )
    keep = a / np.maximum(1, np.abs(a))
    return tuple(jnp.asarray(v if complex_ else v.real) for v in (keep, b, z))


def loop(a, b, z):
    zs = []
    for a_t, b_t in zip(np.broadcast_to(a, b.shape), np.asarray(b)):
        z = a_t * z + b_t
        zs.append(z)
    return np.array(zs)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("t", [1, 2, 7, 33])
@pytest.mark.parametrize("complex_", [False, True])
def test_equals_the_loop(t, complex_):
    a, b, z = draw(0, t, 3, complex_)
    for times in (a, a[0]):
        expected = loop(np.asarray(times), b, np.asarray(z))
        np.testing.assert_allclose(linear_scan(times, b, z), expected, atol=1e-12)
        for scan in (sequential_scan, prefix_scan):
            np.testing.assert_allclose(
                scan(times, b), loop(np.asarray(times), b, np.zeros(3)), atol=1e-12
            )


@given(st.integers(0, 1000))
def test_combine_is_associative(seed):
    one, two, three = ((a[0], b[0]) for a, b, _ in (draw(seed + k, 1, 2) for k in range(3)))
    left = combine(combine(one, two), three)
    right = combine(one, combine(two, three))
    np.testing.assert_allclose(left, right, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [False, True])
def test_gradient_is_a_reversed_recurrence(fixed):
    a, b, z = draw(1, 9, 3, complex_=False)
    a = a[0] if fixed else a
    weights = jnp.asarray(np.random.default_rng(2).normal(size=(9, 3)))
    da, db, dz = jax.grad(lambda *v: jnp.vdot(linear_scan(*v), weights), argnums=(0, 1, 2))(a, b, z)
    every = np.broadcast_to(np.asarray(a), (9, 3))
    g = np.zeros(3)
    gs = []
    for t in reversed(range(9)):
        g = np.asarray(weights)[t] + (every[t + 1] * g if t < 8 else 0)
        gs.insert(0, g)
    before = np.concatenate([np.asarray(z)[None], loop(every, b, np.asarray(z))[:-1]])
    np.testing.assert_allclose(db, gs, atol=1e-12)
    np.testing.assert_allclose(
        da, (np.array(gs) * before).sum(axis=0) if fixed else np.array(gs) * before, atol=1e-12
    )
    np.testing.assert_allclose(dz, every[0] * gs[0], atol=1e-12)


@pytest.mark.slow
def test_jvp_and_vmap():
    a, b, z = draw(3, 6, 2)
    value, change = jax.jvp(linear_scan, (a, b, z), (0.3j * a, b - 1, z * 2))
    step = 1e-6
    ahead = linear_scan(a + step * 0.3j * a, b + step * (b - 1), z + step * 2 * z)
    np.testing.assert_allclose(change, (ahead - value) / step, rtol=1e-4, atol=1e-4)
    many = jax.vmap(linear_scan, in_axes=(None, 0, None))(a, jnp.stack([b, 2 * b]), z)
    np.testing.assert_allclose(many[1], linear_scan(a, 2 * b, z), atol=1e-12)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (((3, 2), (3, 3)), "got a"),
        (((2,), (0, 2)), "t >= 1"),
        (((3, 2), (3, 2), (3,)), r"start must have shape \(2,\); got \(3,\)"),
    ],
)
def test_invalid_arguments(shapes, says):
    with pytest.raises(ValueError, match=says):
        linear_scan(*map(jnp.ones, shapes))
