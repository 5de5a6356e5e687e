r"""A large symmetric matrix seen through its products $v \mapsto Av$: Lanczos' tridiagonal portrait
of it.

After $m$ products, $Q^\top A Q = T$ is tridiagonal with diagonal $\alpha$ and off-diagonal $\beta$,
and $AQ = QT + \beta_m q_{m+1} e_m^\top$. The eigenvalues of $T$ (Ritz values) approach the outer
ones of $A$ first. A vector is any tree of arrays; $A$ itself, $p \times p$, is never formed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ... import tree


class Lanczos(NamedTuple):
    r"""The tridiagonal $T$; `beta[j]` couples $q_j$ to $q_{j+1}$, so the last one is what $T$
    leaves out.
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
) -> Lanczos:
    r"""Lanczos' iteration with full re-orthogonalisation, as one `scan` (Lanczos 1950; Golub & Van
    Loan, §10.1).

    $\beta_j q_{j+1} = A q_j - \alpha_j q_j - \beta_{j-1} q_{j-1}$, with $q_1$ random, or along
    `start` unless it is zero. The basis is kept, $m \times p$, and each new vector is cleaned of it
    twice. Where the space closes, $\beta_j = 0$, it goes on with a fresh random vector, so that no
    part of the spectrum is out of reach. At most $p$ steps are taken.

    >>> A = jnp.diag(jnp.array([1.0, 2.0, 4.0]))
    >>> T = lanczos(lambda v: A @ v, jnp.zeros(3), steps=3, key=jr.key(0))
    >>> ritz(T).values.round(4).tolist()
    [1.0, 2.0, 4.0]
    """
    if steps < 1:
        raise ValueError(f"lanczos: steps must be at least 1; got {steps}.")
    zero, back = tree.ravel(like)
    steps = min(steps, zero.size)
    key_start, key_fresh = jr.split(key)
    draw = lambda key: jr.normal(key, zero.shape, zero.dtype)
    first = draw(key_start)
    if start is not None:
        start = tree.ravel(start)[0]
        first = jnp.where(jnp.any(start != 0), start, first)
    eps = jnp.finfo(zero.dtype).eps

    def step(carry, j):
        Q, q, scale = carry
        Q = Q.at[j].set(q)
        clean = lambda v: v - (Q @ v) @ Q
        w = tree.ravel(matvec(back(q)))[0]
        alpha = q @ w
        w = clean(clean(w))
        beta = jnp.linalg.norm(w)
        scale = jnp.maximum(scale, jnp.abs(alpha) + beta)  # grows to the size of A
        closed = beta <= 10 * eps * scale
        w = jax.lax.cond(closed, lambda: clean(clean(draw(jr.fold_in(key_fresh, j)))), lambda: w)
        return (Q, _unit(w), scale), (alpha, jnp.where(closed, jnp.zeros_like(beta), beta))

    nothing = jnp.zeros((steps, zero.size), zero.dtype), _unit(first), jnp.zeros((), zero.dtype)
    _, (alpha, beta) = jax.lax.scan(step, nothing, jnp.arange(steps))
    return Lanczos(alpha, beta)


def _unit(v: Float[Array, " p"]) -> Float[Array, " p"]:
    size = jnp.linalg.norm(v)
    return v / jnp.where(size > 0, size, jnp.ones_like(size))


class Ritz(NamedTuple):
    r"""Eigenvalues $\theta_i$ of $T$, ascending; each has an eigenvalue of $A$ within its bound
    $|\beta_m s_{mi}|$.
    """

    values: Float[np.ndarray, " m"]
    bounds: Float[np.ndarray, " m"]
    first: Float[np.ndarray, " m"]  # s_{1i}: the first entries of the eigenvectors of T


def ritz(T: Lanczos) -> Ritz:
    """The spectrum of $T$, in double precision on the host."""
    alpha = np.asarray(T.alpha, np.float64)
    beta = np.asarray(T.beta, np.float64)
    values, S = np.linalg.eigh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))
    return Ritz(values, np.abs(beta[-1] * S[-1]), S[0])


def rise(slope: float, seen: Ritz, *, radius: float) -> float:
    r"""The most a quadratic can rise within a radius, seen by a Lanczos run that was started at its
    gradient $g$:

    $$\max_{\|\varepsilon\| \le r} g^\top \varepsilon + \tfrac12 \varepsilon^\top A \varepsilon.$$

    With $\|g\|$ the slope and $b_i = \|g\| s_{1i}$, the maximiser is $c_i = b_i / (\mu - \theta_i)$
    where $\mu \ge \max(\theta_{\max}, 0)$ makes $\|c\| = r$, found by bisection; if no such $\mu$
    exists, the rest of the radius goes along the top eigenvector, or, for a concave $A$, is not
    used (Gould, Lucidi, Roma & Toint 1999).

    >>> import numpy as np
    >>> rise(0.0, Ritz(np.array([1.0, 4.0]), np.zeros(2), np.array([0.6, 0.8])), radius=0.5)
    0.5
    """
    theta = seen.values
    b = slope * seen.first
    floor = max(theta[-1], 0.0)
    c = lambda mu: np.divide(b, mu - theta, out=np.zeros_like(b), where=np.abs(b) > 1e-300)
    low = floor
    high = floor + slope / radius
    with np.errstate(divide="ignore", over="ignore"):
        for _ in range(200):
            mu = (low + high) / 2
            low, high = (mu, high) if np.linalg.norm(c(mu)) > radius else (low, mu)
        best = c(high)
    best = np.where(np.isfinite(best), best, 0.0)
    unused = max(radius**2 - float(best @ best), 0.0) if theta[-1] > 0 else 0.0
    return float(b @ best + theta @ best**2 / 2 + unused * floor / 2)
