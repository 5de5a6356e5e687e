"""The rule of one standard error on curves whose answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.train import one_standard_error_rule


def curve(means, spread, folds=4):
    """Errors with these means, and the standard error spread / √folds."""
    each = np.linspace(-1, 1, folds)
    return np.asarray(means)[:, None] + spread * (each / each.std(ddof=1))[None]


def test_the_simplest_within_one_error():
    """The least mean is 1, its error 0.1: 1.09 is as good, 1.11 is not."""
    found = one_standard_error_rule(curve([2.0, 1.11, 1.09, 1.0, 1.05], 0.2))
    assert (found.selected, found.best) == (2, 3)
    assert np.isclose(found.standard_error, 0.1).all()
    assert np.isclose(found.threshold, 1.1)
    assert one_standard_error_rule(curve([2.0, 1.11, 1.09, 1.0, 1.05], 0.2), within=0).selected == 3
    assert one_standard_error_rule(curve([2.0, 1.11, 1.09, 1.0, 1.05], 0.2), within=2).selected == 1


@given(seed=st.integers(0, 1000), within=st.floats(0, 3))
def test_never_more_complex_and_never_worse_than_the_limit(seed, within):
    scores = np.random.default_rng(seed).normal(size=(6, 5))
    found = one_standard_error_rule(scores, within=within)
    assert found.selected <= found.best
    assert found.mean[found.selected] <= found.threshold
    assert (found.mean[: found.selected] > found.threshold).all()


@pytest.mark.parametrize(
    ("scores", "settings", "said"),
    [
        (np.ones((3, 1)), {}, "no standard error"),
        (np.ones(3), {}, "candidates, folds"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), {}, "candidate 1 has a NaN error"),
        (np.ones((2, 2)), {"within": -1.0}, "within.* must be >= 0; got -1.0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input(scores, settings, said):
    with pytest.raises(ValueError, match=said):
        one_standard_error_rule(scores, **settings)
