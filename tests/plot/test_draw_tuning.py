"""Tests of the figures of a hyperparameter search."""

import io

import numpy as np
import pytest

from thetax.plot import DARK, LIGHT, draw
from thetax.plot.tuning import (
    ParallelCoordinates,
    ParameterImportance,
    learning_curves,
    search_progress,
)
from thetax.train import Setting, Trial


def trials(count: int, *, error=lambda i: 0.1 + 0.01 * i) -> list[Trial]:
    setting = lambda i: Setting(
        width=2 ** (3 + i % 3), learning_rate=10.0 ** (-1 - i % 4), dropout=0.1 * (i % 5)
    )
    return [
        Trial(i, setting(i), error(i), 0.01, i % 3 == 1, np.full(5, error(i)), 1.0)
        for i in range(count)
    ]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    "found", [trials(1), trials(40), trials(4, error=lambda i: 0.0)], ids=["one", "many", "perfect"]
)
def test_a_search_is_drawn(found, theme):
    for result in (
        search_progress(found),
        learning_curves(found),
        ParallelCoordinates(found),
        ParameterImportance({"learning_rate": 0.7, "width": 0.3}),
    ):
        draw(result, theme=theme).savefig(io.BytesIO(), format="png")


def test_diverged_trials_are_drawn():
    found = [*trials(5), trials(1, error=lambda i: float("inf"))[0]]
    draw(ParallelCoordinates(found)).savefig(io.BytesIO(), format="png")
    draw(search_progress(found)).savefig(io.BytesIO(), format="png")


def test_parallel_coordinates_show_the_errors():
    """On every axis the smallest value is at the bottom and the largest at the top."""
    found = trials(7)
    axes = draw(ParallelCoordinates(found)).axes[0]
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["width", "dropout", "learning_rate", "error"]
    lines = [line.get_ydata() for line in axes.lines if len(line.get_ydata()) == len(names)]
    assert len(lines) == 7
    heights = sorted(float(line[-1]) for line in lines)
    errors = np.log([trial.error for trial in found])
    np.testing.assert_allclose(heights, (errors - errors.min()) / np.ptp(errors), atol=1e-6)
