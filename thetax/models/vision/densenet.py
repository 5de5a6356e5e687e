r"""Densely connected networks for images (§2.4; Huang et al. 2017): each layer reads all that was
found before it.

A stage is a chain of $x \mapsto [x, F(x)]$, so that its channels grow by the same number with every
layer. $F$ is a convolution of 1 by 1, which narrows, and one of 3 by 3, each after a norm and the
activation; between two stages the channels, the height and the width are halved.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...layers import (
    AveragePool,
    BatchNorm,
    Chain,
    Concat,
    Convolution,
    Initialiser,
    Linear,
    MaxPool,
    global_mean,
    he,
    lecun,
    relu,
)

DEPTHS = {121: (6, 12, 24, 16)}


class DenseNet(eqx.Module):
    r"""A densely connected network: `stem`, `stages` with `transitions` between them, a last norm,
    and `head`.

    `small` is for images of some 32 by 32: its stem is one convolution of 3 by 3, which keeps their
    size. The norms are those of a batch: `fold(model, xs)` makes them affine, and then one example
    is enough.

    >>> net = DenseNet.init(
    ...     (2, 2), classes=10, channels=1, growth_rate=4, small=True, key=jr.key(0)
    ... )
    >>> import jax.numpy as jnp
    >>> from thetax.layers import fold
    >>> fold(net, jr.normal(jr.key(1), (8, 1, 8, 8)))(jnp.ones((1, 8, 8))).shape
    (10,)
    """

    stem: Chain
    stages: tuple[Chain, ...]
    transitions: tuple[Chain, ...]
    last: Chain
    head: Linear

    @classmethod
    def init(
        cls,
        layout: int | tuple[int, ...],
        *,
        classes: int,
        channels: int = 3,
        growth_rate: int = 32,
        small: bool = False,
        normalise: Callable[[int], Any] = BatchNorm.init,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "DenseNet":
        """Draws a network of depth 121, or with so many layers in each stage; a layer adds
        `growth_rate` channels.
        """
        counts = _planned(layout)
        if min(classes, channels, growth_rate) < 1:
            raise ValueError(
                f"DenseNet: all sizes are at least 1; got classes={classes}, channels={channels}, "
                f"growth={growth_rate}."
            )
        key_stem, key_head, *keys = jr.split(key, 2 + len(counts))
        draw = _Draw(normalise, initialiser, growth_rate)
        c = 2 * growth_rate
        window, stride = ((3, 3), 1) if small else ((7, 7), 2)
        first = Convolution.init(
            channels, c, window, stride=stride, bias=False, initialiser=initialiser, key=key_stem
        )
        stem = Chain(
            first, normalise(c), relu, *([] if small else [MaxPool((3, 3), (2, 2), "same")])
        )
        stages = []
        transitions = []
        for number, (count, key_stage) in enumerate(zip(counts, keys)):
            *key_layers, key_between = jr.split(key_stage, count + 1)
            stages.append(
                Chain(*[draw.layer(c + at * growth_rate, key=k) for at, k in enumerate(key_layers)])
            )
            c += count * growth_rate
            if number < len(counts) - 1:
                transitions.append(
                    Chain(*draw.bent(c, c // 2, (1, 1), key=key_between), AveragePool((2, 2)))
                )
                c //= 2
        head = Linear.init(c, classes, initialiser=lecun, key=key_head)
        return cls(stem, tuple(stages), tuple(transitions), Chain(normalise(c), relu), head)

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, " k"]:
        x = self.stages[0](self.stem(x))
        for transition, stage in zip(self.transitions, self.stages[1:]):
            x = stage(transition(x))
        return self.head(global_mean(self.last(x)))


def _planned(layout: Any) -> tuple[int, ...]:
    """How many layers each stage has, if there is such a network."""
    if isinstance(layout, tuple | list):
        counts = tuple(layout)
    elif isinstance(layout, int) and layout in DEPTHS:
        counts = DEPTHS[layout]
    else:
        known = ", ".join(map(str, DEPTHS))
        raise ValueError(
            f"DenseNet: the depth is {known}, or a tuple of layers in each stage; got {layout!r}."
        )
    if not counts or min(counts) < 1:
        raise ValueError(f"DenseNet: every stage has at least one layer; got {counts}.")
    return counts


class _Draw(NamedTuple):
    """How the parts of a network are drawn."""

    normalise: Callable[[int], Any]
    initialiser: Initialiser
    growth: int

    def bent(
        self, c: int, m: int, window: tuple[int, int], *, key: PRNGKeyArray
    ) -> tuple[Any, ...]:
        """A norm, the activation, a convolution."""
        return (
            self.normalise(c),
            relu,
            Convolution.init(c, m, window, bias=False, initialiser=self.initialiser, key=key),
        )

    def layer(self, c: int, *, key: PRNGKeyArray) -> Concat:
        """$x \\mapsto [x, F(x)]$ for `c` channels."""
        narrow, across = jr.split(key)
        m = 4 * self.growth
        return Concat(
            Chain(
                *self.bent(c, m, (1, 1), key=narrow), *self.bent(m, self.growth, (3, 3), key=across)
            )
        )
