"""§4.2, lecture 10 A.9 and A.10: what commutes with shifts, and what does not notice them."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers
from ...plot import Chart, Panel
from ..engine.check import at_least, close, equal, refuted
from ..engine.claim import Verdict, claim
from .signals import whole


def kernel(key: Any, *shape: int, boundary: Any = "circular", **how: Any) -> layers.Convolution:
    """A convolution whose weights are whole numbers, so that sums are exact in any order."""
    return layers.Convolution(jnp.asarray(whole(key, *shape)), boundary=boundary, **how)


def turned(x: Any, *by: int) -> Any:
    """The places of an image or a signal moved on along each axis, around the edge."""
    return jnp.asarray(np.roll(x, by, axis=tuple(range(1, 1 + len(by)))))


def all_shifts(f: Any, g: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """`f` of every shift of x, and what `g` says it should be."""
    shifts = list(np.ndindex(*x.shape[1:]))
    axes = tuple(range(1, x.ndim))
    one = jax.jit(jax.vmap(lambda x: f(x)))(np.stack([np.roll(x, by, axis=axes) for by in shifts]))
    return np.asarray(one), np.stack([np.asarray(g(by)) for by in shifts])


def stays(f: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both sides of $f(Tx) = f(x)$ for every shift T."""
    y = np.asarray(f(x))
    return all_shifts(f, lambda by: y, x)


