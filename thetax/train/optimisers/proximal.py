r"""Proximal gradient descent (ISTA) for the L1 penalty, which is not differentiable at 0
(Tibshirani 1996).

For $\ell(\theta) + \mu\|\theta\|_1$ a gradient step on $\ell$ is followed by the proximal map of
the penalty,

$$\mathrm{prox}_{\eta\mu}(z) = \arg\min_\theta\, \tfrac12 \|\theta - z\|^2 + \eta\mu \|\theta\|_1
= \mathrm{sgn}(z) \max(|z| - \eta\mu, 0),$$

which sets weights to exactly 0 and keeps them there; subgradient descent on `lasso` only oscillates
around 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from .steps import Number, Schedule


def soft_threshold(z: Float[Array, "*s"], *, strength: Number) -> Float[Array, "*s"]:
    r"""Soft thresholding: $S_\mu(z) = \mathrm{sgn}(z) \max(|z| - \mu, 0)$, the minimiser of
    $\tfrac12 (\theta - z)^2 + \mu|\theta|$.

    >>> soft_threshold(jnp.array([-3.0, 0.5, 2.0]), strength=1.0).tolist()
    [-2.0, 0.0, 1.0]
    """
    if isinstance(strength, int | float) and strength < 0:
        raise ValueError(f"soft_threshold: strength must be >= 0; got {strength}.")
    mu = jnp.asarray(strength, z.dtype)
    return z - jnp.clip(z, -mu, mu)


class IstaState(NamedTuple):
    """The number of steps taken."""

    steps: Int[Array, ""]


def ista(learning_rate: Number | Schedule, *, strength: Number) -> optax.GradientTransformation:
    r"""Iterative soft thresholding (ISTA):
    $\theta \leftarrow S_{\eta\mu}(\theta - \eta\nabla\ell(\theta))$ (§8.2).

    It minimises $\ell + \mu\|\theta\|_1$ when `descend` is given $\ell$ alone, and gives exact
    zeros. With $\eta \le 1/L$ the sum never increases, and for convex $\ell$ the gap to the minimum
    falls like $1/t$ (Beck & Teboulle 2009, thm 3.1). All leaves are shrunk; use `optax.partition`
    to exclude some, such as biases.

    >>> from thetax.core import run
    >>> from thetax.train import descend
    >>> bowl = lambda w, batch, key: jnp.square(w - jnp.array([3.0, 0.5])).sum() / 2
    >>> state, _ = run(
    ...     descend(bowl, ista(0.5, strength=1.0)),
    ...     jnp.ones(2),
    ...     jnp.zeros(30),
    ...     key=jax.random.key(0),
    ... )
    >>> state.model.round(4).tolist()
    [2.0, 0.0]
    """
    if isinstance(strength, int | float) and strength < 0:
        raise ValueError(
            f"ista: strength must be >= 0; got {strength}. A negative one rewards large weights."
        )

    def init(params):
        return IstaState(jnp.zeros((), jnp.int32))

    def update(updates, state, params=None):
        if params is None:
            raise ValueError(
                "ista: update needs the parameters: optimiser.update(gradient, state, model)."
            )
        eta = learning_rate(state.steps) if callable(learning_rate) else learning_rate

        def step(theta, g):
            z = theta - jnp.asarray(eta, g.dtype) * g
            return soft_threshold(z, strength=jnp.asarray(eta * strength, z.dtype)) - theta

        return jax.tree.map(step, params, updates), IstaState(state.steps + 1)

    return optax.GradientTransformation(init, update)
