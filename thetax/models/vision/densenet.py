r"""DenseNet (§2.4; Huang et al. 2017): each layer reads the outputs of all earlier layers.

A stage is a chain of $x \mapsto [x, F(x)]$, so every layer adds the same number of channels. $F$ is
a 1 by 1 convolution (the bottleneck) and a 3 by 3 convolution, each after a norm and the
activation. Between stages a transition halves the channels, the height and the width.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
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
    r"""A DenseNet: `stem`, `stages` with `transitions` between them, a last norm, and `head`.

    With `small=True`, for images of about 32 by 32, the stem is one 3 by 3 convolution that keeps
    the size. The norms are batch norms; `fold_batch_norm(model, xs)` turns them into affine maps,
    so that single examples can be evaluated.

    >>> net = DenseNet.init(
    ...     (2, 2), classes=10, channels=1, growth_rate=4, small=True, key=jr.key(0)
    ... )
    >>> import jax.numpy as jnp
    >>> from thetax.layers import fold_batch_norm
    >>> fold_batch_norm(net, jr.normal(jr.key(1), (8, 1, 8, 8)))(jnp.ones((1, 8, 8))).shape
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
        """Initialises a DenseNet of depth 121, or with the given number of layers per stage.

        Each layer adds `growth_rate` channels.
        """
        counts = _layers_per_stage(layout)
        expect_count("DenseNet", classes=classes, channels=channels, growth_rate=growth_rate)
        key_stem, key_head, *keys = jr.split(key, 2 + len(counts))
        builder = _Builder(normalise, initialiser, growth_rate)
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
        for i, (count, key_stage) in enumerate(zip(counts, keys)):
            *key_layers, key_transition = jr.split(key_stage, count + 1)
            stages.append(
                Chain(
                    *[builder.layer(c + j * growth_rate, key=k) for j, k in enumerate(key_layers)]
                )
            )
            c += count * growth_rate
            if i < len(counts) - 1:
                transitions.append(
                    Chain(
                        *builder.norm_relu_conv(c, c // 2, (1, 1), key=key_transition),
                        AveragePool((2, 2)),
                    )
                )
                c //= 2
        head = Linear.init(c, classes, initialiser=lecun, key=key_head)
        return cls(stem, tuple(stages), tuple(transitions), Chain(normalise(c), relu), head)

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, " k"]:
        x = self.stages[0](self.stem(x))
        for transition, stage in zip(self.transitions, self.stages[1:]):
            x = stage(transition(x))
        return self.head(global_mean(self.last(x)))


def _layers_per_stage(layout: Any) -> tuple[int, ...]:
    """The number of layers in each stage."""
    if isinstance(layout, tuple | list):
        counts = tuple(layout)
    elif isinstance(layout, int) and layout in DEPTHS:
        counts = DEPTHS[layout]
    else:
        known = ", ".join(map(str, DEPTHS))
        raise ValueError(
            f"DenseNet: layout must be the depth {known} or a tuple of layers per stage; got "
            f"{layout!r}."
        )
    if not counts or min(counts) < 1:
        raise ValueError(f"DenseNet: every stage must have at least one layer; got {counts}.")
    return counts


class _Builder(NamedTuple):
    """Initialises the parts of a network."""

    normalise: Callable[[int], Any]
    initialiser: Initialiser
    growth_rate: int

    def norm_relu_conv(
        self, c: int, m: int, window: tuple[int, int], *, key: PRNGKeyArray
    ) -> tuple[Any, ...]:
        """A norm, ReLU and a convolution."""
        return (
            self.normalise(c),
            relu,
            Convolution.init(c, m, window, bias=False, initialiser=self.initialiser, key=key),
        )

    def layer(self, c: int, *, key: PRNGKeyArray) -> Concat:
        """$x \\mapsto [x, F(x)]$ for `c` channels."""
        key_bottleneck, key_conv = jr.split(key)
        m = 4 * self.growth_rate
        return Concat(
            Chain(
                *self.norm_relu_conv(c, m, (1, 1), key=key_bottleneck),
                *self.norm_relu_conv(m, self.growth_rate, (3, 3), key=key_conv),
            )
        )
