r"""Multi-class (softmax) classification with Gaussian processes by Laplace's approximation
(Rasmussen & Williams 2006, §3.5; cited as R & W beside the lines).

$p(y = c \mid x) = \mathrm{softmax}_c(f_1(x), \dots, f_k(x))$ with independent $f_c \sim GP(0, k)$
that share one kernel. At the mode the curvature is $W = D - \Pi\Pi^\top$, where
$D = \mathrm{diag}(\pi)$ and $\Pi$ is the stacked $\mathrm{diag}(\pi_c)$. With
$E_c = D_c^{1/2} B_c^{-1} D_c^{1/2}$, $B_c = I + D_c^{1/2} K D_c^{1/2}$, only
$n \times n$ matrices are factorised:
$$\log p(y \mid X) \approx \Psi(\hat f) - \tfrac12 \sum_c \log |B_c| - \tfrac12 \log \Big| \sum_c
E_c \Big|.$$
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from ...check import check_examples, expect_count
from ...core import Batch
from .binary_classifier import NewtonState, backtracking_step, newton_maximise, newton_start
from .check import check_classes
from .float64 import Numbers, Scalar, cast, dtype_of, in_float64, same_dtype
from .kernels import kernel_diagonal, kernel_matrix


class GaussianProcessClassifier(eqx.Module):
    r"""Gaussian process classifier for several classes:
    $p(y = c \mid x) = \mathrm{softmax}_c(f(x))$, $f_1, \dots, f_k \sim GP(0, k)$.

    With two classes it equals `GaussianProcessBinaryClassifier` with twice the kernel, the
    covariance of $f_2 - f_1$.

    >>> from thetax.bayes import RBF
    >>> xs, labels = jnp.array([[-2.0], [0.0], [2.0]]), jnp.array([0, 1, 2])
    >>> posterior = GaussianProcessClassifier(RBF.init(variance=4.0), 3).condition(xs, labels)
    >>> probabilities = posterior.probabilities(xs, n_samples=100, key=jr.key(0))
    >>> probabilities.argmax(axis=1).tolist()
    [0, 1, 2]
    """

    kernel: Callable[..., Any]
    classes: int = eqx.field(static=True)

    def __check_init__(self):
        if self.classes < 2:
            raise ValueError(
                f"GaussianProcessClassifier: classes must be at least 2; got {self.classes}."
            )

    @in_float64
    def condition(self, xs: Batch, labels: Any) -> "ClassifierPosterior":
        """Laplace approximation of the posterior, given labels from 0 to `classes` - 1."""
        check_classes("condition", xs, labels, self.classes)
        return _condition(self, xs, labels)

    @in_float64
    def log_marginal_likelihood(self, xs: Batch, labels: Any) -> Scalar:
        r"""Laplace approximation of the log marginal likelihood $\log p(y \mid X)$.

        Its gradient in the hyperparameters includes how the mode moves with them.
        """
        check_classes("log_marginal_likelihood", xs, labels, self.classes)
        return _condition(self, xs, labels).log_marginal_likelihood


class ClassifierPosterior(eqx.Module):
    r"""Laplace approximation of the posterior: a Gaussian at the mode $\hat f$ of all $f_c$."""

    classifier: GaussianProcessClassifier
    xs: Batch
    f: Float[Numbers, "n k"]
    gradient: Float[Numbers, "n k"]  # y - π
    E: Float[Numbers, "k n n"]
    M: Float[Numbers, "n n"]  # Cholesky factor of Σ E_c
    log_marginal_likelihood: Scalar
    steps: Int[Numbers, ""]
    converged: Bool[Numbers, ""]

    @in_float64
    def latent(self, xs: Batch) -> tuple[Float[Numbers, "m k"], Float[Numbers, "m k k"]]:
        r"""Mean $k(x)^\top (y_c - \pi_c)$ and covariance of the latent $f_1(x), \dots, f_k(x)$
        (R & W Alg. 3.4).
        """
        check_examples(xs, name="latent: xs")
        return _latent(self, xs)

    @in_float64
    def probabilities(
        self, xs: Batch, *, n_samples: int = 1000, key: PRNGKeyArray
    ) -> Float[Numbers, "m k"]:
        r"""Predictive probabilities $\int \mathrm{softmax}(f)\, N(f; \mu, \Sigma)\, df$, by Monte
        Carlo with `n_samples` samples.
        """
        check_examples(xs, name="probabilities: xs")
        expect_count("probabilities", n_samples=n_samples)
        return _probabilities(self, xs, n_samples, key)


def _curvature(K: Any, f: Any) -> tuple[Any, Any, Any, Any]:
    r"""$\pi$, the $E_c$, the Cholesky factor of their sum, and $\frac12 \log |B|$."""
    pi = jax.nn.softmax(f, axis=1)
    unit = jnp.eye(len(f), dtype=f.dtype)

    def one_class(pi_c):
        sqrt_D = jnp.sqrt(pi_c)
        L = jnp.linalg.cholesky(unit + sqrt_D[:, None] * K * sqrt_D[None])
        E_c = sqrt_D[:, None] * cho_solve((L, True), jnp.diag(sqrt_D))
        return E_c, jnp.log(jnp.diagonal(L)).sum()

    E, logs = jax.lax.map(one_class, pi.T)
    M = jnp.linalg.cholesky(E.sum(axis=0))
    return pi, E, M, logs.sum() + jnp.log(jnp.diagonal(M)).sum()


def _newton(K: Any, y: Any, state: NewtonState) -> tuple[Any, Any]:
    r"""One step of R & W Alg. 3.3: $a = b - c + E R (\sum E)^{-1} R^\top c$ with $b = Wf + y - \pi$
    and $c = EKb$.
    """
    pi, E, M, _ = _curvature(K, state.f)
    b = pi * state.f - pi * (pi * state.f).sum(axis=1, keepdims=True) + y - pi
    times_E = lambda rows: jnp.einsum("knm,mk->nk", E, rows)
    c = times_E(K @ b)
    shared = cho_solve((M, True), c.sum(axis=1))
    a = b - c + times_E(jnp.broadcast_to(shared[:, None], c.shape))
    return a, K @ a


@eqx.filter_jit
def _condition(classifier: GaussianProcessClassifier, xs: Any, labels: Any) -> ClassifierPosterior:
    dtype, (classifier, xs) = dtype_of(classifier), same_dtype(classifier, xs)
    K = kernel_matrix(classifier.kernel, xs, None, dtype)
    y = jax.nn.one_hot(labels, classifier.classes, dtype=dtype)
    objective = lambda a, f: jnp.vdot(y, f) - jax.nn.logsumexp(f, axis=1).sum() - jnp.vdot(a, f) / 2
    constant_K = jax.lax.stop_gradient(K)
    step = lambda state: backtracking_step(state, *_newton(constant_K, y, state), objective)
    state = newton_maximise(step, newton_start(y, objective))
    # One more step with gradients: by the implicit function theorem, the derivative of Newton's
    # map in K at its fixed point is the derivative of the mode.
    a, f = _newton(K, y, state)
    pi, E, M, logs = _curvature(K, f)
    converged = jnp.abs(objective(a, f) - state.objective) <= 1e3 * jnp.finfo(dtype).eps * (
        1 + jnp.abs(state.objective)
    )
    return ClassifierPosterior(
        classifier, xs, f, y - pi, E, M, objective(a, f) - logs, state.steps, converged
    )


@eqx.filter_jit
def _latent(self: ClassifierPosterior, xs: Any) -> tuple[Any, Any]:
    dtype, kernel = self.f.dtype, self.classifier.kernel
    xs = cast(xs, dtype)
    k = kernel_matrix(kernel, self.xs, xs, dtype)
    E_k = jnp.einsum("knm,mj->knj", self.E, k)  # E_c k(x)
    whitened = jax.vmap(lambda E_ck: solve_triangular(self.M, E_ck, lower=True))(E_k)
    own = kernel_diagonal(kernel, xs).astype(dtype)[None] - jnp.einsum("nj,knj->kj", k, E_k)
    covariance = jnp.einsum("anj,bnj->jab", whitened, whitened) + jax.vmap(jnp.diag)(own.T)
    return k.T @ self.gradient, covariance


@eqx.filter_jit
def _probabilities(self: ClassifierPosterior, xs: Any, n_samples: int, key: PRNGKeyArray) -> Any:
    mean, covariance = _latent(self, xs)
    values, V = jnp.linalg.eigh(covariance)
    root = V * jnp.sqrt(jnp.maximum(values, 0.0))[:, None]
    noise = jr.normal(key, (n_samples, *mean.shape), mean.dtype)
    return jax.nn.softmax(mean[None] + jnp.einsum("jab,cjb->cja", root, noise), axis=-1).mean(
        axis=0
    )
