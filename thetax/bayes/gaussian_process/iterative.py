r"""Many examples without the $n \times n$ matrix: conjugate gradients on
$(K + \gamma^2 I)\alpha = y$.

Each step needs one product with $K$, which is formed a block of rows at a time and thrown away, so
that memory is $O(n)$ and time $O(n^2)$ a step. How many steps are needed is up to the eigenvalues;
a preconditioner $P = LL^\top + \gamma^2 I$, with $L$ of $n \times r$ from pivoted Cholesky, takes
away the $r$ largest (Gardner et al. 2018). The log evidence needs a determinant that this way does
not give: `GaussianProcess` has it exactly, and `InducingProcess` from below.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Bool, Float, Int

from ...check import check_examples
from ...core import Batch
from .check import check_observations
from .exact import GaussianProcess, prior
from .float64 import Numbers, Scalar, double, dtype_of, uniform
from .kernels import covariances, diagonal, size

ROWS = 1024  # of the kernel's matrix at a time


class Pivots(NamedTuple):
    r"""$K \approx LL^\top$ of rank $r$, exact in the rows and columns of the `places`; `rest` is
    the trace of $K - LL^\top$.
    """

    L: Float[Numbers, "n r"]
    places: Int[Numbers, " r"]
    rest: Scalar


@double
def pivoted_cholesky(kernel: Callable[..., Any], xs: Batch, *, rank: int) -> Pivots:
    r"""Cholesky's algorithm that always takes the example of most remaining variance next, and
    stops after `rank`.

    It sees $nr$ entries of $K$. Harbrecht, Peters & Schneider 2012.

    >>> from thetax.bayes import linear_kernel
    >>> found = pivoted_cholesky(linear_kernel(), np.array([[1.0], [3.0], [2.0]]), rank=1)
    >>> found.places.tolist(), found.L.ravel().round(6).tolist()
    ([1], [1.0, 3.0, 2.0])
    """
    n = check_examples(xs, name="pivoted_cholesky: xs")
    if not 1 <= rank <= n:
        raise ValueError(
            f"pivoted_cholesky: rank must lie between 1 and the number of examples, {n}; got "
            f"{rank}."
        )
    return _pivoted(kernel, jax.tree.map(jnp.asarray, xs), rank)


@eqx.filter_jit
def _pivoted(kernel: Callable[..., Any], xs: Any, rank: int) -> Pivots:
    left = diagonal(kernel, xs)
    dtype = left.dtype
    tiny = 8 * jnp.finfo(left.dtype).eps * left.max()

    def step(carry, j):
        L, left, taken = carry
        i = jnp.argmax(jnp.where(taken, -jnp.inf, left))
        pivot = left[i]
        row = kernel(jax.tree.map(lambda leaf: leaf[i][None], xs), xs)[0].astype(dtype) - L @ L[i]
        column = jnp.where(pivot > tiny, row / jnp.sqrt(jnp.maximum(pivot, tiny)), 0.0)
        left = jnp.maximum(left - jnp.square(column), 0.0)
        return (L.at[:, j].set(column), left, taken.at[i].set(True)), i

    start = jnp.zeros((len(left), rank), dtype), left, jnp.zeros(len(left), bool)
    (L, left, _), places = jax.lax.scan(step, start, jnp.arange(rank))
    return Pivots(L, places, left.sum())


class Solve(NamedTuple):
    """A solution, how far from one each column is (relative to its right-hand side), and after how
    many steps.
    """

    x: Float[Numbers, "n o"]
    residual: Float[Numbers, " o"]
    steps: Int[Numbers, ""]
    converged: Bool[Numbers, ""]


def conjugate_gradients(
    product: Callable[[Any], Any],
    b: Float[Numbers, "n o"],
    *,
    precondition: Callable[[Any], Any] = lambda r: r,
    tolerance: float = 1e-10,
    steps: int = 1000,
) -> Solve:
    r"""$Ax = b$ for each column of $b$, with $A$ positive definite, from products $Av$ alone
    (Hestenes & Stiefel 1952).

    `precondition` is $r \mapsto P^{-1} r$. A column ends when $\|b - Ax\| \le$ `tolerance` $\|b\|$;
    all go in step.

    >>> A = jnp.array([[2.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda v: A @ v, jnp.array([[3.0], [4.0]]), tolerance=1e-6).x.round(
    ...     4
    ... ).ravel().tolist()
    [1.0, 1.0]
    """
    size_b = jnp.linalg.norm(b, axis=0)
    goal = tolerance * size_b
    going = lambda r: jnp.linalg.norm(r, axis=0) > goal
    divide = lambda top, bottom: jnp.where(
        bottom > 0, top / jnp.where(bottom > 0, bottom, 1.0), 0.0
    )

    def step(carry):
        x, r, p, rz, count = carry
        Ap = product(p)
        rate = jnp.where(going(r), divide(rz, (p * Ap).sum(axis=0)), 0.0)
        x = x + rate[None] * p
        r = r - rate[None] * Ap
        z = precondition(r)
        new = (r * z).sum(axis=0)
        return x, r, z + divide(new, rz)[None] * p, new, count + 1

    z = precondition(b)
    start = jnp.zeros_like(b), b, z, (b * z).sum(axis=0), jnp.zeros((), jnp.int32)
    x, _, _, _, count = jax.lax.while_loop(
        lambda c: going(c[1]).any() & (c[4] < steps), step, start
    )
    residual = divide(jnp.linalg.norm(b - product(x), axis=0), size_b)
    return Solve(x, residual, count, (residual <= 10 * tolerance).all())


def rows_product(
    kernel: Callable[..., Any], xs: Any, ys: Any, v: Float[Numbers, "m o"]
) -> Float[Numbers, "n o"]:
    r"""$k(X, Y) v$, a block of rows at a time."""
    n = size(xs)
    width = min(ROWS, size(xs))
    padded = -(-n // width) * width
    cut = lambda leaf: leaf[jnp.arange(padded) % n].reshape(padded // width, width, *leaf.shape[1:])
    blocks = jax.lax.map(
        lambda block: covariances(kernel, block, ys, v.dtype) @ v, jax.tree.map(cut, xs)
    )
    return blocks.reshape(padded, *v.shape[1:])[:n]


class IterativePosterior(eqx.Module):
    """A process conditioned by conjugate gradients; `residual` says how well, relative to the
    observations.
    """

    process: GaussianProcess
    xs: Batch
    alpha: Float[Numbers, "n *o"]
    pivots: Pivots
    residual: Float[Numbers, " o"]
    steps: Int[Numbers, ""]
    converged: Bool[Numbers, ""]
    tolerance: float = eqx.field(static=True)
    most: int = eqx.field(static=True)

    @double
    def mean(self, xs: Batch) -> Float[Numbers, "m *o"]:
        r"""$\mu(x) + k(x)^\top \alpha$."""
        check_examples(xs, name="mean: xs")
        return _mean(self, xs)

    @double
    def variance(self, xs: Batch) -> Float[Numbers, " m"]:
        r"""$k(x, x) - k(x)^\top (K + \gamma^2 I)^{-1} k(x)$: one more solve, with a column for each
        $x$.
        """
        check_examples(xs, name="variance: xs")
        return _variance(self, xs)


@double
def condition_iteratively(
    process: GaussianProcess,
    xs: Batch,
    ys: Any,
    *,
    rank: int = 100,
    tolerance: float = 1e-10,
    steps: int = 1000,
) -> IterativePosterior:
    r"""`process.condition(xs, ys)` for many examples, by conjugate gradients with a preconditioner
    of this rank.

    >>> from thetax.bayes import RBF
    >>> process, xs = GaussianProcess.init(RBF.init(), noise=0.1), np.linspace(0.0, 5.0, 30)
    >>> found = condition_iteratively(process, xs, np.sin(xs), rank=10)
    >>> (
    ...     bool(found.converged),
    ...     np.allclose(found.mean(xs), process.condition(xs, np.sin(xs)).mean(xs)),
    ... )
    (True, True)
    """
    check_observations("condition_iteratively", xs, ys)
    if float(process.log_noise) == -np.inf:
        raise ValueError(
            "condition_iteratively: the process has no noise, and without any there is no "
            "preconditioner."
        )
    if rank < 1 or steps < 1 or not tolerance > 0:
        raise ValueError(
            f"condition_iteratively: rank, steps and tolerance must be positive; got {rank}, "
            f"{steps}, {tolerance}."
        )
    return _condition(
        process, jax.tree.map(jnp.asarray, xs), ys, min(rank, size(xs)), tolerance, steps
    )


def _solver(
    process: GaussianProcess, xs: Any, pivots: Pivots, tolerance: float, steps: int
) -> Callable[[Any], Solve]:
    r"""$b \mapsto (K + \gamma^2 I)^{-1} b$, with
    $P^{-1} = (I - L(\gamma^2 I + L^\top L)^{-1} L^\top) / \gamma^2$.
    """
    noise = jnp.exp(process.log_noise)
    L = pivots.L
    core = jnp.linalg.cholesky(L.T @ L + noise * jnp.eye(L.shape[1], dtype=L.dtype))
    precondition = lambda r: (r - L @ cho_solve((core, True), L.T @ r)) / noise
    product = lambda v: rows_product(process.kernel, xs, xs, v) + noise * v
    return lambda b: conjugate_gradients(
        product, b, precondition=precondition, tolerance=tolerance, steps=steps
    )


@eqx.filter_jit
def _condition(process, xs, ys, rank, tolerance, steps):
    process, xs = uniform(process, xs)
    r = jnp.asarray(ys, dtype_of(process)) - prior(process, xs, ys.shape[1:])
    pivots = _pivoted(process.kernel, xs, rank)
    found = _solver(process, xs, pivots, tolerance, steps)(r.reshape(len(r), -1))
    alpha = found.x.reshape(r.shape)
    return IterativePosterior(process, xs, alpha, pivots, *found[1:], tolerance, steps)


@eqx.filter_jit
def _mean(self, xs):
    process, xs = uniform(self.process, xs)
    found = rows_product(process.kernel, xs, self.xs, self.alpha.reshape(len(self.alpha), -1))
    return prior(process, xs, self.alpha.shape[1:]) + found.reshape(-1, *self.alpha.shape[1:])


@eqx.filter_jit
def _variance(self, xs):
    process, xs = uniform(self.process, xs)
    k = covariances(process.kernel, self.xs, xs, self.alpha.dtype)
    found = _solver(process, self.xs, self.pivots, self.tolerance, self.most)(k)
    return jnp.maximum(
        diagonal(process.kernel, xs).astype(k.dtype) - (k * found.x).sum(axis=0), 0.0
    )
