"""§4.2, lecture 10 A.5: boundary conditions, for sequences and for images."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage, signal

from ... import layers
from ..engine.check import close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .signals import convolve_channel, correlate_channel

MODES = ("valid", "same", "full")


@claim(
    "L10-A5-circular",
    "L10-A5-valid",
    "L10-A5-same",
    title="Circular, valid and same boundaries",
    kind="layer",
    of=("layers.correlate", "layers.circulant"),
)
def edges(rng):
    r"""A filter of length $m$ on a signal of length $n$, at positions $k = 0, \dots$: circular,
    $\sum_i w(i)\, x(k + i \bmod n)$, has $n$ outputs; valid, $k \le n - m$, has $n - m + 1$;
    same, $\sum_i w(i)\, x(k + i - \lfloor m/2 \rfloor)$ with zero padding, has $n$. The library
    centres a circular filter on $k$, as for "same".
    """
    n = 9
    checks = []
    for m in (3, 4):  # an odd and an even length
        w = rng.normal(size=m)
        x = rng.normal(size=n)
        at = lambda k, w=w, x=x: x[k] if 0 <= k < len(x) else 0.0
        loop = lambda place, count, w=w: [
            sum(w[i] * place(k + i) for i in range(len(w))) for k in range(count)
        ]
        circular = np.roll(correlate_channel(w, x, boundary="circular"), -(m // 2))
        spectral = np.fft.ifft(np.conj(np.fft.fft(w, n)) * np.fft.fft(x)).real
        same = correlate_channel(w, x, boundary="same")
        checks += [
            close(
                f"m = {m}, circular: sums",
                circular,
                loop(lambda k, x=x: x[k % n], n),
                tolerance=1e-13,
            ),
            close(f"m = {m}, circular: spectra", circular, spectral, tolerance=1e-13),
            close(
                f"m = {m}, circular: the matrix",
                circular,
                layers.circulant(jnp.asarray(w), n).T @ jnp.asarray(x),
                tolerance=1e-13,
            ),
            close(
                f"m = {m}, valid: sums",
                correlate_channel(w, x),
                loop(at, n - m + 1),
                tolerance=1e-13,
            ),
            close(
                f"m = {m}, valid: numpy",
                correlate_channel(w, x),
                np.correlate(x, w, mode="valid"),
                tolerance=1e-13,
            ),
            close(
                f"m = {m}, same: sums",
                same,
                loop(lambda k, at=at, m=m: at(k - m // 2), n),
                tolerance=1e-13,
            ),
            close(
                f"m = {m}, same: scipy",
                same,
                ndimage.correlate1d(x, w, mode="constant"),
                tolerance=1e-13,
            ),
            refuted(
                close(
                    f"m = {m}, same, with the filter not centred", same, loop(at, n), tolerance=1e-3
                )
            ),
        ]
    return Verdict(*checks)


def gradients(f: Any, W: Any, x: Any, d: Any) -> tuple[list[Any], list[Any]]:
    r"""The gradients of $\langle f(W, x), d \rangle$ by W and x, by autodiff and by differences."""
    W = jnp.asarray(W)
    x = jnp.asarray(x)
    value = lambda W, x: jnp.vdot(f(W[None, None], x[None])[0], jnp.asarray(d))
    by_library = jax.jit(jax.grad(value, argnums=(0, 1)))(W, x)
    by_W = jax.jit(lambda W: value(W, x))
    by_x = jax.jit(lambda x: value(W, x))
    return list(by_library), [jacobian(by_W, W), jacobian(by_x, x)]


@claim(
    "4.2-conv2d",
    title="Convolution of images",
    kind="layer",
    of=("layers.convolve", "layers.correlate"),
)
def images(rng):
    r"""$(I * W)[i, j] = \sum_k \sum_l I[i - k, j - l]\, W[k, l]$, full, same or valid; a stride
    keeps every $s$-th output. A delta is the identity; a kernel $uv^\top$ is equivalent to two
    passes, one along each axis. Networks use correlation, which is convolution with the flipped
    kernel.
    """
    W = rng.normal(size=(3, 4))
    x = rng.normal(size=(7, 8))
    d = rng.normal(size=(9, 11))
    u = rng.normal(size=3)
    v = rng.normal(size=4)
    two_passes = convolve_channel(u[:, None], convolve_channel(v[None], x))
    loop = np.zeros((9, 11))
    for (i, j), pixel in np.ndenumerate(x):
        loop[i : i + 3, j : j + 4] += pixel * W
    full = lambda W, x: layers.convolve(W, x, boundary="full")
    ours, differences = gradients(full, W, x, d)
    strided = layers.convolve(
        jnp.asarray(W)[None, None], jnp.asarray(x)[None], boundary="full", stride=(2, 3)
    )[0]
    return Verdict(
        *[
            close(
                f"{mode}, against scipy",
                convolve_channel(W, x, boundary=mode),
                signal.convolve2d(x, W, mode=mode),
            )
            for mode in MODES
        ],
        close("full, against sums", convolve_channel(W, x), loop),
        close("strides 2 and 3, against every second and third output", strided, loop[::2, ::3]),
        close(
            "correlation with the flipped kernel",
            correlate_channel(W[::-1, ::-1], x, boundary="full"),
            loop,
        ),
        refuted(
            close(
                "correlation with the kernel not flipped",
                correlate_channel(W, x, boundary="full"),
                loop,
                tolerance=1e-3,
            )
        ),
        equal(
            "convolution with a delta", convolve_channel(np.pad([[1.0]], 1), x, boundary="same"), x
        ),
        close(
            "separable kernel, against two passes", convolve_channel(np.outer(u, v), x), two_passes
        ),
        close_derivative("gradient by W", ours[0], differences[0]),
        close_derivative("gradient by I", ours[1], differences[1]),
    )


@claim(
    "L10-A5-conv2d",
    title="Correlation of images",
    kind="layer",
    of=("layers.correlate", "layers.convolve"),
)
def correlated_images(rng):
    r"""$(w \star x)(k, \ell) = \sum_{ij} w(i, j)\, x(k + i, \ell + j)$. The gradient by the image
    is the full convolution of the output gradient with $w$, the gradient by the filter its
    correlation with the image.
    """
    w = rng.normal(size=(3, 5))
    x = rng.normal(size=(6, 7))
    d = rng.normal(size=(4, 3))
    loop = [[np.sum(w * x[k : k + 3, l : l + 5]) for l in range(3)] for k in range(4)]
    ours, differences = gradients(layers.correlate, w, x, d)
    return Verdict(
        close("valid, against sums", correlate_channel(w, x), loop),
        *[
            close(
                f"{mode}, against scipy",
                correlate_channel(w, x, boundary=mode),
                signal.correlate2d(x, w, mode=mode),
            )
            for mode in MODES
        ],
        close_derivative("gradient by w, by finite differences", ours[0], differences[0]),
        close("gradient by w: a correlation", ours[0], correlate_channel(d, x)),
        close_derivative("gradient by x, by finite differences", ours[1], differences[1]),
        close("gradient by x: a full convolution", ours[1], convolve_channel(w, d)),
    )
