r"""The loss on a plane through $\theta$: $(\alpha, \beta) \mapsto h(\theta + \alpha u + \beta v)$.

What is seen depends on the plane. Random directions are made comparable between networks by giving
each filter of $u$ the length of that filter of $\theta$ (Li et al. 2018); the leading eigenvectors
of the Hessian show the loss where it bends most; the plane of a trajectory shows the way that was
gone.
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

GRID = np.linspace(-1, 1, 31)


@dataclass(frozen=True)
class Landscape:
    r"""$h(\theta + \alpha_j u + \beta_i v)$ on a grid, the loss at $\theta$, and the points of a
    path in the plane.
    """

    losses: Float[np.ndarray, "b a"]
    alphas: Float[np.ndarray, " a"]
    betas: Float[np.ndarray, " b"]
    loss: float
    path: Float[np.ndarray, "t 2"] | None = None


def landscape(
    objective: Objective,
    model: Any,
    batch: Batch | None,
    *,
    along: tuple[Any, Any],
    alphas: Float[np.ndarray, " a"] = GRID,
    betas: Float[np.ndarray, " b"] = GRID,
    path: Float[np.ndarray, "t 2"] | None = None,
) -> Landscape:
    r"""The objective at $\theta + \alpha u + \beta v$ for two directions $u$, $v$ shaped like the
    model.

    One model is held at a time, so the memory is that of one evaluation.

    >>> bowl = lambda w, batch: w @ w / 2
    >>> found = landscape(
    ...     bowl, jnp.zeros(2), None, along=(jnp.array([1.0, 0.0]), jnp.array([0.0, 2.0]))
    ... )
    >>> found.loss, found.losses[15, 30].item(), found.losses[30, 15].item()
    (0.0, 0.5, 2.0)
    """
    shapes = lambda node: jax.tree.map(jnp.shape, node)
    if (
        not isinstance(along, tuple | list)
        or [shapes(part) for part in along] != [shapes(model)] * 2
    ):
        raise ValueError(
            "landscape: along must be two directions shaped like the model, (u, v), for instance "
            "two draws of filter_normalised or the pair of leading_directions."
        )
    losses, loss = _losses(objective, model, batch, along, jnp.asarray(alphas), jnp.asarray(betas))
    wide = lambda a: np.asarray(a, np.float64)
    return Landscape(
        wide(losses), wide(alphas), wide(betas), float(loss), None if path is None else wide(path)
    )


@partial(jax.jit, static_argnames="objective")
def _losses(
    objective: Objective, model: Any, batch: Any, along: Any, alphas: Any, betas: Any
) -> Any:
    def at(place):
        alpha, beta = place
        return objective(tree.axpy(alpha, along[0], tree.axpy(beta, along[1], model)), batch)

    places = jnp.tile(alphas, len(betas)), jnp.repeat(betas, len(alphas))
    return jax.lax.map(at, places).reshape(len(betas), len(alphas)), objective(model, batch)


def filter_normalised(model: Any, *, key: PRNGKeyArray) -> Any:
    r"""A random direction each of whose filters is as long as that of the model:
    $u_i = \varepsilon_i \|\theta_i\| / \|\varepsilon_i\|$ (Li et al. 2018).

    A filter is what a unit reads by: a row of $W$, or whatever lies behind one index of a leaf's
    first axis. Leaves of fewer than two axes (biases, scales) stay where they are. Two networks
    that differ by the scale of a ReLU layer thus look alike.

    >>> import jax.random as jr
    >>> u = filter_normalised(
    ...     {"W": jnp.array([[3.0, 4.0], [0.0, 0.0]]), "b": jnp.ones(2)}, key=jr.key(0)
    ... )
    >>> jnp.linalg.norm(u["W"], axis=1).round(4).tolist(), u["b"].tolist()
    ([5.0, 0.0], [0.0, 0.0])
    """

    def scaled(theta, e):
        if theta.ndim < 2:
            return jnp.zeros_like(theta)
        axes = tuple(range(1, theta.ndim))
        size = lambda a: jnp.sqrt(jnp.square(a).sum(axis=axes, keepdims=True))
        return e * (size(theta) / size(e))

    return jax.tree.map(scaled, model, tree.normal_like(key, model))


def leading_directions(
    objective: Objective, model: Any, batch: Batch | None, *, tolerance: float = 1e-3
) -> Any:
    r"""The two unit eigenvectors of $\nabla^2 h(\theta)$ of largest eigenvalue, the first first,
    shaped like $\theta$.

    Found by ARPACK through Hessian-vector products.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 9.0, 4.0]) * w**2).sum() / 2
    >>> u, v = leading_directions(bowl, jnp.ones(3), None)
    >>> jnp.abs(u).round(3).tolist(), jnp.abs(v).round(3).tolist()
    ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    """
    from scipy.sparse.linalg import LinearOperator, eigsh  # here, for it takes a while to import

    theta, back = tree.ravel(model)
    if theta.size < 3:
        raise ValueError(
            f"leading_directions: needs at least 3 parameters, got {theta.size}; name two "
            "directions."
        )
    product = lambda v: np.asarray(
        _product(objective, model, batch, jnp.asarray(v.ravel(), theta.dtype))
    )
    A = LinearOperator((theta.size, theta.size), matvec=product, dtype=theta.dtype)  # type: ignore[call-arg]
    start = np.random.default_rng(0).normal(size=theta.size).astype(theta.dtype)
    values, vectors = eigsh(A, k=2, which="LA", tol=tolerance, v0=start)  # type: ignore[arg-type]
    first, second = np.argsort(values)[::-1]
    return back(jnp.asarray(vectors[:, first])), back(jnp.asarray(vectors[:, second]))


@partial(jax.jit, static_argnames="objective")
def _product(
    objective: Objective, model: Any, batch: Any, v: Float[Array, " p"]
) -> Float[Array, " p"]:
    back = tree.ravel(model)[1]
    return tree.ravel(hvp(objective, model, batch, back(v)))[0]


@dataclass(frozen=True)
class Plane:
    r"""The plane nearest a trajectory, through its end: directions, the path in it, the share of
    motion in it.
    """

    along: tuple[Any, Any]
    path: Float[np.ndarray, "t 2"]
    share: float


def plane(models: Any) -> Plane:
    r"""The two principal directions of $\theta_t - \theta_T$ over stacked models, of unit length.

    They come from the $t \times t$ Gram matrix, so nothing of size $p \times p$ is formed.

    >>> found = plane(jnp.array([[4.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> np.abs(found.path).round(3).tolist(), round(found.share, 3)
    ([[4.0, 0.0], [0.0, 1.0], [0.0, 0.0]], 1.0)
    """
    leaves = jax.tree.leaves(models)
    if not leaves or len(leaves[0]) < 3:
        raise ValueError(
            "plane: a plane needs a trajectory of at least 3 models, stacked along a first axis."
        )
    away = jax.tree.map(lambda a: a - a[-1:], models)
    flat = [np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in jax.tree.leaves(away)]
    squares, U = np.linalg.eigh(sum(a @ a.T for a in flat))
    lengths = np.sqrt(np.maximum(squares[::-1][:2], 1e-300))
    U = U[:, ::-1][:, :2]
    direction = lambda i: jax.tree.map(
        lambda a: jnp.tensordot(jnp.asarray(U[:, i] / lengths[i], a.dtype), a, 1), away
    )
    return Plane(
        (direction(0), direction(1)),
        U * lengths,
        float((lengths**2).sum() / max(squares.sum(), 1e-300)),
    )
