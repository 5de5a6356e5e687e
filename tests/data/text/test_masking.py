"""Gaps: what can never happen, and how often the rest happens (each test of chance errs once in
1,000 seeds).
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from thetax.data import WordPiece, mask_tokens

SPECIAL, MASK, SIZE = (0, 1, 5, 6, 11), 5, 12  # not in one run, and the last token among them
ORDINARY = [token for token in range(SIZE) if token not in SPECIAL]
gaps = jax.jit(
    lambda tokens, key: mask_tokens(
        tokens, mask_id=MASK, vocab_size=SIZE, special_ids=SPECIAL, key=key
    )
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-1, SIZE - 1), min_size=9, max_size=9), st.integers(0, 10**6))
def test_what_is_never_touched(row, seed):
    tokens = np.array(row, np.int32)
    inputs, targets = gaps(jnp.asarray(tokens), jr.key(seed))
    inputs = np.asarray(inputs)
    targets = np.asarray(targets)
    hidden = targets >= 0
    assert set(np.array(row)[hidden]) <= set(ORDINARY)
    np.testing.assert_array_equal(targets, np.where(hidden, tokens, -1))
    np.testing.assert_array_equal(np.where(hidden, tokens, inputs), tokens)
    assert np.isin(inputs[hidden], [MASK, *ORDINARY]).all()
    assert inputs.dtype == targets.dtype == tokens.dtype


def test_how_often():
    """2·10⁵ tokens: the share, the three fates (one other token in 7 is the old one), and which
    others come.
    """
    tokens = jnp.asarray(np.random.default_rng(0).choice(ORDINARY, 200_000).astype(np.int32))
    inputs, targets = map(np.asarray, gaps(tokens, jr.key(3)))
    tokens = np.asarray(tokens)
    chosen = targets >= 0
    assert binomtest(int(chosen.sum()), len(tokens), 0.15).pvalue > 1e-3
    was = tokens[chosen]
    now = inputs[chosen]
    fates = [np.sum(now == MASK), np.sum((now != MASK) & (now != was)), np.sum(now == was)]
    expected = np.array([0.8, 0.1 * 6 / 7, 0.1 + 0.1 / 7]) * chosen.sum()
    assert chisquare(fates, expected).pvalue > 1e-3
    moved = (now != MASK) & (now != was)
    pairs = np.array(
        [[np.sum(moved & (was == a) & (now == b)) for b in ORDINARY if b != a] for a in ORDINARY]
    )
    assert (
        chisquare(pairs.ravel(), np.repeat(pairs.sum(axis=1) / 6, 6)).pvalue > 1e-3
    )  # uniform, whatever was there
    assert (
        chisquare(
            [np.sum(was == a) for a in ORDINARY],
            [0.15 * np.sum(tokens == a) for a in ORDINARY],
            sum_check=False,
        ).pvalue
        > 1e-3
    )


def test_places_are_independent():
    """Neighbours are chosen together as often as chance has it, and another key chooses anew."""
    tokens = jnp.full(100_000, ORDINARY[0])
    chosen = np.asarray(gaps(tokens, jr.key(0))[1] >= 0)
    assert binomtest(int(np.sum(chosen[::2] & chosen[1::2])), 50_000, 0.15**2).pvalue > 1e-3
    again = np.asarray(gaps(tokens, jr.key(1))[1] >= 0)
    assert binomtest(int(np.sum(chosen & again)), 100_000, 0.15**2).pvalue > 1e-3


def test_shapes_keys_and_a_vocabulary():
    known = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    settings = {
        "mask_id": known.piece_id("[MASK]"),
        "vocab_size": len(known),
        "special_ids": known.special_ids,
    }
    tokens = jnp.asarray(np.array([[2, 5, 6, 3], [2, 6, 3, -1]], np.int32))
    keys = jr.split(jr.key(7), 2)
    made = jax.jit(lambda row, key: mask_tokens(row, **settings, mask_rate=1.0, key=key))
    inputs, targets = jax.vmap(made)(tokens, keys)
    np.testing.assert_array_equal(targets, [[-1, 5, 6, -1], [-1, 6, -1, -1]])
    for i in range(2):
        one = made(tokens[i], keys[i])
        np.testing.assert_array_equal(inputs[i], one[0])
        np.testing.assert_array_equal(targets[i], one[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask_rate": 1.5}, "mask_rate must be a probability; got 1.5"),
        (
            {"mask_id": 3},
            r"mask_id must be one of special_ids; got mask_id=3, special_ids=\[0, 4\]",
        ),
        (
            {"special_ids": (4, 9)},
            r"must lie between 0 and 4 and leave at least one ordinary token; got \[4, 9\]",
        ),
        ({"special_ids": (0, 1, 2, 3, 4)}, "leave at least one ordinary token"),
        ({"special_ids": ()}, "mask_id must be one of special_ids"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        mask_tokens(
            jnp.array([1, 2]),
            **{"mask_id": 4, "vocab_size": 5, "special_ids": (0, 4), "key": jr.key(0)} | settings,
        )
