"""Masks against their definition, for every pair of query and key."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thetax.layers import CAUSAL, FULL, Mask, sequence_length

T, S = 4, 6
THERE = {
    None: None,
    "keys": np.arange(S) % 3 != 1,
    "pairs": np.random.default_rng(0).random((T, S)) < 0.5,
}
CASES = list(itertools.product((None, 0, 2), (None, 0, 1), (None, 0, 4), THERE, (None, 3)))


def allowed(i, j, before, after, length, there, first):
    at = i + (first or 0)
    table = THERE[there]
    return (
        (before is None or j >= at - before)
        and (after is None or j <= at + after)
        and (length is None or j < length)
        and (table is None or bool(table[j] if table.ndim == 1 else table[i, j]))
    )


def mask_of(before, after, length, there, first):
    number = lambda n: None if n is None else jnp.array(n, jnp.int32)
    return Mask(
        before,
        after,
        number(length),
        None if there is None else jnp.asarray(THERE[there]),
        offset=number(first),
    )


@pytest.mark.usefixtures("strict")
def test_every_pair():
    for case in CASES:
        expected = [[allowed(i, j, *case) for j in range(S)] for i in range(T)]
        assert mask_of(*case).table(T, S).tolist() == expected, case


@pytest.mark.usefixtures("strict", "x64")
def test_integer_dtypes():
    """Lengths are int32, positions int64 in double precision."""
    mask = Mask(after=0, length=jnp.array(2, jnp.int32), offset=jnp.array(1, jnp.int32))
    assert mask.table(2, 3).astype(int).tolist() == [[1, 1, 0], [1, 1, 0]]


def test_allows_all():
    assert FULL.allows_all
    assert Mask(slopes=jnp.ones(2)).allows_all
    assert not any(
        mask.allows_all
        for mask in (
            CAUSAL,
            Mask(before=3),
            Mask(length=jnp.array(9)),
            Mask(allowed=jnp.ones(2, bool)),
        )
    )
    assert FULL.table(2, 3).all()


def test_bias():
    mask = Mask(slopes=jnp.array([1.0, 0.5]), offset=jnp.array(1))
    i = jnp.arange(2)[:, None]
    j = jnp.arange(4)[None]
    away = np.abs(np.arange(2)[:, None] + 1 - np.arange(4)[None])
    np.testing.assert_array_equal(mask.bias(i, j), [-away, -0.5 * away])
    assert CAUSAL.bias(i, j) is None


def test_vmap_over_masks():
    """Lengths are leaves, so masks can be batched."""
    tables = jax.vmap(lambda n: Mask(after=0, length=n).table(3, 3))(jnp.array([0, 1, 3]))
    assert tables.sum(axis=(1, 2)).tolist() == [0, 3, 6]


def test_sequence_length():
    assert [
        int(sequence_length(jnp.array(row))) for row in ([0, 3, 1], [0, -1, -1], [-1, -1, -1])
    ] == [
        3,
        1,
        0,
    ]


@pytest.mark.usefixtures("unchecked")
def test_bad_masks():
    with pytest.raises(ValueError, match="must not be negative; got -1 and None"):
        Mask(before=-1)
    with pytest.raises(ValueError, match=r"allowed must be a bool array.* got float32\(3,\)"):
        Mask(allowed=jnp.ones(3))
    with pytest.raises(ValueError, match=r"must have shape \(4,\).* got \(3,\)"):
        Mask(allowed=jnp.ones(3, bool)).check_shape("attend", 2, 4)
