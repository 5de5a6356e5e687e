"""Tests of Heatmap in both themes."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from thetax.plot import DARK, LIGHT, Heatmap, draw


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colour_is_the_sign_and_opacity_the_magnitude(theme):
    (axes,) = draw(
        Heatmap(np.array([[2.0, -1.0, 0.0]]), "key", "query", title="A"), theme=theme
    ).axes
    (picture,) = axes.images
    shown = np.asarray(picture.get_array())[0]
    assert shown[0, :3] == pytest.approx(to_rgb(theme.blue))
    assert shown[1, :3] == pytest.approx(to_rgb(theme.orange))
    assert shown[:, 3].tolist() == [1.0, 0.5, 0.0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(loc="left")) == (
        "key",
        "query",
        "A",
    )
