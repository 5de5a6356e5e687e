r"""Convolutional networks for small images (§4.2): convolutions, pooling and a linear readout.

A stage has one or more convolutions with activations, and a max pooling that halves height and
width.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
from ...core import Model
from ...layers import (
    Activation,
    AdaptivePool,
    AveragePool,
    Chain,
    Convolution,
    Dropout,
    Initialiser,
    Linear,
    MaxPool,
    he,
    lecun,
    relu,
    tanh,
)


class CNN(eqx.Module):
    r"""Stages of 3 by 3 convolutions, adaptive average pooling to `pool_size` by `pool_size`, and a
    linear readout.

    An image must have at least `pool_size` pixels per axis after the stages, such as 28 by 28 or 32
    by 32 with two or three stages. `depth` is the number of convolutions per stage. `normalise`
    initialises a norm for each activation from its width, such as `BatchNorm.init`. `dropout`
    applies to the input of the readout. With `pool_size=1` the readout reads the global mean.

    >>> net = CNN.init((8, 16), classes=10, dropout=0.3, key=jr.key(0))
    >>> net(jnp.ones((1, 28, 28))).shape, net.head.layers[1].W.shape
    ((10,), (10, 144))
    """

    stages: tuple[Chain, ...]
    head: Chain
    pool_size: int = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        widths: Sequence[int] = (32, 64),
        *,
        classes: int,
        channels: int = 1,
        depth: int = 1,
        pool_size: int = 3,
        dropout: float = 0.0,
        normalise: Callable[[int], Model] | None = None,
        activation: Activation = relu,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "CNN":
        """Initialises a network with one stage per width."""
        if not widths or min(*widths, classes, channels, depth, pool_size) < 1:
            raise ValueError(
                "CNN: at least one width is needed, and all sizes must be >= 1; got "
                f"widths={tuple(widths)}, classes={classes}, channels={channels}, depth={depth}, "
                f"pool_size={pool_size}."
            )
        key_head, *keys = jr.split(key, 1 + len(widths))
        stages = []
        c = channels
        for m, key_stage in zip(widths, keys):
            layers: list[Callable] = []
            for key_layer in jr.split(key_stage, depth):
                layers.append(
                    Convolution.init(
                        c, m, (3, 3), bias=normalise is None, initialiser=initialiser, key=key_layer
                    )
                )
                layers += [activation] if normalise is None else [normalise(m), activation]
                c = m
            stages.append(Chain(*layers, MaxPool((2, 2))))
        readout = Linear.init(c * pool_size**2, classes, initialiser=lecun, key=key_head)
        return cls(tuple(stages), Chain(Dropout(dropout), readout), pool_size)

    def __call__(
        self, x: Float[Array, "c h w"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " k"]:
        first, *rest = self.stages
        y = first(x)  # checks the shape
        self._check_size(min(x.shape[1:]))
        for stage in rest:
            y = stage(y)
        pooled = AdaptivePool((self.pool_size, self.pool_size))(y)
        return self.head(pooled.ravel(), key=key)

    def _check_size(self, size: int) -> None:
        """Raises `ValueError` if the image is too small for the stages."""
        n_stages = len(self.stages)
        n_halvings = size.bit_length() - 1
        if n_halvings < n_stages:
            raise ValueError(
                f"CNN: {size} pixels can be halved {n_halvings} times, but there are {n_stages} "
                "stages. Use fewer widths, or larger images."
            )
        if size >> n_stages < self.pool_size:
            raise ValueError(
                f"CNN: expected at least pool_size={self.pool_size} pixels after the stages; got "
                f"{size >> n_stages}, {size} halved {n_stages} times. Use fewer widths, larger "
                "images, or a smaller pool_size."
            )


class LeNet(eqx.Module):
    r"""LeNet-5 (§4.2; LeCun et al. 1998): two 5 by 5 convolutions with 2 by 2 average pooling, and
    three dense layers.

    It reads images of 28 by 28, which the first convolution pads with zeros, or of 32 by 32 with
    `image_size=32`. It has 61,706 parameters for ten classes of grey images.

    Departs: in 1998 the second convolution read only some of the channels, the pooling had weights,
    and the last layer computed distances.

    >>> LeNet.init(classes=10, key=jr.key(0))(jnp.ones((1, 28, 28))).shape
    (10,)
    """

    body: Chain

    @classmethod
    def init(
        cls,
        *,
        classes: int,
        channels: int = 1,
        image_size: int = 28,
        activation: Activation = tanh,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "LeNet":
        """Initialises the network."""
        if image_size not in (28, 32):
            raise ValueError(
                f"LeNet: image_size must be 28 or 32; got {image_size}. Use CNN for other sizes."
            )
        expect_count("LeNet", classes=classes, channels=channels)
        k1, k2, k3, k4, k5 = jr.split(key, 5)
        boundary = "same" if image_size == 28 else "valid"
        conv1 = Convolution.init(
            channels, 6, (5, 5), boundary=boundary, initialiser=initialiser, key=k1
        )
        conv2 = Convolution.init(6, 16, (5, 5), boundary="valid", initialiser=initialiser, key=k2)
        features = [
            conv1,
            activation,
            AveragePool((2, 2)),
            conv2,
            activation,
            AveragePool((2, 2)),
            jnp.ravel,
        ]
        dense = [
            Linear.init(16 * 5 * 5, 120, initialiser=initialiser, key=k3),
            activation,
            Linear.init(120, 84, initialiser=initialiser, key=k4),
        ]
        return cls(
            Chain(
                *features,
                *dense,
                activation,
                Linear.init(84, classes, initialiser=initialiser, key=k5),
            )
        )

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, " k"]:
        return self.body(x)
