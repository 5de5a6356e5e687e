r"""PointNet++ (§7.3; Qi et al., NeurIPS 2017): PointNets of local neighbourhoods, in layers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import apply
from ...layers import Chain, SetAbstraction, SharedMLP, aggregate_set
from ...layers.sets.inputs import Elements, split_set
from ..mlp import MLP


class AbstractionLevel(NamedTuple):
    """A set abstraction layer of a PointNet++: the number of centres, the radius of their balls,
    the number of neighbours, and the widths of the local shared MLP.
    """

    n_centres: int
    radius: float
    k: int
    widths: tuple[int, ...]


LEVELS = (
    AbstractionLevel(512, 0.2, 32, (64, 64, 128)),
    AbstractionLevel(128, 0.4, 64, (128, 128, 256)),
)


class PointNet2(eqx.Module):
    r"""Classification by PointNet++: set abstraction layers, a PointNet of the last centres, and an
    MLP of its global feature; it returns logits.

    The defaults are those of the paper for single-scale grouping, for clouds in the unit ball.

    >>> levels = [AbstractionLevel(8, 0.5, 4, (8, 8))]
    >>> model = PointNet2.init(
    ...     5, levels=levels, whole_widths=(16,), head_widths=(8,), key=jr.key(0)
    ... )
    >>> model(jr.normal(jr.key(1), (20, 3))).shape
    (5,)
    """

    levels: Chain
    whole: SharedMLP
    head: Any
    dim: int = eqx.field(static=True, default=3)

    @classmethod
    def init(
        cls,
        classes: int,
        d: int = 3,
        *,
        dim: int = 3,
        levels: Sequence[AbstractionLevel] = LEVELS,
        whole_widths: Sequence[int] = (256, 512, 1024),
        head_widths: Sequence[int] = (512, 256),
        dropout: float = 0.5,
        key: PRNGKeyArray,
        **options: Any,
    ) -> "PointNet2":
        """Initialises a classifier for points of `d` columns, of which the first `dim` are the
        position; other options are those of `SharedMLP.init`.
        """
        key_whole, key_head, *keys = jr.split(key, 2 + len(levels))
        layers = []
        width = d
        for level, level_key in zip(levels, keys):
            layers.append(
                SetAbstraction.init(
                    width,
                    *level.widths,
                    n_centres=level.n_centres,
                    radius=level.radius,
                    k=level.k,
                    dim=dim,
                    key=level_key,
                    **options,
                )
            )
            width = dim + level.widths[-1]
        return cls(
            Chain(*layers),
            SharedMLP.init(width, *whole_widths, key=key_whole, **options),
            MLP.init(whole_widths[-1], *head_widths, classes, dropout=dropout, key=key_head),
            dim,
        )

    def __call__(self, x: Elements, *, key: PRNGKeyArray | None = None) -> Float[Array, " k"]:
        split_set("PointNet2", x)
        whole = aggregate_set(self.whole(self.levels(x)), "max")
        return apply(self.head, whole, key=key)
