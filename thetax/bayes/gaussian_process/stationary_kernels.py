r"""Kernels that see only how far apart two examples are: $s\,\varphi(r)$ with
$r^2 = \sum_i (x_i - x_i')^2 / \ell_i^2$.

`scale` $s$ is the variance of $f$, `length` $\ell$ how far one must go for $f$ to change: one
number, or one for each input, so that fitting tells which inputs matter (Neal 1996). Rasmussen &
Williams 2006, §4.2.
"""

from functools import reduce
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .float64 import Numbers, double
from .kernels import Kernel, positive, rows

# inputs up to which differences are taken one by one, exactly; beyond, a matrix product is much
# faster
FEW = 16


def square_distance(
    X: Float[Numbers, "n d"], Y: Float[Numbers, "m d"] | None = None
) -> Float[Numbers, "n m"]:
    r"""$\|x_i - y_j\|^2$: summed over the inputs if they are few, otherwise as
    $\|x\|^2 + \|y\|^2 - 2x^\top y$.

    The second way rounds to within $\varepsilon \|x\|^2$ about the mean of the examples, and is
    exact at $i = j$.

    >>> square_distance(jnp.array([[0.0], [3.0]])).tolist()
    [[0.0, 9.0], [9.0, 0.0]]
    """
    other = X if Y is None else Y
    if X.shape[1] <= FEW:
        parts = [jnp.square(x[:, None] - y[None, :]) for x, y in zip(X.T, other.T)]
        return reduce(jnp.add, parts)
    centre = other.mean(axis=0)[None]
    X = X - centre
    other = other - centre
    square = (
        jnp.square(X).sum(axis=1)[:, None] + jnp.square(other).sum(axis=1)[None] - 2 * X @ other.T
    )
    square = jnp.maximum(square, 0.0)
    return square * (1 - jnp.eye(len(X), dtype=X.dtype)) if Y is None else square


def root(square: Float[Numbers, "*s"]) -> Float[Numbers, "*s"]:
    r"""$\sqrt{r^2}$, with the gradient 0 at 0, where two examples are one."""
    apart = square > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)


@double
def _constant(log_scale: Float[Numbers, ""], xs: Any) -> Float[Numbers, " n"]:
    return jnp.full(len(xs), jnp.exp(log_scale))


class _Stationary(Kernel):
    """What these kernels share: the variance is the same everywhere."""

    log_scale: eqx.AbstractVar[Float[Numbers, ""]]
    log_length: eqx.AbstractVar[Float[Numbers, "*d"]]

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return _constant(self.log_scale, xs)


def _square(kernel: _Stationary, X: Any, Y: Any) -> Float[Numbers, "n m"]:
    r"""$r^2$; one length for all inputs divides the distances, not the examples, so that its
    gradient is cheap.
    """
    length = jnp.exp(kernel.log_length)
    if length.ndim == 0:
        return square_distance(X, Y) / jnp.square(length)
    if length.shape != X.shape[1:]:
        name = type(kernel).__name__
        raise ValueError(
            f"{name}: {length.size} lengths for {X.shape[1]} inputs; give one, or one for each "
            "input."
        )
    return square_distance(X / length[None], None if Y is None else Y / length[None])


def _pair(kernel: _Stationary, xs: Any, ys: Any) -> tuple[Any, Any]:
    X = rows(kernel, xs)
    Y = None if ys is None else rows(kernel, ys)
    if Y is not None and X.shape[1] != Y.shape[1]:
        name = type(kernel).__name__
        raise ValueError(
            f"{name}: examples of {X.shape[1]} inputs and of {Y.shape[1]}; both must have as many."
        )
    return X, Y


def _sizes(name: str, scale: Any, length: Any) -> tuple[Any, Any]:
    if np.ndim(scale) != 0 or np.ndim(length) > 1:
        raise ValueError(
            f"{name}: scale is one number, and length one or a vector; got {np.shape(scale)} and "
            f"{np.shape(length)}."
        )
    return positive(f"{name}: scale", scale), positive(f"{name}: length", length)


class RBF(_Stationary):
    r"""$k(x, x') = s\,e^{-r^2/2}$: all derivatives of $f$ exist (§10.2).

    The notes write $e^{-\gamma\|x - x'\|^2}$, which is $s = 1$ and $\gamma = \frac{1}{2\ell^2}$.

    >>> RBF.init(scale=2.0, length=1.0)(jnp.array([[0.0], [1.0]])).round(4).tolist()
    [[2.0, 1.2131], [1.2131, 2.0]]
    """

    log_scale: Float[Numbers, ""]
    log_length: Float[Numbers, "*d"]

    @classmethod
    def init(cls, *, scale: float = 1.0, length: Any = 1.0) -> "RBF":
        """The kernel of this variance and length, or of these lengths."""
        return cls(*_sizes("RBF", scale, length))

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        return jnp.exp(self.log_scale - _square(self, *_pair(self, xs, ys)) / 2)


