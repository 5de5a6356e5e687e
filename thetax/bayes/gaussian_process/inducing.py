r"""Many examples through few inducing points: Titsias' variational bound (2009).

The values $u = f(Z)$ at $m$ places $Z$ stand for the whole function. With
$Q = K_{XZ} K_{ZZ}^{-1} K_{ZX}$ the best Gaussian belief about $u$ gives a lower bound of the log
evidence,
$$\log p(y \mid X) \ge \log N(y; \mu(X), Q + \gamma^2 I) - \tfrac{1}{2\gamma^2} \mathrm{tr}(K -
Q),$$
at $O(nm^2)$, and is exact where $Z$ holds all of $X$. Raising the bound can never overfit the exact
process: what is left between them is a divergence of beliefs.
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
from .exact import GaussianProcess, prior
from .float64 import Numbers, Scalar, double, dtype_of, traced, uniform
from .iterative import pivoted_cholesky
from .jitter import factorise, tell
from .kernels import covariances, diagonal


class InducingProcess(eqx.Module):
    r"""A process seen through its values at `places`, which are hyper-parameters like the others
    and can be fitted.

    >>> from thetax.bayes import RBF
    >>> process, xs = GaussianProcess.init(RBF.init(), noise=0.1), np.linspace(0.0, 5.0, 40)
    >>> few = InducingProcess.init(process, xs, count=10)
    >>> bool(few.log_evidence(xs, np.sin(xs)) <= process.log_evidence(xs, np.sin(xs)))
    True
    """

    process: GaussianProcess
    places: Batch

    @classmethod
    @double
    def init(cls, process: GaussianProcess, xs: Batch, *, count: int) -> "InducingProcess":
        """Places among the examples, each where most variance was left by those before it (pivoted
        Cholesky).
        """
        chosen = np.asarray(pivoted_cholesky(process.kernel, xs, rank=count).places)
        return cls(process, jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[chosen]), xs))

    @double
    def log_evidence(self, xs: Batch, ys: Any) -> Scalar:
        r"""The lower bound of $\log p(y \mid X)$, summed over the outputs."""
        check_observations("log_evidence", xs, ys)
        _check_noise(self)
        value, jitter = _bound(self, xs, ys)
        if not traced(value):
            tell("log_evidence", jitter)
        return value

    @double
    def condition(self, xs: Batch, ys: Any) -> "InducingPosterior":
        """The best belief about $f$ that is one about its values at the places."""
        check_observations("condition", xs, ys)
        _check_noise(self)
        posterior = _condition(self, xs, ys)
        if not traced(posterior):
            tell("condition", posterior.jitter)
        return posterior


class InducingPosterior(eqx.Module):
    r"""The approximate posterior; `log_evidence` is the bound, `jitter` what was added to the
    diagonal of $K_{ZZ}$.
    """

    process: GaussianProcess
    places: Batch
    L: Float[Numbers, "m m"]
    B: Float[Numbers, "m m"]  # Cholesky's factor of I + AAᵀ
    c: Float[Numbers, "m *o"]
    log_evidence: Scalar
    jitter: Scalar

    @double
    def mean(self, xs: Batch) -> Float[Numbers, "q *o"]:
        r"""$\mu(x) + w^\top c$, $w = B^{-1} L^{-1} k(Z, x)$."""
        check_examples(xs, name="mean: xs")
        return _mean(self, xs)

    @double
    def covariance(self, xs: Batch) -> Float[Numbers, "q q"]:
        r"""$k(x, x') - v^\top v' + w^\top w'$, $v = L^{-1} k(Z, x)$: the same for every output."""
        check_examples(xs, name="covariance: xs")
        return _covariance(self, xs)

    @double
    def variance(self, xs: Batch) -> Float[Numbers, " q"]:
        """The diagonal of the covariance, without the rest of it."""
        check_examples(xs, name="variance: xs")
        return _variance(self, xs)


def _check_noise(self: InducingProcess) -> None:
    if not traced(self) and float(self.process.log_noise) == -np.inf:
        raise ValueError(
            "InducingProcess: the process has no noise, and without any the bound is minus "
            "infinity."
        )


class _Parts(NamedTuple):
    r"""$LL^\top = K_{ZZ}$; $A = L^{-1} K_{ZX} / \gamma$; $BB^\top = I + AA^\top$;
    $c = B^{-1} A r / \gamma$.
    """

    L: Any
    A: Any
    B: Any
    c: Any
    jitter: Scalar


def _parts(process: GaussianProcess, places: Any, xs: Any, r: Any) -> _Parts:
    dtype = r.dtype
    gamma = jnp.exp(process.log_noise / 2)
    L, jitter = factorise(covariances(process.kernel, places, None, dtype))
    A = solve_triangular(L, covariances(process.kernel, places, xs, dtype), lower=True) / gamma
    B = jnp.linalg.cholesky(jnp.eye(len(L), dtype=dtype) + A @ A.T)
    return _Parts(L, A, B, solve_triangular(B, A @ r, lower=True) / gamma, jitter)


def _value(process: GaussianProcess, xs: Any, r: Any, parts: _Parts) -> Scalar:
    r"""The bound, by $|Q + \gamma^2 I| = \gamma^{2n} |BB^\top|$ and Woodbury's identity."""
    (n, o), noise = r.shape, jnp.exp(process.log_noise)
    logs = jnp.log(jnp.diagonal(parts.B)).sum() + n / 2 * (process.log_noise + np.log(2 * np.pi))
    square = (jnp.square(r).sum() / noise - jnp.square(parts.c).sum()) / 2
    missing = (
        diagonal(process.kernel, xs).astype(r.dtype).sum() / noise - jnp.square(parts.A).sum()
    ) / 2
    return -square - o * (logs + missing)


def _prepared(self: InducingProcess, xs: Any, ys: Any) -> tuple[Any, ...]:
    self, xs = uniform(self, xs)
    r = jnp.asarray(ys, dtype_of(self)) - prior(self.process, xs, ys.shape[1:])
    return self, xs, r, _parts(self.process, self.places, xs, r.reshape(len(r), -1))


@eqx.filter_jit
def _bound(self, xs, ys):
    self, xs, r, parts = _prepared(self, xs, ys)
    return _value(self.process, xs, r.reshape(len(r), -1), parts), parts.jitter


@eqx.filter_jit
def _condition(self, xs, ys):
    self, xs, r, parts = _prepared(self, xs, ys)
    value = _value(self.process, xs, r.reshape(len(r), -1), parts)
    c = parts.c.reshape(len(parts.c), *r.shape[1:])
    return InducingPosterior(self.process, self.places, parts.L, parts.B, c, value, parts.jitter)


def _seen(self: InducingPosterior, xs: Any) -> tuple[Any, Any, Any]:
    process, xs = uniform(self.process, xs)
    v = solve_triangular(
        self.L, covariances(process.kernel, self.places, xs, self.L.dtype), lower=True
    )
    return xs, v, solve_triangular(self.B, v, lower=True)


@eqx.filter_jit
def _mean(self, xs):
    xs, _, w = _seen(self, xs)
    return prior(self.process, xs, self.c.shape[1:]) + jnp.tensordot(w.T, self.c, 1)


@eqx.filter_jit
def _covariance(self, xs):
    xs, v, w = _seen(self, xs)
    return covariances(self.process.kernel, xs, None, v.dtype) - v.T @ v + w.T @ w


@eqx.filter_jit
def _variance(self, xs):
    xs, v, w = _seen(self, xs)
    left = diagonal(self.process.kernel, xs).astype(v.dtype) - jnp.square(v).sum(axis=0)
    return jnp.maximum(left, 0.0) + jnp.square(w).sum(axis=0)
