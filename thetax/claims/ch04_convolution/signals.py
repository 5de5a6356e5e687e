"""Signals on the integers and on the line: the library's convolution of one channel, and reference
sums and integrals.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.integrate import quad

from ... import layers
from ...layers.convolution.convolution import Boundary
from ..engine.numpy_rng import numpy_rng


def convolve_channel(h: Any, x: Any, *, boundary: Boundary = "full") -> np.ndarray:
    """`layers.convolve` of a signal or an image with a kernel, each of one channel."""
    return _one_channel(layers.convolve, h, x, boundary)


def correlate_channel(h: Any, x: Any, *, boundary: Boundary = "valid") -> np.ndarray:
    """`layers.correlate` of a kernel with a signal or an image, each of one channel."""
    return _one_channel(layers.correlate, h, x, boundary)


def convolve_fft(h: Any, x: Any, *, boundary: Boundary = "full") -> np.ndarray:
    """`layers.fft_convolve` of a signal or an image with a kernel, each of one channel."""
    return _one_channel(layers.fft_convolve, h, x, boundary)


def _one_channel(f: Callable[..., Any], h: Any, x: Any, boundary: Any) -> np.ndarray:
    h = jnp.asarray(h, float)
    x = jnp.asarray(x, float)
    return np.asarray(f(h[None, None], x[None], boundary=boundary))[0]


def random_integers(key: PRNGKeyArray, *shape: int) -> np.ndarray:
    """Random integers from -9 to 9, as floats; sums of their products are exact."""
    return numpy_rng(key).integers(-9, 10, size=shape).astype(float)


Sequence = dict[int, float]  # a function on the integers, zero at missing indices


def sequence(values: Any, first: int) -> Sequence:
    """A sequence with the given values from the index `first`."""
    return {first + i: float(value) for i, value in enumerate(values)}


def sum_over(f: Sequence, h: Sequence, place: Callable[[int, int], int]) -> Sequence:
    r"""$u \mapsto \sum f[t]\, h[s]$ over all $t, s$ with `place(t, s)` $= u$: $t + s$ convolves,
    $s - t$ correlates.
    """
    sums: Sequence = {}
    for t, a in f.items():
        for s, b in h.items():
            sums[place(t, s)] = sums.get(place(t, s), 0.0) + a * b
    return dict(sorted(sums.items()))


def shift_sequence(f: Sequence, delta: int) -> Sequence:
    r"""$f_\Delta[t] = f[t + \Delta]$."""
    return {t - delta: value for t, value in f.items()}


def values(f: Sequence) -> np.ndarray:
    """The values in order, from the first index to the last."""
    return np.array([f.get(t, 0.0) for t in range(min(f), max(f) + 1)])


DT = 1 / 8
T = DT * np.arange(-96, 97)  # a grid of the line, with 0 in the middle


def convolve_on_grid(h: Callable[[Any], Any], f: Callable[[Any], Any]) -> np.ndarray:
    r"""$\int h(u - t) f(t)\,dt$ at the grid points, by `fft_convolve` times the step.

    For smooth functions that decay within the grid the quadrature error is far below rounding.
    """
    return DT * convolve_fft(h(T), f(T), boundary="same")


def bump(mean: Any, spread: Any) -> Callable[[Any], Any]:
    """The density of a normal distribution."""
    return lambda t: np.exp(-(((t - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))


def integral(f: Callable[[Any], Any], low: Any, high: Any, breaks: Any = None) -> Any:
    """Adaptive quadrature; `breaks` are points where the function jumps."""
    how = {"epsabs": 1e-12, "epsrel": 1e-11, "limit": 200}
    inside = None if breaks is None else sorted({float(p) for p in breaks if low < p < high})
    return quad(f, low, high, points=inside or None, complex_func=np.iscomplexobj(f(0.3)), **how)[0]


def transform(f: Callable[[Any], Any], u: Any, breaks: Any = None) -> complex:
    r"""$(\mathcal{F}f)(u) = \int e^{-2\pi i t u} f(t)\,dt$, for functions that decay within the
    grid.
    """
    return complex(integral(lambda t: np.exp(-2j * np.pi * t * u) * f(t), T[0], T[-1], breaks))
