r"""The Lanczos method for a large symmetric matrix $A$ that is given by its products
$v \mapsto Av$.

After $m$ products, $Q^\top A Q = T$ is tridiagonal with diagonal $\alpha$ and off-diagonal $\beta$,
and $AQ = QT + \beta_m q_{m+1} e_m^\top$. The eigenvalues of $T$ (Ritz values) converge to the
extreme eigenvalues of $A$ first. A vector is any tree of arrays; the $p \times p$ matrix $A$ is
never formed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ... import tree


class Tridiagonal(NamedTuple):
    r"""The tridiagonal matrix $T$; `beta[j]` couples $q_j$ to $q_{j+1}$, so the last entry is not
    part of $T$.
    """

    alpha: Float[Array, " m"]
    beta: Float[Array, " m"]


def lanczos(
    matvec: Callable[[Any], Any],
    like: Any,
    *,
    steps: int,
    key: PRNGKeyArray,
    start: Any | None = None,
) -> Tridiagonal:
    r"""The Lanczos iteration with full reorthogonalisation, as one `scan` (Lanczos 1950; Golub &
    Van Loan, §10.1).

    $\beta_j q_{j+1} = A q_j - \alpha_j q_j - \beta_{j-1} q_{j-1}$, where $q_1$ is random, or
    parallel to `start` unless that is zero. The $m \times p$ basis is stored, and each new vector
    is orthogonalised against it twice. If the Krylov space is invariant, $\beta_j = 0$, the
    iteration continues with a new random vector, so that every eigenvalue can be found. At most $p$
    steps are made.

    >>> A = jnp.diag(jnp.array([1.0, 2.0, 4.0]))
    >>> T = lanczos(lambda v: A @ v, jnp.zeros(3), steps=3, key=jr.key(0))
    >>> ritz_values(T).values.round(4).tolist()
    [1.0, 2.0, 4.0]
    """
    if steps < 1:
        raise ValueError(f"lanczos: steps must be >= 1; got {steps}.")
    zero, unravel = tree.ravel(like)
    steps = min(steps, zero.size)
    key_start, key_restart = jr.split(key)
    random = lambda key: jr.normal(key, zero.shape, zero.dtype)
    first = random(key_start)
    if start is not None:
        start = tree.ravel(start)[0]
        first = jnp.where(jnp.any(start != 0), start, first)
    eps = jnp.finfo(zero.dtype).eps

    def step(carry, j):
        Q, q, scale = carry
        Q = Q.at[j].set(q)
        orthogonalise = lambda v: v - (Q @ v) @ Q
        w = tree.ravel(matvec(unravel(q)))[0]
        alpha = q @ w
        w = orthogonalise(orthogonalise(w))
        beta = jnp.linalg.norm(w)
        scale = jnp.maximum(scale, jnp.abs(alpha) + beta)  # an estimate of the norm of A
        invariant = beta <= 10 * eps * scale

        def restart():
            return orthogonalise(orthogonalise(random(jr.fold_in(key_restart, j))))

        w = jax.lax.cond(invariant, restart, lambda: w)
        return (Q, _normalise(w), scale), (alpha, jnp.where(invariant, jnp.zeros_like(beta), beta))

    start_state = (
        jnp.zeros((steps, zero.size), zero.dtype),
        _normalise(first),
        jnp.zeros((), zero.dtype),
    )
    _, (alpha, beta) = jax.lax.scan(step, start_state, jnp.arange(steps))
    return Tridiagonal(alpha, beta)


def _normalise(v: Float[Array, " p"]) -> Float[Array, " p"]:
    norm = jnp.linalg.norm(v)
    return v / jnp.where(norm > 0, norm, jnp.ones_like(norm))


class RitzValues(NamedTuple):
    r"""Eigenvalues $\theta_i$ of $T$ in ascending order; $A$ has an eigenvalue within the bound
    $|\beta_m s_{mi}|$ of each.
    """

    values: Float[np.ndarray, " m"]
    bounds: Float[np.ndarray, " m"]
    first_components: Float[np.ndarray, " m"]  # s_{1i} of the eigenvectors of T


def ritz_values(T: Tridiagonal) -> RitzValues:
    """The eigenvalues of $T$, computed in double precision on the host."""
    alpha = np.asarray(T.alpha, np.float64)
    beta = np.asarray(T.beta, np.float64)
    values, S = np.linalg.eigh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))
    return RitzValues(values, np.abs(beta[-1] * S[-1]), S[0])


def trust_region_maximum(gradient_norm: float, spectrum: RitzValues, *, radius: float) -> float:
    r"""The maximum of a quadratic in a ball, from a Lanczos run that was started at its gradient
    $g$:

    $$\max_{\|\varepsilon\| \le r} g^\top \varepsilon + \tfrac12 \varepsilon^\top A \varepsilon.$$

    With $b_i = \|g\| s_{1i}$, the maximiser is $c_i = b_i / (\mu - \theta_i)$, where bisection
    finds the $\mu \ge \max(\theta_{\max}, 0)$ for which $\|c\| = r$. If there is none, the rest of
    the radius goes along the top eigenvector, or, for a negative definite $A$, is not used (Gould,
    Lucidi, Roma & Toint 1999).

    >>> spectrum = RitzValues(np.array([1.0, 4.0]), np.zeros(2), np.array([0.6, 0.8]))
    >>> trust_region_maximum(0.0, spectrum, radius=0.5)
    0.5
    """
    theta = spectrum.values
    b = gradient_norm * spectrum.first_components
    floor = max(theta[-1], 0.0)
    c = lambda mu: np.divide(b, mu - theta, out=np.zeros_like(b), where=np.abs(b) > 1e-300)
    low = floor
    high = floor + gradient_norm / radius
    with np.errstate(divide="ignore", over="ignore"):
        for _ in range(200):
            mu = (low + high) / 2
            low, high = (mu, high) if np.linalg.norm(c(mu)) > radius else (low, mu)
        best = c(high)
    best = np.where(np.isfinite(best), best, 0.0)
    unused = max(radius**2 - float(best @ best), 0.0) if theta[-1] > 0 else 0.0
    return float(b @ best + theta @ best**2 / 2 + unused * floor / 2)
