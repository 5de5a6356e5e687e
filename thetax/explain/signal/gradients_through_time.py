r"""Vanishing and exploding gradients (§5): norms of the Jacobians
$\partial z_T / \partial z_t = J_T J_{T-1} \cdots J_{t+1}$ of a recurrent network.

$J_t = \partial z_t / \partial z_{t-1}$ is the Jacobian of one step. If the largest singular values
stay below 1, the product vanishes as the lag $T - t$ grows; if the smallest stay above 1, it
explodes. For an Elman cell $J_t = \mathrm{diag}(\varphi'(\cdot))\, U$, so that
$\|\partial z_T / \partial z_t\|_2 \le (\alpha\, \sigma_1(U))^{T-t}$ with
$\alpha = \sup |\varphi'|$. Gated cells have no such bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...check import expect_count
from ...core import Batch
from ...layers import Elman
from .recurrence import as_vector, capture_recurrence


@dataclass(frozen=True)
class GradientsThroughTime:
    """Norms of the Jacobians by lag for each example, and the extreme singular values of each
    step.
    """

    norms: Float[np.ndarray, "n t"]  # over the last 1, 2, ... steps
    max_singular_values: Float[np.ndarray, "n t"]  # of each step, in the order of time
    min_singular_values: Float[np.ndarray, "n t"]
    bound: Float[np.ndarray, " t"] | None  # upper bound of the norms, if one is known
    state_size: int  # a complex entry counts twice
    layer: str

    @property
    def mean_factor(self) -> float:
        """The factor per step at the longest lag, as a geometric mean over steps and examples."""
        with np.errstate(divide="ignore"):
            return float(np.exp(np.log(self.norms[:, -1]).mean() / self.norms.shape[1]))


def gradients_through_time(
    model: Any, xs: Batch, *, max_lag: int | None = None
) -> GradientsThroughTime:
    r"""The exact $\|\partial z_T / \partial z_t\|_2$ for every lag $T - t$, along each sequence of
    the batch `xs` (§5).

    `model` is a recurrent cell or a model that contains one; lags go up to `max_lag`, by default to
    the length of the sequences. The state may be any tree of arrays; a complex entry counts as two
    real ones. Bengio et al. 1994, Pascanu et al. 2013.

    >>> cell = Elman(jnp.array([[0.5]]), jnp.array([[1.0]]), jnp.zeros(1), jax.nn.identity)
    >>> result = gradients_through_time(cell, jnp.ones((1, 3, 1)))
    >>> result.norms.round(6).tolist(), result.bound.tolist()
    ([[0.5, 0.25, 0.125]], [0.5, 0.25, 0.125])
    """
    recurrence = capture_recurrence(model, xs)
    length = recurrence.mask.shape[1]
    if max_lag is not None:
        expect_count("gradients_through_time", max_lag=max_lag)
    max_lag = min(length, max_lag or length)
    log_norms, max_singular_values, min_singular_values = (
        np.asarray(array, np.float64)
        for array in _jacobian_products(
            recurrence.cell, recurrence.start, recurrence.inputs, recurrence.mask, max_lag=max_lag
        )
    )
    factor = elman_lipschitz_bound(recurrence.cell)
    return GradientsThroughTime(
        norms=np.exp(log_norms[:, ::-1]),
        max_singular_values=max_singular_values,
        min_singular_values=min_singular_values,
        bound=None if factor is None else factor ** np.arange(1.0, max_lag + 1),
        state_size=as_vector(jax.tree.map(lambda z: z[0], recurrence.start))[0].size,
        layer=recurrence.layer,
    )


def elman_lipschitz_bound(cell: Any) -> float | None:
    r"""The Lipschitz bound $\alpha\, \sigma_1(U)$ of one step of an `Elman` cell (§5); None for
    other cells.

    $\alpha = \sup |\varphi'|$ is computed on a fine grid around 0.

    >>> cell = Elman(0.5 * jnp.eye(2), jnp.ones((2, 1)), jnp.zeros(2), jax.nn.sigmoid)
    >>> elman_lipschitz_bound(cell)
    0.125
    """
    cell = getattr(cell, "cell", cell)
    if not isinstance(cell, Elman):
        return None
    slopes = jax.vmap(jax.grad(lambda a: cell.activation(a)))(jnp.linspace(-8.0, 8.0, 6401))
    return float(jnp.abs(slopes).max() * np.linalg.norm(np.asarray(cell.U, np.float64), 2))


@partial(jax.jit, static_argnames="max_lag")
def _jacobian_products(
    cell: Any, start: Any, inputs: Any, mask: Any, *, max_lag: int
) -> tuple[Array, Array, Array]:
    return jax.vmap(lambda state, xs, mask: _jacobian_product(cell, state, xs, mask, max_lag))(
        start, inputs, mask
    )


def _jacobian_product(
    cell: Any, state: Any, inputs: Any, mask: Any, max_lag: int
) -> tuple[Array, Array, Array]:
    r"""For each of the last steps $\log \|\partial z_T / \partial z_{t-1}\|_2$ and the extreme
    singular values of $J_t$.
    """
    z, from_vector = as_vector(state)
    step: Callable[[Any, Any], Any] = lambda z, x: as_vector(cell(from_vector(z), x)[0])[0]

    def forward(z, item):
        x, has_input = item
        return jnp.where(has_input, step(z, x), z), z

    def multiply(carry, item):  # P, scaled to norm 1, and the logarithm of its norm
        (P, log_norm), (z, x, has_input) = carry, item
        J = jnp.where(has_input, jax.jacfwd(step)(z, x), jnp.eye(len(z), dtype=z.dtype))
        sigma = jnp.linalg.svd(J, compute_uv=False)
        P = P @ J
        norm = jnp.linalg.norm(P)
        P = P / jnp.where(norm > 0, norm, 1)
        log_norm = log_norm + jnp.log(norm)
        top = jnp.linalg.eigvalsh(P @ P.T)[-1]
        spectral = log_norm + jnp.log(jnp.maximum(top, 1e-30)) / 2
        return (P, log_norm), (spectral, sigma[0], sigma[-1])

    states = jax.lax.scan(forward, z, (inputs, mask))[1]
    items = jax.tree.map(lambda a: a[-max_lag:], (states, inputs, mask))
    eye = jnp.eye(len(z), dtype=z.dtype)
    zero = jnp.zeros((), z.dtype)
    return jax.lax.scan(multiply, (eye, zero), items, reverse=True)[1]
