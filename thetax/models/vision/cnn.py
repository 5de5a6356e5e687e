r"""Networks for small images (§4.2): patterns are found by convolutions, and pooling forgets where
exactly.

A stage is one convolution or several, each with its activation, and a pooling that halves height
and width; what the last stage has found is read by a linear map.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

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
    r"""Stages of convolutions of 3 by 3, one width each; then means over `pool_size` by `pool_size`
    parts, read linearly.

    The image may have any size that is at least `pool_size` after the halvings: 28 by 28 or 32 by
    32 with two or three stages. `depth` is the number of convolutions in a stage; `normalise`, a
    layer of one size such as `BatchNorm.init`, comes before each activation; `dropout` thins what
    the linear map reads. With `pool_size=1` it reads the global mean.

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
        """Draws a network with one stage for each width, for images of so many channels."""
        if not widths or min(*widths, classes, channels, depth, pool_size) < 1:
            raise ValueError(
                "CNN: needs a width for each stage, and all sizes at least 1; got "
                f"widths={tuple(widths)}, "
                f"classes={classes}, channels={channels}, depth={depth}, places={pool_size}."
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
        read = Linear.init(c * pool_size**2, classes, initialiser=lecun, key=key_head)
        return cls(tuple(stages), Chain(Dropout(dropout), read), pool_size)

    def __call__(
        self, x: Float[Array, "c h w"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " k"]:
        first, *rest = self.stages
        y = first(x)  # which refuses what is no image
        self._expect_room(min(x.shape[1:]))
        for stage in rest:
            y = stage(y)
        parts = AdaptivePool((self.pool_size, self.pool_size))(y)
        return self.head(parts.ravel(), key=key)

    def _expect_room(self, side: int) -> None:
        """Refuses an image too small for the halvings."""
        stages = len(self.stages)
        times = side.bit_length() - 1
        cure = "take fewer widths, or larger images"
        if times < stages:
            raise ValueError(
                f"CNN: {side} pixels can be halved {times} times, but there are {stages} stages; "
                f"{cure}."
            )
        if (left := side >> stages) < self.pool_size:
            raise ValueError(
                f"CNN: {side} pixels halved {stages} times are {left}, but got "
                f"places={self.pool_size}; {cure}, or fewer places."
            )


class LeNet(eqx.Module):
    r"""LeNet-5 (§4.2; LeCun et al. 1998): two convolutions of 5 by 5, means of 2 by 2, three dense
    layers.

    It reads images of 28 by 28, at whose edge the first convolution sees zeros, or with
    `image_size=32` of 32 by 32, and has 61,706 parameters for ten classes of grey images.

    Departs: of 1998 the second convolution read some channels only, the means had weights, and the
    last layer measured distances; here they are plain.

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
        """Draws the network for images of that many channels and classes."""
        if image_size not in (28, 32):
            raise ValueError(
                f"LeNet: the images are of side 28 or 32; got side={image_size}. CNN takes others."
            )
        if min(classes, channels) < 1:
            raise ValueError(
                f"LeNet: all sizes are at least 1; got classes={classes} and channels={channels}."
            )
        k1, k2, k3, k4, k5 = jr.split(key, 5)
        edge = "same" if image_size == 28 else "valid"
        conv1 = Convolution.init(
            channels, 6, (5, 5), boundary=edge, initialiser=initialiser, key=k1
        )
        conv2 = Convolution.init(6, 16, (5, 5), boundary="valid", initialiser=initialiser, key=k2)
        found = [
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
                *found,
                *dense,
                activation,
                Linear.init(84, classes, initialiser=initialiser, key=k5),
            )
        )

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, " k"]:
        return self.body(x)
