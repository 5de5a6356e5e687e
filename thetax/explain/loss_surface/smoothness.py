r"""How smooth an objective is, and how its gradient dominates it: the two constants of descent
(§3.2), matrix-free.

$$\|\nabla h(\theta) - \nabla h(\theta')\| \le L\,\|\theta - \theta'\|, \qquad
\tfrac12 \|\nabla h(\theta)\|^2 \ge \mu\,(h(\theta) - h^*).$$

Both are statements about every $\theta$, and only finitely many can be tried. So what is seen is a
bound: the largest ratio found is a lower bound on $L$, the smallest found an upper bound on $\mu$.
The points are given: a trajectory, a grid, or draws `nearby`. Several models are one model with a
further first axis on every leaf.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ... import tree
from ...core import Batch, Objective
from .curvature import hvp
from .lanczos import Lanczos, lanczos, ritz

CHUNK = 256  # gradients held at once


@dataclass(frozen=True)
class Smoothness:
    r"""The largest seen, a lower bound on $L$; and what was seen at each point, or of each pair."""

    constant: float
    seen: Float[np.ndarray, " t"]
    bound: str = "lower bound on L"

    @property
    def rate(self) -> float:
        r"""$2 / \hat L$: with a larger rate plain descent leaves every minimum that bends so much
        (§3.2).
        """
        return 2 / self.constant if self.constant > 0 else np.inf


@dataclass(frozen=True)
class Dominance:
    r"""The smallest seen, an upper bound on $\mu$; and what was seen at each point (infinite at a
    minimum).
    """

    constant: float
    seen: Float[np.ndarray, " t"]
    bound: str = "upper bound on μ"


def nearby(model: Any, *, radius: float, count: int, key: PRNGKeyArray) -> Any:
    r"""`count` models $\theta + \varepsilon$, stacked: $\varepsilon \sim N(0, \tfrac{r^2}{p} I)$ is
    about $r$ long.

    >>> nearby(jnp.zeros(1000), radius=2.0, count=3, key=jr.key(0)).std(axis=1).round(2).tolist()
    [0.05..., 0.07..., 0.05...]
    """
    if not radius > 0 or count < 1:
        raise ValueError(
            f"nearby: radius must be positive and count at least 1; got {radius} and {count}."
        )
    noise = jax.vmap(lambda key: tree.normal_like(key, model))(jr.split(key, count))
    scale = radius / np.sqrt(tree.size(model))
    return jax.tree.map(lambda a, e: a[None] + jnp.asarray(scale, e.dtype) * e, model, noise)


def smoothness(
    objective: Objective, models: Any, batch: Batch | None, *, steps: int = 24, key: PRNGKeyArray
) -> Smoothness:
    r"""$\max_i \|\nabla^2 h(\theta_i)\|_2$ over stacked models, each by Lanczos on Hessian-vector
    products.

    For twice differentiable $h$ on a convex set, $L = \sup_\theta \|\nabla^2 h(\theta)\|_2$ (§3.2).
    A Ritz value lies within the spectrum, so the answer is a lower bound however few the steps.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 2.0, 5.0]) * w**2).sum() / 2
    >>> round(smoothness(bowl, jnp.ones((2, 3)), None, key=jr.key(0)).constant, 4)
    5.0
    """
    count = _count("smoothness", models)
    runs = _portraits(objective, models, batch, key, steps)
    seen = np.array(
        [np.abs(ritz(Lanczos(runs.alpha[i], runs.beta[i])).values).max() for i in range(count)]
    )
    return Smoothness(float(seen.max()), seen)


@partial(jax.jit, static_argnames=("objective", "steps"))
def _portraits(
    objective: Objective, models: Any, batch: Any, key: PRNGKeyArray, steps: int
) -> Lanczos:
    def portrait(model):
        return lanczos(lambda v: hvp(objective, model, batch, v), model, steps=steps, key=key)

    return jax.lax.map(portrait, models)


def lipschitz(objective: Objective, models: Any, others: Any, batch: Batch | None) -> Smoothness:
    r"""$\max_i \|\nabla h(\theta_i) - \nabla h(\theta'_i)\| / \|\theta_i - \theta'_i\|$ over pairs
    of stacked models.

    It needs no second derivative, so it serves where there is none (§3.2). A pair of equal models
    counts as 0.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 5.0]) * w**2).sum() / 2
    >>> lipschitz(bowl, jnp.zeros((2, 2)), jnp.eye(2), None).seen.tolist()
    [1.0, 5.0]
    """
    if _count("lipschitz", models) != _count("lipschitz", others):
        raise ValueError(
            "lipschitz: models and others must be stacks of one length, for they are compared in "
            "pairs."
        )
    seen = np.asarray(_ratios(objective, models, others, batch), np.float64)
    return Smoothness(float(seen.max()), seen)


@partial(jax.jit, static_argnames="objective")
def _ratios(objective: Objective, models: Any, others: Any, batch: Any) -> Float[Array, " t"]:
    def ratio(pair):
        model, other = pair
        apart = tree.norm(tree.axpy(-1.0, other, model))
        slopes = (jax.grad(objective)(theta, batch) for theta in pair)
        return jnp.where(
            apart > 0, tree.norm(tree.axpy(-1.0, *slopes)) / jnp.where(apart > 0, apart, 1.0), 0.0
        )

    return jax.lax.map(ratio, (models, others), batch_size=CHUNK)


def dominance(
    objective: Objective, models: Any, batch: Batch | None, *, least: float = 0.0
) -> Dominance:
    r"""$\min_i \|\nabla h(\theta_i)\|^2 / 2(h(\theta_i) - h^*)$ over stacked models, where $h^*$ is
    `least`.

    The Polyak–Łojasiewicz constant $\mu$ of §3.2: descent with rate $1/L$ shrinks $h - h^*$ by
    $1 - \mu/L$ a step (Polyak 1963; Karimi, Nutini & Schmidt 2016). Where $h$ is not above $h^*$
    the ratio is infinite.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 5.0]) * w**2).sum() / 2
    >>> dominance(bowl, jnp.eye(2), None).seen.tolist()
    [1.0, 5.0]
    """
    _count("dominance", models)
    loss, square = (np.asarray(a, np.float64) for a in _slopes(objective, models, batch))
    gap = loss - least
    if not (gap > 0).any():
        raise ValueError(
            f"dominance: no model has a loss above least={least}; give models that are not minima."
        )
    seen = np.divide(square, 2 * gap, out=np.full_like(gap, np.inf), where=gap > 0)
    return Dominance(float(seen.min()), seen)


@partial(jax.jit, static_argnames="objective")
def _slopes(
    objective: Objective, models: Any, batch: Any
) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
    def slope(model):
        loss, g = jax.value_and_grad(objective)(model, batch)
        return loss, tree.dot(g, g)

    return jax.lax.map(slope, models, batch_size=CHUNK)


def _count(name: str, models: Any) -> int:
    """How many models are stacked."""
    lengths = {leaf.shape[:1] for leaf in jax.tree.leaves(models)}
    if len(lengths) != 1 or lengths <= {(), (0,)}:
        shapes = sorted({leaf.shape for leaf in jax.tree.leaves(models)})
        raise ValueError(
            f"{name}: expected models stacked along a first axis of every leaf, at least one; got "
            "leaves of shapes "
            f"{shapes}. One model becomes a stack by jax.tree.map(lambda a: a[None], model)."
        )
    return lengths.pop()[0]