class Matern(_Stationary):
    r"""$\nu = \frac12$: $s\,e^{-r}$; $\frac32$: $s\,(1 + a) e^{-a}$, $a = \sqrt3 r$; $\frac52$:
    $s\,(1 + a + \frac{a^2}{3}) e^{-a}$, $a = \sqrt5 r$.

    $f$ has as many derivatives as there are whole numbers below $\nu$, the `smoothness`. Matérn
    1960.

    >>> Matern.init(smoothness=0.5)(jnp.array([[0.0], [1.0]]))[0].round(4).tolist()
    [1.0, 0.3679]
    """

    log_scale: Float[Numbers, ""]
    log_length: Float[Numbers, "*d"]
    smoothness: float = eqx.field(static=True)

    @classmethod
    def init(cls, *, smoothness: float = 2.5, scale: float = 1.0, length: Any = 1.0) -> "Matern":
        """The kernel of this smoothness (0.5, 1.5 or 2.5), variance and length, or lengths."""
        if smoothness not in (0.5, 1.5, 2.5):
            raise ValueError(f"Matern: smoothness must be 0.5, 1.5 or 2.5; got {smoothness}.")
        return cls(*_sizes("Matern", scale, length), float(smoothness))

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        a = root(2 * self.smoothness * _square(self, *_pair(self, xs, ys)))
        series = {0.5: lambda a: 1.0, 1.5: lambda a: 1 + a, 2.5: lambda a: 1 + a + a * a / 3}[
            self.smoothness
        ]
        return series(a) * jnp.exp(self.log_scale - a)


class RationalQuadratic(_Stationary):
    r"""$s\,(1 + \frac{r^2}{2\alpha})^{-\alpha}$: a mixture of `RBF`s of many lengths;
    $\alpha \to \infty$ gives one.

    >>> RationalQuadratic.init(mixture=0.5)(jnp.array([[0.0], [3.0**0.5]]))[0].round(4).tolist()
    [1.0, 0.5]
    """

    log_scale: Float[Numbers, ""]
    log_length: Float[Numbers, "*d"]
    log_mixture: Float[Numbers, ""]

    @classmethod
    def init(
        cls, *, mixture: float = 1.0, scale: float = 1.0, length: Any = 1.0
    ) -> "RationalQuadratic":
        r"""The kernel of this $\alpha$, variance and length, or lengths."""
        return cls(
            *_sizes("RationalQuadratic", scale, length),
            positive("RationalQuadratic: mixture", mixture),
        )

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        alpha = jnp.exp(self.log_mixture)
        return jnp.exp(
            self.log_scale - alpha * jnp.log1p(_square(self, *_pair(self, xs, ys)) / (2 * alpha))
        )


class Periodic(_Stationary):
    r"""$s \exp(-\sum_i \frac{2}{\ell_i^2} \sin^2 \frac{\pi(x_i - x_i')}{p})$: $f$ repeats itself
    with period $p$.

    It is the `RBF` of the inputs wound on circles,
    $u = (\cos \frac{2\pi x}{p}, \sin \frac{2\pi x}{p})$, since
    $\|u - u'\|^2 = 4 \sin^2 \frac{\pi(x - x')}{p}$ (MacKay 1998), and so a kernel for any number of
    inputs.

    >>> Periodic.init(period=2.0)(jnp.array([[0.0], [1.0], [2.0]]))[0].round(4).tolist()
    [1.0, 0.1353, 1.0]
    """

    log_scale: Float[Numbers, ""]
    log_length: Float[Numbers, "*d"]
    log_period: Float[Numbers, ""]

    @classmethod
    def init(cls, *, period: float = 1.0, scale: float = 1.0, length: Any = 1.0) -> "Periodic":
        """The kernel of this period, variance and length, or lengths."""
        return cls(*_sizes("Periodic", scale, length), positive("Periodic: period", period))

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        X, Y = _pair(self, xs, ys)
        square = square_distance(self._wind(X), None if Y is None else self._wind(Y))
        return jnp.exp(self.log_scale - square / 2)

    def _wind(self, X: Float[Numbers, "n d"]) -> Float[Numbers, "n e"]:
        angle = 2 * jnp.pi * X / jnp.exp(self.log_period)
        length = jnp.exp(self.log_length)
        if length.ndim and length.shape != X.shape[1:]:
            raise ValueError(
                f"Periodic: {length.size} lengths for {X.shape[1]} inputs; give one, or one for "
                "each input."
            )
        return (
            jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
            / jnp.tile(jnp.broadcast_to(length, X.shape[1:]), 2)[None]
        )
