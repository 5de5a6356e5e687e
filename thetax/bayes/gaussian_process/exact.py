r"""Gaussian processes (§10.2): beliefs about a function, of which any finite number of values is
Gaussian.

$f(X) \sim N(\mu(X), K)$ with $K_{ij} = k(x_i, x_j)$, and $y = f(X) + \varepsilon$,
$\varepsilon \sim N(0, \gamma^2 I)$, give by conditioning
$$E f(x) = \mu(x) + k(x)^\top (K + \gamma^2 I)^{-1} (y - \mu(X)), \qquad
\mathrm{Cov}(f(x), f(x')) = k(x, x') - k(x)^\top (K + \gamma^2 I)^{-1} k(x'),$$
at the price of one Cholesky factor, $n^3/3$ operations. Rasmussen & Williams 2006, §2.2 and
algorithm 2.1.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Float, PRNGKeyArray

from ...check import check_examples
from ...core import Batch, predict
from .check import check_draws, check_matrix, check_observations
from .float64 import Numbers, Scalar, double, dtype_of, traced, uniform
from .jitter import factorise, tell
from .kernels import covariances, diagonal, positive, size
from .log_density import from_factor, log_density, slope


class GaussianProcess(eqx.Module):
    r"""$f \sim GP(\mu, k)$, seen through noise of variance $\gamma^2$ (§10.2).

    `kernel` is any `k(xs, ys=None)`; `mean` is a model of one example, such as a `Linear`, or None
    for 0. All leaves are hyper-parameters: `fit_evidence` fits them, the weights of a network too
    if the kernel is its tangent kernel. Calculations are in their dtype, float64 unless `single`
    was used.

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
        r"""The process of this kernel and $\gamma^2$ = `noise`; a noise of 0 stays 0 when it is
        fitted.
        """
        if not callable(kernel):
            raise ValueError(
                "GaussianProcess: kernel must be a function k(xs, ys=None); got "
                f"{type(kernel).__name__}."
            )
        return cls(kernel, positive("GaussianProcess: noise", noise, least=-jnp.inf), mean)

    @property
    def noise(self) -> Scalar:
        r"""$\gamma^2$, the variance of an observation about $f$."""
        return _exp(self.log_noise)

    @double
    def log_evidence(self, xs: Batch, ys: Any) -> Scalar:
        r"""$\log p(y \mid X) = \log N(y; \mu(X), K + \gamma^2 I)$, summed over the outputs.

        Its gradient is known in closed form and comes with `jax.grad`, or in double precision from
        `evidence_gradient`.

        >>> from thetax.bayes import RBF
        >>> process = GaussianProcess.init(RBF.init(), noise=1.0)
        >>> round(float(process.log_evidence(jnp.zeros((1, 1)), jnp.zeros(1))), 4)
        -1.2655
        """
        check_matrix("log_evidence", xs)
        check_observations("log_evidence", xs, ys)
        value, jitter = _log_evidence(self, xs, ys)
        if not traced(value):
            tell("log_evidence", jitter)
        return value

    @double
    def condition(self, xs: Batch, ys: Any) -> "Posterior":
        """What is believed of $f$ once `ys` were seen at `xs`; several outputs, `(n, o)`, share
        kernel and solve.
        """
        check_matrix("condition", xs)
        check_observations("condition", xs, ys)
        posterior = _condition(self, xs, ys)
        if not traced(posterior):
            tell("condition", posterior.jitter)
        return posterior

    @double
    def sample(self, xs: Batch, count: int, *, key: PRNGKeyArray) -> Float[Numbers, "{count} n *o"]:
        """Draws of $(f(x_1), ..., f(x_n))$, without noise.

        >>> from thetax.bayes import RBF
        >>> GaussianProcess.init(RBF.init()).sample(jnp.zeros((3, 1)), 2, key=jr.key(0)).shape
        (2, 3)
        """
        check_matrix("sample", xs)
        check_draws("sample", count)
        return _sample_prior(self, xs, count, key)


class Posterior(eqx.Module):
    r"""A Gaussian process conditioned on observations: again one, of $f$ without noise.

    An observation at $x$ has the variance of $f(x)$ and the `noise` of the process. `jitter` is
    what had to be added to the diagonal of $K + \gamma^2 I$: 0 as a rule. `log_evidence` is
    $\log p(y \mid X)$.
    """

    process: GaussianProcess
    xs: Batch
    L: Float[Numbers, "n n"]
    alpha: Float[Numbers, "n *o"]
    log_evidence: Scalar
    jitter: Scalar

    @double
    def mean(self, xs: Batch) -> Float[Numbers, "m *o"]:
        r"""$\mu(x) + k(x)^\top \alpha$, $\alpha = (K + \gamma^2 I)^{-1} (y - \mu(X))$."""
        check_examples(xs, name="mean: xs")
        return _mean(self, xs)

    @double
    def covariance(self, xs: Batch) -> Float[Numbers, "m m"]:
        r"""$k(x, x') - v^\top v'$, $v = L^{-1} k(x)$: the same for every output."""
        check_examples(xs, name="covariance: xs")
        return _covariance(self, xs)

    @double
    def variance(self, xs: Batch) -> Float[Numbers, " m"]:
        """The diagonal of the covariance, without the rest of it."""
        check_examples(xs, name="variance: xs")
        return _variance(self, xs)

    @double
    def evidence_gradient(self) -> GaussianProcess:
        r"""The derivatives of $\log p(y \mid X)$ in all hyper-parameters, from the factor that is
        there already.
        """
        return _evidence_gradient(self)

    @double
    def sample(self, xs: Batch, count: int, *, key: PRNGKeyArray) -> Float[Numbers, "{count} m *o"]:
        """Draws of $(f(x_1), ..., f(x_m))$, without noise."""
        check_matrix("sample", xs)
        check_draws("sample", count)
        return _sample_posterior(self, xs, count, key)


