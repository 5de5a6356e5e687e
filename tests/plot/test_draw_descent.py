"""Tests of the figures of optimisation."""

import numpy as np
import pytest

from thetax import explain
from thetax.plot import draw

side = np.linspace(-1, 1, 9)


def test_the_landscape_marks_the_model_and_its_loss():
    found = explain.loss_surface.LossLandscape(
        1 + side[:, None] ** 2 + side**2, side, side, 1.0, path=np.array([[0.5, 0.5], [0.0, 0.0]])
    )
    (axes,) = draw(found).axes
    path, centre = axes.lines
    assert path.get_xydata().tolist() == [[0.5, 0.5], [0.0, 0.0]]
    assert centre.get_xydata().tolist() == [[0.0, 0.0]]
    assert axes.get_title(loc="left") == "loss"
    assert any("θ: 1" in text.get_text() for text in axes.texts)


def test_a_wide_range_of_losses_has_logarithmic_levels():
    found = explain.loss_surface.LossLandscape(
        np.exp(9 * side[:, None] ** 2 + side**2), side, side, 1.0
    )
    assert "logarithmic" in draw(found).axes[0].get_title(loc="left")


def test_a_landscape_without_a_finite_loss_raises():
    with pytest.raises(ValueError, match="no loss of the landscape is finite"):
        draw(explain.loss_surface.LossLandscape(np.full((9, 9), np.nan), side, side, np.nan))


@pytest.mark.parametrize(
    ("gap", "scale", "said"),
    [
        (0.5 ** np.arange(20.0), "linear", "ρ = 0.5"),
        (1 / np.arange(1.0, 40) ** 2, "log", "1/t^"),
    ],
)
def test_rates_are_in_the_legend(gap, scale, said):
    promised = {"a bound": 2 * gap}
    found = explain.loss_surface.ConvergenceRates(
        {"descent": explain.fit_convergence_rate(gap[1:], times=np.arange(1, len(gap)))},
        {"descent": gap},
        promised,
    )
    (axes,) = draw(found).axes
    assert axes.get_xscale() == scale
    measured, bound = axes.lines
    assert measured.get_ydata().tolist() == gap.tolist()
    assert bound.get_ydata().tolist() == (2 * gap).tolist()
    assert said in axes.get_legend().get_texts()[0].get_text()


def test_the_fit_of_the_training_loss_is_drawn():
    found = explain.training_convergence(
        [4.0, 2.0, 1.0], explain.loss_surface.Smoothness(1.0, np.ones(1))
    )
    losses, fit = draw(found).axes[0].lines
    assert losses.get_ydata().tolist() == [4.0, 2.0, 1.0]
    assert fit.get_ydata() == pytest.approx([4.0, 2.0, 1.0])


def test_methods_have_distinct_styles_and_bounds_the_colour_of_their_method():
    names = ("descent", "heavy ball", "Nesterov", "AdaGrad", "Adam", "RMSProp")
    gaps = {name: 0.5 ** (np.arange(20.0) / (i + 1)) for i, name in enumerate(names)}
    decays = {name: explain.fit_convergence_rate(gap) for name, gap in gaps.items()}
    promised = {"descent 1/t": 2 * gaps["descent"], "Nesterov 1/t²": 2 * gaps["Nesterov"]}
    lines = draw(explain.loss_surface.ConvergenceRates(decays, gaps, promised)).axes[0].lines
    assert len({(line.get_color(), str(line._dash_pattern)) for line in lines}) == 8
    assert [line.get_color() for line in lines[6:]] == [lines[0].get_color(), lines[2].get_color()]
    few = {name: gaps[name] for name in ("descent", "Adam")}
    assert (
        len(draw(explain.loss_surface.ConvergenceRates(decays, few, promised)).axes[0].lines) == 3
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (explain.loss_surface.Smoothness, ", a lower"),
        (explain.loss_surface.GradientDominance, ", an upper"),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_ticks_are_integers_and_bounds_are_named(kind, words, count):
    (axes,) = draw(kind(1.0, np.ones(count))).axes
    assert words in axes.get_title(loc="left")
    assert [tick for tick in axes.get_xticks() if 0.5 <= tick <= count + 0.5] == list(
        range(1, count + 1)
    )


def test_the_loss_label_has_a_background():
    (axes,) = draw(
        explain.loss_surface.LossLandscape(1 + side[:, None] ** 2 + side**2, side, side, 1.0)
    ).axes
    (label,) = (text for text in axes.texts if "θ" in text.get_text())
    assert label.get_bbox_patch() is not None
