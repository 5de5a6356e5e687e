r"""Regression (§2.1): the models that are one affine map, and the two that need no descent.

Rows are examples: $X \in \mathbb{R}^{n \times d}$, so that $\ell(w) = \tfrac12 \|Xw - y\|^2$.
Departs: the notes stack examples as columns but print the formulas for rows.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..layers import Linear


def linear_regression(d: int, m: int = 1) -> Linear:
    r"""$f[W, b](x) = Wx + b$ at the origin; train it with `squared_error` (§2.1).

    >>> linear_regression(3)(jnp.ones(3)).tolist()
    [0.0]
    """
    return Linear(jnp.zeros((m, d)), jnp.zeros(m))


def logistic_regression(d: int) -> Linear:
    r"""The log-odds of $P(y = 1 \mid x) = \sigma(w^\top x + b)$; train it with `binary_cross_entropy` (§2.1)."""
    return linear_regression(d, 1)


def multinomial_regression(d: int, k: int) -> Linear:
    r"""The logits of $P(y = i \mid x) = \mathrm{softmax}_i(Wx + b)$; train it with `cross_entropy` (§2.2)."""
    return linear_regression(d, k)


def least_squares(xs: Float[Array, "n d"], ys: Float[Array, "n *m"]) -> Linear:
    r"""The minimiser of $\tfrac12 \sum_i \|Wx_i + b - y_i\|^2$, of least norm where many are (§2.1).

    Departs: the notes print $(X^\top X)^{-1} X^\top y$ for $X$ with examples as columns.

    >>> xs = jnp.array([[0.0], [1.0], [2.0]])
    >>> model = least_squares(xs, 3 * xs[:, 0] + 1)
    >>> model.W.round(4).tolist(), model.b.round(4).tolist()
    ([[3.0]], [1.0])
    """
    return ridge(xs, ys, strength=0.0)


def ridge(xs: Float[Array, "n d"], ys: Float[Array, "n *m"], *, strength: float) -> Linear:
    r"""The minimiser of $\tfrac12 \sum_i \|Wx_i + b - y_i\|^2 + \tfrac{\mu}{2} \|W\|_F^2$; $b$ is not shrunk (§8.2).

    Solved through the singular value decomposition $USV^\top$ of the centred data,
    $W = \bar Y^\top U \frac{S}{S^2 + \mu} V^\top$, so that $\mu = 0$ gives the solution of least norm.

    >>> xs = jnp.array([[-1.0], [1.0]])
    >>> ridge(xs, xs[:, 0], strength=2.0).W.tolist()
    [[0.5...]]
    """
    if isinstance(strength, int | float) and strength < 0:
        raise ValueError(f"ridge: strength must not be negative; got {strength}.")
    targets = ys.reshape(len(xs), -1)
    centre_x, centre_y = xs.mean(axis=0), targets.mean(axis=0)
    U, s, Vt = jnp.linalg.svd(xs - centre_x[None], full_matrices=False)
    tiny = s.max(initial=0.0) * max(xs.shape) * jnp.finfo(s.dtype).eps
    weight = jnp.where(s > tiny, s / jnp.where(s > tiny, s * s + strength, 1.0), 0.0)
    W = (targets - centre_y[None]).T @ U * weight[None] @ Vt
    return Linear(W, centre_y - W @ centre_x)
