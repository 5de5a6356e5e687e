"""The rule of one standard error on curves whose answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.train import choose_simplest


def curve(means, spread, folds=4):
    """Errors with these means, and the standard error spread / √folds."""
    each = np.linspace(-1, 1, folds)
    return np.asarray(means)[:, None] + spread * (each / each.std(ddof=1))[None]


def test_the_simplest_within_one_error():
    """The least mean is 1, its error 0.1: 1.09 is as good, 1.11 is not."""
    found = choose_simplest(curve([2.0, 1.11, 1.09, 1.0, 1.05], 0.2))
    assert (found.chosen, found.best) == (2, 3)
    assert np.isclose(found.error, 0.1).all()
    assert np.isclose(found.limit, 1.1)
    assert choose_simplest(curve([2.0, 1.11, 1.09, 1.0, 1.05], 0.2), within=0).chosen == 3
    assert choose_simplest(curve([2.0, 1.11, 1.09, 1.0, 1.05], 0.2), within=2).chosen == 1


@given(seed=st.integers(0, 1000), within=st.floats(0, 3))
def test_never_more_complex_and_never_worse_than_the_limit(seed, within):
    scores = np.random.default_rng(seed).normal(size=(6, 5))
    found = choose_simplest(scores, within=within)
    assert found.chosen <= found.best
    assert found.mean[found.chosen] <= found.limit
    assert (found.mean[: found.chosen] > found.limit).all()


@pytest.mark.parametrize(
    ("scores", "settings", "said"),
    [
        (np.ones((3, 1)), {}, "no standard error"),
        (np.ones(3), {}, "candidates, folds"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), {}, "candidate 1 has NaN"),
        (np.ones((2, 2)), {"within": -1.0}, "negative"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input(scores, settings, said):
    with pytest.raises(ValueError, match=said):
        choose_simplest(scores, **settings)
