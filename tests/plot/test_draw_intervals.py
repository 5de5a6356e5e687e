"""Tests of the figure of prediction intervals."""

import numpy as np
import pytest

from thetax.explain import interval_coverage
from thetax.plot import draw


def test_predictions_and_coverage():
    found = interval_coverage(
        np.zeros(5), np.ones(5), np.array([0.1, -0.4, 3.0, 1.0, -2.5]), levels=(0.2, 0.8)
    )
    left, right = draw(found).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "inside: 3",
        "outside: 2",
    ]
    bars = [line.get_xydata() for line in right.lines if len(line.get_xdata()) == 2]
    assert any(
        bar == pytest.approx(np.array([[0.2, found.coverage[0]], [0.8, found.coverage[1]]]))
        for bar in bars
    )


def test_all_targets_inside_their_intervals():
    left, _ = draw(interval_coverage(np.zeros(3), np.ones(3), np.array([0.1, 0.2, 0.3]))).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["inside: 3"]
