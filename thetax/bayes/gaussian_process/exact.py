r"""Gaussian process regression (§10.2): a prior over functions whose values at any finite set of
inputs are jointly Gaussian.

$f(X) \sim N(\mu(X), K)$ with $K_{ij} = k(x_i, x_j)$, and $y = f(X) + \varepsilon$,
$\varepsilon \sim N(0, \gamma^2 I)$, give by conditioning
$$E f(x) = \mu(x) + k(x)^\top (K + \gamma^2 I)^{-1} (y - \mu(X)), \qquad
\mathrm{Cov}(f(x), f(x')) = k(x, x') - k(x)^\top (K + \gamma^2 I)^{-1} k(x'),$$
for one Cholesky factorisation, $n^3/3$ operations. Rasmussen & Williams 2006, §2.2 and
Algorithm 2.1, cited as R & W beside the lines.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Float, PRNGKeyArray

from ...check import check_examples, expect_count
from ...core import Batch, predict
from .check import check_kernel_matrix, check_observations
from .float64 import Numbers, Scalar, dtype_of, in_float64, is_traced, same_dtype
from .gaussian_log_density import (
    gaussian_log_density,
    log_density_from_cholesky,
    log_density_gradient,
)
from .jitter import check_jitter, cholesky_with_jitter
from .kernels import kernel_diagonal, kernel_matrix, log_of_positive, n_examples


class GaussianProcess(eqx.Module):
    r"""Gaussian process prior $f \sim GP(\mu, k)$ with observation noise of variance $\gamma^2$
    (§10.2).

    `kernel` is any function `k(xs, ys=None)`; `mean` is a model of one example, such as a `Linear`,
    or None for 0. All leaves are hyperparameters, which `fit_hyperparameters` fits, including the
    weights of a network whose tangent kernel is used. The computation is in their dtype, float64
    unless `to_float32` was used.

    >>> from thetax.bayes import RBF
    >>> process = GaussianProcess.init(RBF.init(), noise=0.01)
    >>> posterior = process.condition(jnp.array([[0.0], [1.0]]), jnp.array([0.0, 1.0]))
    >>> (
    ...     posterior.mean(jnp.array([[1.0]])).round(3).tolist(),
    ...     posterior.variance(jnp.array([[9.0]])).round(3).tolist(),
    ... )
    ([0.985], [1.0])
    """

    kernel: Callable[..., Any]
    log_noise: Float[Numbers, ""]
    mean: Callable[..., Any] | None = None

    @classmethod
    def init(
        cls,
        kernel: Callable[..., Any],
        *,
        noise: float = 0.0,
        mean: Callable[..., Any] | None = None,
    ) -> "GaussianProcess":
        r"""The process with this kernel and noise variance $\gamma^2$ = `noise`; a noise of 0 stays
        0 when fitted.
        """
        if not callable(kernel):
            raise ValueError(
                "GaussianProcess: kernel must be a function k(xs, ys=None); got "
                f"{type(kernel).__name__}."
            )
        return cls(kernel, log_of_positive("GaussianProcess: noise", noise, allow_zero=True), mean)

    @property
    def noise(self) -> Scalar:
        r"""Noise variance $\gamma^2$ of an observation given $f$."""
        return _exp(self.log_noise)

    @in_float64
    def log_marginal_likelihood(self, xs: Batch, ys: Any) -> Scalar:
        r"""Log marginal likelihood (evidence), summed over the outputs:
        $\log p(y \mid X) = \log N(y; \mu(X), K + \gamma^2 I)$.

        `jax.grad` uses the closed form of its gradient; `marginal_likelihood_gradient` computes it
        in float64.

        >>> from thetax.bayes import RBF
        >>> process = GaussianProcess.init(RBF.init(), noise=1.0)
        >>> round(float(process.log_marginal_likelihood(jnp.zeros((1, 1)), jnp.zeros(1))), 4)
        -1.2655
        """
        check_kernel_matrix("log_marginal_likelihood", xs)
        check_observations("log_marginal_likelihood", xs, ys)
        value, jitter = _log_evidence(self, xs, ys)
        if not is_traced(value):
            check_jitter("log_marginal_likelihood", jitter)
        return value

    @in_float64
    def condition(self, xs: Batch, ys: Any) -> "Posterior":
        """The posterior of $f$ given the observations `ys` at `xs`: fits the process to data.

        Several outputs, `ys` of shape `(n, o)`, share the kernel and the Cholesky factor.
        """
        check_kernel_matrix("condition", xs)
        check_observations("condition", xs, ys)
        posterior = _condition(self, xs, ys)
        if not is_traced(posterior):
            check_jitter("condition", posterior.jitter)
        return posterior

    @in_float64
    def sample(
        self, xs: Batch, n_samples: int, *, key: PRNGKeyArray
    ) -> Float[Numbers, "{n_samples} n *o"]:
        """Samples of $(f(x_1), ..., f(x_n))$ from the prior, without noise.

        >>> from thetax.bayes import RBF
        >>> GaussianProcess.init(RBF.init()).sample(jnp.zeros((3, 1)), 2, key=jr.key(0)).shape
        (2, 3)
        """
        check_kernel_matrix("sample", xs)
        expect_count("sample", n_samples=n_samples)
        return _sample_prior(self, xs, n_samples, key)


class Posterior(eqx.Module):
    r"""Posterior Gaussian process of $f$ (without noise) given observations.

    A new observation at $x$ has the variance of $f(x)$ plus the `noise` of the process. `jitter`,
    usually 0, is what was added to the diagonal of $K + \gamma^2 I$. `log_marginal_likelihood` is
    $\log p(y \mid X)$. `L` is the Cholesky factor, `alpha` the solution of R & W Alg. 2.1, line 3.
    """

    process: GaussianProcess
    xs: Batch
    L: Float[Numbers, "n n"]
    alpha: Float[Numbers, "n *o"]
    log_marginal_likelihood: Scalar
    jitter: Scalar

    @in_float64
    def mean(self, xs: Batch) -> Float[Numbers, "m *o"]:
        r"""Posterior mean $\mu(x) + k(x)^\top \alpha$ with
        $\alpha = (K + \gamma^2 I)^{-1} (y - \mu(X))$.
        """
        check_examples(xs, name="mean: xs")
        return _mean(self, xs)

    @in_float64
    def covariance(self, xs: Batch) -> Float[Numbers, "m m"]:
        r"""Posterior covariance $k(x, x') - v^\top v'$, $v = L^{-1} k(x)$; the same for every
        output.
        """
        check_examples(xs, name="covariance: xs")
        return _covariance(self, xs)

    @in_float64
    def variance(self, xs: Batch) -> Float[Numbers, " m"]:
        """Posterior variance: the diagonal of the covariance, without forming the matrix."""
        check_examples(xs, name="variance: xs")
        return _variance(self, xs)

    @in_float64
    def marginal_likelihood_gradient(self) -> GaussianProcess:
        r"""Gradient of $\log p(y \mid X)$ in all hyperparameters; reuses the Cholesky factor."""
        return _evidence_gradient(self)

    @in_float64
    def sample(
        self, xs: Batch, n_samples: int, *, key: PRNGKeyArray
    ) -> Float[Numbers, "{n_samples} m *o"]:
        """Samples of $(f(x_1), ..., f(x_m))$ from the posterior, without noise."""
        check_kernel_matrix("sample", xs)
        expect_count("sample", n_samples=n_samples)
        return _sample_posterior(self, xs, n_samples, key)


@in_float64
def _exp(x: Scalar) -> Scalar:
    return jnp.exp(x)


def prior_mean(
    process: GaussianProcess, xs: Any, shape: tuple[int, ...] = ()
) -> Float[Numbers, "n *o"]:
    r"""Prior mean $\mu(X)$ for outputs of this shape."""
    n = n_examples(xs)
    if process.mean is None:
        return jnp.zeros((n, *shape), dtype_of(process))
    mean = predict(process.mean, xs)
    if mean.size == n:
        mean = mean.reshape((n, *[1 for _ in shape]))
    elif mean.shape != (n, *shape):
        raise ValueError(
            f"GaussianProcess: the mean has shape {mean.shape[1:]} for one example, but ys has "
            f"{shape}. Use a mean with as many outputs as ys, or with one."
        )
    return jnp.broadcast_to(mean, (n, *shape))


def observation_covariance(process: GaussianProcess, xs: Any) -> Float[Numbers, "n n"]:
    r"""Covariance $K + \gamma^2 I$ of the observations."""
    K = kernel_matrix(process.kernel, xs, None, dtype_of(process))
    return K + jnp.diag(jnp.full(len(K), jnp.exp(process.log_noise)))


@eqx.filter_jit
def _log_evidence(process, xs, ys):
    process, xs = same_dtype(process, xs)
    r = jnp.asarray(ys, dtype_of(process)) - prior_mean(process, xs, ys.shape[1:])
    return gaussian_log_density(observation_covariance(process, xs), r.reshape(len(r), -1))


@eqx.filter_jit
def _condition(process, xs, ys):
    process, xs = same_dtype(process, xs)
    r = jnp.asarray(ys, dtype_of(process)) - prior_mean(process, xs, ys.shape[1:])
    # R & W Alg. 2.1, line 2: L = cholesky(K + γ²I)
    L, jitter = cholesky_with_jitter(observation_covariance(process, xs))
    # line 3: α = Lᵀ \ (L \ r)
    alpha = cho_solve((L, True), r)
    # line 7: log p(y | X) = -rᵀα/2 - Σ log L_ii - n/2 log 2π
    value = log_density_from_cholesky(L, alpha.reshape(len(r), -1), r.reshape(len(r), -1))
    return Posterior(process, xs, L, alpha, value, jitter)


@eqx.filter_jit
def _evidence_gradient(self):
    columns = self.alpha.reshape(len(self.alpha), -1)
    shape = self.alpha.shape[1:]
    of_theta = lambda process: (
        observation_covariance(process, self.xs),
        prior_mean(process, self.xs, shape),
    )
    return eqx.filter_vjp(of_theta, self.process)[1](
        (log_density_gradient(self.L, columns), self.alpha)
    )[0]


@eqx.filter_jit
def _mean(self, xs):
    # R & W Alg. 2.1, line 4: E f(x) = μ(x) + k(x)ᵀα
    process, xs = same_dtype(self.process, xs)
    return (
        prior_mean(process, xs, self.alpha.shape[1:])
        + kernel_matrix(process.kernel, xs, self.xs, self.L.dtype) @ self.alpha
    )


def _whitened_covariance(self, xs):
    r"""$v = L^{-1} k(X, x)$ (R & W Alg. 2.1, line 5)."""
    return solve_triangular(
        self.L, kernel_matrix(self.process.kernel, self.xs, xs, self.L.dtype), lower=True
    )


@eqx.filter_jit
def _covariance(self, xs):
    process, xs = same_dtype(self.process, xs)
    v = _whitened_covariance(self, xs)
    return kernel_matrix(process.kernel, xs, None, v.dtype) - v.T @ v


@eqx.filter_jit
def _variance(self, xs):
    process, xs = same_dtype(self.process, xs)
    v = _whitened_covariance(self, xs)
    # R & W Alg. 2.1, line 6: Var f(x) = k(x, x) - vᵀv; rounding may make it negative
    return jnp.maximum(
        kernel_diagonal(process.kernel, xs).astype(v.dtype) - jnp.square(v).sum(axis=0), 0.0
    )


@eqx.filter_jit
def _sample_prior(process, xs, n_samples, key):
    process, xs = same_dtype(process, xs)
    return sample_gaussian(
        prior_mean(process, xs),
        kernel_matrix(process.kernel, xs, None, dtype_of(process)),
        n_samples,
        key,
    )


@eqx.filter_jit
def _sample_posterior(self, xs, n_samples, key):
    return sample_gaussian(_mean(self, xs), _covariance(self, xs), n_samples, key)


def sample_gaussian(
    mean: Float[Numbers, "n *o"], K: Float[Numbers, "n n"], n_samples: int, key: PRNGKeyArray
) -> Any:
    r"""Samples $\mu + V\sqrt\Lambda\,\varepsilon$ with $K = V\Lambda V^\top$.

    Unlike the Cholesky factor, this square root exists for singular $K$, so no jitter is needed.
    """
    values, V = jnp.linalg.eigh(K)
    root = V * jnp.sqrt(jnp.maximum(values, 0.0))[None]
    noise = jr.normal(key, (n_samples, *mean.shape), K.dtype)
    return mean[None] + jax.vmap(lambda e: root @ e)(noise)
