r"""Linear models (§2.1): linear, logistic and multinomial regression, and the closed-form fits
least squares, ridge regression and the minimum-norm solution.

Rows are examples: $X \in \mathbb{R}^{n \times d}$, so that $\ell(w) = \tfrac12 \|Xw - y\|^2$.
Departs: the notes stack examples as columns but print the formulas for rows.
"""

import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from ...core import Scalar, predict
from ...layers import Linear


def linear_regression(d: int, m: int = 1) -> Linear:
    r"""Linear regression $f[W, b](x) = Wx + b$ with zero weights; train it with `squared_error`, or
    use `least_squares` (§2.1).

    >>> linear_regression(3)(jnp.ones(3)).tolist()
    [0.0]
    """
    return Linear(jnp.zeros((m, d)), jnp.zeros(m))


def logistic_regression(d: int) -> Linear:
    r"""Logistic regression with zero weights: the logit of $P(y = 1 \mid x) = \sigma(w^\top x +
    b)$; train it with `binary_cross_entropy` (§2.1).
    """
    return linear_regression(d, 1)


def multinomial_regression(d: int, k: int) -> Linear:
    r"""Multinomial (softmax) regression with zero weights: the logits of $P(y = i \mid x) =
    \mathrm{softmax}_i(Wx + b)$; train it with `cross_entropy` (§2.2).
    """
    return linear_regression(d, k)


def least_squares(xs: Float[Array, "n d"], ys: Float[Array, "n *m"]) -> Linear:
    r"""Least squares: the minimiser of $\tfrac12 \sum_i \|Wx_i + b - y_i\|^2$, with the smallest
    norm if it is not unique (§2.1).

    Departs: the notes print $(X^\top X)^{-1} X^\top y$ for $X$ with examples as columns.

    >>> xs = jnp.array([[0.0], [1.0], [2.0]])
    >>> model = least_squares(xs, 3 * xs[:, 0] + 1)
    >>> model.W.round(4).tolist(), model.b.round(4).tolist()
    ([[3.0]], [1.0])
    """
    return ridge(xs, ys, strength=0.0)


def ridge(xs: Float[Array, "n d"], ys: Float[Array, "n *m"], *, strength: float | Scalar) -> Linear:
    r"""Ridge regression: the minimiser of $\tfrac12 \sum_i \|Wx_i + b - y_i\|^2 + \tfrac{\mu}{2}
    \|W\|_F^2$ with $\mu$ = `strength`; the bias is not penalised (§8.2).

    Solved through the singular value decomposition $USV^\top$ of the centred data,
    $W = \bar Y^\top U \frac{S}{S^2 + \mu} V^\top$, so that $\mu = 0$ gives the minimum-norm
    solution.

    >>> xs = jnp.array([[-1.0], [1.0]])
    >>> ridge(xs, xs[:, 0], strength=2.0).W.tolist()
    [[0.5...]]
    """
    if isinstance(strength, int | float) and strength < 0:
        raise ValueError(f"ridge: strength must not be negative; got {strength}.")
    targets = ys.reshape(len(xs), -1)
    centre_x = xs.mean(axis=0)
    centre_y = targets.mean(axis=0)
    U, s, Vt, nonzero = _svd(xs - centre_x[None])
    factor = jnp.where(nonzero, s / jnp.where(nonzero, s * s + strength, 1.0), 0.0)
    W = (targets - centre_y[None]).T @ U * factor[None] @ Vt
    return Linear(W, centre_y - W @ centre_x)


def _svd(
    A: Float[Array, "n d"],
) -> tuple[Float[Array, "n r"], Float[Array, " r"], Float[Array, "r d"], Bool[Array, " r"]]:
    r"""$U, S, V^\top$, and which singular values exceed the rounding error."""
    U, s, Vt = jnp.linalg.svd(A, full_matrices=False)
    return U, s, Vt, s > s.max(initial=0.0) * max(A.shape) * jnp.finfo(s.dtype).eps


def leave_one_out(
    xs: Float[Array, "n d"], ys: Float[Array, "n *m"], *, strength: float | Scalar
) -> Float[Array, "n *m"]:
    r"""Leave-one-out residuals $y_i - \hat f_{-i}(x_i)$ of ridge regression, from a single fit;
    $\hat f_{-i}$ is the `ridge` fit to all other examples.

    With the hat matrix $H = \frac1n 11^\top + U \frac{S^2}{S^2 + \mu} U^\top$, which maps $y$ to
    the fitted values, the residual is $\frac{y_i - (Hy)_i}{1 - H_{ii}}$ (Allen 1974; Golub, Heath &
    Wahba 1979). The mean of its square is the error estimate of $n$-fold cross-validation (L10
    §4.5).

    >>> xs, ys = jnp.array([[0.0], [1.0], [2.0], [4.0]]), jnp.array([0.0, 2.0, 1.0, 3.0])
    >>> without = ridge(xs[1:], ys[1:], strength=0.5)
    >>> [
    ...     round(float(e), 3)
    ...     for e in (leave_one_out(xs, ys, strength=0.5)[0], ys[0] - without(xs[0])[0])
    ... ]
    [-1.097, -1.097]
    """
    n = len(xs)
    model = ridge(xs, ys, strength=strength)
    residual = ys.reshape(n, -1) - predict(model, xs)
    U, s, _, nonzero = _svd(xs - xs.mean(axis=0)[None])
    shrinkage = jnp.where(nonzero, s * s / jnp.where(nonzero, s * s + strength, 1.0), 0.0)
    slack = 1 - 1 / n - jnp.square(U) @ shrinkage  # 1 - H_ii
    if not isinstance(slack, Tracer) and bool((slack < 8 * n * jnp.finfo(slack.dtype).eps).any()):
        raise ValueError(
            f"leave_one_out: example {int(slack.argmin())} has leverage 1, so the fit without it "
            "is not unique; give more examples than features, or a strength larger than "
            f"{strength}."
        )
    return (residual / slack[:, None]).reshape(ys.shape)


def minimum_norm(
    A: Float[Array, "n d"], b: Float[Array, " n"], *, origin: Float[Array, " d"] | None = None
) -> Float[Array, " d"]:
    r"""Minimum-norm least-squares solution $A^+ b$ (pseudo-inverse): the minimiser of $\|Ax - b\|$
    nearest to the origin (Penrose 1955).

    With another `origin` $x_0$ it is the minimiser nearest to $x_0$, $x_0 + A^+(b - Ax_0)$: the
    limit of gradient descent on $\tfrac12 \|Ax - b\|^2$ from $x_0$ (L10, exercise 4).

    >>> A = jnp.array([[1.0, 1.0]])
    >>> minimum_norm(A, jnp.array([2.0])).round(4).tolist()
    [1.0, 1.0]
    >>> minimum_norm(A, jnp.array([2.0]), origin=jnp.array([3.0, 1.0])).round(4).tolist()
    [2.0, 0.0]
    """
    start = jnp.zeros(A.shape[1], A.dtype) if origin is None else origin
    U, s, Vt, nonzero = _svd(A)
    inverse = jnp.where(nonzero, 1 / jnp.where(nonzero, s, 1.0), 0.0)
    return start + Vt.T @ (inverse * (U.T @ (b - A @ start)))
