"""§4.2: backwards through a convolution, which is convolutions again."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import signal

from ... import layers, train
from ..engine.chance import chance
from ..engine.check import close, equal
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .signals import convolved, correlated


def drawn(key: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A kernel of 3 by 2, an image of 5 by 6, and a signal that comes back to their full
    convolution of 7 by 7.
    """
    rng = chance(key)
    return rng.normal(size=(3, 2)), rng.normal(size=(5, 6)), rng.normal(size=(7, 7))


def full(w: Any, x: Any) -> Any:
    """The library's full convolution of one channel."""
    return layers.convolve(w[None, None], x[None], boundary="full")[0]


def pulled_back(w: np.ndarray, x: np.ndarray, d: np.ndarray) -> tuple[Any, Any]:
    """What the library sends back to the kernel and to the image."""
    pull = jax.jit(lambda w, x, d: jax.vjp(lambda w, x: full(w, x), w, x)[1](d))
    return pull(jnp.asarray(w), jnp.asarray(x), jnp.asarray(d))


def at(a: np.ndarray, *place: int) -> float:
    """An entry, or zero beyond the edges."""
    return float(a[place]) if all(0 <= i < n for i, n in zip(place, a.shape)) else 0.0


@claim(
    "4.2-conv-backward-input",
    title="Back to the image: a correlation with the kernel",
    kind="identity",
    of=("layers.convolve", "layers.correlate", "layers.matrix_of"),
)
def to_the_image(key):
    r"""With $y = x * w$:
    $\delta x[i, j] = \sum_{m, n} \delta y[m, n]\, w[m - i, n - j] = (w \star \delta y)[i, j]$,
    which is the transpose of the matrix that $x \mapsto x * w$ is.
    """
    w, x, d = drawn(key)
    _, ours = pulled_back(w, x, d)
    value = jax.jit(lambda x: jnp.vdot(full(jnp.asarray(w), x), jnp.asarray(d)))
    sums = [
        [sum(d[m, n] * at(w, m - i, n - j) for m, n in np.ndindex(7, 7)) for j in range(6)]
        for i in range(5)
    ]
    A = np.asarray(layers.matrix_of(lambda x: full(jnp.asarray(w), x), x.shape))
    return Verdict(
        close(
            "by differences", ours, jacobian(value, x), tolerance=1e-8, method="finite differences"
        ),
        close("the double sum", ours, sums, tolerance=1e-12),
        close("the library's correlation", correlated(w, d), sums, tolerance=1e-12),
        close("scipy's", signal.correlate2d(d, w, mode="valid"), sums, tolerance=1e-12),
        close("the transposed matrix", (A.T @ d.ravel()).reshape(x.shape), sums, tolerance=1e-12),
    )


@erratum(
    "4.2-conv-backward-input",
    title="What is correlated with what, on the way to the image",
    printed=r"\Delta^{\ell-1} = \Delta^\ell \star W^\ell",
    corrected=r"\Delta^{\ell-1} = W^\ell \star \Delta^\ell",
    of=("layers.correlate",),
)
def kernel_first(key):
    r"""With $(f \star h)[u] = \sum_t f[t]\, h[u + t]$ the sum $\sum \delta_{mn} w_{m-i, n-j}$ is
    $W \star \Delta$. As printed it is $\sum \delta_{mn} w_{m+i, n+j}$. (An index of the sum above
    it is printed $n - l$ for $n - j$.)
    """
    w, x, d = drawn(key)
    _, ours = pulled_back(w, x, d)
    as_printed = [
        [sum(d[m, n] * at(w, m + i, n + j) for m, n in np.ndindex(7, 7)) for j in range(6)]
        for i in range(5)
    ]
    return Verdict(
        close("the kernel first", correlated(w, d), ours, tolerance=1e-8),
        printed=[close("the signal first", as_printed, ours, tolerance=1e-8)],
    )


@claim(
    "4.2-conv-backward-weight",
    title="Back to the kernel: a correlation with the image",
    kind="identity",
    of=("layers.convolve", "layers.correlate"),
)
def to_the_kernel(key):
    r"""With $y = x * w$:
    $\delta w[m, n] = \sum_{i, j} \delta y[i, j]\, x[i - m, j - n] = (x \star \delta y)[m, n]$.
    """
    w, x, d = drawn(key)
    ours, _ = pulled_back(w, x, d)
    value = jax.jit(lambda w: jnp.vdot(full(w, jnp.asarray(x)), jnp.asarray(d)))
    sums = [
        [sum(d[i, j] * at(x, i - m, j - n) for i, j in np.ndindex(7, 7)) for n in range(2)]
        for m in range(3)
    ]
    return Verdict(
        close(
            "by differences", ours, jacobian(value, w), tolerance=1e-8, method="finite differences"
        ),
        close("the double sum", ours, sums, tolerance=1e-12),
        close("the library's correlation", correlated(x, d), sums, tolerance=1e-12),
        close("scipy's", signal.correlate2d(d, x, mode="valid"), sums, tolerance=1e-12),
    )


