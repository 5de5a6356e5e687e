"""Masks against their definition, pair by pair."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thetax.layers import ALL, CAUSAL, Mask, written

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
        first=number(first),
    )


@pytest.mark.usefixtures("strict")
def test_every_pair_of_every_mask():
    for case in CASES:
        expected = [[allowed(i, j, *case) for j in range(S)] for i in range(T)]
        assert mask_of(*case).table(T, S).tolist() == expected, case


@pytest.mark.usefixtures("strict", "x64")
def test_places_of_another_kind_of_number():
    """Lengths are int32, places int64 in double precision."""
    mask = Mask(after=0, length=jnp.array(2, jnp.int32), first=jnp.array(1, jnp.int32))
    assert mask.table(2, 3).astype(int).tolist() == [[1, 1, 0], [1, 1, 0]]


def test_open_is_no_mask():
    assert ALL.open
    assert Mask(fade=jnp.ones(2)).open
    assert not any(
        mask.open
        for mask in (
            CAUSAL,
            Mask(before=3),
            Mask(length=jnp.array(9)),
            Mask(there=jnp.ones(2, bool)),
        )
    )
    assert ALL.table(2, 3).all()


def test_the_bias_falls_with_the_distance():
    mask = Mask(fade=jnp.array([1.0, 0.5]), first=jnp.array(1))
    i = jnp.arange(2)[:, None]
    j = jnp.arange(4)[None]
    away = np.abs(np.arange(2)[:, None] + 1 - np.arange(4)[None])
    np.testing.assert_array_equal(mask.bias(i, j), [-away, -0.5 * away])
    assert CAUSAL.bias(i, j) is None


def test_a_mask_can_be_mapped():
    """Lengths are leaves: a batch of masks is one mask."""
    tables = jax.vmap(lambda n: Mask(after=0, length=n).table(3, 3))(jnp.array([0, 1, 3]))
    assert tables.sum(axis=(1, 2)).tolist() == [0, 3, 6]


def test_written():
    assert [int(written(jnp.array(row))) for row in ([0, 3, 1], [0, -1, -1], [-1, -1, -1])] == [
        3,
        1,
        0,
    ]


@pytest.mark.usefixtures("unchecked")
def test_bad_masks():
    with pytest.raises(
        ValueError, match="before and after count places and are not negative; got -1 and None"
    ):
        Mask(before=-1)
    with pytest.raises(ValueError, match=r"there must be bool.* got float32\(3,\)"):
        Mask(there=jnp.ones(3))
    with pytest.raises(ValueError, match=r"one entry for each of the 4 keys, \(4,\).* got \(3,\)"):
        Mask(there=jnp.ones(3, bool)).expect("attend", 2, 4)
