r"""Pooling (§4.2): each window of a signal is reduced to one value, which makes images smaller and
the output less sensitive to small shifts.

With window size $r$ and stride $s$, separately for each channel,

$$y[i] = \max_{0 \le k < r} x[s i + k] \qquad \text{or} \qquad y[i] = \frac1r \sum_{0 \le k < r} x[s
i + k],$$

for $\lfloor (n - r) / s \rfloor + 1$ positions $i$. The gradient of a maximum goes to the first
position where it is attained. The maximum of a window that contains NaN is NaN.

Departs: the notes downsample by a maximum that is printed with stride 1; the lecture prints windows
that overlap.
"""

import math
from collections.abc import Callable
from functools import reduce
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core import expect_floats, expect_shape
from .convolution import Sizes, check_window

MAX_UNROLLED_MEAN = 8  # a mean over at most this many values is written as a sum of slices


class MaxPool(eqx.Module):
    r"""Max pooling: the largest value of every window; by default the stride is the window size
    (§4.2).

    With `boundary="same"` windows of odd size are centred at every $s$-th position, and the padding
    is $-\infty$.

    >>> MaxPool((2, 2))(jnp.array([[[1.0, 5.0, 2.0, 0.0], [3.0, 4.0, 1.0, 7.0]]])).tolist()
    [[[5.0, 7.0]]]
    >>> MaxPool((3,), stride=(2,), boundary="same")(jnp.arange(5.0)[None]).tolist()
    [[1.0, 3.0, 4.0]]
    """

    window: tuple[int, ...] = eqx.field(static=True)
    stride: tuple[int, ...] = eqx.field(static=True)
    boundary: str = eqx.field(static=True)

    def __init__(
        self, window: tuple[int, ...], stride: Sizes | None = None, boundary: str = "valid"
    ):
        self.window, self.stride = _sizes("MaxPool", window, stride)
        self.boundary = boundary
        if boundary not in ("valid", "same") or (
            boundary == "same" and any(r % 2 == 0 for r in self.window)
        ):
            raise ValueError(
                "MaxPool: boundary must be 'valid', or 'same' with windows of odd size; got "
                f"{boundary!r} and {self.window}."
            )

    def __call__(self, x: Float[Array, "c *s"]) -> Float[Array, "c *t"]:
        _expect("MaxPool", x, self.window)
        if self.boundary == "same":
            x = jnp.pad(
                x, [(0, 0), *((r // 2, r // 2) for r in self.window)], constant_values=-jnp.inf
            )
        if self.window == self.stride:
            return jnp.moveaxis(_largest(tiles("MaxPool", x, self.window)), -1, 0)
        return reduce(_larger, shifted("MaxPool", x, self.window, self.stride))


class AveragePool(eqx.Module):
    r"""Average pooling: the mean of every window; by default the stride is the window size (§4.2).

    It is a convolution with a constant kernel and a stride.

    >>> AveragePool((2, 2))(jnp.array([[[1.0, 5.0, 2.0, 0.0], [3.0, 3.0, 1.0, 1.0]]])).tolist()
    [[[3.0, 1.0]]]
    """

    window: tuple[int, ...] = eqx.field(static=True)
    stride: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, window: tuple[int, ...], stride: Sizes | None = None):
        self.window, self.stride = _sizes("AveragePool", window, stride)

    def __call__(self, x: Float[Array, "c *s"]) -> Float[Array, "c *t"]:
        _expect("AveragePool", x, self.window)
        if self.window == self.stride:
            parts = tiles("AveragePool", x, self.window)
            return jnp.moveaxis(parts.mean(axis=tuple(range(1, parts.ndim, 2))), -1, 0)
        return reduce(jnp.add, shifted("AveragePool", x, self.window, self.stride)) / math.prod(
            self.window
        )


class AdaptivePool(eqx.Module):
    r"""Adaptive pooling to a fixed output size: output $i$ of $k$ pools the inputs
    $\lfloor in/k \rfloor, \dots, \lceil (i+1)n/k \rceil - 1$.

    `reduction` is `jnp.mean` or `jnp.max`.

    >>> AdaptivePool((2,))(jnp.arange(5.0)[None]).tolist()
    [[1.0, 3.0]]
    """

    size: tuple[int, ...] = eqx.field(static=True)
    reduction: Callable[..., Array] = eqx.field(static=True, default=jnp.mean)

    def __call__(self, x: Float[Array, "c *s"]) -> Float[Array, "c *t"]:
        space = x.shape[1:]
        if len(space) != len(self.size) or any(not 1 <= k <= n for k, n in zip(self.size, space)):
            raise ValueError(
                f"AdaptivePool: expected an input of at least {self.size} positions per channel; "
                f"got shape {x.shape}. Use a smaller size."
            )
        for axis, (k, n) in enumerate(zip(self.size, space), start=1):
            ends = [(i * n // k, -(-(i + 1) * n // k)) for i in range(k)]
            x = jnp.stack(
                [self._pooled(jax.lax.slice_in_dim(x, a, b, axis=axis), axis) for a, b in ends],
                axis=axis,
            )
        return x

    def _pooled(self, part: Array, axis: int) -> Array:
        """The reduction along an axis. The mean of few values is written as a sum, which XLA fuses
        with the operations around it.
        """
        n = part.shape[axis]
        if self.reduction is not jnp.mean or n > MAX_UNROLLED_MEAN:
            return self.reduction(part, axis=axis)
        slices = [jax.lax.index_in_dim(part, k, axis, keepdims=False) for k in range(n)]
        return reduce(jnp.add, slices) / n


def global_mean(x: Float[Array, "c *s"]) -> Float[Array, " c"]:
    """Global average pooling: the mean of each channel over all positions.

    >>> global_mean(jnp.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [2.0, 0.0]
    """
    return x.mean(axis=tuple(range(1, x.ndim)))


def global_max(x: Float[Array, "c *s"]) -> Float[Array, " c"]:
    """Global max pooling: the largest value of each channel.

    >>> global_max(jnp.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [3.0, 0.0]
    """
    return x.max(axis=tuple(range(1, x.ndim)))


def tiles(name: str, x: Any, window: tuple[int, ...]) -> Float[Array, "..."]:
    """The signal split into adjacent windows, channels last: an array `(t, r, ..., c)` with the
    number of windows `t` and the window size `r` for each spatial axis.
    """
    _expect_size(name, x, window)
    count = [n // r for n, r in zip(x.shape[1:], window)]
    x = jnp.moveaxis(x, 0, -1)[tuple(slice(t * r) for t, r in zip(count, window))]
    return x.reshape(*(n for pair in zip(count, window) for n in pair), x.shape[-1])


@jax.custom_jvp
def _larger(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """The maximum, NaN if one argument is NaN; for equal arguments the derivative is that of the
    first.
    """
    return jnp.maximum(a, b)


@_larger.defjvp
def _push_larger(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, b), (d_a, d_b) = primals, tangents
    return _larger(a, b), jnp.where(a >= b, d_a, d_b)


@jax.custom_jvp
def _largest(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The largest value of every tile; its derivative is that of the first entry where it is
    attained.

    Channels stay last, as in the output of a convolution, and the backward pass writes every entry
    once.
    """
    return reduce(jnp.maximum, _tile_entries(x))


@_largest.defjvp
def _push(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (d_x,) = primals, tangents
    y = _largest(x)
    parts = _tile_entries(x)
    axes = tuple(range(1, x.ndim, 2))
    square = jnp.full(y.shape, (len(parts) - 1) ** 2, jnp.float32)
    for k in reversed(range(len(parts) - 1)):
        square = jnp.where(parts[k] == y, k**2, square)
    # The index of the first maximum, as the root of its square: XLA does not recompute a root for
    # every entry, but it would recompute a cheaper operation, with the layers before it.
    first = jnp.sqrt(square)
    entry = jnp.arange(len(parts), dtype=jnp.float32).reshape(
        [n if axis % 2 else 1 for axis, n in enumerate(x.shape)]
    )
    is_first = jnp.broadcast_to(jnp.expand_dims(first, axes), x.shape) == jnp.broadcast_to(
        entry, x.shape
    )
    return y, jnp.where(is_first, d_x, 0).sum(axes)


def _tile_entries(x: Float[Array, "..."]) -> list[Float[Array, "..."]]:
    """For every entry of a tile, the array of its values in all tiles."""
    entries = product(*map(range, x.shape[1::2]))
    return [x[tuple(index for k in entry for index in (slice(None), k))] for entry in entries]


def shifted(
    name: str, x: Any, window: tuple[int, ...], stride: tuple[int, ...]
) -> list[Float[Array, "c *t"]]:
    """For every entry of the window, the array of its values at all positions of the window."""
    _expect_size(name, x, window)
    count = [(n - r) // s + 1 for n, r, s in zip(x.shape[1:], window, stride)]
    limits = lambda entry: [k + (t - 1) * s + 1 for k, t, s in zip(entry, count, stride)]
    return [
        jax.lax.slice(x, (0, *entry), (len(x), *limits(entry)), (1, *stride))
        for entry in product(*map(range, window))
    ]


def _expect(name: str, x: Any, window: tuple[int, ...]) -> None:
    """Raises `ValueError` unless `x` is a float signal with as many spatial axes as the window."""
    expect_shape(name, x, ("c", *"hwdefg"[: len(window)]))
    expect_floats(name, x)


def _expect_size(name: str, x: Any, window: tuple[int, ...]) -> None:
    """Raises `ValueError` if the input is smaller than the window."""
    if any(r > n for r, n in zip(window, x.shape[1:])):
        raise ValueError(
            f"{name}: a window of {window} does not fit into an input of {x.shape[1:]}: expected "
            f"at least {window} positions per channel, got shape {x.shape}. Use a smaller window."
        )


def _sizes(name: str, window: Any, stride: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The window and the stride as tuples with one integer per spatial axis."""
    check_window(name, window)
    stride = window if stride is None else stride
    window, stride = (
        tuple(window),
        (stride,) * len(window) if isinstance(stride, int | np.integer) else tuple(stride),
    )
    valid = all(isinstance(n, int | np.integer) and n >= 1 for n in (*window, *stride))
    if not window or len(window) != len(stride) or not valid:
        raise ValueError(
            f"{name}: window and stride must be integers >= 1, one for each spatial axis; got "
            f"{window} and {stride}."
        )
    return window, stride
