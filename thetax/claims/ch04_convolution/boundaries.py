"""§4.2, lecture 10 A.5: what lies beyond the edge, for sequences and for images."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage, signal

from ... import layers
from ..engine.chance import chance
from ..engine.check import close, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .signals import convolved, correlated

MODES = ("valid", "same", "full")


@claim(
    "L10-A5-circular",
    "L10-A5-valid",
    "L10-A5-same",
    title="What lies beyond the edge",
    kind="layer",
    of=("layers.correlate", "layers.circulant"),
)
def edges(key):
    r"""A filter of length $m$ on $n$ places is laid at $k = 0, \dots$: circular,
    $\sum_i w(i)\, x(k + i \bmod n)$, gives $n$ numbers; valid, $k \le n - m$, gives $n - m + 1$;
    same, $\sum_i w(i)\, x(k + i - \lfloor m/2 \rfloor)$ with zeros outside, gives $n$. The
    library's circular filter lies with its middle on $k$, as the same one does.
    """
    rng = chance(key)
    n = 9
    checks = []
    for m in (3, 4):  # a filter with a middle, and one without
        w = rng.normal(size=m)
        x = rng.normal(size=n)
        at = lambda k, w=w, x=x: x[k] if 0 <= k < len(x) else 0.0
        loop = lambda place, count, w=w: [
            sum(w[i] * place(k + i) for i in range(len(w))) for k in range(count)
        ]
        turned = np.roll(correlated(w, x, boundary="circular"), -(m // 2))
        spectral = np.fft.ifft(np.conj(np.fft.fft(w, n)) * np.fft.fft(x)).real
        same = correlated(w, x, boundary="same")
        checks += [
            close(
                f"m = {m}, circular: sums",
                turned,
                loop(lambda k, x=x: x[k % n], n),
                tolerance=1e-13,
            ),
            close(f"m = {m}, circular: spectra", turned, spectral, tolerance=1e-13),
            close(
                f"m = {m}, circular: the matrix",
                turned,
                layers.circulant(jnp.asarray(w), n).T @ jnp.asarray(x),
                tolerance=1e-13,
            ),
            close(f"m = {m}, valid: sums", correlated(w, x), loop(at, n - m + 1), tolerance=1e-13),
            close(
                f"m = {m}, valid: numpy",
                correlated(w, x),
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
                close(f"m = {m}, same, from the first place", same, loop(at, n), tolerance=1e-3)
            ),
        ]
    return Verdict(*checks)


def slopes(f: Any, W: Any, x: Any, d: Any) -> tuple[list[Any], list[Any]]:
    r"""The gradients of $\langle f(W, x), d \rangle$ in both, by the library and by differences."""
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
def images(key):
    r"""$(I * W)[i, j] = \sum_k \sum_l I[i - k, j - l]\, W[k, l]$, full, same or valid; a stride
    keeps every $s$-th place. A delta changes nothing; a kernel $uv^\top$ is two passes, one along
    each axis. Networks correlate instead, which is the same with the kernel turned round.
    """
    rng = chance(key)
    W = rng.normal(size=(3, 4))
    x = rng.normal(size=(7, 8))
    d = rng.normal(size=(9, 11))
    u = rng.normal(size=3)
    v = rng.normal(size=4)
    apart = convolved(u[:, None], convolved(v[None], x))
    loop = np.zeros((9, 11))
    for (i, j), pixel in np.ndenumerate(x):
        loop[i : i + 3, j : j + 4] += pixel * W
    full = lambda W, x: layers.convolve(W, x, boundary="full")
    ours, differences = slopes(full, W, x, d)
    strided = layers.convolve(
        jnp.asarray(W)[None, None], jnp.asarray(x)[None], boundary="full", stride=(2, 3)
    )[0]
    return Verdict(
        *[
            close(
                f"{mode}, against scipy",
                convolved(W, x, boundary=mode),
                signal.convolve2d(x, W, mode=mode),
                tolerance=1e-12,
            )
            for mode in MODES
        ],
        close("full, against sums", convolved(W, x), loop, tolerance=1e-12),
        close(
            "strides 2 and 3, against every second and third",
            strided,
            loop[::2, ::3],
            tolerance=1e-12,
        ),
        close(
            "correlation, of the kernel turned round",
            correlated(W[::-1, ::-1], x, boundary="full"),
            loop,
            tolerance=1e-12,
        ),
        refuted(
            close(
                "correlation, of the kernel as it is",
                correlated(W, x, boundary="full"),
                loop,
                tolerance=1e-3,
            )
        ),
        equal("with a delta", convolved(np.pad([[1.0]], 1), x, boundary="same"), x),
        close("in two passes", convolved(np.outer(u, v), x), apart, tolerance=1e-12),
        close(
            "gradient in W", ours[0], differences[0], tolerance=1e-8, method="finite differences"
        ),
        close(
            "gradient in I", ours[1], differences[1], tolerance=1e-8, method="finite differences"
        ),
    )


@claim(
    "L10-A5-conv2d",
    title="Correlation of images",
    kind="layer",
    of=("layers.correlate", "layers.convolve"),
)
def correlated_images(key):
    r"""$(w \star x)(k, \ell) = \sum_{ij} w(i, j)\, x(k + i, \ell + j)$. The gradient in the image
    is the full convolution of what comes back with $w$, that in the filter the correlation with the
    image.
    """
    rng = chance(key)
    w = rng.normal(size=(3, 5))
    x = rng.normal(size=(6, 7))
    d = rng.normal(size=(4, 3))
    loop = [[np.sum(w * x[k : k + 3, l : l + 5]) for l in range(3)] for k in range(4)]
    ours, differences = slopes(layers.correlate, w, x, d)
    return Verdict(
        close("valid, against sums", correlated(w, x), loop, tolerance=1e-12),
        *[
            close(
                f"{mode}, against scipy",
                correlated(w, x, boundary=mode),
                signal.correlate2d(x, w, mode=mode),
                tolerance=1e-12,
            )
            for mode in MODES
        ],
        close(
            "gradient in w, by differences",
            ours[0],
            differences[0],
            tolerance=1e-8,
            method="finite differences",
        ),
        close("gradient in w: a correlation", ours[0], correlated(d, x), tolerance=1e-12),
        close(
            "gradient in x, by differences",
            ours[1],
            differences[1],
            tolerance=1e-8,
            method="finite differences",
        ),
        close("gradient in x: a full convolution", ours[1], convolved(w, d), tolerance=1e-12),
    )
