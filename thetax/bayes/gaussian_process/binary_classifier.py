r"""Binary classification with a Gaussian process by Laplace's approximation (Rasmussen & Williams
2006, §3.4; cited as R & W beside the lines).

With $p(y = 1 \mid x) = \sigma(f(x))$ and $f \sim GP(0, k)$ the posterior of $f = f(X)$ is not
Gaussian. Laplace's approximation is a Gaussian at its mode: $\hat f$ maximises
$\Psi(f) = \log p(y \mid f) - \frac12 f^\top K^{-1} f$, the precision there is $K^{-1} + W$,
$W = \mathrm{diag}(\pi(1 - \pi))$, $\pi = \sigma(\hat f)$, and
$$\log p(y \mid X) \approx \Psi(\hat f) - \tfrac12 \log |B|, \qquad B = I + W^{1/2} K W^{1/2}.$$
All eigenvalues of $B$ lie in $[1, 1 + n \max k / 4]$, so it needs no jitter.
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
from .float64 import Numbers, Scalar, cast, dtype_of, in_float64, same_dtype
from .kernels import kernel_diagonal, kernel_matrix

STEP_FRACTIONS = 2.0 ** -np.arange(8)  # fractions of a Newton step that the line search tries
# Nodes of the trapezoidal rule; exact to rounding for standard deviations up to about 15.
QUADRATURE_NODES = np.linspace(-8.0, 8.0, 321)


class NewtonState(NamedTuple):
    r"""State of Newton's method: $a = K^{-1} f$, $f$, the objective $\Psi$, and how much the
    last step increased it.
    """

    a: Float[Numbers, "n *k"]
    f: Float[Numbers, "n *k"]
    objective: Scalar
    increase: Scalar
    steps: Int[Numbers, ""]


class GaussianProcessBinaryClassifier(eqx.Module):
    r"""Gaussian process classifier for two classes: $p(y = 1 \mid x) = \sigma(f(x))$,
    $f \sim GP(0, k)$. Its hyperparameters are those of the kernel.

    >>> from thetax.bayes import RBF
    >>> xs, labels = jnp.array([[-2.0], [-1.0], [1.0], [2.0]]), jnp.array([0, 0, 1, 1])
    >>> posterior = GaussianProcessBinaryClassifier(RBF.init(variance=4.0)).condition(xs, labels)
    >>> posterior.probabilities(jnp.array([[-1.5], [0.0], [1.5]])).round(2).tolist()
    [0.25, 0.5, 0.75]
    """

    kernel: Callable[..., Any]

    @in_float64
    def condition(self, xs: Batch, labels: Any) -> "BinaryClassifierPosterior":
        """Laplace approximation of the posterior, given labels 0 and 1: fits the classifier."""
        check_classes("condition", xs, labels, 2)
        return _condition(self, xs, labels)

    @in_float64
    def log_marginal_likelihood(self, xs: Batch, labels: Any) -> Scalar:
        r"""Laplace approximation of the log marginal likelihood $\log p(y \mid X)$.

        Its gradient in the hyperparameters includes how the mode moves with them.
        """
        check_classes("log_marginal_likelihood", xs, labels, 2)
        return _condition(self, xs, labels).log_marginal_likelihood


class BinaryClassifierPosterior(eqx.Module):
    r"""Laplace approximation of the posterior: a Gaussian at the mode $\hat f$.

    `gradient` is $\nabla \log p(y \mid \hat f)$, `sqrt_W` is $W^{1/2}$ and `L` the Cholesky factor
    of $B$.
    """

    classifier: GaussianProcessBinaryClassifier
    xs: Batch
    f: Float[Numbers, " n"]
    gradient: Float[Numbers, " n"]
    sqrt_W: Float[Numbers, " n"]
    L: Float[Numbers, "n n"]
    log_marginal_likelihood: Scalar
    steps: Int[Numbers, ""]
    converged: Bool[Numbers, ""]

    @in_float64
    def latent(self, xs: Batch) -> tuple[Float[Numbers, " m"], Float[Numbers, " m"]]:
        r"""Mean and variance of the latent $f(x)$: $k(x)^\top \nabla \log p(y \mid \hat f)$ and
        $k(x, x) - v^\top v$, $v = L^{-1} W^{1/2} k(x)$.
        """
        check_examples(xs, name="latent: xs")
        return _latent(self, xs)

    @in_float64
    def probabilities(self, xs: Batch) -> Float[Numbers, " m"]:
        r"""Predictive probability $p(y = 1 \mid x) = \int \sigma(f)\, N(f; \mu, s^2)\, df$, by the
        trapezoidal rule.
        """
        check_examples(xs, name="probabilities: xs")
        return _probabilities(self, xs)


def newton_maximise(
    step: Callable[[NewtonState], NewtonState], start: NewtonState, *, max_steps: int = 100
) -> NewtonState:
    """Repeats a Newton step until it increases the objective by no more than rounding error."""
    eps = jnp.finfo(start.f.dtype).eps

    def unfinished(state):
        tolerance = 8 * eps * (1 + jnp.abs(state.objective))
        return (state.steps < max_steps) & (state.increase > tolerance)

    return jax.lax.while_loop(unfinished, step, start)


def newton_start(
    like: Float[Numbers, "n *k"], objective: Callable[[Any, Any], Scalar]
) -> NewtonState:
    """The initial state of Newton's method, at $f = 0$."""
    zero = jnp.zeros_like(like)
    increase = jnp.full((), jnp.inf, like.dtype)
    return NewtonState(zero, zero, objective(zero, zero), increase, jnp.zeros((), jnp.int32))


