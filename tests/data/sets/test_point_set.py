"""Padded sets, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thetax.core import predict
from thetax.data import PointSet, stack_sets


def test_stack_and_map():
    sets = [np.full((n, 2), n, np.float32) for n in (1, 3, 2)]
    xs = stack_sets(sets, size=4)
    assert xs.points.shape == (3, 4, 2)
    assert xs.mask.sum(axis=1).tolist() == [1, 3, 2]
    assert (np.asarray(xs.points)[~np.asarray(xs.mask)] == 0).all()
    totals = predict(lambda x: x.points.sum(axis=0), xs)
    assert totals.tolist() == [[1, 1], [9, 9], [4, 4]]
    mixed = stack_sets([jnp.ones((2, 3)), np.ones((1, 3), np.float32)])
    assert mixed.points.dtype == jnp.float32


def test_with_points_zeroes_the_padding():
    x = PointSet.pad(np.ones((2, 3)), size=4)
    y = x.with_points(jnp.full((4, 1), 7.0))
    assert y.points.ravel().tolist() == [7.0, 7.0, 0.0, 0.0]
    assert jax.tree.structure(x) == jax.tree.structure(y)


def test_an_empty_set_can_be_padded():
    assert PointSet.pad(np.zeros((0, 2)), size=3).mask.tolist() == [False] * 3


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="do not fit into size=2"):
        PointSet.pad(np.ones((3, 2)), size=2)
    with pytest.raises(ValueError, match=r"\(n, d\).*got \(3,\).*shape \(n, 1\)"):
        PointSet.pad(np.ones(3))
    with pytest.raises(ValueError, match="finite numbers"):
        PointSet.pad(np.full((2, 2), np.nan))
    with pytest.raises(ValueError, match="empty sequence"):
        stack_sets([])
    with pytest.raises(ValueError, match="same number of features; got 2 and 3"):
        stack_sets([np.ones((1, 2)), np.ones((1, 3))])
    with pytest.raises(ValueError, match="does not fit into size=1"):
        stack_sets([np.ones((2, 2))], size=1)
    with pytest.raises(ValueError, match="row for each of the 2 rows"):
        PointSet.pad(np.ones((2, 2))).with_points(jnp.ones((3, 2)))
