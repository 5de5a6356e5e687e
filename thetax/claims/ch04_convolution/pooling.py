"""§4.2, lecture 10 A.11: pooling."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

from ... import layers, tree
from ..engine.chance import chance
from ..engine.check import close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .signals import whole


def pooled(pool: Any, x: Any) -> np.ndarray:
    """A layer on one channel."""
    return np.asarray(jax.jit(lambda x: pool(x[None])[0])(jnp.asarray(x)))


def maxima(x: np.ndarray, r: int, s: int) -> np.ndarray:
    r"""$\max_{0 \le k, l < r} x[si + k, sj + l]$, window by window."""
    rows, columns = ((n - r) // s + 1 for n in x.shape)
    return np.array(
        [
            [x[s * i : s * i + r, s * j : s * j + r].max() for j in range(columns)]
            for i in range(rows)
        ]
    )


def shuffled(x: np.ndarray, r: int, rng: np.random.Generator) -> np.ndarray:
    """The numbers of every window of r by r in another order."""
    windows = x.reshape(x.shape[0] // r, r, x.shape[1] // r, r).swapaxes(1, 2).reshape(-1, r * r)
    mixed = rng.permuted(windows, axis=1).reshape(x.shape[0] // r, x.shape[1] // r, r, r)
    return mixed.swapaxes(1, 2).reshape(x.shape)


@claim("4.2-maxpool", title="Max pooling", kind="layer", of=("layers.MaxPool",))
def max_pool(key):
    r"""$I'[i, j] = \max \{ I[si + k, sj + l] : k, l \in [0, r) \}$ with a stride $s$ has
    $\lfloor (N - r)/s \rfloor + 1$ rows: with $s = r$ it makes an image smaller by $r$. A shift by
    $s$ moves the result by one place, and the order of the numbers in a window does not matter.
    """
    rng = chance(key)
    x = rng.normal(size=(8, 11))
    sizes = [(2, 2), (3, 3), (3, 2), (3, 1), (2, 3)]
    ours = {(r, s): pooled(layers.MaxPool((r, r), (s, s)), x) for r, s in sizes}
    filtered = lambda r: ndimage.maximum_filter(
        x, size=r, origin=-(r // 2)
    )  # at i, the window from i on
    rows = [(n - r) // s + 1 for r, s in sizes for n in x.shape]
    square = rng.normal(size=(8, 12))
    by_scipy = {}
    for r, s in sizes:
        a, b = ours[r, s].shape
        by_scipy[r, s] = filtered(r)[::s, ::s][:a, :b]
    pool = layers.MaxPool((2, 2))
    return Verdict(
        *[
            equal(f"window {r}, stride {s}, against a loop", ours[r, s], maxima(x, r, s))
            for r, s in sizes
        ],
        *[
            equal(f"window {r}, stride {s}, against scipy", ours[r, s], by_scipy[r, s])
            for r, s in sizes
        ],
        equal("rows and columns", [n for size in sizes for n in ours[size].shape], rows),
        equal(
            "shifted by 2, moved by 1",
            pooled(pool, np.roll(square, (2, 4), (0, 1))),
            np.roll(pooled(pool, square), (1, 2), (0, 1)),
        ),
        equal(
            "windows in another order", pooled(pool, shuffled(square, 2, rng)), pooled(pool, square)
        ),
    )


@erratum(
    "4.2-maxpool",
    title="A pool without a stride does not make an image smaller",
    printed=r"I'[i, j] = \max \{ I[i + k, j + l] : k, l \in [0, r) \}",
    corrected=r"I'[i, j] = \max \{ I[ri + k, rj + l] : k, l \in [0, r) \}",
    of=("layers.MaxPool",),
    slip=True,
)
def stride_missing(key):
    r"""Pooling is said to downsample its input, $r$ being the size of the window. The formula has
    stride 1, which takes $N$ rows to $N - r + 1$; windows side by side leave $N / r$."""
    x = chance(key).normal(size=(12, 12))
    r = 3
    size = lambda s: len(pooled(layers.MaxPool((r, r), (s, s)), x))
    return Verdict(
        equal("rows with stride r", size(r), 12 // r),
        equal("the same as by the loop", pooled(layers.MaxPool((r, r)), x), maxima(x, r, r)),
        printed=[equal("rows with stride 1", size(1), 12 // r)],
    )


@claim(
    "4.2-maxpool-grad",
    title="Back through a maximum",
    kind="identity",
    of=("layers.MaxPool", "tree.size"),
)
def max_pool_gradient(key):
    r"""$\frac{\partial x'_{ij}}{\partial x_{mn}} = 1$ at the largest number of window $(i, j)$ and
    0 elsewhere; where windows overlap the parts add up. What comes back is passed on whole, to one
    place for each window, also where two are equal. There are no parameters.
    """
    rng = chance(key)
    x = rng.permutation(36).reshape(6, 6) / 10  # no two are closer than 0.1
    apart = layers.MaxPool((2, 2))
    over = layers.MaxPool((3, 3), (1, 1))
    checks = []
    for name, pool, r, s in (("side by side", apart, 2, 2), ("overlapping", over, 3, 1)):
        f = lambda x, pool=pool: pool(x[None])[0]
        ours = np.asarray(jax.jit(jax.jacobian(f))(jnp.asarray(x)))
        expected = np.zeros_like(ours)
        for i, j in np.ndindex(*ours.shape[:2]):
            window = x[s * i : s * i + r, s * j : s * j + r]
            m, n = np.unravel_index(window.argmax(), window.shape)
            expected[i, j, s * i + m, s * j + n] = 1.0
        d = rng.normal(size=ours.shape[:2])
        (back,) = jax.jit(lambda x, d, f=f: jax.vjp(f, x)[1](d))(jnp.asarray(x), jnp.asarray(d))
        checks += [
            equal(f"{name}: one at the largest", ours, expected),
            close(
                f"{name}: by differences",
                ours,
                jacobian(jax.jit(f), x),
                tolerance=1e-8,
                method="finite differences",
            ),
            close(
                f"{name}: what comes back adds up",
                back,
                np.tensordot(d, expected, axes=2),
                tolerance=1e-13,
            ),
            close(f"{name}: its sum", float(back.sum()), d.sum(), tolerance=1e-12),
        ]
    tied = np.asarray(jax.jit(jax.jacobian(lambda x: apart(x[None])[0]))(jnp.ones((4, 4))))
    return Verdict(
        *checks,
        equal(
            "all equal: places that get a part, and their sum",
            [(tied != 0).sum(), tied.sum()],
            [4, 4],
        ),
        equal("parameters", tree.size(apart), 0),
    )


EXAMPLE = np.array([[1.0, 2, 5, 3], [3, 0, 1, 2], [2, 1, 3, 4], [1, 1, 2, 0]])


@claim("L10-A11-maxpool", title="Max pooling side by side", kind="layer", of=("layers.MaxPool",))
def side_by_side(key):
    r"""$(T_{mp} x)(k) = \max_{i = kp, \dots, (k+1)p - 1} x(i)$, a signal of length $n/p$; the
    gradient goes to the largest. The matrix of the lecture becomes $3, 5; 2, 4$.
    """
    rng = chance(key)
    p = 3
    n = 12
    x = rng.permutation(n) / 10
    pool = layers.MaxPool((p,))
    f = lambda x: pool(x[None])[0]
    windows = x.reshape(-1, p)
    slopes = np.zeros((n // p, n))
    slopes[np.arange(n // p), p * np.arange(n // p) + windows.argmax(axis=1)] = 1.0
    return Verdict(
        equal("against the rows of a matrix", pooled(pool, x), windows.max(axis=1)),
        equal("the gradient", jax.jit(jax.jacobian(f))(jnp.asarray(x)), slopes),
        close(
            "by differences",
            jacobian(jax.jit(f), x),
            slopes,
            tolerance=1e-8,
            method="finite differences",
        ),
        equal(
            "the lecture's example",
            pooled(layers.MaxPool((2, 2)), EXAMPLE),
            [[3.0, 5.0], [2.0, 4.0]],
        ),
    )


@erratum(
    "L10-A11-maxpool",
    title="Windows that lie side by side",
    printed=r"(T_{mp} x)(k) = \max_{i = kp, \dots, (k+1)p} x(i)",
    corrected=r"(T_{mp} x)(k) = \max_{i = kp, \dots, (k+1)p - 1} x(i)",
    of=("layers.MaxPool",),
    slip=True,
)
def one_too_many(key):
    r"""The last index belongs to the next window: as printed there are $p + 1$ numbers in each, and
    they overlap. The lecture's own example follows the corrected form.
    """
    said = [[3.0, 5.0], [2.0, 4.0]]
    padded = np.pad(
        EXAMPLE, ((0, 1), (0, 1)), constant_values=-np.inf
    )  # there is nothing beyond the edge
    return Verdict(
        equal("windows of p", pooled(layers.MaxPool((2, 2)), EXAMPLE), said),
        printed=[equal("windows of p + 1", pooled(layers.MaxPool((3, 3), (2, 2)), padded), said)],
    )


@claim(
    "L10-A11-pool-invariance",
    title="What pooling does not notice",
    kind="theorem",
    of=("layers.MaxPool",),
)
def pool_invariance(key):
    r"""The result is the same for any order of the numbers inside each window; a shift by the
    window $p$ moves it by one place. A shift by one place may change it: $(0, 1, 0, 0, 0, 0)$
    becomes $(1, 0, 0)$, and shifted, $(0, 1, 0)$. The translation invariance that is claimed is an
    approximate one.
    """
    rng = chance(key)
    p = 3
    x = whole(key, 12)
    pool = layers.MaxPool((p,))
    mixed = [rng.permuted(x.reshape(-1, p), axis=1).ravel() for _ in range(20)]
    pair = layers.MaxPool((2,))
    spike = np.eye(6)[1]
    return Verdict(
        equal(
            "20 orders within the windows",
            [pooled(pool, y) for y in mixed],
            np.tile(pooled(pool, x), (20, 1)),
        ),
        equal("a shift by p", pooled(pool, np.roll(x, p)), np.roll(pooled(pool, x), 1)),
        equal("a spike", pooled(pair, spike), [1.0, 0.0, 0.0]),
        equal("shifted by one place", pooled(pair, np.roll(spike, 1)), [0.0, 1.0, 0.0]),
        refuted(
            equal(
                "invariant to a shift by one place",
                pooled(pair, np.roll(spike, 1)),
                pooled(pair, spike),
            )
        ),
    )


@claim(
    "L10-A11-avgpool",
    title="Average pooling, and pooling at every place",
    kind="layer",
    of=("layers.AveragePool", "layers.MaxPool", "layers.correlate"),
)
def average(key):
    r"""The mean of every window is a convolution with a constant filter, of which the stride keeps
    some places; with stride 1 nothing is left out, and $n - p + 1$ numbers remain.
    """
    rng = chance(key)
    p = 3
    x = rng.normal(size=12)
    image = rng.normal(size=(6, 9))
    windows = np.lib.stride_tricks.sliding_window_view(x, p)
    constant = jnp.full((1, 1, p, p), 1 / p**2)
    by_filter = layers.correlate(constant, jnp.asarray(image)[None], stride=p)[0]
    return Verdict(
        close(
            "side by side, against scipy",
            pooled(layers.AveragePool((p,)), x),
            ndimage.uniform_filter1d(x, p)[1::p],
            tolerance=1e-14,
        ),
        close(
            "at every place, against windows",
            pooled(layers.AveragePool((p,), (1,)), x),
            windows.mean(axis=1),
            tolerance=1e-14,
        ),
        equal(
            "the largest at every place", pooled(layers.MaxPool((p,), (1,)), x), windows.max(axis=1)
        ),
        equal("how many remain", len(windows), 12 - p + 1),
        close(
            "images: a constant filter with a stride",
            pooled(layers.AveragePool((p, p)), image),
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
