"""The error by which the trials of a study are compared."""

from types import SimpleNamespace

import numpy as np
import pytest

from thetax.train.tuning.study import _mean_error


@pytest.mark.usefixtures("unchecked")
def test_the_error_of_a_candidate_is_the_mean_at_the_epoch():
    candidate = SimpleNamespace(
        errors=[np.array([1.0, 3.0]), np.array([2.0, 4.0]), np.array([np.nan, 1.0])]
    )
    assert [_mean_error(candidate, epoch) for epoch in (1, 2, 3)] == [2.0, 3.0, float("inf")]
