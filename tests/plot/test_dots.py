"""Tests of DotPlot and of the figure of permutation importance."""

import numpy as np
import pytest

from thetax.explain.predictions import PermutationImportance
from thetax.plot import DotColumn, DotPlot, draw


def test_dots_are_at_their_values():
    one = DotColumn(
        "error",
        {"linear": (5.0, 0.5), "network": (4.0, 0.25)},
        vertical_lines={"null": 9.0},
        title="A",
    )
    two = DotColumn("seconds", {"linear": (1.0, 0.0), "network": (8.0, 0.0)})
    axes = draw(DotPlot(one, two)).axes
    assert [axis.get_xlabel() for axis in axes] == ["error", "seconds"]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["linear", "network"]
    dots = [line for line in axes[0].lines if line.get_marker() == "o"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in dots] == [(5.0, 0), (4.0, 1)]
    assert [text.get_text() for text in axes[0].texts] == ["null"]
    (start, end) = axes[0].collections[1].get_segments()[0][:, 0]
    assert (start, end) == (3.75, 4.25)


def test_columns_must_have_the_same_names():
    with pytest.raises(ValueError, match="the same names in the same order"):
        DotPlot(DotColumn("a", {"x": (1.0, 0.0)}), DotColumn("b", {"y": (1.0, 0.0)}))
    with pytest.raises(ValueError, match="at least one DotColumn"):
        DotPlot()


def test_importance_shows_the_largest_features_first():
    rise = np.arange(20.0)
    seen = PermutationImportance(rise, np.ones(20), 0.5, tuple(f"f{j}" for j in range(20)))
    labels = [label.get_text() for label in draw(seen).axes[0].get_yticklabels()]
    assert labels == [f"f{j}" for j in range(19, 4, -1)]
