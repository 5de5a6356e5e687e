r"""Two classes by a Gaussian process: Laplace's approximation (Rasmussen & Williams 2006, §3.4).

$p(y = 1 \mid x) = \sigma(f(x))$ with $f \sim GP(0, k)$ makes the posterior of $f = f(X)$ no longer
Gaussian. Laplace puts a Gaussian at its mode: $\hat f$ maximises
$\Psi(f) = \log p(y \mid f) - \frac12 f^\top K^{-1} f$, the precision there is $K^{-1} + W$,
$W = \mathrm{diag}(\pi(1 - \pi))$, $\pi = \sigma(\hat f)$, and
$$\log p(y \mid X) \approx \Psi(\hat f) - \tfrac12 \log |B|, \qquad B = I + W^{1/2} K W^{1/2}.$$ All
eigenvalues of $B$ lie in $[1, 1 + n \max k / 4]$, so that it needs no jitter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Bool, Float, Int

from ...check import check_examples
from ...core import Batch
from .check import check_classes
from .float64 import Numbers, Scalar, cast, double, dtype_of, uniform
from .kernels import covariances, diagonal

HALVINGS = 2.0 ** -np.arange(8)  # of a Newton step that goes too far
NODES = np.linspace(
    -8.0, 8.0, 321
)  # of the trapezoidal rule, exact to rounding for deviations up to some 15


class Mode(NamedTuple):
    r"""Where Newton's method is: $a = K^{-1} f$, and $f$; the height $\Psi$; how much the last step
    gained.
    """

    a: Float[Numbers, "n *k"]
    f: Float[Numbers, "n *k"]
    height: Scalar
    gain: Scalar
    steps: Int[Numbers, ""]


class BinaryClassifier(eqx.Module):
    r"""$p(y = 1 \mid x) = \sigma(f(x))$, $f \sim GP(0, k)$; its hyper-parameters are those of the
    kernel.

    >>> from thetax.bayes import RBF
    >>> xs, labels = jnp.array([[-2.0], [-1.0], [1.0], [2.0]]), jnp.array([0, 0, 1, 1])
    >>> posterior = BinaryClassifier(RBF.init(scale=4.0)).condition(xs, labels)
    >>> posterior.probabilities(jnp.array([[-1.5], [0.0], [1.5]])).round(2).tolist()
    [0.25, 0.5, 0.75]
    """

    kernel: Callable[..., Any]

    @double
    def condition(self, xs: Batch, labels: Any) -> "BinaryPosterior":
        """Laplace's approximation, given labels 0 and 1."""
        check_classes("condition", xs, labels, 2)
        return _condition(self, xs, labels)

    @double
    def log_evidence(self, xs: Batch, labels: Any) -> Scalar:
        r"""Laplace's $\log p(y \mid X)$; differentiable in the hyper-parameters, the motion of the
        mode included.
        """
        check_classes("log_evidence", xs, labels, 2)
        return _condition(self, xs, labels).log_evidence


class BinaryPosterior(eqx.Module):
    r"""A Gaussian about the mode $\hat f$: what is believed of $f$, and the probabilities that
    follow.
    """

    classifier: BinaryClassifier
    xs: Batch
    f: Float[Numbers, " n"]
    slope: Float[Numbers, " n"]  # ∇ log p(y | f)
    root: Float[Numbers, " n"]  # of W
    L: Float[Numbers, "n n"]  # Cholesky's factor of B
    log_evidence: Scalar
    steps: Int[Numbers, ""]
    converged: Bool[Numbers, ""]

    @double
    def latent(self, xs: Batch) -> tuple[Float[Numbers, " m"], Float[Numbers, " m"]]:
        r"""Mean $k(x)^\top \nabla \log p(y \mid \hat f)$, variance $k(x, x) - v^\top v$,
        $v = L^{-1} W^{1/2} k(x)$.
        """
        check_examples(xs, name="latent: xs")
        return _latent(self, xs)

    @double
    def probabilities(self, xs: Batch) -> Float[Numbers, " m"]:
        r"""$p(y = 1 \mid x) = \int \sigma(f)\, N(f; \mu, s^2)\, df$, by the trapezoidal rule."""
        check_examples(xs, name="probabilities: xs")
        return _probabilities(self, xs)


