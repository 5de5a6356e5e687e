r"""Sparse Gaussian process regression with inducing points: the variational bound of Titsias
(2009).

The values $u = f(Z)$ at $m$ inducing points $Z$ summarise the function. With
$Q = K_{XZ} K_{ZZ}^{-1} K_{ZX}$ the optimal Gaussian $q(u)$ gives a lower bound of the log marginal
likelihood (the ELBO),
$$\log p(y \mid X) \ge \log N(y; \mu(X), Q + \gamma^2 I) - \tfrac{1}{2\gamma^2} \mathrm{tr}(K -
Q),$$
computed in $O(nm^2)$ and exact if $Z$ contains all of $X$. The gap to the exact value is the
Kullback-Leibler divergence of the approximate posterior from the exact one, so maximising the bound
over $Z$ cannot overfit.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from ...check import check_examples
from ...core import Batch
from .check import check_observations
from .exact import GaussianProcess, prior_mean
from .float64 import Numbers, Scalar, dtype_of, in_float64, is_traced, same_dtype
from .iterative import pivoted_cholesky
from .jitter import check_jitter, cholesky_with_jitter
from .kernels import kernel_diagonal, kernel_matrix


class SparseGaussianProcess(eqx.Module):
    r"""Sparse Gaussian process: its posterior is computed from the values at the
    `inducing_points`, which `fit_hyperparameters` fits with the other hyperparameters.

    >>> from thetax.bayes import RBF
    >>> process, xs = GaussianProcess.init(RBF.init(), noise=0.1), np.linspace(0.0, 5.0, 40)
    >>> sparse = SparseGaussianProcess.init(process, xs, n_inducing=10)
    >>> bool(
    ...     sparse.log_marginal_likelihood(xs, np.sin(xs))
    ...     <= process.log_marginal_likelihood(xs, np.sin(xs))
    ... )
    True
    """

    process: GaussianProcess
    inducing_points: Batch

    @classmethod
    @in_float64
    def init(
        cls, process: GaussianProcess, xs: Batch, *, n_inducing: int
    ) -> "SparseGaussianProcess":
        """Chooses inducing points among the examples by pivoted Cholesky: each has the largest
        variance given those before it.
        """
        pivots = np.asarray(pivoted_cholesky(process.kernel, xs, rank=n_inducing).pivots)
        return cls(process, jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[pivots]), xs))

    @in_float64
    def log_marginal_likelihood(self, xs: Batch, ys: Any) -> Scalar:
        r"""Lower bound (ELBO) of the log marginal likelihood $\log p(y \mid X)$, summed over the
        outputs.
        """
        check_observations("log_marginal_likelihood", xs, ys)
        _check_noise(self)
        value, jitter = _bound(self, xs, ys)
        if not is_traced(value):
            check_jitter("log_marginal_likelihood", jitter)
        return value

    @in_float64
    def condition(self, xs: Batch, ys: Any) -> "SparsePosterior":
        """The variational posterior of $f$ given the observations `ys` at `xs`."""
        check_observations("condition", xs, ys)
        _check_noise(self)
        posterior = _condition(self, xs, ys)
        if not is_traced(posterior):
            check_jitter("condition", posterior.jitter)
        return posterior


class SparsePosterior(eqx.Module):
    r"""Variational posterior of a sparse Gaussian process.

    `log_marginal_likelihood` is the lower bound, `jitter` what was added to the diagonal of
    $K_{ZZ}$, and `B` the Cholesky factor of $I + AA^\top$.
    """

    process: GaussianProcess
    inducing_points: Batch
    L: Float[Numbers, "m m"]
    B: Float[Numbers, "m m"]
    c: Float[Numbers, "m *o"]
    log_marginal_likelihood: Scalar
    jitter: Scalar

    @in_float64
    def mean(self, xs: Batch) -> Float[Numbers, "q *o"]:
        r"""Posterior mean $\mu(x) + w^\top c$, $w = B^{-1} L^{-1} k(Z, x)$."""
        check_examples(xs, name="mean: xs")
        return _mean(self, xs)

    @in_float64
    def covariance(self, xs: Batch) -> Float[Numbers, "q q"]:
        r"""Posterior covariance $k(x, x') - v^\top v' + w^\top w'$, $v = L^{-1} k(Z, x)$; the same
        for every output.
        """
        check_examples(xs, name="covariance: xs")
        return _covariance(self, xs)

    @in_float64
    def variance(self, xs: Batch) -> Float[Numbers, " q"]:
        """Posterior variance: the diagonal of the covariance, without forming the matrix."""
        check_examples(xs, name="variance: xs")
        return _variance(self, xs)


def _check_noise(self: SparseGaussianProcess) -> None:
    if not is_traced(self) and float(self.process.log_noise) == -np.inf:
        raise ValueError(
            "SparseGaussianProcess: the process has no noise, so the bound is minus infinity. Give "
            "it some, e.g. GaussianProcess.init(kernel, noise=0.1)."
        )


class _Factors(NamedTuple):
    r"""$LL^\top = K_{ZZ}$; $A = L^{-1} K_{ZX} / \gamma$; $BB^\top = I + AA^\top$;
    $c = B^{-1} A r / \gamma$.
    """

    L: Any
    A: Any
    B: Any
    c: Any
    jitter: Scalar


def _factors(process: GaussianProcess, inducing_points: Any, xs: Any, r: Any) -> _Factors:
    dtype = r.dtype
    gamma = jnp.exp(process.log_noise / 2)
    L, jitter = cholesky_with_jitter(kernel_matrix(process.kernel, inducing_points, None, dtype))
    A = (
        solve_triangular(L, kernel_matrix(process.kernel, inducing_points, xs, dtype), lower=True)
        / gamma
    )
    B = jnp.linalg.cholesky(jnp.eye(len(L), dtype=dtype) + A @ A.T)
    return _Factors(L, A, B, solve_triangular(B, A @ r, lower=True) / gamma, jitter)


def _value(process: GaussianProcess, xs: Any, r: Any, factors: _Factors) -> Scalar:
    r"""The lower bound, from $|Q + \gamma^2 I| = \gamma^{2n} |BB^\top|$ and Woodbury's identity."""
    n, o = r.shape
    noise = jnp.exp(process.log_noise)
    half_log_det = jnp.log(jnp.diagonal(factors.B)).sum() + n / 2 * (
        process.log_noise + np.log(2 * np.pi)
    )
    square = (jnp.square(r).sum() / noise - jnp.square(factors.c).sum()) / 2
    half_trace = (
        kernel_diagonal(process.kernel, xs).astype(r.dtype).sum() / noise
        - jnp.square(factors.A).sum()
    ) / 2
    return -square - o * (half_log_det + half_trace)


def _residuals_and_factors(self: SparseGaussianProcess, xs: Any, ys: Any) -> tuple[Any, ...]:
    self, xs = same_dtype(self, xs)
    r = jnp.asarray(ys, dtype_of(self)) - prior_mean(self.process, xs, ys.shape[1:])
    return self, xs, r, _factors(self.process, self.inducing_points, xs, r.reshape(len(r), -1))


@eqx.filter_jit
def _bound(self, xs, ys):
    self, xs, r, factors = _residuals_and_factors(self, xs, ys)
    return _value(self.process, xs, r.reshape(len(r), -1), factors), factors.jitter


@eqx.filter_jit
def _condition(self, xs, ys):
    self, xs, r, factors = _residuals_and_factors(self, xs, ys)
    value = _value(self.process, xs, r.reshape(len(r), -1), factors)
    c = factors.c.reshape(len(factors.c), *r.shape[1:])
    return SparsePosterior(
        self.process, self.inducing_points, factors.L, factors.B, c, value, factors.jitter
    )


def _projections(self: SparsePosterior, xs: Any) -> tuple[Any, Any, Any]:
    process, xs = same_dtype(self.process, xs)
    v = solve_triangular(
        self.L, kernel_matrix(process.kernel, self.inducing_points, xs, self.L.dtype), lower=True
    )
    return xs, v, solve_triangular(self.B, v, lower=True)


@eqx.filter_jit
def _mean(self, xs):
    xs, _, w = _projections(self, xs)
    return prior_mean(self.process, xs, self.c.shape[1:]) + jnp.tensordot(w.T, self.c, 1)


@eqx.filter_jit
def _covariance(self, xs):
    xs, v, w = _projections(self, xs)
    return kernel_matrix(self.process.kernel, xs, None, v.dtype) - v.T @ v + w.T @ w


@eqx.filter_jit
def _variance(self, xs):
    xs, v, w = _projections(self, xs)
    remaining = kernel_diagonal(self.process.kernel, xs).astype(v.dtype) - jnp.square(v).sum(axis=0)
    return jnp.maximum(remaining, 0.0) + jnp.square(w).sum(axis=0)
