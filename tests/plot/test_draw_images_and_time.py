"""Tests of the figures of convolutional and recurrent networks."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from thetax import explain
from thetax.plot import DARK, LIGHT, draw
from thetax.plot.predictions.images import signed


def pictures(figure):
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def test_each_sign_has_a_colour_and_zero_is_transparent():
    shown = signed(np.array([[2.0, -1.0, 0.0]]), LIGHT)
    assert shown[0, :, 3].tolist() == [1.0, 0.5, 0.0]
    assert tuple(shown[0, 0, :3]) == to_rgb(LIGHT.blue)
    assert tuple(shown[0, 1, :3]) == to_rgb(LIGHT.orange)


@pytest.mark.parametrize(
    ("shape", "drawn", "says"),
    [
        ((5, 1, 3, 3), 5, "5 kernels of 3 × 3"),
        ((40, 1, 3, 3), 32, "the first 32 of 40"),
        ((4, 3, 5, 5), 4, "4 kernels of 5 × 5 on 3 channels"),
        ((2, 4, 3, 3), 8, "2 kernels of 3 × 3 on 4 channels"),
        ((2, 1, 7), 2, "2 kernels of 7"),
    ],
)
def test_filters(shape, drawn, says):
    kernels = np.random.default_rng(0).normal(size=shape)
    figure = draw(explain.attribution.Filters(kernels, "Convolution 1"), theme=DARK)
    shown = pictures(figure)
    assert len(shown) == drawn
    assert says in figure.get_suptitle()
    if shape == (5, 1, 3, 3):  # one scale for all
        strength = np.abs(kernels[:, 0]) / np.abs(kernels).max()
        assert np.stack([picture[..., 3] for picture in shown]) == pytest.approx(strength)


def test_feature_maps_show_the_example_and_the_strongest_channels():
    maps = np.zeros((10, 4, 4))
    maps[[2, 9], 1, 1] = 3.0, -5.0
    figure = draw(
        explain.attribution.FeatureMaps(
            (maps, np.ones((2, 2, 2))), ("Convolution 1", "Convolution 2"), np.eye(4)[None]
        )
    )
    shown = pictures(figure)
    assert len(shown) == 1 + 7 + 2
    assert shown[0].tolist() == np.eye(4).tolist()
    strength = [picture[1, 1, 3] for picture in shown[1:8]]
    assert sorted(strength) == pytest.approx([0] * 5 + [0.6, 1.0])
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert texts == ["Convolution 1, 4×4", "Convolution 2, 2×2"]


def test_saliency_is_drawn_beside_each_image():
    slopes = np.zeros((2, 3, 6, 6))
    slopes[0, 1, 2, 3] = -4.0
    result = explain.attribution.Saliency(
        slopes, np.random.default_rng(0).random((2, 3, 6, 6)), np.array([1, 0]), ("cat", "dog")
    )
    figure = draw(result)
    shown = pictures(figure)
    assert len(shown) == 4
    assert np.argwhere(shown[1][..., 3]).tolist() == [[2, 3]]
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["dog", "cat"]


def test_saliency_of_tabular_data_has_a_bar_per_feature():
    result = explain.attribution.Saliency(
        np.array([[1.0, -3.0], [1.0, -1.0]]), np.ones((2, 2)), np.zeros(2, int), ("a", "b")
    )
    (axes,) = draw(result).axes
    assert [bar.get_width() for bar in axes.containers[0]] == [2.0, 1.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x2", "x1"]


def test_equivariance_errors_are_drawn_for_the_last_layer_of_each_stride():
    inside = np.array([[0.0, 0.0], [1e-3, 0.0], [0.5, np.nan]])
    everywhere = np.array([[0.1, 0.2], [0.3, 0.4], [0.6, 0.7]])
    kept = np.array([1.0, 0.75])
    names = ("a", "b", "c")
    found = explain.attribution.Equivariance(
        inside, everywhere, np.array([0.1, 0.2]), kept, np.array([1, 2]), np.array([1, 1, 2]), names
    )
    figure = draw(found)
    above, below = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "b, stride 1",
        "c, stride 2",
    ]
    lines = [np.asarray(line.get_ydata()) for line in above.lines]
    assert lines[0] == pytest.approx([1e-3, 1e-7])
    assert lines[1] == pytest.approx(everywhere[1])
    assert lines[8] == pytest.approx([0.7])  # at a whole stride; no interior, so at all places
    assert [lines[i].tolist() for i in (9, 10, 11)] == [
        [0.5],
        [0.6],
        [0.5],
    ]  # between, by a line of its own
    assert (
        above.get_yticklabels()[0].get_text() == r"$\leq 10^{-7}$"
    )  # where what is exact is drawn
    assert above.get_yticks()[0] == 1e-7
    assert np.asarray(below.lines[1].get_ydata()) == pytest.approx([0, 25])


def test_jacobian_norms_are_drawn_with_their_bound():
    norms = np.array([[0.5, 0.25, 1e-30], [0.7, 0.35, 1e-30]])
    sigma = np.full((2, 3), 0.9)
    found = explain.signal.GradientsThroughTime(
        norms, sigma, sigma / 2, np.array([0.9, 0.81, 0.729]), 4, "Elman 1"
    )
    above, below = draw(found).axes
    middle, bound = (np.asarray(line.get_ydata()) for line in above.lines)
    assert middle[:2] == pytest.approx(np.sqrt(norms[0, :2] * norms[1, :2]))
    assert np.isnan(middle[2])  # too small to draw
    assert bound == pytest.approx(found.bound)
    assert np.asarray(below.lines[0].get_xdata()).tolist() == [-2, -1, 0]
    assert np.asarray(below.lines[1].get_ydata()) == pytest.approx(np.full(3, 0.45))
    assert (
        len(
            draw(
                explain.signal.GradientsThroughTime(
                    norms[:1], sigma[:1], sigma[:1], None, 4, "GRU 1"
                )
            )
            .axes[0]
            .lines
        )
        == 1
    )


def test_small_ranges_have_decimal_ticks():
    sigma = np.full((2, 3), 0.998)
    below = draw(
        explain.signal.GradientsThroughTime(sigma, sigma, sigma - 0.03, None, 4, "LRU 1")
    ).axes[1]
    low, high = below.get_ylim()
    assert [y for y in below.get_yticks() if low < y < high] == pytest.approx([0.5, 1.0])
    assert "1" in [label.get_text() for label in below.get_yticklabels()]


def test_eigenvalues_and_time_constants():
    found = explain.signal.RecurrenceEigenvalues(
        np.array([1.5j, 1.0, np.exp(-0.5), 0.0]), "the matrix U"
    )
    disk, clock = draw(found).axes
    inside = disk.lines[1]
    outside = disk.lines[2]
    assert np.asarray(inside.get_xdata()) == pytest.approx([1.0, np.exp(-0.5), 0])
    assert np.asarray(outside.get_ydata()) == pytest.approx([1.5])
    assert np.asarray(clock.lines[0].get_ydata()) == pytest.approx([2.0])
    assert clock.get_title(loc="left") == "2 of 4 do not decay"
    assert (
        not draw(explain.signal.RecurrenceEigenvalues(np.array([2.0 + 0j]), "the matrix U"))
        .axes[1]
        .lines
    )


def test_alignment_labels_both_axes_with_tokens():
    weights = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
    (axes,) = draw(
        explain.attribution.AttentionAlignment(weights, ("the", "black", "cat"), ("le", "chat"))
    ).axes
    assert np.asarray(axes.images[0].get_array())[..., 3] == pytest.approx(weights)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["the", "black", "cat"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["le", "chat"]
    assert axes.get_ylabel() == "target"


def test_a_single_epoch_is_centred():
    (axes,) = draw(explain.training_curves({"loss": np.array([2.0])})).axes
    low, high = axes.get_xlim()
    assert low < 1 < high
    assert axes.get_xticks().tolist() == [1]
    assert draw(explain.training_curves({"loss": np.array([2.0, 1.0])})).axes[0].get_xlim() == (
        1,
        2,
    )


def test_each_split_has_the_same_colour_in_all_panels():
    """A quantity of the validation set alone has the validation colour, not the first one."""
    once = np.array([2.0, 1.0])
    loss, error, rate = draw(
        explain.training_curves(
            {"train loss": once, "valid loss": once, "valid error": once, "rate": once}
        )
    ).axes
    assert [line.get_color() for line in loss.lines] == [LIGHT.blue, LIGHT.orange]
    assert error.lines[0].get_color() == LIGHT.orange
    assert [text.get_text() for text in error.get_legend().get_texts()] == ["validation"]
    assert rate.get_legend() is None
