r"""Stationary kernels $s\,\varphi(r)$ of the scaled distance,
$r^2 = \sum_i (x_i - x_i')^2 / \ell_i^2$: RBF, Matérn, rational quadratic, periodic.

`variance` $s$ is the variance of $f$, and `length_scale` $\ell$ the distance over which $f$ varies:
one number, or one per input (automatic relevance determination, ARD), so that fitting shows which
inputs matter (Neal 1996). Rasmussen & Williams 2006, §4.2.
"""

from functools import reduce
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .float64 import Numbers, in_float64
from .kernels import Kernel, flatten_examples, log_of_positive

# With at most this many inputs, squared differences are summed input by input, which is exact;
# with more, the distances come from one matrix product, which is much faster.
MAX_INPUTS_SUMMED = 16


def squared_distances(
    X: Float[Numbers, "n d"], Y: Float[Numbers, "m d"] | None = None
) -> Float[Numbers, "n m"]:
    r"""Pairwise squared Euclidean distances $\|x_i - y_j\|^2$.

    With few inputs it sums squared differences; otherwise it uses
    $\|x\|^2 + \|y\|^2 - 2x^\top y$ on centred examples, with a rounding error of about
    $\varepsilon \|x\|^2$ and exact zeros at $i = j$.

    >>> squared_distances(jnp.array([[0.0], [3.0]])).tolist()
    [[0.0, 9.0], [9.0, 0.0]]
    """
    other = X if Y is None else Y
    if X.shape[1] <= MAX_INPUTS_SUMMED:
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


def safe_sqrt(square: Float[Numbers, "*s"]) -> Float[Numbers, "*s"]:
    r"""$\sqrt{r^2}$ with gradient 0 at 0 (two equal examples), where autodiff would give NaN."""
    nonzero = square > 0
    # The inner `where` keeps an infinite derivative out of the untaken branch: 0 * inf is NaN.
    return jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, square, 1.0)), 0.0)


@in_float64
def _constant_diagonal(log_variance: Float[Numbers, ""], xs: Any) -> Float[Numbers, " n"]:
    return jnp.full(len(xs), jnp.exp(log_variance))


class _Stationary(Kernel):
    """Base class: the variance is the same at every input."""

    log_variance: eqx.AbstractVar[Float[Numbers, ""]]
    log_length_scale: eqx.AbstractVar[Float[Numbers, "*d"]]

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return _constant_diagonal(self.log_variance, xs)


def _scaled_squared_distances(kernel: _Stationary, X: Any, Y: Any) -> Float[Numbers, "n m"]:
    r"""Scaled squared distances $r^2$.

    A single length scale divides the distances instead of the examples: its gradient is cheaper.
    """
    length = jnp.exp(kernel.log_length_scale)
    if length.ndim == 0:
        return squared_distances(X, Y) / jnp.square(length)
    if length.shape != X.shape[1:]:
        name = type(kernel).__name__
        raise ValueError(
            f"{name}: {length.size} length scales for {X.shape[1]} inputs. Give one number, or "
            "one per input."
        )
    return squared_distances(X / length[None], None if Y is None else Y / length[None])


def _flatten_pair(kernel: _Stationary, xs: Any, ys: Any) -> tuple[Any, Any]:
    X = flatten_examples(kernel, xs)
    Y = None if ys is None else flatten_examples(kernel, ys)
    if Y is not None and X.shape[1] != Y.shape[1]:
        name = type(kernel).__name__
        raise ValueError(
            f"{name}: xs have {X.shape[1]} inputs and ys {Y.shape[1]}; both need the same number."
        )
    return X, Y


def _log_parameters(name: str, variance: Any, length_scale: Any) -> tuple[Any, Any]:
    if np.ndim(variance) != 0 or np.ndim(length_scale) > 1:
        raise ValueError(
            f"{name}: variance must be a number and length_scale a number or a vector; got shapes "
            f"{np.shape(variance)} and {np.shape(length_scale)}."
        )
    log_variance = log_of_positive(f"{name}: variance", variance)
    return log_variance, log_of_positive(f"{name}: length_scale", length_scale)


class RBF(_Stationary):
    r"""Radial basis function (squared exponential, Gaussian) kernel
    $k(x, x') = s\,e^{-r^2/2}$; samples are infinitely differentiable (§10.2).

    The notes write $e^{-\gamma\|x - x'\|^2}$, which is $s = 1$ and $\gamma = \frac{1}{2\ell^2}$.

    >>> RBF.init(variance=2.0, length_scale=1.0)(jnp.array([[0.0], [1.0]])).round(4).tolist()
    [[2.0, 1.2131], [1.2131, 2.0]]
    """

    log_variance: Float[Numbers, ""]
    log_length_scale: Float[Numbers, "*d"]

    @classmethod
    def init(cls, *, variance: float = 1.0, length_scale: Any = 1.0) -> "RBF":
        """The kernel with this variance and length scale (one, or one per input)."""
        return cls(*_log_parameters("RBF", variance, length_scale))

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        return jnp.exp(
            self.log_variance - _scaled_squared_distances(self, *_flatten_pair(self, xs, ys)) / 2
        )


