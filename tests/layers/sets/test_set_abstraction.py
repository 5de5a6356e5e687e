"""Farthest points, ball queries and set abstraction against loops in NumPy."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.data import PointSet
from thetax.layers import SetAbstraction, ball_query, farthest_points


def cloud(n, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def farthest_by_loop(x, n):
    chosen = [int(np.argmax(((x - x.mean(axis=0)) ** 2).sum(axis=1)))]
    while len(chosen) < n:
        distances = [min(((p - x[c]) ** 2).sum() for c in chosen) for p in x]
        chosen.append(int(np.argmax(distances)))
    return chosen


def neighbours_by_loop(x, centre, radius, k):
    distances = np.sqrt(((x - centre) ** 2).sum(axis=1))
    inside = np.flatnonzero(distances <= radius)
    return sorted(inside, key=lambda j: distances[j])[:k]


@pytest.mark.parametrize("n", [1, 4, 12])
def test_farthest_points(n):
    x = cloud(12)
    assert farthest_points(jnp.asarray(x), n).tolist() == farthest_by_loop(x, n)
    padded = PointSet(jnp.asarray(np.concatenate([x, 100 * cloud(3)])), jnp.arange(15) < 12)
    assert farthest_points(padded, n).tolist() == farthest_by_loop(x, n)


def test_farthest_points_do_not_depend_on_the_order():
    x, order = cloud(10), np.random.default_rng(1).permutation(10)
    found = order[np.asarray(farthest_points(jnp.asarray(x[order]), 6))]
    assert found.tolist() == farthest_points(jnp.asarray(x), 6).tolist()


def test_ball_query():
    x = cloud(20)
    neighbours, found = ball_query(jnp.asarray(x), jnp.asarray(x[:5]), radius=1.2, k=4)
    for row, here, centre in zip(neighbours, found, x[:5]):
        assert row[here].tolist() == neighbours_by_loop(x, centre, 1.2, 4)
    none = PointSet(jnp.asarray(x), jnp.zeros(20, bool))
    assert not ball_query(none, jnp.asarray(x[:2]), radius=9.0, k=3)[1].any()


@pytest.mark.parametrize("radius", [0.8, 2.0])
def test_set_abstraction_by_loop(radius):
    layer = SetAbstraction.init(5, 6, n_centres=4, radius=radius, k=3, key=jr.key(0))
    x = cloud(15, 5)
    W, b = (np.asarray(a) for a in (layer.mlp.layers[0].W, layer.mlp.layers[0].b))
    expected = []
    for c in farthest_by_loop(x[:, :3], 4):
        messages = [
            np.maximum(W @ np.concatenate([x[j, 3:], x[j, :3] - x[c, :3]]) + b, 0)
            for j in neighbours_by_loop(x[:, :3], x[c, :3], radius, 3)
        ]
        expected.append(np.concatenate([x[c, :3], np.max(messages, axis=0)]))
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-6)


def test_fewer_points_than_centres_and_neighbours():
    layer = SetAbstraction.init(3, 4, n_centres=5, radius=1.0, k=9, key=jr.key(0))
    x = cloud(3)
    assert layer(jnp.asarray(x)).shape == (5, 7)
    found = layer(PointSet.pad(x, size=6))
    assert found.mask.tolist() == [True] * 3 + [False] * 2
    assert (np.asarray(found.points)[3:] == 0).all()
    slope = jax.grad(lambda x: layer(x).sum())(jnp.zeros((3, 3)))
    assert np.isfinite(slope).all()


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    x = jnp.ones((4, 3))
    with pytest.raises(ValueError, match="radius must be > 0"):
        ball_query(x, x, radius=0.0, k=1)
    with pytest.raises(ValueError, match="k <= the number of points"):
        ball_query(x, x, radius=1.0, k=5)
    with pytest.raises(ValueError, match="the set is empty"):
        farthest_points(jnp.ones((0, 3)), 2)
    with pytest.raises(ValueError, match="radius must be > 0"):
        SetAbstraction.init(3, 4, n_centres=2, radius=-1.0, k=2, key=jr.key(0))