@erratum(
    "4.2-conv-backward-weight",
    title="The gradient in the kernel is a correlation",
    printed=r"\frac{\partial h}{\partial W^\ell} = \Delta^\ell * X^{\ell-1}",
    corrected=r"\frac{\partial h}{\partial W^\ell} = X^{\ell-1} \star \Delta^\ell",
    of=("layers.correlate", "layers.convolve"),
)
def a_correlation(key):
    r"""$\sum_{ij} \delta_{ij} x_{i-m, j-n}$ is a correlation of $\Delta$ with $X$; the convolution
    that is printed is $\sum_{ij} \delta_{ij} x_{m-i, n-j}$.
    """
    w, x, d = drawn(key)
    ours, _ = pulled_back(w, x, d)
    return Verdict(
        close("a correlation", correlated(x, d), ours, tolerance=1e-8),
        printed=[close("a convolution", convolved(x, d)[:3, :2], ours, tolerance=1e-8)],
    )


@claim(
    "4.2-conv-backward-only-conv",
    title="Forwards and backwards by one fast convolution",
    kind="identity",
    of=("layers.fft_convolve", "layers.convolve"),
)
def only_convolutions(key):
    r"""A layer and both of its gradients are convolutions or correlations, and so can all be
    computed with fast Fourier transforms: $y = x * w$, $\delta x = w \star \delta y$,
    $\delta w = x \star \delta y$, channel by channel.
    """
    rng = chance(key)
    shapes = (4, 3, 3, 2), (3, 5, 6), (4, 7, 7)
    W, x, d = (jnp.asarray(rng.normal(size=shape)) for shape in shapes)
    flip = lambda a: jnp.flip(
        a, axis=(-2, -1)
    )  # a correlation convolves with the kernel turned round
    forward = layers.fft_convolve(W, x, boundary="full")
    to_x = jax.jit(lambda W, d: layers.fft_convolve(flip(W).swapaxes(0, 1), d))(W, d)
    to_W = jax.jit(jax.vmap(lambda d: layers.fft_convolve(flip(x)[:, None], d[None])))(d)
    pull = lambda f: jax.jit(
        lambda W, x, d: jax.vjp(lambda W, x: f(W, x, boundary="full"), W, x)[1](d)
    )(W, x, d)
    y = layers.convolve(W, x, boundary="full")
    (direct_W, direct_x), (own_W, own_x) = pull(layers.convolve), pull(layers.fft_convolve)
    pairs = np.array(
        [[signal.correlate2d(d[c], x[r], mode="valid") for r in range(3)] for c in range(4)]
    )
    return Verdict(
        close("forwards", forward, y, tolerance=1e-10),
        close("back to the image", to_x, direct_x, tolerance=1e-10),
        close("back to the kernel", to_W, direct_W, tolerance=1e-10),
        close("against scipy, pair by pair", to_W, pairs, tolerance=1e-10),
        close("the fast convolution, differentiated: the image", own_x, direct_x, tolerance=1e-10),
        close("the fast convolution, differentiated: the kernel", own_W, direct_W, tolerance=1e-10),
    )


@claim(
    "4.2-nonlinearity",
    title="A pointwise activation between convolutions",
    kind="layer",
    of=("train.backpropagate", "layers.Chain", "layers.Convolution", "layers.relu"),
)
def nonlinearity(key):
    r"""Between convolutions stands a pointwise $\varphi$; backwards, $\delta$ passes it as
    $\varphi'(a) \odot \delta$. It commutes with shifts, as they do.
    """
    rng = chance(key)
    first, second = (
        layers.Convolution(jnp.asarray(rng.normal(size=s)), boundary="circular")
        for s in ((2, 1, 3, 3), (1, 2, 3, 3))
    )
    chain = layers.Chain(first, layers.relu, second)
    x, y = jnp.asarray(rng.normal(size=(2, 1, 4, 5)))
    apart = lambda prediction, y: jnp.sum((prediction - y) ** 2) / 2
    backward = jax.jit(lambda chain, x, y: train.backpropagate(chain, apart, x, y))
    found = backward(chain, x, y)
    a = np.asarray(found.activations[1])
    delta = np.asarray(found.deltas[2])
    smooth = layers.Chain(first, layers.tanh, second)
    value = jax.jit(lambda x: apart(smooth(x), y))
    kinked = jax.jit(lambda x: apart(chain(x), y))
    turn = lambda x: jnp.roll(x, (1, 2), axis=(1, 2))
    slope = backward(smooth, x, y)
    return Verdict(
        close("δ before the rectifier", found.deltas[1], (a > 0) * delta, tolerance=1e-14),
        close(
            "δ before tanh",
            slope.deltas[1],
            (1 - np.tanh(a) ** 2) * np.asarray(slope.deltas[2]),
            tolerance=1e-12,
        ),
        close(
            "δ of the input, by differences",
            slope.deltas[0],
            jacobian(value, x),
            tolerance=1e-8,
            method="finite differences",
        ),
        close(
            "the rectifier's, at this point",
            found.deltas[0],
            jacobian(kinked, x, step=1e-6),
            tolerance=1e-7,
            relative=True,
            method="finite differences",
        ),
        equal("the rectifier commutes with shifts", layers.relu(turn(x)), turn(layers.relu(x))),
        close("the network commutes with shifts", chain(turn(x)), turn(chain(x)), tolerance=1e-12),
    )
