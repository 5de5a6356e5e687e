"""Properties of k-fold splits; cross-validation against scikit-learn's."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.models import least_squares
from thetax.train import cross_validate, k_folds, squared_error


@pytest.mark.slow
@given(
    n=st.integers(2, 40), k=st.integers(2, 40), repeats=st.integers(1, 3), seed=st.integers(0, 99)
)
def test_folds_partition_the_examples(n, k, repeats, seed):
    if k > n:
        with pytest.raises(ValueError, match="cannot split"):
            k_folds(n, k, key=jr.key(seed))
        return
    found = k_folds(n, k, key=jr.key(seed), repeats=repeats)
    assert len(found) == k * repeats
    for r in range(repeats):
        once = found[r * k : (r + 1) * k]
        assert sorted(np.concatenate([fold.valid for fold in once])) == list(range(n))
        assert max(len(fold.valid) for fold in once) - min(len(fold.valid) for fold in once) <= 1
    assert all(sorted([*fold.train, *fold.valid]) == list(range(n)) for fold in found)


@pytest.mark.slow
@given(labels=st.lists(st.integers(0, 3), min_size=6, max_size=60), k=st.integers(2, 6))
def test_every_class_is_split_evenly(labels, k):
    labels = np.array(labels)
    found = k_folds(len(labels), k, key=jr.key(0), stratify=labels)
    for kind in np.unique(labels):
        counts = [int(np.sum(labels[fold.valid] == kind)) for fold in found]
        assert max(counts) - min(counts) <= 1
    sizes = [len(fold.valid) for fold in found]
    assert max(sizes) - min(sizes) <= 1


def test_repeats_are_shuffled_anew_and_depend_on_the_key():
    found = k_folds(30, 3, key=jr.key(0), repeats=2)
    assert any(not np.array_equal(a.valid, b.valid) for a, b in zip(found[:3], found[3:]))
    again = k_folds(30, 3, key=jr.key(0), repeats=2)
    assert all(np.array_equal(a.valid, b.valid) for a, b in zip(found, again))
    other = k_folds(30, 3, key=jr.key(1), repeats=2)
    assert any(not np.array_equal(a.valid, b.valid) for a, b in zip(found, other))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"n": 5, "k": 6}, "cannot split 5 examples into 6 parts. Choose k between 2 and 5"),
        ({"n": 5, "k": 1}, "into 1 parts"),
        ({"n": 1, "k": 2}, "At least two examples"),
        ({"n": 5, "k": 2, "repeats": 0}, "repeats must be an integer >= 1"),
        ({"n": 5, "k": 2, "stratify": np.zeros(4)}, "one label for each of the 5"),
    ],
)
def test_folds_refuse(asked, says):
    with pytest.raises(ValueError, match=says):
        k_folds(asked.pop("n"), asked.pop("k"), key=jr.key(0), **asked)


@pytest.mark.slow
def test_cross_validation_is_that_of_scikit_learn():
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import cross_val_score

    chance = np.random.default_rng(0)
    xs = chance.normal(size=(41, 3)).astype(np.float32)
    ys = (xs @ [1.0, -2.0, 0.5] + 0.3 * chance.normal(size=41)).astype(np.float32)
    parts = k_folds(41, 5, key=jr.key(0), repeats=2)
    learn = lambda train, key: least_squares(*map(jnp.asarray, train))
    found = cross_validate(learn, (xs, ys), parts, metric=squared_error, key=jr.key(1))
    splits = [(part.train, part.valid) for part in parts]
    each = -cross_val_score(LinearRegression(), xs, ys, cv=splits, scoring="neg_mean_squared_error")
    np.testing.assert_allclose(found.fold_errors, each / 2, rtol=1e-4)
    assert found.mean == pytest.approx(found.fold_errors.mean())
    assert found.standard_error == pytest.approx(np.std(found.fold_errors, ddof=1) / np.sqrt(10))


def test_no_folds_are_refused():
    with pytest.raises(ValueError, match="folds is empty"):
        cross_validate(
            lambda train, key: None, (np.zeros((2, 1)),), [], metric=squared_error, key=jr.key(0)
        )
