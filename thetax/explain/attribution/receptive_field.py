r"""Receptive fields: the pixels of the image that position $i$ of a feature map depends on,
$ri - a$ to $ri + b$.

The stride $r$ and the extent $(a, b)$ grow from layer to layer. A kernel of extent $k$ (its size
minus one, times its dilation) and stride $s$ that begins $o$ positions before its own adds $ro$ to
$a$ and $r(k - o)$ to $b$, and $r$ becomes $rs$. Pointwise layers add nothing.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from ...core import apply
from ...layers import AveragePool, Convolution, MaxPool
from ..modules import hook_calls

Sizes = tuple[int, ...]


class ReceptiveField(NamedTuple):
    """The receptive field of a feature map along each spatial axis."""

    stride: Sizes
    before: Sizes
    after: Sizes

    def interior(self, positions: Sizes, pixels: Sizes) -> list[np.ndarray]:
        """For each axis, which positions have a receptive field inside the image (no padding)."""
        centres = [r * np.arange(p) for r, p in zip(self.stride, positions)]
        return [
            (i - a >= 0) & (i + b < n)
            for i, a, b, n in zip(centres, self.before, self.after, pixels)
        ]


def receptive_fields(model: Any, x: Any) -> dict[str, ReceptiveField]:
    """Receptive field of each layer's feature map for an image `x` of shape `c h w` (or a signal
    `c w`), by the layer's path.

    Feature maps that are not made by convolutions, pooling and pointwise layers are left out.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Chain
    >>> model = Chain(Convolution(jnp.ones((1, 1, 3, 3))), MaxPool((2, 2)))
    >>> receptive_fields(model, jnp.zeros((1, 8, 8)))["layers.1"]
    ReceptiveField(stride=(2, 2), before=(1, 1), after=(2, 2))
    """
    space = x.ndim - 1
    fields = {}
    # Layers do not say what their input is: a feature map is recognised by its size.
    by_size = {x.shape[1:]: ReceptiveField((1,) * space, (0,) * space, (0,) * space)}

    def visit(path: str, layer: Any, call: Any, x: Any) -> Any:
        y = call(x)
        if (window := _window(layer, space)) is not None and x.shape[1:] in by_size:
            field = _after_window(by_size[x.shape[1:]], *window)
            by_size[y.shape[1:]] = _union(by_size.get(y.shape[1:], field), field)
        if y.ndim == space + 1 and y.shape[1:] in by_size:
            fields[path] = by_size[y.shape[1:]]
        return y

    jax.eval_shape(lambda model, x: apply(hook_calls(model, visit), x), model, x)
    return fields


def _union(old: ReceptiveField, new: ReceptiveField) -> ReceptiveField:
    """The receptive field where two branches meet."""
    maximum = lambda a, b: tuple(map(max, a, b))
    return ReceptiveField(
        new.stride, maximum(old.before, new.before), maximum(old.after, new.after)
    )


def _window(layer: Any, space: int) -> tuple[Sizes, Sizes, Sizes] | None:
    """Extent, offset before the own position, and stride of a layer's window; None for a layer
    without a window.
    """
    per_axis = lambda size: (size,) * space if isinstance(size, int) else tuple(size)
    if isinstance(layer, Convolution):
        extent = tuple(d * (k - 1) for d, k in zip(per_axis(layer.dilation), layer.W.shape[2:]))
        halves = {"valid": 0, "full": 2}.get(layer.boundary, 1)  # padding before, in half extents
        return extent, tuple((halves * k + 1) // 2 for k in extent), per_axis(layer.stride)
    if isinstance(layer, MaxPool | AveragePool):
        extent = tuple(k - 1 for k in layer.window)
        centred = isinstance(layer, MaxPool) and layer.boundary == "same"
        return extent, tuple(k // 2 if centred else 0 for k in extent), layer.stride
    return None


def _after_window(
    field: ReceptiveField, extent: Sizes, offset: Sizes, stride: Sizes
) -> ReceptiveField:
    """The receptive field after one more layer with a window."""
    grow = lambda a, r, k: tuple(map(lambda a, r, k: a + r * k, a, r, k))
    rest = tuple(k - o for k, o in zip(extent, offset))
    r = field.stride
    return ReceptiveField(
        tuple(map(int.__mul__, r, stride)),
        grow(field.before, r, offset),
        grow(field.after, r, rest),
    )
