r"""Several classes by Gaussian processes, one for each: Laplace's approximation (Rasmussen &
Williams 2006, §3.5).

$p(y = c \mid x) = \mathrm{softmax}_c(f_1(x), \dots, f_k(x))$ with independent $f_c \sim GP(0, k)$
of one kernel. At the mode the curvature is $W = D - \Pi\Pi^\top$, $D = \mathrm{diag}(\pi)$ and
$\Pi$ the stacked $\mathrm{diag}(\pi_c)$. With $E_c = D_c^{1/2} B_c^{-1} D_c^{1/2}$,
$B_c = I + D_c^{1/2} K D_c^{1/2}$, everything needs only factors of $n \times n$:
$$\log p(y \mid X) \approx \Psi(\hat f) - \tfrac12 \sum_c \log |B_c| - \tfrac12 \log \Big| \sum_c
E_c \Big|.$$
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_solve
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from ...check import check_examples
from ...core import Batch
from .binary_classifier import Mode, advance, begin, climb
from .check import check_classes, check_draws
from .float64 import Numbers, Scalar, cast, double, dtype_of, uniform
from .kernels import covariances, diagonal


class Classifier(eqx.Module):
    r"""$p(y = c \mid x) = \mathrm{softmax}_c(f(x))$, $f_1, \dots, f_k \sim GP(0, k)$.

    For two classes it is `BinaryClassifier` of twice the kernel, that of $f_2 - f_1$.

    >>> from thetax.bayes import RBF
    >>> xs, labels = jnp.array([[-2.0], [0.0], [2.0]]), jnp.array([0, 1, 2])
    >>> posterior = Classifier(RBF.init(scale=4.0), 3).condition(xs, labels)
    >>> likely = posterior.probabilities(xs, count=100, key=jr.key(0))
    >>> [max(range(3), key=row.__getitem__) for row in likely.tolist()]
    [0, 1, 2]
    """

    kernel: Callable[..., Any]
    classes: int = eqx.field(static=True)

    def __check_init__(self):
        if self.classes < 2:
            raise ValueError(f"Classifier: needs at least 2 classes; got {self.classes}.")

    @double
    def condition(self, xs: Batch, labels: Any) -> "ClassPosterior":
        """Laplace's approximation, given labels from 0 to `classes` - 1."""
        check_classes("condition", xs, labels, self.classes)
        return _condition(self, xs, labels)

    @double
    def log_evidence(self, xs: Batch, labels: Any) -> Scalar:
        r"""Laplace's $\log p(y \mid X)$; differentiable in the hyper-parameters, the motion of the
        mode included.
        """
        check_classes("log_evidence", xs, labels, self.classes)
        return _condition(self, xs, labels).log_evidence


class ClassPosterior(eqx.Module):
    r"""A Gaussian about the mode $\hat f$: what is believed of the $f_c$, and the probabilities
    that follow.
    """

    classifier: Classifier
    xs: Batch
    f: Float[Numbers, "n k"]
    slope: Float[Numbers, "n k"]  # y - π
    E: Float[Numbers, "k n n"]
    M: Float[Numbers, "n n"]  # Cholesky's factor of Σ E_c
    log_evidence: Scalar
    steps: Int[Numbers, ""]
    converged: Bool[Numbers, ""]

    @double
    def latent(self, xs: Batch) -> tuple[Float[Numbers, "m k"], Float[Numbers, "m k k"]]:
        r"""The mean $k(x)^\top (y_c - \pi_c)$ and the covariance of $f_1(x), \dots, f_k(x)$
        (algorithm 3.4).
        """
        check_examples(xs, name="latent: xs")
        return _latent(self, xs)

    @double
    def probabilities(
        self, xs: Batch, *, count: int = 1000, key: PRNGKeyArray
    ) -> Float[Numbers, "m k"]:
        r"""$\int \mathrm{softmax}(f)\, N(f; \mu, \Sigma)\, df$ as the mean of `count` draws."""
        check_examples(xs, name="probabilities: xs")
        check_draws("probabilities", count)
        return _probabilities(self, xs, count, key)