@double
def _exp(x: Scalar) -> Scalar:
    return jnp.exp(x)


def prior(process: GaussianProcess, xs: Any, shape: tuple[int, ...] = ()) -> Float[Numbers, "n *o"]:
    r"""$\mu(X)$, for outputs of this shape."""
    n = size(xs)
    if process.mean is None:
        return jnp.zeros((n, *shape), dtype_of(process))
    found = predict(process.mean, xs)
    if found.size == n:
        found = found.reshape((n, *[1 for _ in shape]))
    elif found.shape != (n, *shape):
        raise ValueError(
            f"GaussianProcess: the mean gives {found.shape[1:]} for one example, but the outputs "
            f"have {shape}; make it a model of as many outputs, or of one."
        )
    return jnp.broadcast_to(found, (n, *shape))


def gram(process: GaussianProcess, xs: Any) -> Float[Numbers, "n n"]:
    r"""$K + \gamma^2 I$."""
    K = covariances(process.kernel, xs, None, dtype_of(process))
    return K + jnp.diag(jnp.full(len(K), jnp.exp(process.log_noise)))


@eqx.filter_jit
def _log_evidence(process, xs, ys):
    process, xs = uniform(process, xs)
    r = jnp.asarray(ys, dtype_of(process)) - prior(process, xs, ys.shape[1:])
    return log_density(gram(process, xs), r.reshape(len(r), -1))


@eqx.filter_jit
def _condition(process, xs, ys):
    process, xs = uniform(process, xs)
    r = jnp.asarray(ys, dtype_of(process)) - prior(process, xs, ys.shape[1:])
    L, jitter = factorise(gram(process, xs))
    alpha = cho_solve((L, True), r)
    evidence = from_factor(L, alpha.reshape(len(r), -1), r.reshape(len(r), -1))
    return Posterior(process, xs, L, alpha, evidence, jitter)


@eqx.filter_jit
def _evidence_gradient(self):
    columns = self.alpha.reshape(len(self.alpha), -1)
    shape = self.alpha.shape[1:]
    of_theta = lambda process: (gram(process, self.xs), prior(process, self.xs, shape))
    return eqx.filter_vjp(of_theta, self.process)[1]((slope(self.L, columns), self.alpha))[0]


@eqx.filter_jit
def _mean(self, xs):
    process, xs = uniform(self.process, xs)
    return (
        prior(process, xs, self.alpha.shape[1:])
        + covariances(process.kernel, xs, self.xs, self.L.dtype) @ self.alpha
    )


def _explained(self, xs):
    r"""$L^{-1} k(X, x)$: what the observations say, in units of their own spread."""
    return solve_triangular(
        self.L, covariances(self.process.kernel, self.xs, xs, self.L.dtype), lower=True
    )


@eqx.filter_jit
def _covariance(self, xs):
    process, xs = uniform(self.process, xs)
    v = _explained(self, xs)
    return covariances(process.kernel, xs, None, v.dtype) - v.T @ v


@eqx.filter_jit
def _variance(self, xs):
    process, xs = uniform(self.process, xs)
    v = _explained(self, xs)
    return jnp.maximum(
        diagonal(process.kernel, xs).astype(v.dtype) - jnp.square(v).sum(axis=0), 0.0
    )


@eqx.filter_jit
def _sample_prior(process, xs, count, key):
    process, xs = uniform(process, xs)
    return draw(
        prior(process, xs), covariances(process.kernel, xs, None, dtype_of(process)), count, key
    )


@eqx.filter_jit
def _sample_posterior(self, xs, count, key):
    return draw(_mean(self, xs), _covariance(self, xs), count, key)


def draw(
    mean: Float[Numbers, "n *o"], K: Float[Numbers, "n n"], count: int, key: PRNGKeyArray
) -> Any:
    r"""$\mu + V\sqrt\Lambda\,\varepsilon$ with $K = V\Lambda V^\top$: a root that singular matrices
    have too, so that no jitter is needed.
    """
    values, V = jnp.linalg.eigh(K)
    root = V * jnp.sqrt(jnp.maximum(values, 0.0))[None]
    noise = jr.normal(key, (count, *mean.shape), K.dtype)
    return mean[None] + jax.vmap(lambda e: root @ e)(noise)
