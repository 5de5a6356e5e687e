r"""Gaussian process regression without storing the $n \times n$ kernel matrix: preconditioned
conjugate gradients on $(K + \gamma^2 I)\alpha = y$.

Each step multiplies by $K$, which is computed block by block and not stored: $O(n)$ memory and
$O(n^2)$ time per step. The number of steps depends on the eigenvalues; the preconditioner
$P = LL^\top + \gamma^2 I$, with $L$ of $n \times r$ from pivoted Cholesky, removes the effect of
the $r$ largest (Gardner et al. 2018). The log marginal likelihood needs a determinant, which this
method does not give: `GaussianProcess` computes it exactly and `SparseGaussianProcess` a lower
bound.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Bool, Float, Int

from ...check import check_examples, expect_count
from ...core import Batch
from .check import check_observations
from .exact import GaussianProcess, prior_mean
from .float64 import Numbers, Scalar, dtype_of, in_float64, same_dtype
from .kernels import kernel_diagonal, kernel_matrix, n_examples

ROW_BLOCK = 1024  # rows of the kernel matrix in memory at a time


class PivotedCholesky(NamedTuple):
    r"""Low-rank approximation $K \approx LL^\top$ of rank $r$, exact in the rows and columns of the
    `pivots` (indices of examples); `residual_trace` is the trace of $K - LL^\top$.
    """

    L: Float[Numbers, "n r"]
    pivots: Int[Numbers, " r"]
    residual_trace: Scalar


@in_float64
def pivoted_cholesky(kernel: Callable[..., Any], xs: Batch, *, rank: int) -> PivotedCholesky:
    r"""Pivoted Cholesky decomposition, stopped after `rank` steps: each pivot is the example with
    the largest remaining variance.

    It evaluates $nr$ entries of $K$. Harbrecht, Peters & Schneider 2012.

    >>> from thetax.bayes import linear_kernel
    >>> low_rank = pivoted_cholesky(linear_kernel(), np.array([[1.0], [3.0], [2.0]]), rank=1)
    >>> low_rank.pivots.tolist(), low_rank.L.ravel().round(6).tolist()
    ([1], [1.0, 3.0, 2.0])
    """
    n = check_examples(xs, name="pivoted_cholesky: xs")
    if not 1 <= rank <= n:
        raise ValueError(
            f"pivoted_cholesky: rank must be between 1 and the number of examples, {n}; got {rank}."
        )
    return _pivoted_cholesky(kernel, jax.tree.map(jnp.asarray, xs), rank)


@eqx.filter_jit
def _pivoted_cholesky(kernel: Callable[..., Any], xs: Any, rank: int) -> PivotedCholesky:
    variance = kernel_diagonal(kernel, xs)
    dtype = variance.dtype
    tiny = 8 * jnp.finfo(dtype).eps * variance.max()

    def step(carry, j):
        L, variance, used = carry
        i = jnp.argmax(jnp.where(used, -jnp.inf, variance))
        pivot = variance[i]
        row = kernel(jax.tree.map(lambda leaf: leaf[i][None], xs), xs)[0].astype(dtype) - L @ L[i]
        column = jnp.where(pivot > tiny, row / jnp.sqrt(jnp.maximum(pivot, tiny)), 0.0)
        variance = jnp.maximum(variance - jnp.square(column), 0.0)
        return (L.at[:, j].set(column), variance, used.at[i].set(True)), i

    n = len(variance)
    start = jnp.zeros((n, rank), dtype), variance, jnp.zeros(n, bool)
    (L, variance, _), pivots = jax.lax.scan(step, start, jnp.arange(rank))
    return PivotedCholesky(L, pivots, variance.sum())


class CGSolution(NamedTuple):
    """Solution of a linear system by conjugate gradients; `residual` is relative to the norm of
    each right-hand side.
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
    max_steps: int = 1000,
) -> CGSolution:
    r"""Preconditioned conjugate gradients: solves $Ax = b$ for positive definite $A$ and each
    column of $b$, using only products $Av$ (Hestenes & Stiefel 1952).

    `product` computes $Av$ and `precondition` $P^{-1} r$. A column stops when $\|b - Ax\| \le$
    `tolerance` $\|b\|$; the loop ends when all columns have, or after `max_steps`.

    >>> A = jnp.array([[2.0, 1.0], [1.0, 3.0]])
    >>> b = jnp.array([[3.0], [4.0]])
    >>> conjugate_gradients(lambda v: A @ v, b, tolerance=1e-6).x.round(4).ravel().tolist()
    [1.0, 1.0]
    """
    norm_b = jnp.linalg.norm(b, axis=0)
    threshold = tolerance * norm_b
    unfinished = lambda r: jnp.linalg.norm(r, axis=0) > threshold

    def divide(numerator, denominator):  # 0 where the denominator is 0
        positive = denominator > 0
        return jnp.where(positive, numerator / jnp.where(positive, denominator, 1.0), 0.0)

    def step(carry):
        x, r, p, rz, steps = carry
        Ap = product(p)
        step_size = jnp.where(unfinished(r), divide(rz, (p * Ap).sum(axis=0)), 0.0)
        x = x + step_size[None] * p
        r = r - step_size[None] * Ap
        z = precondition(r)
        next_rz = (r * z).sum(axis=0)
        return x, r, z + divide(next_rz, rz)[None] * p, next_rz, steps + 1

    def keep_going(carry):
        _, r, _, _, steps = carry
        return unfinished(r).any() & (steps < max_steps)

    z = precondition(b)
    start = jnp.zeros_like(b), b, z, (b * z).sum(axis=0), jnp.zeros((), jnp.int32)
    x, _, _, _, steps = jax.lax.while_loop(keep_going, step, start)
    residual = divide(jnp.linalg.norm(b - product(x), axis=0), norm_b)
    return CGSolution(x, residual, steps, (residual <= 10 * tolerance).all())


