r"""Correlation on a CPU, in the channels-last layout, which XLA computes fastest.

On a CPU XLA converts a convolution to this layout itself, but not inside a loop or a branch, where
it is more than ten times slower without. So the conversion is done here, for the correlation and
its two gradients,

$$\bar x = \bar y * W, \qquad \bar W = \bar y \star x,$$

each written as a correlation in the same layout. The JVP of $y$ is defined as the transpose of
these gradients, so the backward pass computes exactly them.

For images with one or three channels, XLA's convolution spends most of its time copying. When such
a call is differentiated, $y$ is computed as a sum of scalar products with slices of the image, and
$\bar x$ from one matrix product. If only the input is differentiated, as in an adversarial attack,
a small image is computed row by row: one matrix product of each row of the window with each row of
the image, summed over the rows of the window. Without differentiation $y$ is a single
`conv_general_dilated`, which code that reads a jaxpr recognises.
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
MAX_THIN_INPUTS = 27  # inputs of one output (kernel entries times channels) for a sum of products
MIN_THIN_POSITIONS = 256  # output positions for a sum of products
MAX_ROW_SIZE = 45_000  # floats of the intermediate array in `_by_rows`, so that it stays in cache


@partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def correlate_last(
    W: Float[Array, "m c *k"],
    x: Float[Array, "c *s"],
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
) -> Float[Array, "m *t"]:
    r"""Cross-correlation $y_l[i] = \sum_k \sum_j W_{lk}[j]\, x_k[si + dj]$ of a zero-padded signal;
    arguments and result have channels first.

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
    (W, x), (d_W, d_x), options = primals, tangents, (stride, padding, dilation)
    constant_W = isinstance(d_W, SymbolicZero)
    y = _forward(W, x, *options, constant_W=constant_W)
    d_y = jnp.zeros_like(y)
    if not isinstance(d_x, SymbolicZero):
        pull = lambda g: _gradient_x(W, g, x.shape[1:], *options, constant_W=constant_W)
        d_y += jax.linear_transpose(pull, y)(d_x)[0]
    if not constant_W:
        pull = lambda g: _gradient_W(x, g, W.shape[2:], *options)
        d_y += jax.linear_transpose(pull, y)(d_W)[0]
    return y, d_y


def _forward(
    W: Array, x: Array, stride: Sizes, padding: Padding, dilation: Sizes, *, constant_W: bool
) -> Array:
    """The correlation, by the fastest of three methods."""
    if _is_thin(W, x):
        return _sum_of_products(W, x, stride, padding, dilation)
    kernel = jnp.moveaxis(W, (0, 1), (-1, -2))
    if constant_W and _is_small(kernel, x, stride, padding):
        return _by_rows(kernel, x, padding, dilation)
    return correlate_last(W, x, stride, padding, dilation)


def _gradient_x(
    W: Array,
    g: Array,
    size: Sizes,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    *,
    constant_W: bool,
) -> Array:
    """The gradient in the signal: a correlation of the flipped kernel with `g` dilated by the
    stride.
    """
    flipped = jnp.moveaxis(jnp.flip(W, tuple(range(2, W.ndim))), (0, 1), (-2, -1))
    before = [d * (k - 1) - low for d, k, (low, _) in zip(dilation, W.shape[2:], padding)]
    after = [
        n + low - (t - 1) * s - 1 for n, (low, _), t, s in zip(size, padding, g.shape[1:], stride)
    ]
    pads = tuple(zip(before, after))
    if _is_thin(W, g) and set(stride) == {1} and min(*before, *after) >= 0:
        return _product_and_sum(flipped, g, size, pads, dilation)
    if constant_W and _is_small(flipped, g, stride, pads):
        return _by_rows(flipped, g, pads, dilation)
    y = _slide(jnp.moveaxis(g, 0, -1)[None], flipped, (1,) * len(size), pads, stride, dilation)
    return jnp.moveaxis(y[0], -1, 0)


