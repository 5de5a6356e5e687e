r"""Correlation in the one layout that XLA computes fast wherever it stands: channels last.

On a CPU XLA brings a convolution into this layout by itself, but not inside a loop or a branch,
where it then takes more than ten times as long. So it is brought there by hand, and its two
gradients with it,

$$\bar x = \bar y * W, \qquad \bar W = \bar y \star x,$$

each written as a correlation in the same layout. The derivative of $y$ is told as the transpose of
these, so that to go back through it is to compute them.

Of an image of one channel or three XLA's own convolution is slow: most of its time goes into
copies. There, where a derivative is wanted, $y$ is the sum of products with numbers, and $\bar x$
the sum of what one matrix product has for every place of the window. Where the kernel is not to
change, as under an attack, a CPU takes a small image by its rows: one matrix product has what every
row of the window makes of every row of the image, and their sum is one with what comes after.
Without a derivative $y$ stays one operation, which those who read a program know.
"""

import math
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

Sizes = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]
AXES = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC")}
FEW, MANY = 27, 256  # numbers that make one output, and places that have one
SMALL = 45_000  # numbers of an image by its rows, so that those of a batch stay near the processor


@partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def correlate_last(
    W: Float[Array, "m c *k"],
    x: Float[Array, "c *s"],
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
) -> Float[Array, "m *t"]:
    r"""$y_l[i] = \sum_k \sum_j W_{lk}[j]\, x_k[si + dj]$ of a signal with zeros around it, channels
    first in and out.

    >>> correlate_last(
    ...     jnp.array([[[1.0, 10.0]]]), jnp.array([[1.0, 2.0, 3.0]]), (1,), ((0, 0),), (1,)
    ... ).tolist()
    [[21.0, 32.0]]
    """
    kernel = jnp.moveaxis(W, (0, 1), (-1, -2))
    y = _slide(jnp.moveaxis(x, 0, -1)[None], kernel, stride, padding, (1,) * len(stride), dilation)
    return jnp.moveaxis(y[0], -1, 0)


@partial(correlate_last.defjvp, symbolic_zeros=True)
def _push(
    stride: Sizes, padding: Padding, dilation: Sizes, primals: Any, tangents: Any
) -> tuple[Array, Array]:
    (W, x), (d_W, d_x), how = primals, tangents, (stride, padding, dilation)
    fixed = isinstance(d_W, SymbolicZero)
    y = _forward(W, x, *how, fixed=fixed)
    d_y = jnp.zeros_like(y)
    if not isinstance(d_x, SymbolicZero):
        d_y += jax.linear_transpose(lambda g: _back_to_x(W, g, x.shape[1:], *how, fixed=fixed), y)(
            d_x
        )[0]
    if not fixed:
        d_y += jax.linear_transpose(lambda g: _back_to_W(x, g, W.shape[2:], *how), y)(d_W)[0]
    return y, d_y


def _forward(
    W: Array, x: Array, stride: Sizes, padding: Padding, dilation: Sizes, *, fixed: bool
) -> Array:
    """The correlation itself, the fastest way."""
    if _is_thin(W, x):
        return _sum_of_products(W, x, stride, padding, dilation)
    kernel = jnp.moveaxis(W, (0, 1), (-1, -2))
    if fixed and _is_small(kernel, x, stride, padding):
        return _by_rows(kernel, x, padding, dilation)
    return correlate_last(W, x, stride, padding, dilation)


def _back_to_x(
    W: Array,
    g: Array,
    size: Sizes,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    *,
    fixed: bool,
) -> Array:
    """The gradient at the signal: the kernel turned round, over the gradients spread out by the
    stride.
    """
    turned = jnp.moveaxis(jnp.flip(W, tuple(range(2, W.ndim))), (0, 1), (-2, -1))
    before = [d * (k - 1) - low for d, k, (low, _) in zip(dilation, W.shape[2:], padding)]
    after = [
        n + low - (t - 1) * s - 1 for n, (low, _), t, s in zip(size, padding, g.shape[1:], stride)
    ]
    around = tuple(zip(before, after))
    if _is_thin(W, g) and set(stride) == {1} and min(*before, *after) >= 0:
        return _product_and_sum(turned, g, size, around, dilation)
    if fixed and _is_small(turned, g, stride, around):
        return _by_rows(turned, g, around, dilation)
    y = _slide(jnp.moveaxis(g, 0, -1)[None], turned, (1,) * len(size), around, stride, dilation)
    return jnp.moveaxis(y[0], -1, 0)


