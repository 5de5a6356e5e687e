"""§4.2, lecture 10 A.9 and A.10: equivariance and invariance under shifts."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import layers
from ...plot import Panel
from ..engine.check import at_least, close, equal, refuted
from ..engine.claim import Verdict, claim
from .signals import random_integers


def integer_convolution(
    key: Any, *shape: int, boundary: Any = "circular", **how: Any
) -> layers.Convolution:
    """A convolution with integer weights, so that sums are exact in any order."""
    return layers.Convolution(jnp.asarray(random_integers(key, *shape)), boundary=boundary, **how)


def shift_circular(x: Any, *by: int) -> Any:
    """An image or a signal, shifted circularly along each axis."""
    return jnp.asarray(np.roll(x, by, axis=tuple(range(1, 1 + len(by)))))


def all_shifts(f: Any, g: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """`f` of every shift of x, and the expected value `g` of the shift."""
    shifts = list(np.ndindex(*x.shape[1:]))
    axes = tuple(range(1, x.ndim))
    outputs = jax.jit(jax.vmap(lambda x: f(x)))(
        np.stack([np.roll(x, by, axis=axes) for by in shifts])
    )
    return np.asarray(outputs), np.stack([np.asarray(g(by)) for by in shifts])


def invariance_sides(f: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both sides of $f(Tx) = f(x)$ for every shift T."""
    y = np.asarray(f(x))
    return all_shifts(f, lambda by: y, x)


