r"""Pooling (§4.2): what a window holds, as one number, so that images get smaller and small shifts
matter less.

With a window of $r$ places and a stride of $s$, channel by channel,

$$y[i] = \max_{0 \le k < r} x[s i + k] \qquad \text{or} \qquad y[i] = \frac1r \sum_{0 \le k < r} x[s
i + k],$$

which are $\lfloor (n - r) / s \rfloor + 1$ numbers. The gradient of a maximum goes to one place,
the first where it is attained. The maximum of a window that holds a NaN is NaN.

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

FEW = 8  # places of a mean that are added one by one


class MaxPool(eqx.Module):
    r"""The largest number of every window; by default windows lie side by side (§4.2).

    With `boundary="same"` the middle of a window of odd size lies on every $s$-th place; nothing is
    beyond the edge.

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
                "MaxPool: boundary is 'valid', or 'same' with windows of odd size; got "
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
    r"""The mean of every window; by default windows lie side by side (§4.2).

    It is a convolution with a constant kernel, of which the stride keeps some places.

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
    r"""An output of a given size whatever the input's: place $i$ of $k$ pools
    $\lfloor in/k \rfloor$ to $\lceil (i+1)n/k \rceil - 1$.

    `of` is `jnp.mean` or `jnp.max`.

    >>> AdaptivePool((2,))(jnp.arange(5.0)[None]).tolist()
    [[1.0, 3.0]]
    """

    size: tuple[int, ...] = eqx.field(static=True)
    of: Callable[..., Array] = eqx.field(static=True, default=jnp.mean)

    def __call__(self, x: Float[Array, "c *s"]) -> Float[Array, "c *t"]:
        space = x.shape[1:]
        if len(space) != len(self.size) or any(not 1 <= k <= n for k, n in zip(self.size, space)):
            raise ValueError(
                f"AdaptivePool: expected an input with at least {self.size} places for each "
                f"channel; got {x.shape}."
            )
        for axis, (k, n) in enumerate(zip(self.size, space), start=1):
            ends = [(i * n // k, -(-(i + 1) * n // k)) for i in range(k)]
            x = jnp.stack(
                [self._pooled(jax.lax.slice_in_dim(x, a, b, axis=axis), axis) for a, b in ends],
                axis=axis,
            )
        return x

    def _pooled(self, part: Array, axis: int) -> Array:
        """One number along an axis; a mean of few as a sum, which XLA joins with what lies around
        it.
        """
        n = part.shape[axis]
        if self.of is not jnp.mean or n > FEW:
            return self.of(part, axis=axis)
        return (
            reduce(jnp.add, [jax.lax.index_in_dim(part, k, axis, keepdims=False) for k in range(n)])
            / n
        )


def global_mean(x: Float[Array, "c *s"]) -> Float[Array, " c"]:
    """The mean of each channel over all places: the same wherever a pattern lies.

    >>> global_mean(jnp.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [2.0, 0.0]
    """
    return x.mean(axis=tuple(range(1, x.ndim)))


def global_max(x: Float[Array, "c *s"]) -> Float[Array, " c"]:
    """The largest number of each channel: whether a pattern lies anywhere.

    >>> global_max(jnp.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [3.0, 0.0]
    """
    return x.max(axis=tuple(range(1, x.ndim)))


def tiles(name: str, x: Any, window: tuple[int, ...]) -> Float[Array, "..."]:
    """What lies in windows side by side, channels last: of shape `(t, r, ..., c)` with as many
    `t, r` as axes.
    """
    _expect_room(name, x, window)
    count = [n // r for n, r in zip(x.shape[1:], window)]
    x = jnp.moveaxis(x, 0, -1)[tuple(slice(t * r) for t, r in zip(count, window))]
    return x.reshape(*(n for pair in zip(count, window) for n in pair), x.shape[-1])


@jax.custom_jvp
def _larger(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """The larger number, or NaN where one is; of two that are equal the derivative is that of the
    first.
    """
    return jnp.maximum(a, b)


@_larger.defjvp
def _push_larger(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, b), (d_a, d_b) = primals, tangents
    return _larger(a, b), jnp.where(a >= b, d_a, d_b)


@jax.custom_jvp
def _largest(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The largest number of every tile; its derivative is that of the first place where it is
    attained.

    Channels stay last, where a convolution leaves them, and to go back is to write every place
    once.
    """
    return reduce(jnp.maximum, _places(x))


@_largest.defjvp
def _push(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (d_x,) = primals, tangents
    y = _largest(x)
    parts = _places(x)
    axes = tuple(range(1, x.ndim, 2))
    square = jnp.full(y.shape, (len(parts) - 1) ** 2, jnp.float32)
    for k in reversed(range(len(parts) - 1)):
        square = jnp.where(parts[k] == y, k**2, square)
    first = jnp.sqrt(
        square
    )  # XLA computes no root twice; it would, for each place, the layers before what is cheaper
    place = jnp.arange(len(parts), dtype=jnp.float32).reshape(
        [n if axis % 2 else 1 for axis, n in enumerate(x.shape)]
    )
    here = jnp.broadcast_to(jnp.expand_dims(first, axes), x.shape) == jnp.broadcast_to(
        place, x.shape
    )
    return y, jnp.where(here, d_x, 0).sum(axes)


def _places(x: Float[Array, "..."]) -> list[Float[Array, "..."]]:
    """For every place of a tile, what lies there in each of them."""
    every = product(*map(range, x.shape[1::2]))
    return [x[tuple(index for k in at for index in (slice(None), k))] for at in every]


def shifted(
    name: str, x: Any, window: tuple[int, ...], stride: tuple[int, ...]
) -> list[Float[Array, "c *t"]]:
    """For every place of the window, what lies there in each of its positions."""
    _expect_room(name, x, window)
    count = [(n - r) // s + 1 for n, r, s in zip(x.shape[1:], window, stride)]
    limits = lambda at: [k + (t - 1) * s + 1 for k, t, s in zip(at, count, stride)]
    places = product(*map(range, window))
    return [jax.lax.slice(x, (0, *at), (len(x), *limits(at)), (1, *stride)) for at in places]


def _expect(name: str, x: Any, window: tuple[int, ...]) -> None:
    """Refuses what is no signal or image with as many axes of space as the window."""
    expect_shape(name, x, ("c", *"hwdefg"[: len(window)]))
    expect_floats(name, x)


def _expect_room(name: str, x: Any, window: tuple[int, ...]) -> None:
    """Refuses an input that is smaller than a window."""
    if any(r > n for r, n in zip(window, x.shape[1:])):
        raise ValueError(
            f"{name}: a window of {window} does not fit into an input of {x.shape[1:]}: expected "
            f"places as many as the window's, or more, got {x.shape}; take a smaller window."
        )


def _sizes(name: str, window: Any, stride: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The window and the stride, both with a number for every axis of space."""
    check_window(name, window)
    stride = window if stride is None else stride
    window, stride = (
        tuple(window),
        (stride,) * len(window) if isinstance(stride, int | np.integer) else tuple(stride),
    )
    whole = all(isinstance(n, int | np.integer) and n >= 1 for n in (*window, *stride))
    if not window or len(window) != len(stride) or not whole:
        raise ValueError(
            f"{name}: window and stride are whole numbers of at least 1, one for each axis of "
            f"space; got {window} and {stride}."
        )
    return window, stride
