"""Signals, on the integers and on the line: the library's convolution of one channel, and sums and
integrals to compare it with.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.integrate import quad

from ... import layers
from ...layers.convolution.convolution import Boundary
from ..engine.chance import chance


def convolved(h: Any, x: Any, *, boundary: Boundary = "full") -> np.ndarray:
    """The library's convolution of a signal or an image by a kernel, each of one channel."""
    return _one_channel(layers.convolve, h, x, boundary)


def correlated(h: Any, x: Any, *, boundary: Boundary = "valid") -> np.ndarray:
    """The library's correlation of a signal or an image with a kernel, each of one channel."""
    return _one_channel(layers.correlate, h, x, boundary)


def by_fft(h: Any, x: Any, *, boundary: Boundary = "full") -> np.ndarray:
    """The library's convolution by way of spectra."""
    return _one_channel(layers.fft_convolve, h, x, boundary)


def _one_channel(f: Callable[..., Any], h: Any, x: Any, boundary: Any) -> np.ndarray:
    h = jnp.asarray(h, float)
    x = jnp.asarray(x, float)
    return np.asarray(f(h[None, None], x[None], boundary=boundary))[0]


def whole(key: PRNGKeyArray, *shape: int) -> np.ndarray:
    """Whole numbers from -9 to 9, whose sums of products are exact."""
    return chance(key).integers(-9, 10, size=shape).astype(float)


Sequence = dict[int, float]  # a function on the integers, zero where it is not said


def sequence(values: Any, first: int) -> Sequence:
    """These values from an index on."""
    return {first + i: float(value) for i, value in enumerate(values)}


def sum_over(f: Sequence, h: Sequence, place: Callable[[int, int], int]) -> Sequence:
    r"""$u \mapsto \sum f[t]\, h[s]$ over all $t, s$ with `place(t, s)` $= u$: $t + s$ convolves,
    $s - t$ correlates.
    """
    found: Sequence = {}
    for t, a in f.items():
        for s, b in h.items():
            found[place(t, s)] = found.get(place(t, s), 0.0) + a * b
    return dict(sorted(found.items()))


def moved(f: Sequence, delta: int) -> Sequence:
    r"""$f_\Delta[t] = f[t + \Delta]$."""
    return {t - delta: value for t, value in f.items()}


def values(f: Sequence) -> np.ndarray:
    """The values in order, from the first index to the last."""
    return np.array([f.get(t, 0.0) for t in range(min(f), max(f) + 1)])


DT = 1 / 8
T = DT * np.arange(-96, 97)  # a grid of the line, with 0 in the middle


def on_grid(h: Callable[[Any], Any], f: Callable[[Any], Any]) -> np.ndarray:
    r"""$\int h(u - t) f(t)\,dt$ at the places of the grid, as the library's sum times the step.

    For smooth functions that die away within the grid the error of the sum is far below rounding.
    """
    return DT * by_fft(h(T), f(T), boundary="same")


def bump(mean: Any, spread: Any) -> Callable[[Any], Any]:
    """The density of a normal law."""
    return lambda t: np.exp(-(((t - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))


def integral(f: Callable[[Any], Any], low: Any, high: Any, breaks: Any = None) -> Any:
    """Adaptive quadrature; `breaks` are places where the function jumps."""
    how = {"epsabs": 1e-12, "epsrel": 1e-11, "limit": 200}
    inside = None if breaks is None else sorted({float(p) for p in breaks if low < p < high})
    return quad(f, low, high, points=inside or None, complex_func=np.iscomplexobj(f(0.3)), **how)[0]


def transform(f: Callable[[Any], Any], u: Any, breaks: Any = None) -> complex:
    r"""$(\mathcal{F}f)(u) = \int e^{-2\pi i t u} f(t)\,dt$, for what dies away within the grid."""
    return complex(integral(lambda t: np.exp(-2j * np.pi * t * u) * f(t), T[0], T[-1], breaks))
