r"""Log density of a multivariate normal, $\log N(r; 0, K)$, with its gradient in closed form.

$\log N(r; 0, K) = -\frac12 r^\top \alpha - \sum_i \log L_{ii} - \frac n2 \log 2\pi$ with
$LL^\top = K$ and $\alpha = K^{-1} r$, and its derivatives are
$\frac{\partial}{\partial K} = \frac12(\alpha\alpha^\top - K^{-1})$ and
$\frac{\partial}{\partial r} = -\alpha$ (Rasmussen & Williams 2006, §5.4.1). Since $K$ is symmetric,
one triangle of $K^{-1}$ is enough, which costs a third of the operations; differentiating through
the Cholesky factorisation would cost more than the whole inverse.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Float

from .float64 import Numbers, Scalar
from .jitter import cholesky_with_jitter

COLUMN_BLOCK = 500  # columns of the triangle of K⁻¹ per solve


@jax.custom_vjp
def gaussian_log_density(
    K: Float[Numbers, "n n"], r: Float[Numbers, "n o"]
) -> tuple[Scalar, Scalar]:
    r"""Log density $\sum_j \log N(r_j; 0, K + \epsilon I)$ of the columns of $r$, and the jitter
    $\epsilon$.

    >>> value, jitter = gaussian_log_density(jnp.eye(1), jnp.zeros((1, 1)))
    >>> round(float(value), 4), float(jitter)
    (-0.9189, 0.0)
    """
    return _forward(K, r)[0]


def _forward(K, r):
    L, jitter = cholesky_with_jitter(K)  # R & W Alg. 2.1, line 2
    alpha = cho_solve((L, True), r)  # line 3
    return (log_density_from_cholesky(L, alpha, r), jitter), (L, alpha)


def log_density_from_cholesky(
    L: Float[Numbers, "n n"], alpha: Float[Numbers, "n o"], r: Float[Numbers, "n o"]
) -> Scalar:
    r"""The log density from $L$ and $\alpha$ (R & W Alg. 2.1, line 7)."""
    n, o = r.shape
    return -jnp.vdot(r, alpha) / 2 - o * (
        jnp.log(jnp.diagonal(L)).sum() + n / 2 * np.log(2 * np.pi)
    )


def _backward(residuals, cotangents):
    (L, alpha), g = residuals, cotangents[0]
    return g * log_density_gradient(L, alpha), -g * alpha


gaussian_log_density.defvjp(_forward, _backward)


def log_density_gradient(
    L: Float[Numbers, "n n"], alpha: Float[Numbers, "n o"]
) -> Float[Numbers, "n n"]:
    r"""Gradient $\frac12(\alpha\alpha^\top - o K^{-1})$ in $K$, as a lower triangle:
    the entries above the diagonal are added to those below it (R & W §5.4.1).

    Its inner product with any symmetric $\partial K$ is that of the full matrix. The corner
    $(K^{-1})_{j:, j:}$ depends only on $L_{j:, j:}$, so each block of columns is a solve with a
    smaller part of $L$.

    >>> log_density_gradient(jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.zeros((2, 1))).tolist()
    [[-1.0, 0.0], [1.0, -0.5]]
    """
    n, o = alpha.shape
    blocks = []
    for start, stop in pairwise([*range(0, n, COLUMN_BLOCK), n]):
        inverse = cho_solve(
            (L[start:, start:], True), jnp.eye(n - start, stop - start, dtype=L.dtype)
        )
        block = alpha[start:] @ alpha[start:stop].T - o * inverse
        weights = (
            jnp.tri(n - start, stop - start, dtype=L.dtype)
            - jnp.eye(n - start, stop - start, dtype=L.dtype) / 2
        )
        blocks.append(jnp.pad(block * weights, ((start, 0), (0, 0))))
    return jnp.concatenate(blocks, axis=1)