def climb(newton: Callable[[Mode], Mode], start: Mode, *, steps: int = 100) -> Mode:
    """Newton's method until a step gains no more than rounding."""
    eps = jnp.finfo(start.f.dtype).eps

    def going_on(mode):
        return (mode.steps < steps) & (mode.gain > 8 * eps * (1 + jnp.abs(mode.height)))

    return jax.lax.while_loop(going_on, newton, start)


def begin(like: Float[Numbers, "n *k"], height: Callable[[Any, Any], Scalar]) -> Mode:
    """The origin, where no step was taken."""
    zero = jnp.zeros_like(like)
    return Mode(
        zero, zero, height(zero, zero), jnp.full((), jnp.inf, like.dtype), jnp.zeros((), jnp.int32)
    )


def advance(mode: Mode, a: Any, f: Any, height: Callable[[Any, Any], Scalar]) -> Mode:
    """The best of the whole step, a half of it, a quarter and so on; $f$ is linear in $a$, so that
    trying is cheap.
    """
    shares = jnp.asarray(HALVINGS, f.dtype)
    between = lambda share: (mode.a + share * (a - mode.a), mode.f + share * (f - mode.f))
    best = shares[jnp.argmax(jax.vmap(lambda share: height(*between(share)))(shares))]
    top = height(*between(best))
    return Mode(*between(best), top, top - mode.height, mode.steps + 1)


def _curvature(K: Any, f: Any) -> tuple[Any, Any]:
    r"""$W^{1/2}$ and the factor of $B$."""
    pi = jax.nn.sigmoid(f)
    root = jnp.sqrt(pi * (1 - pi))
    return root, jnp.linalg.cholesky(
        jnp.eye(len(f), dtype=f.dtype) + root[:, None] * K * root[None]
    )


def _newton(K: Any, y: Any, mode: Mode) -> tuple[Any, Any]:
    r"""One step of algorithm 3.1: $a = b - W^{1/2} B^{-1} W^{1/2} K b$ with
    $b = Wf + \nabla \log p$, and $f = Ka$.
    """
    root, L = _curvature(K, mode.f)
    b = jnp.square(root) * mode.f + y - jax.nn.sigmoid(mode.f)
    a = b - root * cho_solve((L, True), root * (K @ b))
    return a, K @ a


@eqx.filter_jit
def _condition(classifier: BinaryClassifier, xs: Any, labels: Any) -> BinaryPosterior:
    dtype, (classifier, xs) = dtype_of(classifier), uniform(classifier, xs)
    K = covariances(classifier.kernel, xs, None, dtype)
    y = jnp.asarray(labels, dtype)
    height = lambda a, f: y @ f - jax.nn.softplus(f).sum() - a @ f / 2
    fixed = jax.lax.stop_gradient(K)
    mode = climb(lambda m: advance(m, *_newton(fixed, y, m), height), begin(y, height))
    a, f = _newton(
        K, y, mode
    )  # at a fixed point of Newton's map, its derivative in K alone is that of the mode
    root, L = _curvature(K, f)
    evidence = height(a, f) - jnp.log(jnp.diagonal(L)).sum()
    gain = height(a, f) - mode.height
    converged = jnp.abs(gain) <= 1e3 * jnp.finfo(dtype).eps * (1 + jnp.abs(mode.height))
    return BinaryPosterior(
        classifier, xs, f, y - jax.nn.sigmoid(f), root, L, evidence, mode.steps, converged
    )


@eqx.filter_jit
def _latent(self: BinaryPosterior, xs: Any) -> tuple[Any, Any]:
    dtype, kernel = self.f.dtype, self.classifier.kernel
    xs = cast(xs, dtype)
    k = covariances(kernel, self.xs, xs, dtype)
    v = solve_triangular(self.L, self.root[:, None] * k, lower=True)
    variance = diagonal(kernel, xs).astype(dtype) - jnp.square(v).sum(axis=0)
    return self.slope @ k, jnp.maximum(variance, 0.0)


@eqx.filter_jit
def _probabilities(self: BinaryPosterior, xs: Any) -> Any:
    mean, variance = _latent(self, xs)
    z = jnp.asarray(NODES, mean.dtype)
    weight = jnp.exp(-jnp.square(z) / 2)
    values = jax.nn.sigmoid(mean[:, None] + jnp.sqrt(variance)[:, None] * z[None])
    return values @ (weight / weight.sum())
