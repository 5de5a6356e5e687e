"""Arrays made ready: parts that make up the whole, one scale from the training part, bad data
refused.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetax.data import Standardise, check, split


@settings(max_examples=25, deadline=None)
@given(
    n=st.sampled_from([2, 3, 7, 20, 60]),
    fraction=st.floats(0.0, 1.0),
    classes=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_parts_are_disjoint_and_cover_all_examples(n, fraction, classes, seed):
    xs = np.arange(n)
    ys = np.random.default_rng(seed).integers(0, classes, n)
    if not 0 < round(fraction * n) < n:
        with pytest.raises(
            ValueError, match=rf"got fraction={fraction}, which puts \d+ of {n} examples"
        ):
            split((xs, ys), fraction, key=jr.key(seed))
        return
    for by in (None, ys):
        (a, ya), (b, yb) = split((xs, ys), fraction, key=jr.key(seed), stratify=by)
        assert len(a) == round(fraction * n)
        assert sorted([*a, *b]) == list(range(n))
        np.testing.assert_array_equal(ya, ys[a])
        np.testing.assert_array_equal(yb, ys[b])
    shares = np.bincount(ya, minlength=classes) - len(a) / n * np.bincount(ys, minlength=classes)
    assert np.abs(shares).max() < 1  # within one of the exact proportion


def test_split_is_a_function_of_the_key_and_shuffles():
    xs = np.arange(100)
    first, again, other = (split(xs, 0.5, key=jr.key(seed))[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.tolist() != other.tolist()
    assert first.tolist() != sorted(first.tolist())
    ys = np.repeat([0, 1], 50)
    part, _ = split(ys, 0.5, key=jr.key(0), stratify=ys)
    assert part[:25].tolist() != [0] * 25  # classes stay mixed in the order


def test_split_keeps_structure_and_kind():
    data = {"x": jnp.ones((10, 3)), "y": np.zeros(10)}
    train, test = split(data, 0.8, key=jr.key(0))
    assert isinstance(train["x"], jax.Array)
    assert isinstance(train["y"], np.ndarray)
    assert (train["x"].shape, test["y"].shape) == ((8, 3), (2,))


def test_split_needs_arrays_of_one_length():
    with pytest.raises(
        ValueError, match="split: all arrays must have the same number of examples; got 3 and 4"
    ):
        split((np.zeros(3), np.zeros(4)), 0.5, key=jr.key(0))
    with pytest.raises(ValueError, match="got 3 and 4"):
        split(np.zeros(3), 0.5, key=jr.key(0), stratify=np.zeros(4))


def test_standardise_on_the_part_it_was_fitted_on():
    xs = np.random.default_rng(0).normal(5.0, 3.0, (500, 4)).astype(np.float32)
    scale = Standardise.fit(xs)
    zs = scale(xs)
    np.testing.assert_allclose(zs.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(zs.std(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(scale.inverse(zs), xs, rtol=1e-4, atol=1e-4)
    assert zs.dtype == np.float32


def test_standardise_leaves_constant_features_finite():
    xs = np.full((7, 2), 0.1, np.float32)
    xs[:, 1] = np.arange(7)
    scale = Standardise.fit(xs)
    assert scale.scale[0] == 1.0
    np.testing.assert_allclose(scale(xs)[:, 0], 0, atol=1e-7)


def test_standardise_in_jax_on_a_batch_and_on_one():
    xs = np.random.default_rng(0).uniform(size=(20, 3, 4, 4)).astype(np.float32)
    scale = Standardise.fit(xs)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        batch = jax.jit(lambda xs: scale(xs))(jnp.asarray(xs))
        one = jax.vmap(scale)(jnp.asarray(xs))
    np.testing.assert_allclose(batch, scale(xs), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one, batch, rtol=1e-4, atol=1e-5)
    assert len(jax.tree.leaves(scale)) == 2


NAN = np.array([[1.0, 2.0, 3.0], [4.0, np.nan, np.inf]])
BAD = [
    ((np.zeros((0, 3)),), {}, r"^xs: expected at least one example, but the shape is \(0, 3\)"),
    ((np.zeros((3, 0)),), {}, r"^xs: expected at least one example, but the shape is \(3, 0\)"),
    ((3.0,), {}, r"^xs: expected at least one example, but the shape is \(\)"),
    ((NAN,), {}, r"^xs: expected finite numbers, but row 1, column 1 is nan\. Drop or impute"),
    ((np.array([[1.0, -np.inf]]),), {}, r"row 0, column 1 is -inf"),
    ((jnp.asarray(NAN),), {}, r"row 1, column 1 is nan"),
    ((NAN.reshape(2, 3, 1),), {}, r"row 1, index \(1, 0\) is nan"),
    ((np.ones(2), np.array([1.0, np.inf])), {}, r"^ys: expected finite numbers, but row 1 is inf"),
    ((np.array([["a", "b"]]),), {}, r"^xs: expected numbers, but the dtype is <U1"),
    ((np.array([1, None]),), {}, r"^xs: expected numbers, but the dtype is object"),
    (([[1, 2], [3]],), {}, r"^xs: expected rows of one length"),
    (
        (np.ones(3), np.ones(2)),
        {},
        r"^xs and ys: expected one y for each x, but there are 3 xs and 2 ys",
    ),
    (
        (np.ones(2), np.array([0.0, 1.0])),
        {"classes": 2},
        r"^ys: expected integer labels from 0 to 1, but the dtype",
    ),
    (
        (np.ones(2), np.array([[0], [1]])),
        {"classes": 2},
        r"^ys: expected one label per example, shape \(2,\)",
    ),
    (
        (np.ones(2), np.array([0, 2])),
        {"classes": 2},
        r"from 0 to 1, but row 1 is 2\. Use 3 classes, or renumber",
    ),
    ((np.ones(2), np.array([-1, 0])), {"classes": 2}, r"but row 0 is -1\. Renumber the labels"),
]


@pytest.mark.parametrize(("arrays", "options", "says"), BAD)
def test_bad_data_is_told_so(arrays, options, says):
    with pytest.raises(ValueError, match=says):
        check(*arrays, **options)


def test_good_data_passes():
    check(np.ones((3, 2)))
    check([[1, 2], [3, 4]], [0.5, 1.5])
    check(jnp.ones((3, 2), jnp.bfloat16), jnp.array([0, 1, 2]), classes=3)
    check(np.ones((2, 2), np.uint8), np.array([0, 1], np.uint8), classes=2)
    check(np.array([True, False]))