def blockwise_product(
    kernel: Callable[..., Any], xs: Any, ys: Any, v: Float[Numbers, "m o"]
) -> Float[Numbers, "n o"]:
    r"""The product $k(X, Y) v$, computed from one block of rows of the kernel matrix at a time."""
    n = n_examples(xs)
    width = min(ROW_BLOCK, n)
    padded = -(-n // width) * width  # n rounded up to full blocks; extra rows repeat the first ones
    to_blocks = lambda leaf: leaf[jnp.arange(padded) % n].reshape(-1, width, *leaf.shape[1:])
    blocks = jax.lax.map(
        lambda block: kernel_matrix(kernel, block, ys, v.dtype) @ v, jax.tree.map(to_blocks, xs)
    )
    return blocks.reshape(padded, *v.shape[1:])[:n]


class IterativePosterior(eqx.Module):
    """Posterior of a Gaussian process, computed by conjugate gradients; `residual` is the relative
    residual of each output.
    """

    process: GaussianProcess
    xs: Batch
    alpha: Float[Numbers, "n *o"]
    low_rank: PivotedCholesky
    residual: Float[Numbers, " o"]
    steps: Int[Numbers, ""]
    converged: Bool[Numbers, ""]
    tolerance: float = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    @in_float64
    def mean(self, xs: Batch) -> Float[Numbers, "m *o"]:
        r"""Posterior mean $\mu(x) + k(x)^\top \alpha$."""
        check_examples(xs, name="mean: xs")
        return _mean(self, xs)

    @in_float64
    def variance(self, xs: Batch) -> Float[Numbers, " m"]:
        r"""Posterior variance $k(x, x) - k(x)^\top (K + \gamma^2 I)^{-1} k(x)$: one more solve,
        with a column for each $x$.
        """
        check_examples(xs, name="variance: xs")
        return _variance(self, xs)


@in_float64
def condition_iteratively(
    process: GaussianProcess,
    xs: Batch,
    ys: Any,
    *,
    rank: int = 100,
    tolerance: float = 1e-10,
    max_steps: int = 1000,
) -> IterativePosterior:
    r"""Posterior of a Gaussian process for many examples, by conjugate gradients with a
    pivoted-Cholesky preconditioner of this rank.

    Same posterior as `process.condition(xs, ys)`, up to `tolerance`.

    >>> from thetax.bayes import RBF
    >>> process, xs = GaussianProcess.init(RBF.init(), noise=0.1), np.linspace(0.0, 5.0, 30)
    >>> posterior = condition_iteratively(process, xs, np.sin(xs), rank=10)
    >>> exact = process.condition(xs, np.sin(xs))
    >>> bool(posterior.converged), np.allclose(posterior.mean(xs), exact.mean(xs))
    (True, True)
    """
    check_observations("condition_iteratively", xs, ys)
    if float(process.log_noise) == -np.inf:
        raise ValueError(
            "condition_iteratively: the process has no noise, which the preconditioner needs. Give "
            "it some, e.g. GaussianProcess.init(kernel, noise=0.1)."
        )
    expect_count("condition_iteratively", rank=rank, max_steps=max_steps)
    if not tolerance > 0:
        raise ValueError(f"condition_iteratively: tolerance must be positive; got {tolerance}.")
    rank = min(rank, n_examples(xs))
    return _condition(process, jax.tree.map(jnp.asarray, xs), ys, rank, tolerance, max_steps)


def _solver(
    process: GaussianProcess, xs: Any, low_rank: PivotedCholesky, tolerance: float, max_steps: int
) -> Callable[[Any], CGSolution]:
    r"""The map $b \mapsto (K + \gamma^2 I)^{-1} b$, with
    $P^{-1} = (I - L(\gamma^2 I + L^\top L)^{-1} L^\top) / \gamma^2$.
    """
    noise = jnp.exp(process.log_noise)
    L = low_rank.L
    inner = jnp.linalg.cholesky(L.T @ L + noise * jnp.eye(L.shape[1], dtype=L.dtype))
    precondition = lambda r: (r - L @ cho_solve((inner, True), L.T @ r)) / noise
    product = lambda v: blockwise_product(process.kernel, xs, xs, v) + noise * v
    return lambda b: conjugate_gradients(
        product, b, precondition=precondition, tolerance=tolerance, max_steps=max_steps
    )


@eqx.filter_jit
def _condition(process, xs, ys, rank, tolerance, max_steps):
    process, xs = same_dtype(process, xs)
    r = jnp.asarray(ys, dtype_of(process)) - prior_mean(process, xs, ys.shape[1:])
    low_rank = _pivoted_cholesky(process.kernel, xs, rank)
    solution = _solver(process, xs, low_rank, tolerance, max_steps)(r.reshape(len(r), -1))
    alpha = solution.x.reshape(r.shape)
    return IterativePosterior(process, xs, alpha, low_rank, *solution[1:], tolerance, max_steps)


@eqx.filter_jit
def _mean(self, xs):
    process, xs = same_dtype(self.process, xs)
    product = blockwise_product(
        process.kernel, xs, self.xs, self.alpha.reshape(len(self.alpha), -1)
    )
    return prior_mean(process, xs, self.alpha.shape[1:]) + product.reshape(
        -1, *self.alpha.shape[1:]
    )


@eqx.filter_jit
def _variance(self, xs):
    process, xs = same_dtype(self.process, xs)
    k = kernel_matrix(process.kernel, self.xs, xs, self.alpha.dtype)
    solution = _solver(process, self.xs, self.low_rank, self.tolerance, self.max_steps)(k)
    return jnp.maximum(
        kernel_diagonal(process.kernel, xs).astype(k.dtype) - (k * solution.x).sum(axis=0), 0.0
    )
