r"""Estimates of the two constants in the theory of gradient descent, smoothness $L$ and gradient
dominance $\mu$ (§3.2), without forming matrices.

$$\|\nabla h(\theta) - \nabla h(\theta')\| \le L\,\|\theta - \theta'\|, \qquad
\tfrac12 \|\nabla h(\theta)\|^2 \ge \mu\,(h(\theta) - h^*).$$

Both hold for all $\theta$, and only finitely many can be evaluated, so the results are bounds: the
largest ratio found is a lower bound on $L$, the smallest found an upper bound on $\mu$. The points
are arguments: a trajectory, a grid, or random ones (`perturb_parameters`). Several models are
passed as one model whose leaves have an additional first axis.
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
from ...check import expect_count
from ...core import Batch, Objective
from .curvature import hvp
from .lanczos import Tridiagonal, lanczos, ritz_values

MAX_BATCH_SIZE = 256  # gradients held at once


@dataclass(frozen=True)
class Smoothness:
    r"""The largest value, a lower bound on $L$; and the value at each point or for each pair."""

    constant: float
    values: Float[np.ndarray, " t"]
    bound: str = "lower bound on L"

    @property
    def max_learning_rate(self) -> float:
        r"""$2 / \hat L$: with a larger learning rate, plain gradient descent is unstable at a
        minimum of that curvature (§3.2).
        """
        return 2 / self.constant if self.constant > 0 else np.inf


@dataclass(frozen=True)
class GradientDominance:
    r"""The smallest ratio, an upper bound on $\mu$; and the ratio at each point (infinite at a
    minimum).
    """

    constant: float
    values: Float[np.ndarray, " t"]
    bound: str = "upper bound on μ"


def perturb_parameters(model: Any, *, radius: float, n_models: int, key: PRNGKeyArray) -> Any:
    r"""A stack of `n_models` models $\theta + \varepsilon$ with
    $\varepsilon \sim N(0, \tfrac{r^2}{p} I)$, which has norm about $r$.

    >>> models = perturb_parameters(jnp.zeros(1000), radius=2.0, n_models=3, key=jr.key(0))
    >>> models.std(axis=1).round(2).tolist()
    [0.05..., 0.07..., 0.05...]
    """
    expect_count("perturb_parameters", n_models=n_models)
    if not radius > 0:
        raise ValueError(f"perturb_parameters: radius must be positive; got {radius}.")
    noise = jax.vmap(lambda key: tree.normal_like(key, model))(jr.split(key, n_models))
    scale = radius / np.sqrt(tree.size(model))
    return jax.tree.map(lambda a, e: a[None] + jnp.asarray(scale, e.dtype) * e, model, noise)


def smoothness(
    objective: Objective, models: Any, batch: Batch | None, *, steps: int = 24, key: PRNGKeyArray
) -> Smoothness:
    r"""$\max_i \|\nabla^2 h(\theta_i)\|_2$ over stacked models, by the Lanczos method on
    Hessian-vector products.

    For twice differentiable $h$ on a convex set, $L = \sup_\theta \|\nabla^2 h(\theta)\|_2$ (§3.2).
    Ritz values lie within the spectrum, so the result is a lower bound for any number of steps.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 2.0, 5.0]) * w**2).sum() / 2
    >>> round(smoothness(bowl, jnp.ones((2, 3)), None, key=jr.key(0)).constant, 4)
    5.0
    """
    n_models = _stack_length("smoothness", models)
    runs = _lanczos_runs(objective, models, batch, key, steps)
    norms = np.array(
        [
            np.abs(ritz_values(Tridiagonal(runs.alpha[i], runs.beta[i])).values).max()
            for i in range(n_models)
        ]
    )
    return Smoothness(float(norms.max()), norms)


@partial(jax.jit, static_argnames=("objective", "steps"))
def _lanczos_runs(
    objective: Objective, models: Any, batch: Any, key: PRNGKeyArray, steps: int
) -> Tridiagonal:
    def run(model):
        return lanczos(lambda v: hvp(objective, model, batch, v), model, steps=steps, key=key)

    return jax.lax.map(run, models)


def gradient_lipschitz(
    objective: Objective, models: Any, others: Any, batch: Batch | None
) -> Smoothness:
    r"""$\max_i \|\nabla h(\theta_i) - \nabla h(\theta'_i)\| / \|\theta_i - \theta'_i\|$ over pairs
    of stacked models.

    It needs no second derivatives, so it also applies where there are none (§3.2). A pair of equal
    models counts as 0.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 5.0]) * w**2).sum() / 2
    >>> gradient_lipschitz(bowl, jnp.zeros((2, 2)), jnp.eye(2), None).values.tolist()
    [1.0, 5.0]
    """
    name = "gradient_lipschitz"
    lengths = _stack_length(name, models), _stack_length(name, others)
    if lengths[0] != lengths[1]:
        raise ValueError(
            f"{name}: models and others must be stacks of the same length, as they are compared in "
            f"pairs; got {lengths[0]} and {lengths[1]}."
        )
    ratios = np.asarray(_ratios(objective, models, others, batch), np.float64)
    return Smoothness(float(ratios.max()), ratios)


@partial(jax.jit, static_argnames="objective")
def _ratios(objective: Objective, models: Any, others: Any, batch: Any) -> Float[Array, " t"]:
    def ratio(pair):
        model, other = pair
        distance = tree.norm(tree.axpy(-1.0, other, model))
        gradients = (jax.grad(objective)(theta, batch) for theta in pair)
        change = tree.norm(tree.axpy(-1.0, *gradients))
        return jnp.where(distance > 0, change / jnp.where(distance > 0, distance, 1.0), 0.0)

    return jax.lax.map(ratio, (models, others), batch_size=MAX_BATCH_SIZE)


def gradient_dominance(
    objective: Objective, models: Any, batch: Batch | None, *, min_loss: float = 0.0
) -> GradientDominance:
    r"""$\min_i \|\nabla h(\theta_i)\|^2 / 2(h(\theta_i) - h^*)$ over stacked models, where $h^*$ is
    `min_loss`.

    The Polyak–Łojasiewicz constant $\mu$ of §3.2: gradient descent with the learning rate $1/L$
    multiplies $h - h^*$ by at most $1 - \mu/L$ in each step (Polyak 1963; Karimi, Nutini & Schmidt
    2016). Where $h$ is not above $h^*$ the ratio is infinite.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 5.0]) * w**2).sum() / 2
    >>> gradient_dominance(bowl, jnp.eye(2), None).values.tolist()
    [1.0, 5.0]
    """
    _stack_length("gradient_dominance", models)
    results = _losses_and_gradients(objective, models, batch)
    losses, squared_norms = (np.asarray(a, np.float64) for a in results)
    gaps = losses - min_loss
    if not (gaps > 0).any():
        raise ValueError(
            f"gradient_dominance: no model has a loss above min_loss={min_loss}; give models that "
            "are not minima."
        )
    ratios = np.divide(squared_norms, 2 * gaps, out=np.full_like(gaps, np.inf), where=gaps > 0)
    return GradientDominance(float(ratios.min()), ratios)


@partial(jax.jit, static_argnames="objective")
def _losses_and_gradients(
    objective: Objective, models: Any, batch: Any
) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
    """The loss and the squared norm of its gradient, for each model."""

    def evaluate(model):
        loss, g = jax.value_and_grad(objective)(model, batch)
        return loss, tree.dot(g, g)

    return jax.lax.map(evaluate, models, batch_size=MAX_BATCH_SIZE)


def _stack_length(name: str, models: Any) -> int:
    """The number of stacked models."""
    lengths = {leaf.shape[:1] for leaf in jax.tree.leaves(models)}
    if len(lengths) != 1 or lengths <= {(), (0,)}:
        shapes = sorted({leaf.shape for leaf in jax.tree.leaves(models)})
        raise ValueError(
            f"{name}: expected at least one model, stacked along the first axis of every leaf; got "
            f"leaves of shapes {shapes}. For one model use "
            "jax.tree.map(lambda a: a[None], model)."
        )
    return lengths.pop()[0]
