r"""Kernels (§10.2): $k(x, x')$, the covariance of $f(x)$ and $f(x')$, and the sums and products of
them.

A kernel is any function `k(xs, ys=None)` of stacked examples that gives the matrix $k(x_i, y_j)$;
with one argument, $k(x_i, x_j)$. Those of this folder are modules whose leaves are the
hyper-parameters, kept as logarithms where they must be positive, so that they can be fitted without
bounds. `k1 + k2`, `k1 * k2` and `2.0 * k` are kernels again. A kernel from elsewhere, such as that
of an infinitely wide network, takes part unchanged.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...core import Batch
from .float64 import Numbers, double, dtype_of, floats


@double
def positive(name: str, value: Any, *, least: float = 0.0) -> Float[Numbers, "*s"]:
    r"""$\log$ of a positive hyper-parameter, in double precision; `least=-inf` lets 0 pass, as
    $-\infty$.
    """
    value = np.asarray(value, np.float64)
    bad = (value < 0) if least < 0 else (value <= 0)
    if not np.isfinite(value).all() or bad.any():
        sign = "must not be negative" if least < 0 else "must be positive"
        raise ValueError(f"{name} {sign}; got {value.tolist()}.")
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(value))


class Kernel(eqx.Module):
    """A covariance function with hyper-parameters; `matrix` and `diagonal` say what it is."""

    @abc.abstractmethod
    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        """$k(x_i, y_j)$, with `ys` None for $k(x_i, x_j)$."""

    @abc.abstractmethod
    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        """$k(x_i, x_i)$."""

    def __call__(self, xs: Batch, ys: Batch | None = None) -> Float[Numbers, "n m"]:
        """$k(x_i, y_j)$ for stacked examples, or $k(x_i, x_j)$, as one compiled program."""
        return _matrix(self, xs, ys)

    def __add__(self, other: Any) -> "Sum":
        return Sum(self, _kernel(other))

    def __radd__(self, other: Any) -> "Sum":
        return Sum(_kernel(other), self)

    def __mul__(self, other: Any) -> "Product":
        return Product(self, _kernel(other))

    def __rmul__(self, other: Any) -> "Product":
        return Product(_kernel(other), self)


@double
@eqx.filter_jit
def _matrix(kernel: Kernel, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
    return kernel.matrix(xs, ys)


@double
def diagonal(kernel: Callable[..., Any], xs: Batch) -> Float[Numbers, " n"]:
    """$k(x_i, x_i)$ of any kernel: by its own `diagonal` if it has one, otherwise one example at a
    time.

    >>> diagonal(
    ...     lambda xs, ys=None: xs @ (xs if ys is None else ys).T, jnp.array([[1.0], [3.0]])
    ... ).tolist()
    [1.0, 9.0]
    """
    own = getattr(kernel, "diagonal", None)
    if own is not None:
        return own(xs)
    alone = lambda x: kernel(jax.tree.map(lambda leaf: leaf[None], x))[0, 0]
    return jax.vmap(alone)(jax.tree.map(jnp.asarray, xs))


def covariances(kernel: Callable[..., Any], xs: Any, ys: Any, dtype: Any) -> Float[Numbers, "n m"]:
    """$k(x_i, y_j)$ of any kernel, once it is known to be a matrix of that many rows and
    columns.
    """
    K = kernel(xs, ys)
    expected = (size(xs), size(xs if ys is None else ys))
    if np.shape(K) != expected:
        raise ValueError(
            f"kernel: expected a matrix of shape {expected}, one number for a pair of examples; "
            f"got {np.shape(K)}. "
            'The tangent kernel of a model of several outputs is one as ntk(model, form="trace").'
        )
    return K.astype(dtype)


def _kernel(other: Any) -> Any:
    """A number as a constant kernel, and a kernel as itself."""
    if callable(other):
        return other
    if np.ndim(other) == 0 and np.issubdtype(np.asarray(other).dtype, np.number):
        return Constant.init(float(other))
    raise ValueError(
        f"kernel: a kernel adds to and multiplies kernels and numbers; got {type(other).__name__}."
    )


def size(xs: Any) -> int:
    """How many examples there are."""
    return len(jax.tree.leaves(xs)[0])


class Constant(Kernel):
    r"""$k(x, x') = c$: an unknown offset $f = b$, $b \sim N(0, c)$.

    >>> (Constant.init(2.0)(jnp.zeros((2, 1)))).tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """

    log_scale: Float[Numbers, ""]

    @classmethod
    def init(cls, scale: float = 1.0) -> "Constant":
        """The kernel of this variance."""
        return cls(positive("Constant: scale", scale))

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        return jnp.full((size(xs), size(xs if ys is None else ys)), jnp.exp(self.log_scale))

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return jnp.full(size(xs), jnp.exp(self.log_scale))


class Sum(Kernel):
    r"""$k_1 + k_2$, the covariance of a sum of independent functions.

    >>> (Constant.init(2.0) + 3.0)(jnp.zeros((1, 1))).round(6).tolist()
    [[5.0]]
    """

    left: Callable[..., Any]
    right: Callable[..., Any]

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        return self.left(xs, ys) + self.right(xs, ys)

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return diagonal(self.left, xs) + diagonal(self.right, xs)


class Product(Kernel):
    r"""$k_1 k_2$, entry by entry; positive semi-definite again (Schur 1911).

    >>> (2.0 * Constant.init(3.0))(jnp.zeros((1, 1))).round(6).tolist()
    [[6.0]]
    """

    left: Callable[..., Any]
    right: Callable[..., Any]

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        return self.left(xs, ys) * self.right(xs, ys)

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return diagonal(self.left, xs) * diagonal(self.right, xs)


class Polynomial(Kernel):
    r"""$k(x, x') = s\,(x^\top x' + c)^p$, on flattened examples; $p$ is a whole number.

    >>> Polynomial.init(degree=2, offset=1.0)(jnp.array([[1.0], [2.0]])).round(6).tolist()
    [[4.0, 9.0], [9.0, 25.0]]
    """

    log_scale: Float[Numbers, ""]
    log_offset: Float[Numbers, ""]
    degree: int = eqx.field(static=True)

    @classmethod
    def init(cls, *, degree: int, scale: float = 1.0, offset: float = 0.0) -> "Polynomial":
        """The kernel of this degree; an offset of 0 stays 0 when it is fitted."""
        if degree < 1:
            raise ValueError(f"Polynomial: degree must be at least 1; got {degree}.")
        c = positive("Polynomial: offset", offset, least=-np.inf)
        return cls(positive("Polynomial: scale", scale), c, degree)

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        X = rows(self, xs)
        return self._of(X @ (X if ys is None else rows(self, ys)).T)

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return _diagonal(self, xs)

    def _of(self, products: Any) -> Any:
        return jnp.exp(self.log_scale) * (products + jnp.exp(self.log_offset)) ** self.degree


@double
def _diagonal(kernel: Polynomial, xs: Any) -> Float[Numbers, " n"]:
    return kernel._of(jnp.square(rows(kernel, xs)).sum(axis=1))


def linear_kernel(*, scale: float = 1.0, offset: float = 0.0) -> Polynomial:
    r"""$k(x, x') = s\,(x^\top x' + c)$: Bayesian linear regression as a Gaussian process (§10.2).

    A linear unit $w \sim N(0, \frac{\sigma^2}{d} I_d)$ has $s = \sigma^2 / d$. Departs: the notes
    print $\sigma^2 / n$, with $n$ the number of examples, on which the law of one unit cannot
    depend.

    >>> linear_kernel(scale=0.5)(jnp.array([[1.0, 1.0], [2.0, 0.0]])).round(6).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """
    return Polynomial.init(degree=1, scale=scale, offset=offset)


def rows(kernel: Any, xs: Any) -> Float[Numbers, "n d"]:
    """The examples as vectors of the kernel's dtype."""
    if len(jax.tree.leaves(xs)) != 1:
        raise ValueError(
            f"{type(kernel).__name__}: expected one array of examples, got "
            f"{jax.tree.structure(xs)}."
        )
    xs = jax.tree.leaves(xs)[0]
    if np.ndim(xs) == 0 or len(xs) == 0:
        raise ValueError(
            f"{type(kernel).__name__}: expected at least one example, got the shape {np.shape(xs)}."
        )
    return floats(xs, dtype_of(kernel)).reshape(len(xs), -1)
