"""§4.2: the gradients of a convolution, which are convolutions and correlations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import signal

from ... import layers, train
from ..engine.check import close, close_derivative, equal
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from ..engine.numpy_rng import numpy_rng
from .signals import convolve_channel, correlate_channel


def random_problem(key: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A kernel of 3 by 2, an image of 5 by 6, and an output gradient for their full convolution of
    7 by 7.
    """
    rng = numpy_rng(key)
    return rng.normal(size=(3, 2)), rng.normal(size=(5, 6)), rng.normal(size=(7, 7))


def full_convolution(w: Any, x: Any) -> Any:
    """`layers.convolve` of one channel, with boundary "full"."""
    return layers.convolve(w[None, None], x[None], boundary="full")[0]


def pullback(w: np.ndarray, x: np.ndarray, d: np.ndarray) -> tuple[Any, Any]:
    """The gradients by kernel and by image, from automatic differentiation."""
    pull = jax.jit(lambda w, x, d: jax.vjp(lambda w, x: full_convolution(w, x), w, x)[1](d))
    return pull(jnp.asarray(w), jnp.asarray(x), jnp.asarray(d))


def entry_or_zero(a: np.ndarray, *place: int) -> float:
    """An entry, or 0 outside the array."""
    return float(a[place]) if all(0 <= i < n for i, n in zip(place, a.shape)) else 0.0


@claim(
    "4.2-conv-backward-input",
    title="The gradient by the image is a correlation with the kernel",
    kind="identity",
    of=("layers.convolve", "layers.correlate", "layers.matrix_of"),
)
def to_the_image(key):
    r"""With $y = x * w$:
    $\delta x[i, j] = \sum_{m, n} \delta y[m, n]\, w[m - i, n - j] = (w \star \delta y)[i, j]$,
    which is the transposed matrix of $x \mapsto x * w$ applied to $\delta y$.
    """
    w, x, d = random_problem(key)
    _, gradient = pullback(w, x, d)
    value = jax.jit(lambda x: jnp.vdot(full_convolution(jnp.asarray(w), x), jnp.asarray(d)))
    sums = [
        [
            sum(d[m, n] * entry_or_zero(w, m - i, n - j) for m, n in np.ndindex(7, 7))
            for j in range(6)
        ]
        for i in range(5)
    ]
    A = np.asarray(layers.matrix_of(lambda x: full_convolution(jnp.asarray(w), x), x.shape))
    return Verdict(
        close_derivative("by finite differences", gradient, jacobian(value, x)),
        close("the double sum", gradient, sums),
        close("layers.correlate", correlate_channel(w, d), sums),
        close("scipy's correlate2d", signal.correlate2d(d, w, mode="valid"), sums),
        close("the transposed matrix", (A.T @ d.ravel()).reshape(x.shape), sums),
    )


@erratum(
    "4.2-conv-backward-input",
    title="The order of the correlation in the gradient by the image",
    printed=r"\Delta^{\ell-1} = \Delta^\ell \star W^\ell",
    corrected=r"\Delta^{\ell-1} = W^\ell \star \Delta^\ell",
    of=("layers.correlate",),
)
def kernel_first(key):
    r"""With $(f \star h)[u] = \sum_t f[t]\, h[u + t]$ the sum $\sum \delta_{mn} w_{m-i, n-j}$ is
    $W \star \Delta$. As printed it is $\sum \delta_{mn} w_{m+i, n+j}$. (An index of the sum above
    it is printed $n - l$ for $n - j$.)
    """
    w, x, d = random_problem(key)
    _, gradient = pullback(w, x, d)
    printed_sums = [
        [
            sum(d[m, n] * entry_or_zero(w, m + i, n + j) for m, n in np.ndindex(7, 7))
            for j in range(6)
        ]
        for i in range(5)
    ]
    return Verdict(
        close("kernel first", correlate_channel(w, d), gradient, tolerance=1e-8),
        printed=[close("signal first", printed_sums, gradient, tolerance=1e-8)],
    )


@claim(
    "4.2-conv-backward-weight",
    title="The gradient by the kernel is a correlation with the image",
    kind="identity",
    of=("layers.convolve", "layers.correlate"),
)
def to_the_kernel(key):
    r"""With $y = x * w$:
    $\delta w[m, n] = \sum_{i, j} \delta y[i, j]\, x[i - m, j - n] = (x \star \delta y)[m, n]$.
    """
    w, x, d = random_problem(key)
    gradient, _ = pullback(w, x, d)
    value = jax.jit(lambda w: jnp.vdot(full_convolution(w, jnp.asarray(x)), jnp.asarray(d)))
    sums = [
        [
            sum(d[i, j] * entry_or_zero(x, i - m, j - n) for i, j in np.ndindex(7, 7))
            for n in range(2)
        ]
        for m in range(3)
    ]
    return Verdict(
        close_derivative("by finite differences", gradient, jacobian(value, w)),
        close("the double sum", gradient, sums),
        close("layers.correlate", correlate_channel(x, d), sums),
        close("scipy's correlate2d", signal.correlate2d(d, x, mode="valid"), sums),
    )


