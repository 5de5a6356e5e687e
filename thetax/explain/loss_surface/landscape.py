r"""The loss on a plane through $\theta$: $(\alpha, \beta) \mapsto h(\theta + \alpha u + \beta v)$.

Three choices of the plane: random directions, comparable between networks if each filter of $u$ is
scaled to the norm of the same filter of $\theta$ (Li et al. 2018); the leading eigenvectors of the
Hessian, along which the curvature is largest; and the principal plane of a training trajectory.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ... import tree
from ...core import Batch, Objective
from .curvature import hvp

DEFAULT_GRID = np.linspace(-1, 1, 31)


@dataclass(frozen=True)
class LossLandscape:
    r"""$h(\theta + \alpha_j u + \beta_i v)$ on a grid, the loss at $\theta$, and a path in the
    plane.
    """

    losses: Float[np.ndarray, "b a"]
    alphas: Float[np.ndarray, " a"]
    betas: Float[np.ndarray, " b"]
    loss: float
    path: Float[np.ndarray, "t 2"] | None = None


def loss_landscape(
    objective: Objective,
    model: Any,
    batch: Batch | None,
    *,
    directions: tuple[Any, Any],
    alphas: Float[np.ndarray, " a"] = DEFAULT_GRID,
    betas: Float[np.ndarray, " b"] = DEFAULT_GRID,
    path: Float[np.ndarray, "t 2"] | None = None,
) -> LossLandscape:
    r"""The objective at $\theta + \alpha u + \beta v$ for two directions $u$ and $v$, trees like
    the model.

    Models are evaluated one at a time, so the memory is that of one evaluation.

    >>> bowl = lambda w, batch: w @ w / 2
    >>> result = loss_landscape(
    ...     bowl, jnp.zeros(2), None, directions=(jnp.array([1.0, 0.0]), jnp.array([0.0, 2.0]))
    ... )
    >>> result.loss, result.losses[15, 30].item(), result.losses[30, 15].item()
    (0.0, 0.5, 2.0)
    """
    shapes = lambda node: jax.tree.map(jnp.shape, node)
    if (
        not isinstance(directions, tuple | list)
        or [shapes(direction) for direction in directions] != [shapes(model)] * 2
    ):
        raise ValueError(
            "loss_landscape: directions must be a pair (u, v) of trees like the model, such as two "
            "filter_normalised_direction with different keys, or leading_eigenvectors."
        )
    losses, loss = _losses(
        objective, model, batch, directions, jnp.asarray(alphas), jnp.asarray(betas)
    )
    array = lambda a: np.asarray(a, np.float64)
    return LossLandscape(
        losses=array(losses),
        alphas=array(alphas),
        betas=array(betas),
        loss=float(loss),
        path=None if path is None else array(path),
    )


@partial(jax.jit, static_argnames="objective")
def _losses(
    objective: Objective, model: Any, batch: Any, directions: Any, alphas: Any, betas: Any
) -> Any:
    u, v = directions

    def loss(point):
        alpha, beta = point
        return objective(tree.axpy(alpha, u, tree.axpy(beta, v, model)), batch)

    points = jnp.tile(alphas, len(betas)), jnp.repeat(betas, len(alphas))
    return jax.lax.map(loss, points).reshape(len(betas), len(alphas)), objective(model, batch)


def filter_normalised_direction(model: Any, *, key: PRNGKeyArray) -> Any:
    r"""A random direction in which each filter has the same norm as in the model:
    $u_i = \varepsilon_i \|\theta_i\| / \|\varepsilon_i\|$ (Li et al. 2018).

    A filter holds the incoming weights of a unit: a row of $W$, or everything at one index of a
    leaf's first axis. The direction is 0 in leaves of fewer than two axes (biases, scales). The
    landscapes of two networks that differ by the scale of a ReLU layer are therefore equal.

    >>> import jax.random as jr
    >>> u = filter_normalised_direction(
    ...     {"W": jnp.array([[3.0, 4.0], [0.0, 0.0]]), "b": jnp.ones(2)}, key=jr.key(0)
    ... )
    >>> jnp.linalg.norm(u["W"], axis=1).round(4).tolist(), u["b"].tolist()
    ([5.0, 0.0], [0.0, 0.0])
    """

    def scaled(theta, e):
        if theta.ndim < 2:
            return jnp.zeros_like(theta)
        axes = tuple(range(1, theta.ndim))
        norm = lambda a: jnp.sqrt(jnp.square(a).sum(axis=axes, keepdims=True))
        return e * (norm(theta) / norm(e))

    return jax.tree.map(scaled, model, tree.normal_like(key, model))


def leading_eigenvectors(
    objective: Objective, model: Any, batch: Batch | None, *, tolerance: float = 1e-3
) -> Any:
    r"""The unit eigenvectors of the two largest eigenvalues of $\nabla^2 h(\theta)$, the largest
    first, as trees like $\theta$.

    Computed by ARPACK from Hessian-vector products.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 9.0, 4.0]) * w**2).sum() / 2
    >>> u, v = leading_eigenvectors(bowl, jnp.ones(3), None)
    >>> jnp.abs(u).round(3).tolist(), jnp.abs(v).round(3).tolist()
    ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    """
    from scipy.sparse.linalg import LinearOperator, eigsh  # slow to import

    theta, unravel = tree.ravel(model)
    if theta.size < 3:
        raise ValueError(
            f"leading_eigenvectors: the model must have at least 3 parameters; got {theta.size}. "
            "Choose the two directions by hand."
        )
    product = lambda v: np.asarray(
        _product(objective, model, batch, jnp.asarray(v.ravel(), theta.dtype))
    )
    A = LinearOperator((theta.size, theta.size), matvec=product, dtype=theta.dtype)  # type: ignore[call-arg]
    start = np.random.default_rng(0).normal(size=theta.size).astype(theta.dtype)
    values, vectors = eigsh(A, k=2, which="LA", tol=tolerance, v0=start)  # type: ignore[arg-type]
    first, second = np.argsort(values)[::-1]
    return unravel(jnp.asarray(vectors[:, first])), unravel(jnp.asarray(vectors[:, second]))


@partial(jax.jit, static_argnames="objective")
def _product(
    objective: Objective, model: Any, batch: Any, v: Float[Array, " p"]
) -> Float[Array, " p"]:
    unravel = tree.ravel(model)[1]
    return tree.ravel(hvp(objective, model, batch, unravel(v)))[0]


@dataclass(frozen=True)
class TrajectoryPlane:
    r"""The principal plane of a trajectory, through its last point: two unit directions, the path
    projected onto them, and the fraction of the variance that lies in the plane.
    """

    directions: tuple[Any, Any]
    path: Float[np.ndarray, "t 2"]
    explained_variance: float


def trajectory_plane(models: Any) -> TrajectoryPlane:
    r"""The first two principal components of $\theta_t - \theta_T$ over stacked models.

    They are computed from the $t \times t$ Gram matrix; no $p \times p$ matrix is formed.

    >>> plane = trajectory_plane(jnp.array([[4.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> np.abs(plane.path).round(3).tolist(), round(plane.explained_variance, 3)
    ([[4.0, 0.0], [0.0, 1.0], [0.0, 0.0]], 1.0)
    """
    leaves = jax.tree.leaves(models)
    if not leaves or len(leaves[0]) < 3:
        raise ValueError(
            "trajectory_plane: expected a trajectory of at least 3 models, stacked along the first "
            "axis of every leaf."
        )
    steps = jax.tree.map(lambda a: a - a[-1:], models)
    flat = [np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in jax.tree.leaves(steps)]
    squares, U = np.linalg.eigh(sum(a @ a.T for a in flat))
    lengths = np.sqrt(np.maximum(squares[::-1][:2], 1e-300))
    U = U[:, ::-1][:, :2]
    direction = lambda i: jax.tree.map(
        lambda a: jnp.tensordot(jnp.asarray(U[:, i] / lengths[i], a.dtype), a, 1), steps
    )
    return TrajectoryPlane(
        (direction(0), direction(1)),
        U * lengths,
        float((lengths**2).sum() / max(squares.sum(), 1e-300)),
    )