def commutes(f: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both sides of $f(Tx) = T f(x)$ for every shift T."""
    y = np.asarray(f(x))
    return all_shifts(f, lambda by: np.roll(y, by, axis=tuple(range(1, y.ndim))), x)


@claim(
    "4.2-equivariance",
    title="Convolution of images commutes with translations",
    kind="identity",
    of=("layers.Convolution", "layers.Linear"),
)
def translations(key):
    r"""$(\tau I) * W = \tau (I * W)$ for a translation $\tau$: everywhere on a torus; with zeros
    outside, away from the edges. With a stride $s$ it holds for translations by multiples of $s$,
    which then move the result by one place. A dense layer does not commute with translations.
    """
    key_W, key_x, key_A = jr.split(key, 3)
    x = jnp.asarray(whole(key_x, 2, 8, 10))
    ring = kernel(key_W, 3, 2, 3, 3)
    zeros = kernel(key_W, 3, 2, 3, 3, boundary="same")
    strided = kernel(key_W, 3, 2, 3, 3, stride=2)
    a, b = 2, 4
    inner = (slice(None), slice(a + 1, -1), slice(b + 1, -1))
    moved = zeros(turned(x, a, b))
    after = turned(zeros(x), a, b)
    A = jnp.asarray(whole(key_A, 80, 80))
    dense = lambda x: layers.Linear(A)(x[0].ravel()).reshape(1, 8, 10)
    return Verdict(
        equal("on a torus, all 80 translations", *commutes(ring, x)),
        equal("zeros outside: away from the edges", moved[inner], after[inner]),
        refuted(equal("zeros outside: everywhere", moved, after)),
        equal(
            "stride 2: translations by 2 and 4",
            strided(turned(x, a, b)),
            turned(strided(x), a // 2, b // 2),
        ),
        refuted(equal("stride 2: by 1, against the same", strided(turned(x, 1, 0)), strided(x))),
        refuted(
            equal(
                "stride 2: by 1, against a move by one",
                strided(turned(x, 1, 0)),
                turned(strided(x), 1, 0),
            )
        ),
        refuted(equal("a dense layer", dense(turned(x, a, b)), turned(dense(x), a, b))),
    )


@claim(
    "L10-A9-equivariance",
    title="Layers and activations commute with translations",
    kind="theorem",
    of=("layers.Convolution", "layers.Chain", "layers.relu"),
)
def equivariance(key):
    r"""$w * (Tx) = T(w * x)$ for every translation $T$ of a ring, in one dimension and two; so does
    a pointwise $\sigma$, and so a stack of both. With zeros outside, a filter of length $m$ breaks
    it only where the place or the one it came from is within $\lfloor m/2 \rfloor$ of the edge.
    """
    key_1, key_2, key_x, key_s = jr.split(key, 4)
    x = jnp.asarray(whole(key_x, 1, 12))
    image = jnp.asarray(whole(key_x, 1, 5, 6))
    line = kernel(key_1, 2, 1, 4 + 1)
    stack = lambda space: layers.Chain(
        kernel(key_1, 2, 1, *space), layers.relu, kernel(key_2, 3, 2, *space)
    )
    zeros = kernel(key_s, 1, 1, 5, boundary="same")
    n = 12
    by = 3
    gap = np.abs(np.asarray(zeros(turned(x, by)) - turned(zeros(x), by)))[0]
    edge = lambda k: k < 2 or k >= n - 2
    allowed = np.array([edge(k) or edge((k - by) % n) for k in range(n)])
    return Verdict(
        equal("one dimension, 12 shifts", *commutes(line, x)),
        equal("two dimensions, 30 shifts", *commutes(kernel(key_1, 2, 1, 3, 3), image)),
        equal("convolution, rectifier, convolution: 12 shifts", *commutes(stack((3,)), x)),
        equal("in two dimensions: 30 shifts", *commutes(stack((3, 3)), image)),
        equal("zeros outside: the largest gap away from the edges", gap[~allowed].max(), 0.0),
        at_least("and at the edges", gap[allowed].max(), 1.0),
        figure=Chart(
            Panel(
                "place",
                "gap between both orders",
                lines={"zeros outside": (np.arange(n), gap)},
                points={
                    "within two of an edge, now or before": (np.flatnonzero(allowed), gap[allowed])
                },
                title="filter of length 5, shift by 3",
            )
        ),
    )


@claim(
    "L10-A10-invariance",
    title="What does not notice a translation",
    kind="definition",
    of=("layers.global_mean", "layers.global_max", "layers.AdaptivePool"),
)
def invariance(key):
    r"""$f$ is invariant under $T$ if $f(Tx) = f(x)$ for all $x$: the sum, the mean and the maximum
    over all places are; the value at one place is not, nor are means of the four quarters.
    """
    x = jnp.asarray(whole(key, 2, 4, 8))
    total = lambda x: x.sum(axis=(1, 2))
    return Verdict(
        equal("the sum", *stays(total, x)),
        equal("the mean", *stays(layers.global_mean, x)),
        equal("the largest", *stays(layers.global_max, x)),
        equal("the mean, against numpy", layers.global_mean(x), np.mean(x, axis=(1, 2))),
        equal("the largest, against numpy", layers.global_max(x), np.max(x, axis=(1, 2))),
        refuted(equal("one place", *stays(lambda x: x[:, 0, 0], x))),
        refuted(equal("quarters", *stays(layers.AdaptivePool((2, 2)), x))),
    )


@claim(
    "L10-A10-composition",
    title="Equivariant layers, then an invariant one",
    kind="theorem",
    of=("layers.Convolution", "layers.Chain", "layers.global_max", "layers.global_mean"),
)
def composition(key):
    r"""$f \circ g_1 \circ \dots \circ g_J$ is invariant if $f$ is invariant and every $g_j$
    equivariant: a stack of convolutions on a torus and activations, and then a pool over all
    places, gives the same for every translation of the image. Zeros outside, a maximum over windows
    side by side, or no last pool, and it does not.
    """
    keys = jr.split(key, 4)
    x = jnp.asarray(whole(keys[0], 1, 8, 8))
    stack = lambda *last, boundary="circular", middle=layers.relu: layers.Chain(
        kernel(keys[1], 2, 1, 3, 3, boundary=boundary),
        layers.relu,
        kernel(keys[2], 3, 2, 3, 3, boundary=boundary),
        middle,
        *last,
    )
    largest = stack(layers.global_max)
    mean = stack(layers.global_mean)
    # rounding apart, that of real weights too
    draw = lambda c, m, key: layers.Convolution.init(c, m, (3, 3), boundary="circular", key=key)
    drawn = layers.Chain(
        draw(1, 4, keys[1]), jnp.tanh, draw(4, 3, keys[2]), jnp.tanh, layers.global_mean
    )
    return Verdict(
        equal("with the largest of all places, 64 translations", *stays(largest, x)),
        equal("with the mean", *stays(mean, x)),
        close("with weights that are drawn", *stays(drawn, x), tolerance=1e-10),
        refuted(equal("with zeros outside", *stays(stack(layers.global_mean, boundary="same"), x))),
        refuted(
            equal(
                "with windows side by side before the mean",
                *stays(stack(layers.MaxPool((2, 2)), layers.global_mean), x),
            )
        ),
        refuted(equal("without a last pool", *stays(stack(), x))),
    )
