r"""Covariance functions (kernels, §10.2): $k(x, x')$, the covariance of $f(x)$ and $f(x')$.

A kernel is any function `k(xs, ys=None)` of stacked examples that returns the matrix $k(x_i, y_j)$;
with one argument, $k(x_i, x_j)$. The kernels here are modules whose leaves are the hyperparameters.
Positive hyperparameters are stored as logarithms, so they can be fitted without bounds. `k1 + k2`,
`k1 * k2` and `2.0 * k` are kernels too, and can contain any function of this signature, such as
the NNGP kernel of an infinitely wide network.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...check import expect_count
from ...core import Batch
from .float64 import Numbers, dtype_of, floats, in_float64


@in_float64
def log_of_positive(name: str, value: Any, *, allow_zero: bool = False) -> Float[Numbers, "*s"]:
    r"""The logarithm of a positive hyperparameter, in float64; `allow_zero` admits 0, as
    $-\infty$.
    """
    value = np.asarray(value, np.float64)
    bad = (value < 0) if allow_zero else (value <= 0)
    if not np.isfinite(value).all() or bad.any():
        sign = "must not be negative" if allow_zero else "must be positive"
        raise ValueError(f"{name} {sign}; got {value.tolist()}.")
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(value))


class Kernel(eqx.Module):
    """Base class of covariance functions: subclasses define `matrix` and `diagonal`."""

    @abc.abstractmethod
    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        """The matrix $k(x_i, y_j)$; $k(x_i, x_j)$ if `ys` is None."""

    @abc.abstractmethod
    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        """The diagonal $k(x_i, x_i)$."""

    def __call__(self, xs: Batch, ys: Batch | None = None) -> Float[Numbers, "n m"]:
        """Kernel matrix $k(x_i, y_j)$ of stacked examples, or $k(x_i, x_j)$; compiled."""
        return _matrix(self, xs, ys)

    def __add__(self, other: Any) -> "SumKernel":
        return SumKernel(self, _kernel(other))

    def __radd__(self, other: Any) -> "SumKernel":
        return SumKernel(_kernel(other), self)

    def __mul__(self, other: Any) -> "ProductKernel":
        return ProductKernel(self, _kernel(other))

    def __rmul__(self, other: Any) -> "ProductKernel":
        return ProductKernel(_kernel(other), self)


@in_float64
@eqx.filter_jit
def _matrix(kernel: Kernel, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
    return kernel.matrix(xs, ys)


@in_float64
def kernel_diagonal(kernel: Callable[..., Any], xs: Batch) -> Float[Numbers, " n"]:
    """Diagonal $k(x_i, x_i)$ of any kernel: its own `diagonal` method if it has one, otherwise by
    `vmap` over single examples.

    >>> kernel_diagonal(
    ...     lambda xs, ys=None: xs @ (xs if ys is None else ys).T, jnp.array([[1.0], [3.0]])
    ... ).tolist()
    [1.0, 9.0]
    """
    own = getattr(kernel, "diagonal", None)
    if own is not None:
        return own(xs)
    one_example = lambda x: kernel(jax.tree.map(lambda leaf: leaf[None], x))[0, 0]
    return jax.vmap(one_example)(jax.tree.map(jnp.asarray, xs))


def kernel_matrix(
    kernel: Callable[..., Any], xs: Any, ys: Any, dtype: Any
) -> Float[Numbers, "n m"]:
    """The matrix $k(x_i, y_j)$ of any kernel, after a check of its shape."""
    K = kernel(xs, ys)
    expected = (n_examples(xs), n_examples(xs if ys is None else ys))
    if np.shape(K) != expected:
        raise ValueError(
            f"kernel: expected a matrix of shape {expected}, one number per pair of examples; "
            f"got {np.shape(K)}. "
            'For the tangent kernel of a model with several outputs use ntk(model, form="trace").'
        )
    return K.astype(dtype)


def _kernel(other: Any) -> Any:
    """Wraps a number in a constant kernel; returns a kernel unchanged."""
    if callable(other):
        return other
    if np.ndim(other) == 0 and np.issubdtype(np.asarray(other).dtype, np.number):
        return ConstantKernel.init(float(other))
    raise ValueError(
        f"kernel: can only add or multiply with a kernel or a number; got {type(other).__name__}."
    )


def n_examples(xs: Any) -> int:
    """Number of stacked examples."""
    return len(jax.tree.leaves(xs)[0])


class ConstantKernel(Kernel):
    r"""Constant kernel $k(x, x') = c$: an unknown offset $f = b$, $b \sim N(0, c)$.

    >>> (ConstantKernel.init(2.0)(jnp.zeros((2, 1)))).tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """

    log_variance: Float[Numbers, ""]

    @classmethod
    def init(cls, variance: float = 1.0) -> "ConstantKernel":
        """The kernel with $c$ = `variance`."""
        return cls(log_of_positive("ConstantKernel: variance", variance))

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        return jnp.full(
            (n_examples(xs), n_examples(xs if ys is None else ys)), jnp.exp(self.log_variance)
        )

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return jnp.full(n_examples(xs), jnp.exp(self.log_variance))


class SumKernel(Kernel):
    r"""Sum of two kernels, $k_1 + k_2$: the covariance of a sum of independent functions.

    >>> (ConstantKernel.init(2.0) + 3.0)(jnp.zeros((1, 1))).round(6).tolist()
    [[5.0]]
    """

    left: Callable[..., Any]
    right: Callable[..., Any]

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        return self.left(xs, ys) + self.right(xs, ys)

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return kernel_diagonal(self.left, xs) + kernel_diagonal(self.right, xs)


class ProductKernel(Kernel):
    r"""Elementwise product of two kernels, $k_1 k_2$; positive semi-definite (Schur 1911).

    >>> (2.0 * ConstantKernel.init(3.0))(jnp.zeros((1, 1))).round(6).tolist()
    [[6.0]]
    """

    left: Callable[..., Any]
    right: Callable[..., Any]

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        return self.left(xs, ys) * self.right(xs, ys)

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return kernel_diagonal(self.left, xs) * kernel_diagonal(self.right, xs)


class PolynomialKernel(Kernel):
    r"""Polynomial kernel $k(x, x') = s\,(x^\top x' + c)^p$ of flattened examples; integer $p$.

    >>> PolynomialKernel.init(degree=2, offset=1.0)(jnp.array([[1.0], [2.0]])).round(6).tolist()
    [[4.0, 9.0], [9.0, 25.0]]
    """

    log_variance: Float[Numbers, ""]
    log_offset: Float[Numbers, ""]
    degree: int = eqx.field(static=True)

    @classmethod
    def init(cls, *, degree: int, variance: float = 1.0, offset: float = 0.0) -> "PolynomialKernel":
        """The kernel with $p$ = `degree`, $s$ = `variance`, $c$ = `offset`; an offset of 0 stays 0
        when fitted.
        """
        expect_count("PolynomialKernel", degree=degree)
        c = log_of_positive("PolynomialKernel: offset", offset, allow_zero=True)
        return cls(log_of_positive("PolynomialKernel: variance", variance), c, degree)

    def matrix(self, xs: Any, ys: Any) -> Float[Numbers, "n m"]:
        X = flatten_examples(self, xs)
        return self._of_products(X @ (X if ys is None else flatten_examples(self, ys)).T)

    def diagonal(self, xs: Any) -> Float[Numbers, " n"]:
        return _diagonal(self, xs)

    def _of_products(self, products: Any) -> Any:
        return jnp.exp(self.log_variance) * (products + jnp.exp(self.log_offset)) ** self.degree


@in_float64
def _diagonal(kernel: PolynomialKernel, xs: Any) -> Float[Numbers, " n"]:
    return kernel._of_products(jnp.square(flatten_examples(kernel, xs)).sum(axis=1))


def linear_kernel(*, variance: float = 1.0, offset: float = 0.0) -> PolynomialKernel:
    r"""Linear (dot-product) kernel $k(x, x') = s\,(x^\top x' + c)$: Bayesian linear regression as a
    Gaussian process (§10.2).

    A linear unit $w \sim N(0, \frac{\sigma^2}{d} I_d)$ has $s = \sigma^2 / d$. Departs: the notes
    print $\sigma^2 / n$, with $n$ the number of examples, but the prior of one unit cannot depend
    on it.

    >>> linear_kernel(variance=0.5)(jnp.array([[1.0, 1.0], [2.0, 0.0]])).round(6).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """
    return PolynomialKernel.init(degree=1, variance=variance, offset=offset)


def flatten_examples(kernel: Any, xs: Any) -> Float[Numbers, "n d"]:
    """The examples flattened to vectors, in the kernel's dtype."""
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
