"""Aggregations of sets against NumPy, with and without padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from thetax.core import predict
from thetax.data import PointSet, stack_sets
from thetax.layers import SET_AGGREGATIONS, aggregate_set

IN_NUMPY = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "logsumexp": logsumexp,
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("how", SET_AGGREGATIONS)
def test_a_padded_batch_equals_its_sets(how):
    sets = [normal(n, 3, seed=n) for n in (1, 2, 5, 9)]
    batch = stack_sets(sets)
    garbage = PointSet(jnp.where(batch.mask[..., None], batch.points, 1e9), batch.mask)
    expected = np.stack([IN_NUMPY[how](x, axis=0) for x in sets])
    for xs in (batch, garbage):
        found = predict(lambda x: aggregate_set(x, how), xs)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["sum", "max", "min", "mean"])
@pytest.mark.parametrize("size", [6, 7, 16, 100])
def test_padding_changes_no_bit(how, size):
    x = normal(6, 5)
    exact = PointSet.pad(x)
    padded = PointSet.pad(x, size=size)
    f = jax.jit(lambda x: aggregate_set(x, how))
    assert np.asarray(f(exact)).tobytes() == np.asarray(f(padded)).tobytes()


@pytest.mark.parametrize("how", SET_AGGREGATIONS)
def test_the_empty_set_gives_zero_with_finite_gradients(how):
    assert aggregate_set(jnp.zeros((0, 2)), how).tolist() == [0.0, 0.0]
    empty = PointSet(jnp.ones((3, 2)), jnp.zeros(3, bool))
    value = lambda points: aggregate_set(empty.with_points(points), how).sum()
    assert aggregate_set(empty, how).tolist() == [0.0, 0.0]
    assert jax.grad(value)(empty.points).tolist() == [[0.0, 0.0]] * 3


def test_logsumexp_does_not_overflow():
    x = jnp.array([[1000.0], [1001.0]])
    expected = 1001 + np.log1p(np.exp(-1.0))
    assert float(aggregate_set(x, "logsumexp")[0]) == pytest.approx(expected)
    assert np.isfinite(jax.grad(lambda x: aggregate_set(x, "logsumexp").sum())(x)).all()


def test_several_are_concatenated():
    x = jnp.asarray(normal(4, 2))
    both = aggregate_set(x, ("min", "sum"))
    np.testing.assert_array_equal(both[:2], aggregate_set(x, "min"))
    np.testing.assert_array_equal(both[2:], aggregate_set(x, "sum"))


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="aggregations are sum, mean"):
        aggregate_set(jnp.ones((2, 2)), "avg")
    with pytest.raises(ValueError, match=r"expected a set of shape \(n, d\).*got \(3,\)"):
        aggregate_set(jnp.ones(3))
    with pytest.raises(ValueError, match="got a batch"):
        aggregate_set(jnp.ones((2, 3, 4)))
    with pytest.raises(ValueError, match="floats; got int"):
        aggregate_set(jnp.ones((2, 3), int))