@erratum(
    "4.2-conv-backward-weight",
    title="The gradient by the kernel is a correlation, not a convolution",
    printed=r"\frac{\partial h}{\partial W^\ell} = \Delta^\ell * X^{\ell-1}",
    corrected=r"\frac{\partial h}{\partial W^\ell} = X^{\ell-1} \star \Delta^\ell",
    of=("layers.correlate", "layers.convolve"),
)
def a_correlation(key):
    r"""$\sum_{ij} \delta_{ij} x_{i-m, j-n}$ is a correlation of $\Delta$ with $X$; the printed
    convolution is $\sum_{ij} \delta_{ij} x_{m-i, n-j}$.
    """
    w, x, d = random_problem(key)
    gradient, _ = pullback(w, x, d)
    return Verdict(
        close("a correlation", correlate_channel(x, d), gradient, tolerance=1e-8),
        printed=[close("a convolution", convolve_channel(x, d)[:3, :2], gradient, tolerance=1e-8)],
    )


@claim(
    "4.2-conv-backward-only-conv",
    title="Forward and backward pass by fast convolutions",
    kind="identity",
    of=("layers.fft_convolve", "layers.convolve"),
)
def only_convolutions(rng):
    r"""A layer and both of its gradients are convolutions or correlations, and so can all be
    computed with fast Fourier transforms: $y = x * w$, $\delta x = w \star \delta y$,
    $\delta w = x \star \delta y$, channel by channel.
    """
    shapes = (4, 3, 3, 2), (3, 5, 6), (4, 7, 7)
    W, x, d = (jnp.asarray(rng.normal(size=shape)) for shape in shapes)
    flip = lambda a: jnp.flip(
        a, axis=(-2, -1)
    )  # correlation is convolution with the flipped kernel
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
        close("forward", forward, y, tolerance=1e-10),
        close("gradient by the image", to_x, direct_x, tolerance=1e-10),
        close("gradient by the kernel", to_W, direct_W, tolerance=1e-10),
        close(
            "gradient by the kernel, against scipy for each pair of channels",
            to_W,
            pairs,
            tolerance=1e-10,
        ),
        close(
            "fft_convolve differentiated: gradient by the image", own_x, direct_x, tolerance=1e-10
        ),
        close(
            "fft_convolve differentiated: gradient by the kernel", own_W, direct_W, tolerance=1e-10
        ),
    )


@claim(
    "4.2-nonlinearity",
    title="A pointwise activation between convolutions",
    kind="layer",
    of=("train.backpropagate", "layers.Chain", "layers.Convolution", "layers.relu"),
)
def nonlinearity(rng):
    r"""Between convolutions a pointwise $\varphi$ is applied; in the backward pass $\delta$ becomes
    $\varphi'(a) \odot \delta$. Like the convolutions it commutes with shifts.
    """
    first, second = (
        layers.Convolution(jnp.asarray(rng.normal(size=s)), boundary="circular")
        for s in ((2, 1, 3, 3), (1, 2, 3, 3))
    )
    chain = layers.Chain(first, layers.relu, second)
    x, y = jnp.asarray(rng.normal(size=(2, 1, 4, 5)))
    squared_loss = lambda prediction, y: jnp.sum((prediction - y) ** 2) / 2
    backward = jax.jit(lambda chain, x, y: train.backpropagate(chain, squared_loss, x, y))
    result = backward(chain, x, y)
    a = np.asarray(result.activations[1])
    delta = np.asarray(result.deltas[2])
    smooth = layers.Chain(first, layers.tanh, second)
    value = jax.jit(lambda x: squared_loss(smooth(x), y))
    relu_value = jax.jit(lambda x: squared_loss(chain(x), y))
    shift = lambda x: jnp.roll(x, (1, 2), axis=(1, 2))
    smooth_result = backward(smooth, x, y)
    return Verdict(
        close("δ before the rectifier", result.deltas[1], (a > 0) * delta, tolerance=1e-14),
        close(
            "δ before tanh",
            smooth_result.deltas[1],
            (1 - np.tanh(a) ** 2) * np.asarray(smooth_result.deltas[2]),
        ),
        close_derivative(
            "δ of the input, by finite differences", smooth_result.deltas[0], jacobian(value, x)
        ),
        close_derivative(
            "δ of the input of the rectifier network, at this point",
            result.deltas[0],
            jacobian(relu_value, x, step=1e-6),
            tolerance=1e-7,
            relative=True,
        ),
        equal("the rectifier commutes with shifts", layers.relu(shift(x)), shift(layers.relu(x))),
        close("the network commutes with shifts", chain(shift(x)), shift(chain(x))),
    )
