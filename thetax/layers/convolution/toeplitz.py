r"""Convolution as a matrix with constant diagonals, and as a product of spectra (§4.1).

$$h * x = Hx, \quad H_{ij} = h_{i-j}, \qquad\qquad h * x = \mathcal{F}^{-1}(\mathcal{F}h \cdot
\mathcal{F}x).$$

- `toeplitz`: the matrix $H \in \mathbb{R}^{(n+m-1) \times n}$ of the full convolution; its
  transpose is the correlation
- `circulant`: the matrix $C \in \mathbb{R}^{n \times n}$ of the circular convolution, diagonal in
  the Fourier basis
- `matrix_of`: the matrix of any linear layer, with any boundary, stride and dilation, in one or two
  dimensions
- `fft_convolve`: `convolve` in $O(n \log n)$, faster for long kernels
"""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core import upcast
from .convolution import Boundary, check_kernel


def toeplitz(h: Float[Array, " m"], n: int) -> Float[Array, "r {n}"]:
    r"""The Toeplitz matrix $H \in \mathbb{R}^{(n+m-1) \times n}$, $H_{ij} = h_{i-j}$, with
    $Hx = h * x$ for every $x \in \mathbb{R}^n$ (§4.1).

    Each column is the previous one shifted down by one row: a linear layer with $m$ parameters.

    Departs: in the notes $h$ and $x$ have the same length, and the matrix has $m$ rows.

    >>> toeplitz(jnp.array([1.0, 2.0]), 3).tolist()
    [[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]]
    """
    m = _length("toeplitz", h, n)
    index = jnp.arange(n + m - 1)[:, None] - jnp.arange(n)[None]
    return jnp.where((index >= 0) & (index < m), h[jnp.clip(index, 0, m - 1)], 0)


def circulant(h: Float[Array, " m"], n: int) -> Float[Array, "{n} {n}"]:
    r"""The circulant matrix $C \in \mathbb{R}^{n \times n}$, $C_{ij} = h_{i-j \bmod n}$, of the
    circular convolution of length $n \ge m$ (§4.1).

    These are all the linear maps that commute with cyclic shifts. The vectors
    $(e^{2\pi i jk/n})_j$ are eigenvectors of each, with the eigenvalues $\mathcal{F}h$. The
    transpose is the correlation, and has $h$ along its rows.

    >>> circulant(jnp.array([1.0, 2.0]), 3).tolist()
    [[1.0, 0.0, 2.0], [2.0, 1.0, 0.0], [0.0, 2.0, 1.0]]
    """
    m = _length("circulant", h, n)
    if m > n:
        raise ValueError(
            f"circulant: h has {m} entries, more than n={n}; use n >= {m}, or a shorter h."
        )
    index = jnp.arange(n)[:, None] - jnp.arange(n)[None]
    return jnp.pad(h, (0, n - m))[index % n]


def matrix_of(f: Callable[..., Array], shape: tuple[int, ...]) -> Float[Array, "m n"]:
    r"""The matrix $A$ with $f(x) = Ax + f(0)$ for a linear or affine $f$; inputs, of the given
    shape, and outputs are flattened.

    The matrix of a convolution is sparse and repeats the few entries of the kernel: a convolution
    is a linear layer with shared weights (§4.1). A function that is not affine raises an error.

    >>> from thetax.layers import Convolution
    >>> layer = Convolution(jnp.array([[[1.0, 2.0, 3.0]]]), boundary="same", stride=2)
    >>> matrix_of(layer, (1, 4)).tolist()
    [[2.0, 3.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0]]
    >>> matrix_of(jnp.tanh, (2,))
    Traceback (most recent call last):
    ValueError: matrix_of: the map is not linear in its input, so it has no matrix; jax.jacobian ...
    """
    x = jnp.zeros(shape)
    y = jax.eval_shape(f, x)
    units = jnp.eye(y.size, dtype=y.dtype).reshape(y.size, *y.shape)
    try:
        transpose = jax.linear_transpose(f, x)
        rows = jax.vmap(lambda unit: transpose(unit)[0])(units)
    except (AssertionError, NotImplementedError) as reason:
        raise ValueError(
            "matrix_of: the map is not linear in its input, so it has no matrix; jax.jacobian "
            "returns its Jacobian matrix at a point."
        ) from reason
    return rows.reshape(y.size, x.size)


def fft_convolve(
    W: Float[Array, "m c *k"], x: Float[Array, "c *s"], *, boundary: Boundary = "valid"
) -> Float[Array, "m *t"]:
    r"""`convolve(W, x, boundary=boundary)` by the convolution theorem, in $O(n \log n)$ for any
    kernel size (§4.1; Cooley & Tukey 1965).

    $\mathcal{F}^{-1}(\mathcal{F}W \cdot \mathcal{F}x)$ is the circular convolution. With zero
    padding to length $n + m - 1$ it is the full convolution, and the other boundaries are parts of
    that.

    Departs: the notes do not mention the padding, without which the ends overlap.

    >>> W, x = jnp.array([[[1.0, 10.0]]]), jnp.array([[1.0, 2.0, 3.0]])
    >>> [fft_convolve(W, x, boundary=b).round().tolist()[0] for b in ("valid", "full", "circular")]
    [[12.0, 23.0], [1.0, 12.0, 23.0, 30.0], [31.0, 12.0, 23.0]]
    """
    from scipy.fft import next_fast_len  # slow to import

    sizes = x.shape[1:]
    window = W.shape[2:]
    check_kernel(W, x, boundary, dilation=(1,) * len(sizes))
    circular = boundary == "circular"
    lengths = [
        n if circular else cast(int, next_fast_len(n + m - 1, real=True))
        for n, m in zip(sizes, window)
    ]
    axes = tuple(range(-len(sizes), 0))
    spectrum = lambda a: jnp.fft.rfftn(upcast(a), lengths, axes)
    y = jnp.fft.irfftn(
        jnp.einsum("mc...,c...->m...", spectrum(W), spectrum(x)), lengths, axes
    ).astype(x.dtype)
    if circular:
        return jnp.roll(y, [-((m - 1) // 2) for m in window], axes)
    parts = [_part(boundary, n, m) for n, m in zip(sizes, window)]
    return y[(slice(None), *parts)]


def _part(boundary: Boundary, n: int, m: int) -> slice:
    """The part of the full convolution, of length $n + m - 1$, for a boundary."""
    first, count = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[
        boundary
    ]
    return slice(first, first + count)


def _length(name: str, h: Array, n: int) -> int:
    if h.ndim != 1 or not len(h) or n < 1:
        raise ValueError(
            f"{name}: h must be a non-empty vector and n >= 1; got h of shape {h.shape} and n={n}."
        )
    return len(h)
