"""Toys are functions of their key, balanced where they say so, and learnable or not as they should
be.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from thetax import data

TOYS = [
    data.xor,
    data.moons,
    data.spirals,
    data.blobs,
    data.circles,
    data.teacher_student,
    data.sinusoid,
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("toy", TOYS)
def test_a_toy_is_a_pure_function_of_its_key(toy):
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        xs, ys = toy(300, key=jr.key(0))
        compiled = jax.jit(lambda key: toy(300, key=key))(jr.key(0))
    assert xs.shape[0] == ys.shape[0] == 300
    assert xs.dtype == jnp.float32
    assert ys.dtype == (jnp.float32 if toy is data.sinusoid else jnp.int32)
    np.testing.assert_allclose(compiled[0], xs, atol=1e-5)
    assert (
        np.mean(
            np.asarray(compiled[1] == ys) if ys.dtype == jnp.int32 else np.isclose(compiled[1], ys)
        )
        > 0.98
    )
    assert not np.array_equal(toy(300, key=jr.key(1))[0], xs)


@pytest.mark.parametrize("toy", [data.moons, data.spirals, data.blobs, data.circles])
def test_classes_are_balanced_and_mixed(toy):
    ys = np.asarray(toy(300, key=jr.key(0))[1])
    counts = np.bincount(ys)
    assert counts.max() - counts.min() <= 1
    assert len(set(ys[:20].tolist())) > 1


@pytest.mark.parametrize("toy", [data.xor, data.spirals, data.circles])
def test_a_line_fails_where_neighbours_succeed(toy):
    xs, ys = map(np.asarray, toy(300, key=jr.key(0)))
    assert LogisticRegression().fit(xs, ys).score(xs, ys) < 0.75
    assert KNeighborsClassifier(5).fit(xs[:200], ys[:200]).score(xs[200:], ys[200:]) > 0.85


@pytest.mark.parametrize("toy", TOYS)
def test_noise_moves_what_it_says(toy):
    """With the same key, twice the noise moves every point twice as far from where it was
    without.
    """
    (x0, y0), (x1, y1), (x2, y2) = (
        toy(300, noise=noise, key=jr.key(3)) for noise in (0.0, 0.1, 0.2)
    )
    if toy is data.teacher_student:
        assert np.array_equal(x0, x1)
        assert 0 < np.mean(y0 != y1) <= np.mean(y0 != y2)
        return
    a, b = (y1 - y0, y2 - y0) if toy is data.sinusoid else (x1 - x0, x2 - x0)
    np.testing.assert_allclose(b, 2 * a, atol=1e-5)
    assert abs(float(jnp.std(a)) - 0.1) < 0.015


def test_moons_lie_on_their_circles():
    xs, ys = data.moons(300, noise=0.0, key=jr.key(0))
    centre = jnp.where(ys[:, None] == 0, jnp.array([[0.0, 0.0]]), jnp.array([[1.0, 0.5]]))
    np.testing.assert_allclose(jnp.linalg.norm(xs - centre, axis=1), 1.0, atol=1e-5)
    assert bool(jnp.all(jnp.where(ys == 0, xs[:, 1] >= 0, xs[:, 1] <= 0.5)))


def test_no_examples_are_refused():
    with pytest.raises(ValueError, match="n must be an integer >= 1; got 0"):
        data.moons(0, key=jr.key(0))
