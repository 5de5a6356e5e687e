r"""Convolution as what it is (§4.1): a matrix with constant diagonals, and a product of spectra.

$$h * x = Hx, \quad H_{ij} = h_{i-j}, \qquad\qquad h * x = \mathcal{F}^{-1}(\mathcal{F}h \cdot
\mathcal{F}x).$$

- `toeplitz`: $H \in \mathbb{R}^{(n+m-1) \times n}$ of the full convolution; its transpose
  correlates
- `circulant`: $C \in \mathbb{R}^{n \times n}$ of the convolution on a ring, which the Fourier basis
  makes diagonal
- `matrix_of`: the matrix of any linear layer, of any boundary, stride and dilation, in one
  dimension or two
- `fft_convolve`: `convolve` in $O(n \log n)$, which pays where kernels are long
"""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core import wide
from .convolution import Boundary, check_kernel


def toeplitz(h: Float[Array, " m"], n: int) -> Float[Array, "r {n}"]:
    r"""$H \in \mathbb{R}^{(n+m-1) \times n}$, $H_{ij} = h_{i-j}$: $Hx = h * x$ for every
    $x \in \mathbb{R}^n$ (§4.1).

    Each column is the one before, a place further down: a linear layer of $m$ parameters.

    Departs: the notes give $h$ as many entries as $x$, and the matrix $m$ of them.

    >>> toeplitz(jnp.array([1.0, 2.0]), 3).tolist()
    [[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]]
    """
    m = _length("toeplitz", h, n)
    place = jnp.arange(n + m - 1)[:, None] - jnp.arange(n)[None]
    return jnp.where((place >= 0) & (place < m), h[jnp.clip(place, 0, m - 1)], 0)


def circulant(h: Float[Array, " m"], n: int) -> Float[Array, "{n} {n}"]:
    r"""$C \in \mathbb{R}^{n \times n}$, $C_{ij} = h_{i-j \bmod n}$: convolution on a ring of
    $n \ge m$ places (§4.1).

    These are all the linear maps that commute with turning the ring. The vectors
    $(e^{2\pi i jk/n})_j$ are eigenvectors of each, with the eigenvalues $\mathcal{F}h$. The
    transpose correlates, and has $h$ along its rows.

    >>> circulant(jnp.array([1.0, 2.0]), 3).tolist()
    [[1.0, 0.0, 2.0], [2.0, 1.0, 0.0], [0.0, 2.0, 1.0]]
    """
    m = _length("circulant", h, n)
    if m > n:
        raise ValueError(
            f"circulant: h has {m} entries, which do not fit onto a ring of n={n} places."
        )
    place = jnp.arange(n)[:, None] - jnp.arange(n)[None]
    return jnp.pad(h, (0, n - m))[place % n]


def matrix_of(f: Callable[..., Array], shape: tuple[int, ...]) -> Float[Array, "m n"]:
    r"""$A$ with $f(x) = Ax + f(0)$, inputs of this shape and outputs both flattened, for a linear
    or affine $f$.

    That of a convolution is sparse, and its few numbers recur: a convolution is a linear layer with
    shared weights (§4.1). What is not linear is refused.

    >>> from thetax.layers import Convolution
    >>> layer = Convolution(jnp.array([[[1.0, 2.0, 3.0]]]), boundary="same", stride=2)
    >>> matrix_of(layer, (1, 4)).tolist()
    [[2.0, 3.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0]]
    >>> matrix_of(jnp.tanh, (2,))
    Traceback (most recent call last):
    ValueError: matrix_of: the map is not linear in its input, so no matrix is it; jax.jacobian ...
    """
    x = jnp.zeros(shape)
    y = jax.eval_shape(f, x)
    units = jnp.eye(y.size, dtype=y.dtype).reshape(y.size, *y.shape)
    try:
        transpose = jax.linear_transpose(f, x)
        rows = jax.vmap(lambda unit: transpose(unit)[0])(units)
    except (AssertionError, NotImplementedError) as reason:
        raise ValueError(
            "matrix_of: the map is not linear in its input, so no matrix is it; jax.jacobian has "
            "one for each point."
        ) from reason
    return rows.reshape(y.size, x.size)


def fft_convolve(
    W: Float[Array, "m c *k"], x: Float[Array, "c *s"], *, boundary: Boundary = "valid"
) -> Float[Array, "m *t"]:
    r"""`convolve(W, x, boundary=boundary)` by the convolution theorem, in $O(n \log n)$ whatever
    the kernel (§4.1).

    $\mathcal{F}^{-1}(\mathcal{F}W \cdot \mathcal{F}x)$ is the convolution on a ring; zeros that
    make the ring as long as $n + m - 1$ keep its ends apart, and the other boundaries are parts of
    that. Cooley & Tukey 1965.

    Departs: the notes do not mention the zeros, without which the ends are added up.

    >>> W, x = jnp.array([[[1.0, 10.0]]]), jnp.array([[1.0, 2.0, 3.0]])
    >>> [fft_convolve(W, x, boundary=b).round().tolist()[0] for b in ("valid", "full", "circular")]
    [[12.0, 23.0], [1.0, 12.0, 23.0, 30.0], [31.0, 12.0, 23.0]]
    """
    from scipy.fft import next_fast_len  # here, for it takes a while to import

    sizes = x.shape[1:]
    window = W.shape[2:]
    check_kernel(W, x, boundary, dilation=(1,) * len(sizes))
    wraps = boundary == "circular"
    ring = [
        n if wraps else cast(int, next_fast_len(n + m - 1, real=True))
        for n, m in zip(sizes, window)
    ]
    axes = tuple(range(-len(sizes), 0))
    spectrum = lambda a: jnp.fft.rfftn(wide(a), ring, axes)
    y = jnp.fft.irfftn(jnp.einsum("mc...,c...->m...", spectrum(W), spectrum(x)), ring, axes).astype(
        x.dtype
    )
    if wraps:
        return jnp.roll(y, [-((m - 1) // 2) for m in window], axes)
    parts = [_part(boundary, n, m) for n, m in zip(sizes, window)]
    return y[(slice(None), *parts)]


def _part(boundary: Boundary, n: int, m: int) -> slice:
    """Which places of the full convolution, of $n + m - 1$, a boundary keeps."""
    first, count = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[
        boundary
    ]
    return slice(first, first + count)


def _length(name: str, h: Array, n: int) -> int:
    if h.ndim != 1 or not len(h) or n < 1:
        raise ValueError(
            f"{name}: expected a kernel of one axis and a signal of n >= 1 places; got {h.shape}, "
            f"n={n}."
        )
    return len(h)