def equivariance_sides(f: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
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
    r"""$(\tau I) * W = \tau (I * W)$ for a translation $\tau$: everywhere on a torus; with zero
    padding, away from the edges. With a stride $s$ it holds for translations by multiples of $s$,
    and a translation by $s$ shifts the result by one. A dense layer does not commute with
    translations.
    """
    key_W, key_x, key_A = jr.split(key, 3)
    x = jnp.asarray(random_integers(key_x, 2, 8, 10))
    ring = integer_convolution(key_W, 3, 2, 3, 3)
    zero_padded = integer_convolution(key_W, 3, 2, 3, 3, boundary="same")
    strided = integer_convolution(key_W, 3, 2, 3, 3, stride=2)
    a, b = 2, 4
    inner = (slice(None), slice(a + 1, -1), slice(b + 1, -1))
    conv_of_shifted = zero_padded(shift_circular(x, a, b))
    shifted_conv = shift_circular(zero_padded(x), a, b)
    A = jnp.asarray(random_integers(key_A, 80, 80))
    dense = lambda x: layers.Linear(A)(x[0].ravel()).reshape(1, 8, 10)
    return Verdict(
        equal("on a torus, all 80 translations", *equivariance_sides(ring, x)),
        equal("zero padding: away from the edges", conv_of_shifted[inner], shifted_conv[inner]),
        refuted(equal("zero padding: everywhere", conv_of_shifted, shifted_conv)),
        equal(
            "stride 2: translations by 2 and 4",
            strided(shift_circular(x, a, b)),
            shift_circular(strided(x), a // 2, b // 2),
        ),
        refuted(
            equal(
                "stride 2: translation by 1, against no translation",
                strided(shift_circular(x, 1, 0)),
                strided(x),
            )
        ),
        refuted(
            equal(
                "stride 2: translation by 1, against a translation by 1 of the result",
                strided(shift_circular(x, 1, 0)),
                shift_circular(strided(x), 1, 0),
            )
        ),
        refuted(
            equal("a dense layer", dense(shift_circular(x, a, b)), shift_circular(dense(x), a, b))
        ),
    )


@claim(
    "L10-A9-equivariance",
    title="Layers and activations commute with translations",
    kind="theorem",
    of=("layers.Convolution", "layers.Chain", "layers.relu"),
)
def equivariance(key):
    r"""$w * (Tx) = T(w * x)$ for every translation $T$ of a ring, in one and two dimensions; a
    pointwise $\sigma$ commutes with $T$ too, and so does a stack of both. With zero padding, a
    filter of length $m$ breaks it only at positions that are, or were before the shift, within
    $\lfloor m/2 \rfloor$ of the edge.
    """
    key_1, key_2, key_x, key_s = jr.split(key, 4)
    x = jnp.asarray(random_integers(key_x, 1, 12))
    image = jnp.asarray(random_integers(key_x, 1, 5, 6))
    line = integer_convolution(key_1, 2, 1, 4 + 1)
    stack = lambda space: layers.Chain(
        integer_convolution(key_1, 2, 1, *space),
        layers.relu,
        integer_convolution(key_2, 3, 2, *space),
    )
    zeros = integer_convolution(key_s, 1, 1, 5, boundary="same")
    n = 12
    by = 3
    gap = np.abs(np.asarray(zeros(shift_circular(x, by)) - shift_circular(zeros(x), by)))[0]
    edge = lambda k: k < 2 or k >= n - 2
    allowed = np.array([edge(k) or edge((k - by) % n) for k in range(n)])
    return Verdict(
        equal("one dimension, 12 shifts", *equivariance_sides(line, x)),
        equal(
            "two dimensions, 30 shifts",
            *equivariance_sides(integer_convolution(key_1, 2, 1, 3, 3), image),
        ),
        equal(
            "convolution, rectifier, convolution: 12 shifts", *equivariance_sides(stack((3,)), x)
        ),
        equal(
            "convolution, rectifier, convolution in two dimensions: 30 shifts",
            *equivariance_sides(stack((3, 3)), image),
        ),
        equal("zero padding: largest difference away from the edges", gap[~allowed].max(), 0.0),
        at_least("zero padding: largest difference at the edges", gap[allowed].max(), 1.0),
        figure=Panel(
            "position",
            "difference between both orders",
            lines={"zero padding": (np.arange(n), gap)},
            points={
                "within two of an edge, before or after the shift": (
                    np.flatnonzero(allowed),
                    gap[allowed],
                )
            },
            title="filter of length 5, shift by 3",
        ),
    )


@claim(
    "L10-A10-invariance",
    title="Functions invariant under translations",
    kind="definition",
    of=("layers.global_mean", "layers.global_max", "layers.AdaptivePool"),
)
def invariance(key):
    r"""$f$ is invariant under $T$ if $f(Tx) = f(x)$ for all $x$: the sum, the mean and the maximum
    over all positions are; the value at one position is not, nor are the means of the four
    quarters.
    """
    x = jnp.asarray(random_integers(key, 2, 4, 8))
    total = lambda x: x.sum(axis=(1, 2))
    return Verdict(
        equal("the sum", *invariance_sides(total, x)),
        equal("the mean", *invariance_sides(layers.global_mean, x)),
        equal("the maximum", *invariance_sides(layers.global_max, x)),
        equal("the mean, against numpy", layers.global_mean(x), np.mean(x, axis=(1, 2))),
        equal("the maximum, against numpy", layers.global_max(x), np.max(x, axis=(1, 2))),
        refuted(equal("one position", *invariance_sides(lambda x: x[:, 0, 0], x))),
        refuted(equal("quarters", *invariance_sides(layers.AdaptivePool((2, 2)), x))),
    )


@claim(
    "L10-A10-composition",
    title="Equivariant layers followed by an invariant one are invariant",
    kind="theorem",
    of=("layers.Convolution", "layers.Chain", "layers.global_max", "layers.global_mean"),
)
def composition(key):
    r"""$f \circ g_1 \circ \dots \circ g_J$ is invariant if $f$ is invariant and every $g_j$
    equivariant: a stack of convolutions on a torus and activations, followed by a global pool, has
    the same output for every translation of the image. This fails with zero padding, with a max
    pool over disjoint windows, or without the global pool.
    """
    keys = jr.split(key, 4)
    x = jnp.asarray(random_integers(keys[0], 1, 8, 8))
    stack = lambda *last, boundary="circular", middle=layers.relu: layers.Chain(
        integer_convolution(keys[1], 2, 1, 3, 3, boundary=boundary),
        layers.relu,
        integer_convolution(keys[2], 3, 2, 3, 3, boundary=boundary),
        middle,
        *last,
    )
    largest = stack(layers.global_max)
    mean = stack(layers.global_mean)
    # with real weights up to rounding
    draw = lambda c, m, key: layers.Convolution.init(c, m, (3, 3), boundary="circular", key=key)
    real_weights = layers.Chain(
        draw(1, 4, keys[1]), jnp.tanh, draw(4, 3, keys[2]), jnp.tanh, layers.global_mean
    )
    return Verdict(
        equal("with a global maximum, 64 translations", *invariance_sides(largest, x)),
        equal("with a global mean, 64 translations", *invariance_sides(mean, x)),
        close("with Gaussian weights", *invariance_sides(real_weights, x), tolerance=1e-10),
        refuted(
            equal(
                "with zero padding",
                *invariance_sides(stack(layers.global_mean, boundary="same"), x),
            )
        ),
        refuted(
            equal(
                "with a max pool over disjoint windows before the mean",
                *invariance_sides(stack(layers.MaxPool((2, 2)), layers.global_mean), x),
            )
        ),
        refuted(equal("without the global pool", *invariance_sides(stack(), x))),
    )