def backtracking_step(
    state: NewtonState, a: Any, f: Any, objective: Callable[[Any, Any], Scalar]
) -> NewtonState:
    """Line search from the state towards $(a, f)$: the best of the full step, a half, a quarter...

    $f$ is linear in $a$, so trying all of them is cheap.
    """
    fractions = jnp.asarray(STEP_FRACTIONS, f.dtype)
    point = lambda t: (state.a + t * (a - state.a), state.f + t * (f - state.f))
    values = jax.vmap(lambda t: objective(*point(t)))(fractions)
    best = fractions[jnp.argmax(values)]
    value = objective(*point(best))
    return NewtonState(*point(best), value, value - state.objective, state.steps + 1)


def _curvature(K: Any, f: Any) -> tuple[Any, Any]:
    r"""$W^{1/2}$ and the Cholesky factor of $B$ (R & W Alg. 3.1, lines 4 and 5)."""
    pi = jax.nn.sigmoid(f)
    sqrt_W = jnp.sqrt(pi * (1 - pi))
    B = jnp.eye(len(f), dtype=f.dtype) + sqrt_W[:, None] * K * sqrt_W[None]
    return sqrt_W, jnp.linalg.cholesky(B)


def _newton(K: Any, y: Any, state: NewtonState) -> tuple[Any, Any]:
    r"""One step of R & W Alg. 3.1: $a = b - W^{1/2} B^{-1} W^{1/2} K b$ with
    $b = Wf + \nabla \log p$, and $f = Ka$.
    """
    sqrt_W, L = _curvature(K, state.f)
    b = jnp.square(sqrt_W) * state.f + y - jax.nn.sigmoid(state.f)  # line 6
    a = b - sqrt_W * cho_solve((L, True), sqrt_W * (K @ b))  # line 7
    return a, K @ a  # line 8


@eqx.filter_jit
def _condition(
    classifier: GaussianProcessBinaryClassifier, xs: Any, labels: Any
) -> BinaryClassifierPosterior:
    dtype, (classifier, xs) = dtype_of(classifier), same_dtype(classifier, xs)
    K = kernel_matrix(classifier.kernel, xs, None, dtype)
    y = jnp.asarray(labels, dtype)
    objective = lambda a, f: y @ f - jax.nn.softplus(f).sum() - a @ f / 2
    constant_K = jax.lax.stop_gradient(K)
    step = lambda state: backtracking_step(state, *_newton(constant_K, y, state), objective)
    state = newton_maximise(step, newton_start(y, objective))
    # One more step with gradients: by the implicit function theorem, the derivative of Newton's
    # map in K at its fixed point is the derivative of the mode.
    a, f = _newton(K, y, state)
    sqrt_W, L = _curvature(K, f)
    value = objective(a, f) - jnp.log(jnp.diagonal(L)).sum()  # Alg. 3.1, line 10
    increase = objective(a, f) - state.objective
    converged = jnp.abs(increase) <= 1e3 * jnp.finfo(dtype).eps * (1 + jnp.abs(state.objective))
    gradient = y - jax.nn.sigmoid(f)
    return BinaryClassifierPosterior(
        classifier, xs, f, gradient, sqrt_W, L, value, state.steps, converged
    )


@eqx.filter_jit
def _latent(self: BinaryClassifierPosterior, xs: Any) -> tuple[Any, Any]:
    dtype, kernel = self.f.dtype, self.classifier.kernel
    xs = cast(xs, dtype)
    k = kernel_matrix(kernel, self.xs, xs, dtype)
    mean = self.gradient @ k  # R & W Alg. 3.2, line 4
    v = solve_triangular(self.L, self.sqrt_W[:, None] * k, lower=True)  # line 5
    variance = kernel_diagonal(kernel, xs).astype(dtype) - jnp.square(v).sum(axis=0)  # line 6
    return mean, jnp.maximum(variance, 0.0)


@eqx.filter_jit
def _probabilities(self: BinaryClassifierPosterior, xs: Any) -> Any:
    mean, variance = _latent(self, xs)
    z = jnp.asarray(QUADRATURE_NODES, mean.dtype)  # R & W Alg. 3.2, line 7, by quadrature
    weight = jnp.exp(-jnp.square(z) / 2)
    values = jax.nn.sigmoid(mean[:, None] + jnp.sqrt(variance)[:, None] * z[None])
    return values @ (weight / weight.sum())
