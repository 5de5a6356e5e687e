r"""Where a place of a feature map lies in the image: place $i$ sees the pixels $ri - a$ to
$ri + b$.

The stride $r$ and the reach $(a, b)$ grow from layer to layer. A kernel of reach $k$ (its size less
one, times its dilation) and stride $s$ that begins $o$ places before its own adds $ro$ to $a$ and
$r(k - o)$ to $b$, and $r$ becomes $rs$. Layers that act place by place add nothing.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from ...core import apply
from ...layers import AveragePool, Convolution, MaxPool
from ..modules import overhear

Sizes = tuple[int, ...]


class View(NamedTuple):
    """What a place sees along each axis of space."""

    stride: Sizes
    before: Sizes
    after: Sizes

    def inside(self, places: Sizes, pixels: Sizes) -> list[np.ndarray]:
        """For each axis, which places see nothing from beyond the edge."""
        at = [r * np.arange(p) for r, p in zip(self.stride, places)]
        return [
            (i - a >= 0) & (i + b < n) for i, a, b, n in zip(at, self.before, self.after, pixels)
        ]


def views(model: Any, x: Any) -> dict[str, View]:
    """What the places of each layer's map see, by the layer's path; maps made by other means are
    left out.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Chain
    >>> views(Chain(Convolution(jnp.ones((1, 1, 3, 3))), MaxPool((2, 2))), jnp.zeros((1, 8, 8)))[
    ...     "layers.1"
    ... ]
    View(stride=(2, 2), before=(1, 1), after=(2, 2))
    """
    space = x.ndim - 1
    found = {}
    known = {
        x.shape[1:]: View((1,) * space, (0,) * space, (0,) * space)
    }  # by the size of a map, so far

    def visit(path: str, layer: Any, call: Any, x: Any) -> Any:
        y = call(x)
        if (window := _window(layer, space)) is not None and x.shape[1:] in known:
            view = _through(known[x.shape[1:]], *window)
            known[y.shape[1:]] = _joined(known.get(y.shape[1:], view), view)
        if y.ndim == space + 1 and y.shape[1:] in known:
            found[path] = known[y.shape[1:]]
        return y

    jax.eval_shape(lambda model, x: apply(overhear(model, visit), x), model, x)
    return found


def _joined(old: View, new: View) -> View:
    """Branches that meet see what either sees."""
    wider = lambda a, b: tuple(map(max, a, b))
    return View(new.stride, wider(old.before, new.before), wider(old.after, new.after))


def _window(layer: Any, space: int) -> tuple[Sizes, Sizes, Sizes] | None:
    """A layer's reach, how far it begins before its own place, and its stride; None of a layer
    without a window.
    """
    each = lambda size: (size,) * space if isinstance(size, int) else tuple(size)
    if isinstance(layer, Convolution):
        reach = tuple(d * (k - 1) for d, k in zip(each(layer.dilation), layer.W.shape[2:]))
        share = {"valid": 0, "full": 2}.get(layer.boundary, 1)  # halves of the reach
        return reach, tuple((share * k + 1) // 2 for k in reach), each(layer.stride)
    if isinstance(layer, MaxPool | AveragePool):
        reach = tuple(k - 1 for k in layer.window)
        middle = isinstance(layer, MaxPool) and layer.boundary == "same"
        return reach, tuple(k // 2 if middle else 0 for k in reach), layer.stride
    return None


def _through(view: View, reach: Sizes, begins: Sizes, stride: Sizes) -> View:
    grown = lambda a, r, k: tuple(map(lambda a, r, k: a + r * k, a, r, k))
    rest = tuple(k - o for k, o in zip(reach, begins))
    r = view.stride
    return View(
        tuple(map(int.__mul__, r, stride)),
        grown(view.before, r, begins),
        grown(view.after, r, rest),
    )
