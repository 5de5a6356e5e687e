"""Tests of the figures of dropout."""

import numpy as np
import pytest

from thetax import explain
from thetax.plot import draw


def test_uncertainty_is_split_into_entropy_and_mutual_information():
    entropy = np.array([0.1, 0.6])
    information = np.array([0.1, 0.2])
    found = explain.predictions.MCDropout(
        np.array([[0.98, 0.02], [0.7, 0.3]]), np.ones((2, 2)), entropy, information, np.zeros(2), 4
    )
    left, right = draw(found).axes
    assert left.lines[0].get_xydata() == pytest.approx(np.array([[0.0, 0.1], [0.4, 0.2]]))
    assert sum(bar.get_height() for bar in right.containers[0]) == 2
    assert found.error == pytest.approx(np.full((2, 2), 0.5))


def test_the_penalty_is_added_to_the_objective():
    (axes,) = draw(explain.predictions.DropoutPenalty(0.3, 0.02, 0.25, 0.01, 1.0, 50)).axes
    ends = [bar.get_x() + bar.get_width() for bar in axes.containers[1]]
    assert ends == pytest.approx([1.0, 1.3, 1.25])
