r"""The log density of observations, $\log N(r; 0, K)$, with its gradient in closed form.

$\log N(r; 0, K) = -\frac12 r^\top \alpha - \sum_i \log L_{ii} - \frac n2 \log 2\pi$ with
$LL^\top = K$ and $\alpha = K^{-1} r$, and its derivatives are
$\frac{\partial}{\partial K} = \frac12(\alpha\alpha^\top - K^{-1})$ and
$\frac{\partial}{\partial r} = -\alpha$ (Rasmussen & Williams 2006, §5.4.1). Since $K$ is symmetric,
half of $K^{-1}$ is enough, which costs a third of the operations; differentiating Cholesky's
algorithm would cost more than all of it.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Float

from .float64 import Numbers, Scalar
from .jitter import factorise

PANEL = 500  # columns of half an inverse at a time


@jax.custom_vjp
def log_density(K: Float[Numbers, "n n"], r: Float[Numbers, "n o"]) -> tuple[Scalar, Scalar]:
    r"""$\sum_j \log N(r_j; 0, K + \epsilon I)$ over the columns of $r$, and the jitter $\epsilon$.

    >>> value, jitter = log_density(jnp.eye(1), jnp.zeros((1, 1)))
    >>> round(float(value), 4), float(jitter)
    (-0.9189, 0.0)
    """
    return _forwards(K, r)[0]


def _forwards(K, r):
    L, jitter = factorise(K)
    alpha = cho_solve((L, True), r)
    return (from_factor(L, alpha, r), jitter), (L, alpha)


def from_factor(
    L: Float[Numbers, "n n"], alpha: Float[Numbers, "n o"], r: Float[Numbers, "n o"]
) -> Scalar:
    r"""The log density, where $L$ and $\alpha$ are known."""
    n, o = r.shape
    return -jnp.vdot(r, alpha) / 2 - o * (
        jnp.log(jnp.diagonal(L)).sum() + n / 2 * np.log(2 * np.pi)
    )


def _backwards(kept, cotangents):
    (L, alpha), g = kept, cotangents[0]
    return g * slope(L, alpha), -g * alpha


log_density.defvjp(_forwards, _backwards)


def slope(L: Float[Numbers, "n n"], alpha: Float[Numbers, "n o"]) -> Float[Numbers, "n n"]:
    r"""$\frac12(\alpha\alpha^\top - o K^{-1})$ as a lower triangle: what is above the diagonal is
    added below it.

    It has the same product with every symmetric $\partial K$. Columns from $j$ on of $K^{-1}$, in
    rows from $j$ on, depend on no more than the corner $L_{j:, j:}$, so that each panel of columns
    is a solve with less of $L$.

    >>> slope(jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.zeros((2, 1))).tolist()
    [[-1.0, 0.0], [1.0, -0.5]]
    """
    n, o = alpha.shape
    panels = []
    for start, stop in pairwise([*range(0, n, PANEL), n]):
        inverse = cho_solve(
            (L[start:, start:], True), jnp.eye(n - start, stop - start, dtype=L.dtype)
        )
        panel = alpha[start:] @ alpha[start:stop].T - o * inverse
        twice = (
            jnp.tri(n - start, stop - start, dtype=L.dtype)
            - jnp.eye(n - start, stop - start, dtype=L.dtype) / 2
        )
        panels.append(jnp.pad(panel * twice, ((start, 0), (0, 0))))
    return jnp.concatenate(panels, axis=1)