class Matern(_Stationary):
    r"""Matérn kernel of smoothness $\nu \in \{\frac12, \frac32, \frac52\}$ (Matérn 1960).

    $\nu = \frac12$: $s\,e^{-r}$; $\frac32$: $s\,(1 + a) e^{-a}$, $a = \sqrt3 r$; $\frac52$:
    $s\,(1 + a + \frac{a^2}{3}) e^{-a}$, $a = \sqrt5 r$. Samples have $\lceil \nu \rceil - 1$
    derivatives.

    >>> Matern.init(nu=0.5)(jnp.array([[0.0], [1.0]]))[0].round(4).tolist()
    [1.0, 0.3679]
    """

    log_variance: Float[Numbers, ""]
    log_length_scale: Float[Numbers, "*d"]
    nu: float = eqx.field(static=True)

    @classmethod
    def init(cls, *, nu: float = 2.5, variance: float = 1.0, length_scale: Any = 1.0) -> "Matern":
        """The kernel with this `nu` (0.5, 1.5 or 2.5), variance and length scale."""
        if nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"Matern: nu must be 0.5, 1.5 or 2.5; got {nu}.")
        return cls(*_log_parameters("Matern", variance, length_scale), float(nu))

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        a = safe_sqrt(2 * self.nu * _scaled_squared_distances(self, *_flatten_pair(self, xs, ys)))
        series = {0.5: lambda a: 1.0, 1.5: lambda a: 1 + a, 2.5: lambda a: 1 + a + a * a / 3}[
            self.nu
        ]
        return series(a) * jnp.exp(self.log_variance - a)


class RationalQuadratic(_Stationary):
    r"""Rational quadratic kernel $s\,(1 + \frac{r^2}{2\alpha})^{-\alpha}$: a scale mixture of RBF
    kernels; $\alpha \to \infty$ gives `RBF`.

    >>> RationalQuadratic.init(alpha=0.5)(jnp.array([[0.0], [3.0**0.5]]))[0].round(4).tolist()
    [1.0, 0.5]
    """

    log_variance: Float[Numbers, ""]
    log_length_scale: Float[Numbers, "*d"]
    log_alpha: Float[Numbers, ""]

    @classmethod
    def init(
        cls, *, alpha: float = 1.0, variance: float = 1.0, length_scale: Any = 1.0
    ) -> "RationalQuadratic":
        r"""The kernel with this $\alpha$, variance and length scale."""
        return cls(
            *_log_parameters("RationalQuadratic", variance, length_scale),
            log_of_positive("RationalQuadratic: alpha", alpha),
        )

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        alpha = jnp.exp(self.log_alpha)
        return jnp.exp(
            self.log_variance
            - alpha
            * jnp.log1p(_scaled_squared_distances(self, *_flatten_pair(self, xs, ys)) / (2 * alpha))
        )


class Periodic(_Stationary):
    r"""Periodic (exp-sine-squared) kernel of period $p$:
    $s \exp(-\sum_i \frac{2}{\ell_i^2} \sin^2 \frac{\pi(x_i - x_i')}{p})$.

    It is the `RBF` of the inputs mapped to circles,
    $u = (\cos \frac{2\pi x}{p}, \sin \frac{2\pi x}{p})$, since
    $\|u - u'\|^2 = 4 \sin^2 \frac{\pi(x - x')}{p}$ (MacKay 1998), hence a valid kernel for any
    number of inputs.

    >>> Periodic.init(period=2.0)(jnp.array([[0.0], [1.0], [2.0]]))[0].round(4).tolist()
    [1.0, 0.1353, 1.0]
    """

    log_variance: Float[Numbers, ""]
    log_length_scale: Float[Numbers, "*d"]
    log_period: Float[Numbers, ""]

    @classmethod
    def init(
        cls, *, period: float = 1.0, variance: float = 1.0, length_scale: Any = 1.0
    ) -> "Periodic":
        """The kernel with this period, variance and length scale."""
        return cls(
            *_log_parameters("Periodic", variance, length_scale),
            log_of_positive("Periodic: period", period),
        )

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        X, Y = _flatten_pair(self, xs, ys)
        square = squared_distances(self._on_circles(X), None if Y is None else self._on_circles(Y))
        return jnp.exp(self.log_variance - square / 2)

    def _on_circles(self, X: Float[Numbers, "n d"]) -> Float[Numbers, "n e"]:
        angle = 2 * jnp.pi * X / jnp.exp(self.log_period)
        length = jnp.exp(self.log_length_scale)
        if length.ndim and length.shape != X.shape[1:]:
            raise ValueError(
                f"Periodic: {length.size} length scales for {X.shape[1]} inputs. Give one number, "
                "or one per input."
            )
        return (
            jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
            / jnp.tile(jnp.broadcast_to(length, X.shape[1:]), 2)[None]
        )