def _curvature(K: Any, f: Any) -> tuple[Any, Any, Any, Any]:
    r"""$\pi$, the $E_c$, the factor of their sum, and $\frac12 \log |B|$."""
    pi = jax.nn.softmax(f, axis=1)
    unit = jnp.eye(len(f), dtype=f.dtype)

    def one(share):
        root = jnp.sqrt(share)
        L = jnp.linalg.cholesky(unit + root[:, None] * K * root[None])
        return root[:, None] * cho_solve((L, True), jnp.diag(root)), jnp.log(jnp.diagonal(L)).sum()

    E, logs = jax.lax.map(one, pi.T)
    M = jnp.linalg.cholesky(E.sum(axis=0))
    return pi, E, M, logs.sum() + jnp.log(jnp.diagonal(M)).sum()


def _newton(K: Any, y: Any, mode: Mode) -> tuple[Any, Any]:
    r"""One step of algorithm 3.3: $a = b - c + E R (\sum E)^{-1} R^\top c$ with $b = Wf + y - \pi$
    and $c = EKb$.
    """
    pi, E, M, _ = _curvature(K, mode.f)
    b = pi * mode.f - pi * (pi * mode.f).sum(axis=1, keepdims=True) + y - pi
    each = lambda rows: jnp.einsum("knm,mk->nk", E, rows)
    c = each(K @ b)
    shared = cho_solve((M, True), c.sum(axis=1))
    a = b - c + each(jnp.broadcast_to(shared[:, None], c.shape))
    return a, K @ a


@eqx.filter_jit
def _condition(classifier: Classifier, xs: Any, labels: Any) -> ClassPosterior:
    dtype, (classifier, xs) = dtype_of(classifier), uniform(classifier, xs)
    K = covariances(classifier.kernel, xs, None, dtype)
    y = jax.nn.one_hot(labels, classifier.classes, dtype=dtype)
    height = lambda a, f: jnp.vdot(y, f) - jax.nn.logsumexp(f, axis=1).sum() - jnp.vdot(a, f) / 2
    fixed = jax.lax.stop_gradient(K)
    mode = climb(lambda m: advance(m, *_newton(fixed, y, m), height), begin(y, height))
    a, f = _newton(
        K, y, mode
    )  # at a fixed point of Newton's map, its derivative in K alone is that of the mode
    pi, E, M, logs = _curvature(K, f)
    converged = jnp.abs(height(a, f) - mode.height) <= 1e3 * jnp.finfo(dtype).eps * (
        1 + jnp.abs(mode.height)
    )
    return ClassPosterior(
        classifier, xs, f, y - pi, E, M, height(a, f) - logs, mode.steps, converged
    )


@eqx.filter_jit
def _latent(self: ClassPosterior, xs: Any) -> tuple[Any, Any]:
    dtype, kernel = self.f.dtype, self.classifier.kernel
    xs = cast(xs, dtype)
    k = covariances(kernel, self.xs, xs, dtype)
    known = jnp.einsum("knm,mj->knj", self.E, k)  # E_c k(x)
    white = jax.vmap(lambda part: jax.scipy.linalg.solve_triangular(self.M, part, lower=True))(
        known
    )
    alone = diagonal(kernel, xs).astype(dtype)[None] - jnp.einsum("nj,knj->kj", k, known)
    covariance = jnp.einsum("anj,bnj->jab", white, white) + jax.vmap(jnp.diag)(alone.T)
    return k.T @ self.slope, covariance


@eqx.filter_jit
def _probabilities(self: ClassPosterior, xs: Any, count: int, key: PRNGKeyArray) -> Any:
    mean, covariance = _latent(self, xs)
    values, V = jnp.linalg.eigh(covariance)
    root = V * jnp.sqrt(jnp.maximum(values, 0.0))[:, None]
    noise = jr.normal(key, (count, *mean.shape), mean.dtype)
    return jax.nn.softmax(mean[None] + jnp.einsum("jab,cjb->cja", root, noise), axis=-1).mean(
        axis=0
    )
