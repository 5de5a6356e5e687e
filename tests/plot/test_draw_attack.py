"""Tests of the figures of attacks: both themes, images and tabular data, and no successes."""

import numpy as np
import pytest

from thetax.attack import BoundaryDistances, DistancesByNorm, LeastRobust, LossSurface
from thetax.certify import RobustnessCurves
from thetax.plot import DARK, LIGHT, draw

rng = np.random.default_rng(0)
far = {
    "Linf": np.append(rng.uniform(0.01, 0.2, 30), [0.0, np.inf]),
    "L2": np.append(rng.uniform(1, 2, 30), [0.0, 1.5]),
}
none = {"Linf": np.full(4, np.inf)}
side = np.linspace(-2, 2, 21)
bowl = np.exp(side)[None] + 0.1 * side[:, None] ** 2


def moved(x, classes=("a", "a very long name of a class"), features=()):
    m = len(x)
    pair = np.array([[0], [1]]).repeat(len(x), axis=1)
    found = BoundaryDistances(
        np.linspace(0.1, 0.2, m),
        x + rng.normal(size=x.shape).astype(x.dtype) / 9,
        x,
        pair[0],
        pair,
        pair * 0.1 + 0.5,
    )
    return LeastRobust(found, np.arange(m), "L2", classes, features)


RESULTS = {
    "curves": RobustnessCurves(
        far, {norm: np.nan_to_num(d, posinf=0.1) / 2 for norm, d in far.items()}, "linear"
    ),
    "nothing proven": RobustnessCurves(far, {}, "refused"),
    "never wrong": RobustnessCurves(none, {}, ""),
    "distances": DistancesByNorm(far),
    "no distances": DistancesByNorm({"Linf": np.array([np.inf, 0.0])}),
    "all wrong": DistancesByNorm({"Linf": np.zeros(3)}),
    "pictures": moved(rng.uniform(size=(6, 1, 8, 8))),
    "two pictures": moved(rng.uniform(size=(2, 64)).astype(np.float32)),
    "coloured": moved(rng.uniform(size=(4, 3, 8, 8))),
    "rows": moved(
        rng.normal(size=(6, 9)), features=tuple(f"the feature number {i}" for i in range(9))
    ),
    "one short row": moved(rng.normal(size=(1, 2))),
    "nobody": moved(np.zeros((0, 4))),
    "surface": LossSurface(bowl, bowl - 2, side, 1.0, 1.0),
    "flat surface": LossSurface(np.zeros((21, 21)), -np.ones((21, 21)), side, 0.0, 1.0),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", RESULTS)
def test_figures_are_drawn_and_fit_their_labels(name, theme):
    figure = draw(RESULTS[name], theme=theme)
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    assert box.x0 > -0.02
    assert box.x1 < figure.get_figwidth() + 0.02


def test_the_figures_hold_the_numbers():
    curves = RESULTS["curves"]
    attacked, proven = draw(curves).axes[0].lines
    r = np.asarray(attacked.get_xdata())
    assert (
        np.asarray(attacked.get_ydata()).tolist() == curves.empirical_accuracy("Linf", r).tolist()
    )
    assert np.asarray(proven.get_ydata()).tolist() == curves.certified_accuracy("Linf", r).tolist()
    left, _ = draw(RESULTS["distances"]).axes
    assert sum(bar.get_height() for bar in left.patches) == 30
    assert left.lines[0].get_xdata()[0] == RESULTS["distances"].median("Linf")
    _, cuts = draw(RESULTS["surface"]).axes
    assert np.asarray(cuts.lines[1].get_ydata()).tolist() == bowl[10].tolist()


def test_the_change_is_amplified_by_the_labelled_factor():
    x = np.zeros((1, 64))
    step = np.zeros((1, 64))
    x[0, 0], step[0, 1:9] = 1.0, 0.04
    pair = np.array([[0], [1]])
    found = BoundaryDistances(np.array([0.1]), x + step, x, pair[0], pair, pair * 0.1 + 0.5)
    figure = draw(LeastRobust(found, np.arange(1), "L2", ("a", "b")))
    names = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]
    assert names == ["before", "after", "change × 25"]
    change = (
        next(axes for axes in figure.axes if axes.get_ylabel().startswith("change"))
        .images[0]
        .get_array()
    )
    assert change[0, 1, 3] == pytest.approx(25 * 0.04)
    assert change[2, 0, 3] == 0


def test_bars_name_the_features_that_change_most():
    x = np.zeros((1, 4))
    step = np.array([[0.1, -0.3, 0.2, 0.0]])
    pair = np.array([[0], [1]])
    found = BoundaryDistances(np.array([0.4]), x + step, x, pair[0], pair, pair * 0.1 + 0.5)
    (axes,) = draw(LeastRobust(found, np.arange(1), "L2", ("no", "yes"), ("p", "q", "r", "s"))).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["q", "r", "p", "s"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([-0.3, 0.2, 0.1, 0.0])
    assert axes.get_title(loc="left") == "no → yes, 0.4"