def _back_to_W(
    x: Array, g: Array, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    """The gradient at the kernel: the gradients as a kernel, over the signal; stride and dilation
    change places.
    """
    reach = [
        (k - 1) * d + (t - 1) * s + 1 for k, d, t, s in zip(window, dilation, g.shape[1:], stride)
    ]
    more = [
        r - n - low for r, n, (low, _) in zip(reach, x.shape[1:], padding)
    ]  # of the signal after its end, or less
    x = x[(slice(None), *(slice(n + min(m, 0)) for n, m in zip(x.shape[1:], more)))]
    pads = tuple((low, max(m, 0)) for (low, _), m in zip(padding, more))
    y = _slide(
        x[..., None],
        jnp.moveaxis(g, 0, -1)[..., None, :],
        dilation,
        pads,
        (1,) * len(window),
        stride,
    )
    return jnp.moveaxis(y, (0, -1), (1, 0))


def _is_thin(W: Array, x: Array) -> bool:
    """Whether so few numbers make one output, of so many, that a convolution is not worth its
    copies.
    """
    return math.prod(W.shape[1:]) <= FEW and math.prod(x.shape[1:]) >= MANY


def _is_small(kernel: Array, x: Array, stride: Sizes, padding: Padding) -> bool:
    """Whether an image is small enough to be taken by its rows, on a CPU."""
    if (
        jax.default_backend() != "cpu"
        or len(stride) != 2
        or set(stride) != {1}
        or min(map(min, padding)) < 0
    ):
        return False
    (height, width), (rows, columns) = x.shape[1:], kernel.shape[:2]
    return (
        rows * columns > 1 and (height + sum(padding[0])) * width * rows * kernel.shape[-1] <= SMALL
    )


def _sum_of_products(W: Array, x: Array, stride: Sizes, padding: Padding, dilation: Sizes) -> Array:
    """The signal at every place of the window, times the numbers that the kernel has there."""
    x = jnp.pad(jnp.moveaxis(x, 0, -1), [*padding, (0, 0)])
    reach = [d * (k - 1) for d, k in zip(dilation, W.shape[2:])]
    places = lambda at: tuple(
        slice(d * j, n - r + d * j, s)
        for d, j, n, r, s in zip(dilation, at, x.shape, reach, stride)
    )
    outputs = jax.lax.optimization_barrier(
        jnp.moveaxis(W, 0, -1)
    )  # side by side in memory, also inside a loop
    number = lambda k, at: outputs[(k, *at)][(None,) * len(at)]
    windows = product(*map(range, W.shape[2:]))
    parts = [
        x[places(at)][..., k : k + 1] * number(k, at) for at in windows for k in range(W.shape[1])
    ]
    return jnp.moveaxis(sum(parts[1:], parts[0]), -1, 0)


def _product_and_sum(
    turned: Array, g: Array, size: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    """One product of the gradients with every place of the kernel, each laid where it belongs."""
    window, (m, c) = turned.shape[:-2], turned.shape[-2:]
    z = jnp.moveaxis(g, 0, -1) @ jnp.moveaxis(turned, -2, 0).reshape(m, -1)
    z = jnp.pad(z, [*padding, (0, 0)])
    places = lambda at: tuple(slice(d * j, d * j + n) for d, j, n in zip(dilation, at, size))
    parts = [
        z[places(at)][..., k * c : (k + 1) * c] for k, at in enumerate(product(*map(range, window)))
    ]
    return jnp.moveaxis(sum(parts[1:], parts[0]), -1, 0)


def _by_rows(kernel: Array, x: Array, padding: Padding, dilation: Sizes) -> Array:
    """One product of what lies side by side with every row of the kernel, and the sum of its
    rows.
    """
    (rows, columns), (c, m), (down, across) = kernel.shape[:2], kernel.shape[2:], dilation
    x = jnp.pad(jnp.moveaxis(x, 0, -1), [*padding, (0, 0)])
    height = x.shape[0] - down * (rows - 1)
    width = x.shape[1] - across * (columns - 1)
    beside = jnp.concatenate(
        [x[:, across * j : across * j + width] for j in range(columns)], axis=-1
    )
    z = beside @ jnp.moveaxis(kernel.reshape(rows, columns * c, m), 0, 1).reshape(
        columns * c, rows * m
    )
    parts = [z[down * i : down * i + height, :, i * m : (i + 1) * m] for i in range(rows)]
    return jnp.moveaxis(sum(parts[1:], parts[0]), -1, 0)


def _slide(
    x: Array, W: Array, stride: Sizes, padding: Any, spread: Sizes, dilation: Sizes
) -> Array:
    return jax.lax.conv_general_dilated(
        x, W, stride, padding, spread, dilation, dimension_numbers=AXES[len(stride)]
    )
