"""The trained ResNet-50 on the photographs of ISL. Run with `pytest -m network`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thetax.data import load_arrays, read_image
from thetax.data.io.bounded_read import Blob
from thetax.models import resnet_imagenet
from thetax.models.interop.imagenet import IMAGE_SIZE, imagenet_pixels

pytestmark = pytest.mark.network


def test_pixels_are_centred():
    x = np.random.default_rng(0).random((3, 2, 2)).astype(np.float32)
    red, green, blue = 255 * x
    expected = np.stack([blue - 103.939, green - 116.779, red - 123.68])
    np.testing.assert_allclose(imagenet_pixels(jnp.asarray(x)), expected, atol=1e-4)


def test_the_photographs_are_named():
    """With the probabilities that were found by other code on the same weights."""
    model, classes = resnet_imagenet()
    judge = jax.jit(lambda model, x: jax.nn.softmax(model(x)))
    files = load_arrays("isl-photographs")
    found = {}
    for name, data in files.items():
        picture = read_image(Blob(name, data.tobytes()), image_size=IMAGE_SIZE)
        p = judge(model, jnp.asarray(picture, jnp.float32) / 255)
        found[name.split(".")[0]] = classes[int(p.argmax())], float(p.max())
    assert (len(files), len(classes)) == (5, 1000)
    for name, expected, probability in (
        ("flamingo", "flamingo", 0.914),
        ("hawk", "kite", 0.463),
        ("huey", "Lhasa", 0.67),
    ):
        assert found[name][0] == expected
        assert found[name][1] == pytest.approx(
            probability, abs=5e-3
        )  # libraries decode a JPEG to a grey level or so