def _gradient_W(
    x: Array, g: Array, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    """The gradient in the kernel: a correlation of the signal with `g` as the kernel; stride and
    dilation are exchanged.
    """
    reach = [
        (k - 1) * d + (t - 1) * s + 1 for k, d, t, s in zip(window, dilation, g.shape[1:], stride)
    ]
    # Padding after the end of the signal; if negative, the signal is cropped.
    high = [r - n - low for r, n, (low, _) in zip(reach, x.shape[1:], padding)]
    x = x[(slice(None), *(slice(n + min(h, 0)) for n, h in zip(x.shape[1:], high)))]
    pads = tuple((low, max(h, 0)) for (low, _), h in zip(padding, high))
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
    """Whether there are so few inputs per output, and so many positions, that the copies of XLA's
    convolution cost more than the arithmetic.
    """
    return (
        math.prod(W.shape[1:]) <= MAX_THIN_INPUTS and math.prod(x.shape[1:]) >= MIN_THIN_POSITIONS
    )


def _is_small(kernel: Array, x: Array, stride: Sizes, padding: Padding) -> bool:
    """Whether `_by_rows` is fast: on a CPU, for a small image with stride 1."""
    if (
        jax.default_backend() != "cpu"
        or len(stride) != 2
        or set(stride) != {1}
        or min(map(min, padding)) < 0
    ):
        return False
    (height, width), (rows, columns) = x.shape[1:], kernel.shape[:2]
    size = (height + sum(padding[0])) * width * rows * kernel.shape[-1]
    return rows * columns > 1 and size <= MAX_ROW_SIZE


def _sum_of_products(W: Array, x: Array, stride: Sizes, padding: Padding, dilation: Sizes) -> Array:
    """The sum, over all entries of the window, of a slice of the signal times the weights."""
    x = jnp.pad(jnp.moveaxis(x, 0, -1), [*padding, (0, 0)])
    reach = [d * (k - 1) for d, k in zip(dilation, W.shape[2:])]
    shifted = lambda entry: tuple(
        slice(d * j, n - r + d * j, s)
        for d, j, n, r, s in zip(dilation, entry, x.shape, reach, stride)
    )
    # The barrier keeps the outputs contiguous in memory, also inside a loop.
    outputs_last = jax.lax.optimization_barrier(jnp.moveaxis(W, 0, -1))
    weight = lambda k, entry: outputs_last[(k, *entry)][(None,) * len(entry)]
    parts = [
        x[shifted(entry)][..., k : k + 1] * weight(k, entry)
        for entry in product(*map(range, W.shape[2:]))
        for k in range(W.shape[1])
    ]
    return jnp.moveaxis(sum(parts[1:], parts[0]), -1, 0)


def _product_and_sum(
    kernel: Array, g: Array, size: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    """One matrix product of the gradient with all entries of the kernel, whose shifted results are
    summed.
    """
    window, (m, c) = kernel.shape[:-2], kernel.shape[-2:]
    z = jnp.moveaxis(g, 0, -1) @ jnp.moveaxis(kernel, -2, 0).reshape(m, -1)
    z = jnp.pad(z, [*padding, (0, 0)])
    shifted = lambda entry: tuple(slice(d * j, d * j + n) for d, j, n in zip(dilation, entry, size))
    parts = [
        z[shifted(entry)][..., k * c : (k + 1) * c]
        for k, entry in enumerate(product(*map(range, window)))
    ]
    return jnp.moveaxis(sum(parts[1:], parts[0]), -1, 0)


def _by_rows(kernel: Array, x: Array, padding: Padding, dilation: Sizes) -> Array:
    """One matrix product of the horizontal windows of the image with all rows of the kernel, whose
    shifted results are summed over the rows.
    """
    (rows, columns), (c, m), (down, across) = kernel.shape[:2], kernel.shape[2:], dilation
    x = jnp.pad(jnp.moveaxis(x, 0, -1), [*padding, (0, 0)])
    height = x.shape[0] - down * (rows - 1)
    width = x.shape[1] - across * (columns - 1)
    windows = jnp.concatenate(
        [x[:, across * j : across * j + width] for j in range(columns)], axis=-1
    )
    z = windows @ jnp.moveaxis(kernel.reshape(rows, columns * c, m), 0, 1).reshape(
        columns * c, rows * m
    )
    parts = [z[down * i : down * i + height, :, i * m : (i + 1) * m] for i in range(rows)]
    return jnp.moveaxis(sum(parts[1:], parts[0]), -1, 0)


def _slide(
    x: Array, W: Array, stride: Sizes, padding: Any, x_dilation: Sizes, dilation: Sizes
) -> Array:
    """The convolution of XLA, channels last."""
    return jax.lax.conv_general_dilated(
        x, W, stride, padding, x_dilation, dilation, dimension_numbers=AXES[len(stride)]
    )
