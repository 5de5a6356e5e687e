r"""Residual networks for images (§2.4, §4.2; He et al. 2016): four stages of blocks
$x \mapsto \varphi(Sx + F(x))$.

From stage to stage there are twice as many channels at half the height and width. $F$ is two
convolutions of 3 by 3 (depths 18 and 34), or three, of which the first narrows and the last widens
by four (depth 50); a skip $S$ is a convolution of 1 by 1 where sizes change.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

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
    """How many blocks each stage has, and by how much a block widens what it narrowed: 4, or 1 for
    plain blocks.

    `downsample_conv` is the index of the convolution with the stride, in a block that widens: 0 as
    first published, or 1 as has become usual. A plain block uses its first.
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
    r"""A residual network; `stem`, `stages` of blocks, and `head` are chains.

    `small` is for images of some 32 by 32: its stem is one convolution of 3 by 3, which keeps their
    size. The norms are those of a batch: `fold(model, xs)` makes them affine, and then one example
    is enough.

    >>> net = ResNet.init(18, classes=10, channels=1, width=4, small=True, key=jr.key(0))
    >>> import jax.numpy as jnp
    >>> from thetax.layers import fold
    >>> fold(net, jr.normal(jr.key(1), (8, 1, 8, 8)))(jnp.ones((1, 8, 8))).shape
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
        """Draws a network of a known depth, 18, 34 or 50, or of a layout; the first stage has
        `width` channels.

        A tuple of the blocks in each stage is the layout with plain ones.
        """
        plan = _planned(layout)
        if min(classes, channels, width) < 1:
            raise ValueError(
                f"ResNet: all sizes are at least 1; got classes={classes}, channels={channels}, "
                f"width={width}."
            )
        key_stem, key_head, *keys = jr.split(key, 2 + len(plan.blocks))
        draw = _Draw(normalise, initialiser)
        window, stride = ((3, 3), 1) if small else ((7, 7), 2)
        shrink = [] if small else [MaxPool((3, 3), (2, 2), "same")]
        stem = Chain(*draw.convolve(channels, width, window, stride, key=key_stem), relu, *shrink)
        stages = []
        before = width
        for number, (count, key_stage) in enumerate(zip(plan.blocks, keys)):
            inner = width * 2**number
            blocks = []
            for place, key_block in enumerate(jr.split(key_stage, count)):
                stride = 2 if number and not place else 1
                blocks.append(draw.block(before, inner, plan, stride, key=key_block))
                before = inner * plan.expansion
            stages.append(Chain(*blocks))
        return cls(
            stem, tuple(stages), Linear.init(before, classes, initialiser=lecun, key=key_head)
        )

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, " k"]:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(global_mean(x))


def _planned(layout: Any) -> ResNetLayout:
    """The layout meant, if there is such a network."""
    if isinstance(layout, tuple | list):
        plan = layout if isinstance(layout, ResNetLayout) else ResNetLayout(tuple(layout))
    elif isinstance(layout, int) and layout in LAYOUTS:
        plan = LAYOUTS[layout]
    else:
        raise ValueError(
            f"ResNet: the depth is one of {', '.join(map(str, LAYOUTS))}, or a ResNetLayout; got "
            f"{layout!r}."
        )
    if not plan.blocks or min(*plan.blocks, plan.expansion) < 1:
        raise ValueError(
            f"ResNet: every stage has at least one block, and widen is at least 1; got {plan}."
        )
    if plan.downsample_conv not in (0, 1):
        raise ValueError(
            "ResNet: downsample_conv is 0 or 1, the index of a convolution in its block; got "
            f"{plan.downsample_conv}."
        )
    return plan


class _Draw(NamedTuple):
    """How the parts of a network are drawn."""

    normalise: Callable[[int], Any]
    initialiser: Initialiser

    def convolve(
        self, c: int, m: int, window: tuple[int, int], stride: int, *, key: PRNGKeyArray
    ) -> tuple[Any, Any]:
        """A convolution, and its norm, which has the offset."""
        return Convolution.init(
            c, m, window, stride=stride, bias=False, initialiser=self.initialiser, key=key
        ), self.normalise(m)

    def block(
        self, c: int, inner: int, layout: ResNetLayout, stride: int, *, key: PRNGKeyArray
    ) -> Chain:
        """A block of two convolutions, or of three where it widens."""
        *keys, key_skip = jr.split(key, 4)
        m = inner * layout.expansion
        first, second = (1, stride) if layout.downsample_conv else (stride, 1)
        if layout.expansion == 1:
            plan = [(c, m, (3, 3), stride), (m, m, (3, 3), 1)]
        else:
            plan = [
                (c, inner, (1, 1), first),
                (inner, inner, (3, 3), second),
                (inner, m, (1, 1), 1),
            ]
        bent: list[Any] = []
        for at, (sizes, key_at) in enumerate(zip(plan, keys)):
            bent += [*self.convolve(*sizes, key=key_at), *([relu] if at < len(plan) - 1 else [])]
        same = stride == 1 and c == m
        skip = None if same else Chain(*self.convolve(c, m, (1, 1), stride, key=key_skip))
        return Chain(Residual(Chain(*bent), skip), relu)
