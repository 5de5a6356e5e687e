r"""ResNet (§2.4, §4.2; He et al. 2016): four stages of blocks $x \mapsto \varphi(Sx + F(x))$.

Each stage has twice as many channels at half the height and width. $F$ is two 3 by 3 convolutions
(depths 18 and 34), or a bottleneck of three: 1 by 1, 3 by 3, and 1 by 1 with four times as many
channels (depth 50). The shortcut $S$ is a 1 by 1 convolution where sizes change, otherwise the
identity.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
from ...layers import (
    BatchNorm,
    Chain,
    Convolution,
    Initialiser,
    Linear,
    MaxPool,
    Residual,
    global_mean,
    he,
    lecun,
    relu,
)


class ResNetLayout(NamedTuple):
    """The number of blocks per stage, and the expansion of a block: 4 for bottleneck blocks, 1 for
    basic blocks.

    `downsample_conv` is the index of the strided convolution in a bottleneck block: 0 as first
    published, or 1 as is usual now. A basic block has the stride in its first convolution.
    """

    blocks: tuple[int, ...]
    expansion: int = 1
    downsample_conv: int = 1


LAYOUTS = {
    18: ResNetLayout((2, 2, 2, 2)),
    34: ResNetLayout((3, 4, 6, 3)),
    50: ResNetLayout((3, 4, 6, 3), 4),
}


class ResNet(eqx.Module):
    r"""A residual network: `stem`, `stages` of blocks, and `head`.

    With `small=True`, for images of about 32 by 32, the stem is one 3 by 3 convolution that keeps
    the size. The norms are batch norms; `fold_batch_norm(model, xs)` turns them into affine maps,
    so that single examples can be evaluated.

    >>> net = ResNet.init(18, classes=10, channels=1, width=4, small=True, key=jr.key(0))
    >>> import jax.numpy as jnp
    >>> from thetax.layers import fold_batch_norm
    >>> fold_batch_norm(net, jr.normal(jr.key(1), (8, 1, 8, 8)))(jnp.ones((1, 8, 8))).shape
    (10,)
    """

    stem: Chain
    stages: tuple[Chain, ...]
    head: Linear

    @classmethod
    def init(
        cls,
        layout: int | ResNetLayout | tuple[int, ...],
        *,
        classes: int,
        channels: int = 3,
        width: int = 64,
        small: bool = False,
        normalise: Callable[[int], Any] = BatchNorm.init,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "ResNet":
        """Initialises a ResNet of depth 18, 34 or 50, or of a given layout.

        A tuple is the number of basic blocks per stage. The first stage has `width` channels.
        """
        layout = _check_layout(layout)
        expect_count("ResNet", classes=classes, channels=channels, width=width)
        key_stem, key_head, *keys = jr.split(key, 2 + len(layout.blocks))
        builder = _Builder(normalise, initialiser)
        window, stride = ((3, 3), 1) if small else ((7, 7), 2)
        pool = [] if small else [MaxPool((3, 3), (2, 2), "same")]
        stem = Chain(*builder.conv_norm(channels, width, window, stride, key=key_stem), relu, *pool)
        stages = []
        c = width
        for i, (count, key_stage) in enumerate(zip(layout.blocks, keys)):
            inner = width * 2**i
            blocks = []
            for j, key_block in enumerate(jr.split(key_stage, count)):
                stride = 2 if i and not j else 1
                blocks.append(builder.block(c, inner, layout, stride, key=key_block))
                c = inner * layout.expansion
            stages.append(Chain(*blocks))
        head = Linear.init(c, classes, initialiser=lecun, key=key_head)
        return cls(stem, tuple(stages), head)

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, " k"]:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(global_mean(x))


def _check_layout(layout: Any) -> ResNetLayout:
    """The layout as a `ResNetLayout`; raises `ValueError` if it is invalid."""
    if isinstance(layout, int) and layout in LAYOUTS:
        layout = LAYOUTS[layout]
    elif isinstance(layout, tuple | list):
        layout = layout if isinstance(layout, ResNetLayout) else ResNetLayout(tuple(layout))
    else:
        raise ValueError(
            f"ResNet: layout must be a depth ({', '.join(map(str, LAYOUTS))}) or a ResNetLayout; "
            f"got {layout!r}."
        )
    if not layout.blocks or min(*layout.blocks, layout.expansion) < 1:
        raise ValueError(
            f"ResNet: every stage must have at least one block, and expansion must be >= 1; got "
            f"{layout}."
        )
    if layout.downsample_conv not in (0, 1):
        raise ValueError(
            "ResNet: downsample_conv must be 0 or 1, the index of a convolution in its block; got "
            f"{layout.downsample_conv}."
        )
    return layout


class _Builder(NamedTuple):
    """Initialises the parts of a network."""

    normalise: Callable[[int], Any]
    initialiser: Initialiser

    def conv_norm(
        self, c: int, m: int, window: tuple[int, int], stride: int, *, key: PRNGKeyArray
    ) -> tuple[Any, Any]:
        """A convolution without bias, and a norm."""
        return Convolution.init(
            c, m, window, stride=stride, bias=False, initialiser=self.initialiser, key=key
        ), self.normalise(m)

    def block(
        self, c: int, inner: int, layout: ResNetLayout, stride: int, *, key: PRNGKeyArray
    ) -> Chain:
        """A basic block (expansion 1) or a bottleneck block."""
        *keys, key_shortcut = jr.split(key, 4)
        m = inner * layout.expansion
        first, second = (1, stride) if layout.downsample_conv else (stride, 1)
        if layout.expansion == 1:
            convolutions = [(c, m, (3, 3), stride), (m, m, (3, 3), 1)]
        else:
            convolutions = [
                (c, inner, (1, 1), first),
                (inner, inner, (3, 3), second),
                (inner, m, (1, 1), 1),
            ]
        layers: list[Any] = []
        for i, (sizes, key_conv) in enumerate(zip(convolutions, keys)):
            layers += self.conv_norm(*sizes, key=key_conv)
            layers += [relu] if i < len(convolutions) - 1 else []
        shortcut = None
        if stride != 1 or c != m:
            shortcut = Chain(*self.conv_norm(c, m, (1, 1), stride, key=key_shortcut))
        return Chain(Residual(Chain(*layers), shortcut), relu)
