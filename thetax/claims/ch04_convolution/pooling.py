"""§4.2, lecture 10 A.11: pooling."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

from ... import layers, tree
from ..engine.check import close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .signals import random_integers


def pool_channel(pool: Any, x: Any) -> np.ndarray:
    """A pooling layer applied to one channel."""
    return np.asarray(jax.jit(lambda x: pool(x[None])[0])(jnp.asarray(x)))


def window_maxima(x: np.ndarray, r: int, s: int) -> np.ndarray:
    r"""$\max_{0 \le k, l < r} x[si + k, sj + l]$, window by window."""
    rows, columns = ((n - r) // s + 1 for n in x.shape)
    return np.array(
        [
            [x[s * i : s * i + r, s * j : s * j + r].max() for j in range(columns)]
            for i in range(rows)
        ]
    )


def shuffle_windows(x: np.ndarray, r: int, rng: np.random.Generator) -> np.ndarray:
    """The array with the entries of every r by r window shuffled."""
    windows = x.reshape(x.shape[0] // r, r, x.shape[1] // r, r).swapaxes(1, 2).reshape(-1, r * r)
    permuted = rng.permuted(windows, axis=1).reshape(x.shape[0] // r, x.shape[1] // r, r, r)
    return permuted.swapaxes(1, 2).reshape(x.shape)


@claim("4.2-maxpool", title="Max pooling", kind="layer", of=("layers.MaxPool",))
def max_pool(rng):
    r"""$I'[i, j] = \max \{ I[si + k, sj + l] : k, l \in [0, r) \}$ with a stride $s$ has
    $\lfloor (N - r)/s \rfloor + 1$ rows: with $s = r$ it shrinks an image by the factor $r$. A
    shift by $s$ shifts the result by one, and the order of the entries in a window does not matter.
    """
    x = rng.normal(size=(8, 11))
    sizes = [(2, 2), (3, 3), (3, 2), (3, 1), (2, 3)]
    outputs = {(r, s): pool_channel(layers.MaxPool((r, r), (s, s)), x) for r, s in sizes}
    scipy_filter = lambda r: ndimage.maximum_filter(
        x, size=r, origin=-(r // 2)
    )  # the window that starts at i
    rows = [(n - r) // s + 1 for r, s in sizes for n in x.shape]
    square = rng.normal(size=(8, 12))
    by_scipy = {}
    for r, s in sizes:
        a, b = outputs[r, s].shape
        by_scipy[r, s] = scipy_filter(r)[::s, ::s][:a, :b]
    pool = layers.MaxPool((2, 2))
    return Verdict(
        *[
            equal(f"window {r}, stride {s}, against a loop", outputs[r, s], window_maxima(x, r, s))
            for r, s in sizes
        ],
        *[
            equal(f"window {r}, stride {s}, against scipy", outputs[r, s], by_scipy[r, s])
            for r, s in sizes
        ],
        equal("rows and columns", [n for size in sizes for n in outputs[size].shape], rows),
        equal(
            "shifts by 2 and 4 of the input are shifts by 1 and 2 of the output",
            pool_channel(pool, np.roll(square, (2, 4), (0, 1))),
            np.roll(pool_channel(pool, square), (1, 2), (0, 1)),
        ),
        equal(
            "shuffled windows",
            pool_channel(pool, shuffle_windows(square, 2, rng)),
            pool_channel(pool, square),
        ),
    )


@erratum(
    "4.2-maxpool",
    title="A pool with stride 1 does not downsample",
    printed=r"I'[i, j] = \max \{ I[i + k, j + l] : k, l \in [0, r) \}",
    corrected=r"I'[i, j] = \max \{ I[ri + k, rj + l] : k, l \in [0, r) \}",
    of=("layers.MaxPool",),
    slip=True,
)
def stride_missing(rng):
    r"""Pooling is said to downsample its input, $r$ being the size of the window. The formula has
    stride 1, which maps $N$ rows to $N - r + 1$; disjoint windows give $N / r$."""
    x = rng.normal(size=(12, 12))
    r = 3
    size = lambda s: len(pool_channel(layers.MaxPool((r, r), (s, s)), x))
    return Verdict(
        equal("rows with stride r", size(r), 12 // r),
        equal(
            "the output with stride r, against a loop",
            pool_channel(layers.MaxPool((r, r)), x),
            window_maxima(x, r, r),
        ),
        printed=[equal("rows with stride 1", size(1), 12 // r)],
    )


@claim(
    "4.2-maxpool-grad",
    title="The gradient of max pooling",
    kind="identity",
    of=("layers.MaxPool", "tree.size"),
)
def max_pool_gradient(rng):
    r"""$\frac{\partial x'_{ij}}{\partial x_{mn}} = 1$ at the largest entry of window $(i, j)$ and 0
    elsewhere; if windows overlap the gradients add up. Each window passes its whole gradient to one
    entry, also if there are ties. There are no parameters.
    """
    x = rng.permutation(36).reshape(6, 6) / 10  # entries differ by at least 0.1
    disjoint = layers.MaxPool((2, 2))
    overlapping = layers.MaxPool((3, 3), (1, 1))
    checks = []
    for name, pool, r, s in (("disjoint", disjoint, 2, 2), ("overlapping", overlapping, 3, 1)):
        f = lambda x, pool=pool: pool(x[None])[0]
        gradient = np.asarray(jax.jit(jax.jacobian(f))(jnp.asarray(x)))
        expected = np.zeros_like(gradient)
        for i, j in np.ndindex(*gradient.shape[:2]):
            window = x[s * i : s * i + r, s * j : s * j + r]
            m, n = np.unravel_index(window.argmax(), window.shape)
            expected[i, j, s * i + m, s * j + n] = 1.0
        d = rng.normal(size=gradient.shape[:2])
        (back,) = jax.jit(lambda x, d, f=f: jax.vjp(f, x)[1](d))(jnp.asarray(x), jnp.asarray(d))
        checks += [
            equal(f"{name}: 1 at the largest entry", gradient, expected),
            close_derivative(f"{name}: by finite differences", gradient, jacobian(jax.jit(f), x)),
            close(
                f"{name}: input gradient",
                back,
                np.tensordot(d, expected, axes=2),
                tolerance=1e-13,
            ),
            close(f"{name}: sum of the input gradient", float(back.sum()), d.sum()),
        ]
    tie_gradient = np.asarray(
        jax.jit(jax.jacobian(lambda x: disjoint(x[None])[0]))(jnp.ones((4, 4)))
    )
    return Verdict(
        *checks,
        equal(
            "all entries equal: number of non-zero derivatives, and their sum",
            [(tie_gradient != 0).sum(), tie_gradient.sum()],
            [4, 4],
        ),
        equal("parameters", tree.size(disjoint), 0),
    )


EXAMPLE = np.array([[1.0, 2, 5, 3], [3, 0, 1, 2], [2, 1, 3, 4], [1, 1, 2, 0]])


@claim(
    "L10-A11-maxpool",
    title="Max pooling over disjoint windows",
    kind="layer",
    of=("layers.MaxPool",),
)
def side_by_side(rng):
    r"""$(T_{mp} x)(k) = \max_{i = kp, \dots, (k+1)p - 1} x(i)$, a signal of length $n/p$; the
    gradient goes to the largest entry. The lecture's example gives $3, 5; 2, 4$.
    """
    p = 3
    n = 12
    x = rng.permutation(n) / 10
    pool = layers.MaxPool((p,))
    f = lambda x: pool(x[None])[0]
    windows = x.reshape(-1, p)
    slopes = np.zeros((n // p, n))
    slopes[np.arange(n // p), p * np.arange(n // p) + windows.argmax(axis=1)] = 1.0
    return Verdict(
        equal("against the rows of a matrix", pool_channel(pool, x), windows.max(axis=1)),
        equal("the gradient", jax.jit(jax.jacobian(f))(jnp.asarray(x)), slopes),
        close_derivative("by differences", jacobian(jax.jit(f), x), slopes),
        equal(
            "the lecture's example",
            pool_channel(layers.MaxPool((2, 2)), EXAMPLE),
            [[3.0, 5.0], [2.0, 4.0]],
        ),
    )


@erratum(
    "L10-A11-maxpool",
    title="Disjoint windows have p entries, not p + 1",
    printed=r"(T_{mp} x)(k) = \max_{i = kp, \dots, (k+1)p} x(i)",
    corrected=r"(T_{mp} x)(k) = \max_{i = kp, \dots, (k+1)p - 1} x(i)",
    of=("layers.MaxPool",),
    slip=True,
)
def one_too_many(key):
    r"""The last index belongs to the next window: as printed there are $p + 1$ numbers in each, and
    they overlap. The lecture's own example follows the corrected form.
    """
    expected = [[3.0, 5.0], [2.0, 4.0]]
    padded = np.full((5, 5), -np.inf)  # no entries beyond the edge
    padded[:4, :4] = EXAMPLE
    return Verdict(
        equal("windows of p", pool_channel(layers.MaxPool((2, 2)), EXAMPLE), expected),
        printed=[
            equal(
                "windows of p + 1", pool_channel(layers.MaxPool((3, 3), (2, 2)), padded), expected
            )
        ],
    )


@claim(
    "L10-A11-pool-invariance",
    title="Invariances of max pooling",
    kind="theorem",
    of=("layers.MaxPool",),
)
def pool_invariance(key, rng):
    r"""The result is the same for any order of the entries inside each window; a shift by the
    window size $p$ shifts it by one. A shift by one may change it: $(0, 1, 0, 0, 0, 0)$ becomes
    $(1, 0, 0)$, and shifted, $(0, 1, 0)$. The translation invariance in the lecture is only
    approximate.
    """
    p = 3
    x = random_integers(key, 12)
    pool = layers.MaxPool((p,))
    permutations = [rng.permuted(x.reshape(-1, p), axis=1).ravel() for _ in range(20)]
    pair = layers.MaxPool((2,))
    spike = np.eye(6)[1]
    return Verdict(
        equal(
            "20 orders within the windows",
            [pool_channel(pool, y) for y in permutations],
            np.tile(pool_channel(pool, x), (20, 1)),
        ),
        equal("a shift by p", pool_channel(pool, np.roll(x, p)), np.roll(pool_channel(pool, x), 1)),
        equal("a spike", pool_channel(pair, spike), [1.0, 0.0, 0.0]),
        equal("the spike shifted by one", pool_channel(pair, np.roll(spike, 1)), [0.0, 1.0, 0.0]),
        refuted(
            equal(
                "invariant under a shift by one",
                pool_channel(pair, np.roll(spike, 1)),
                pool_channel(pair, spike),
            )
        ),
    )


@claim(
    "L10-A11-avgpool",
    title="Average pooling, and pooling with stride 1",
    kind="layer",
    of=("layers.AveragePool", "layers.MaxPool", "layers.correlate"),
)
def average(rng):
    r"""The mean of every window is a convolution with a constant filter, sampled with the stride;
    with stride 1 there are $n - p + 1$ outputs.
    """
    p = 3
    x = rng.normal(size=12)
    image = rng.normal(size=(6, 9))
    windows = np.lib.stride_tricks.sliding_window_view(x, p)
    constant = jnp.full((1, 1, p, p), 1 / p**2)
    by_filter = layers.correlate(constant, jnp.asarray(image)[None], stride=p)[0]
    return Verdict(
        close(
            "disjoint windows, against scipy",
            pool_channel(layers.AveragePool((p,)), x),
            ndimage.uniform_filter1d(x, p)[1::p],
            tolerance=1e-14,
        ),
        close(
            "average pooling with stride 1, against windows",
            pool_channel(layers.AveragePool((p,), (1,)), x),
            windows.mean(axis=1),
            tolerance=1e-14,
        ),
        equal(
            "max pooling with stride 1, against windows",
            pool_channel(layers.MaxPool((p,), (1,)), x),
            windows.max(axis=1),
        ),
        equal("number of outputs with stride 1", len(windows), 12 - p + 1),
        close(
            "images: a constant filter with a stride",
            pool_channel(layers.AveragePool((p, p)), image),
            by_filter,
            tolerance=1e-14,
        ),
        close(
            "images, against scipy",
            by_filter,
            ndimage.uniform_filter(image, p)[1::p, 1::p],
            tolerance=1e-14,
        ),
    )
