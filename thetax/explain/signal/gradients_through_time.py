r"""How a signal travels through time (§5):
$\partial z_T / \partial z_t = J_T J_{T-1} \cdots J_{t+1}$.

$J_t = \partial z_t / \partial z_{t-1}$ is the Jacobian of one step. If its largest singular value
stays below 1 the product vanishes with the lag $T - t$, and if its smallest stays above 1 it
explodes. For an Elman cell $J_t = \mathrm{diag}(\varphi'(\cdot))\, U$, so that
$\|\partial z_T / \partial z_t\|_2 \le (\alpha\, \sigma_1(U))^{T-t}$ with
$\alpha = \sup |\varphi'|$; gates can keep what a matrix cannot.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core import Batch
from ...layers import Elman
from .recurrence import as_vector, recurrence


@dataclass(frozen=True)
class ThroughTime:
    """How much of a small change of the state is left after each lag, for each example; and the
    steps that make it.
    """

    norms: Float[np.ndarray, "n t"]  # after 1, 2, ... steps, up to the last time
    largest: Float[np.ndarray, "n t"]  # singular value of each step, in the order of time
    smallest: Float[np.ndarray, "n t"]
    bound: Float[np.ndarray, " t"] | None  # of the norms, where one is known
    size: int  # of the state, in real numbers
    layer: str

    @property
    def rate(self) -> float:
        """The factor a step, on average over the examples and the longest lag: its geometric
        mean.
        """
        with np.errstate(divide="ignore"):
            return float(np.exp(np.log(self.norms[:, -1]).mean() / self.norms.shape[1]))


def through_time(model: Any, xs: Batch, *, times: int | None = None) -> ThroughTime:
    r"""$\|\partial z_T / \partial z_t\|_2$ for every lag, exactly, along each sequence of the batch
    `xs` (§5).

    `model` is a cell or any model that runs one; it is looked at over the last `times` steps, or
    all. The state may have any form: a complex number counts as two real ones. Bengio et al. 1994,
    Pascanu et al. 2013.

    >>> cell = Elman(jnp.array([[0.5]]), jnp.array([[1.0]]), jnp.zeros(1), jax.nn.identity)
    >>> found = through_time(cell, jnp.ones((1, 3, 1)))
    >>> found.norms.round(6).tolist(), found.bound.tolist()
    ([[0.5, 0.25, 0.125]], [0.5, 0.25, 0.125])
    """
    found = recurrence(model, xs)
    length = found.mask.shape[1]
    if times is not None and times < 1:
        raise ValueError(f"through_time: times counts steps and must be at least 1; got {times}.")
    last = min(length, times or length)
    logs, largest, smallest = (
        np.asarray(part, np.float64)
        for part in _products(found.cell, found.start, found.inputs, found.mask, last=last)
    )
    size = as_vector(jax.tree.map(lambda z: z[0], found.start))[0].size
    rate = elman_rate(found.cell)
    bound = None if rate is None else rate ** np.arange(1.0, last + 1)
    return ThroughTime(np.exp(logs[:, ::-1]), largest, smallest, bound, size, found.layer)


def elman_rate(cell: Any) -> float | None:
    r"""$\alpha\, \sigma_1(U)$ of an `Elman` cell, by which a step stretches at most (§5); None of
    another.

    $\alpha = \sup |\varphi'|$ is taken over a fine grid around 0.

    >>> elman_rate(Elman(0.5 * jnp.eye(2), jnp.ones((2, 1)), jnp.zeros(2), jax.nn.sigmoid))
    0.125
    """
    cell = getattr(cell, "cell", cell)
    if not isinstance(cell, Elman):
        return None
    slopes = jax.vmap(jax.grad(lambda a: cell.activation(a)))(jnp.linspace(-8.0, 8.0, 6401))
    return float(jnp.abs(slopes).max() * np.linalg.norm(np.asarray(cell.U, np.float64), 2))


@partial(jax.jit, static_argnames="last")
def _products(
    cell: Any, start: Any, inputs: Any, mask: Any, *, last: int
) -> tuple[Array, Array, Array]:
    return jax.vmap(lambda state, xs, there: _product(cell, state, xs, there, last))(
        start, inputs, mask
    )


def _product(
    cell: Any, state: Any, inputs: Any, mask: Any, last: int
) -> tuple[Array, Array, Array]:
    r"""For each of the last steps $\log \|\partial z_T / \partial z_{t-1}\|_2$ and the singular
    values of $J_t$.
    """
    z, back = as_vector(state)
    step: Callable[[Any, Any], Any] = lambda z, x: as_vector(cell(back(z), x)[0])[0]

    def onward(z, item):
        x, there = item
        return jnp.where(there, step(z, x), z), z

    def product(carry, item):  # P, scaled to size 1, and the logarithm of its size
        (P, log), (z, x, there) = carry, item
        J = jnp.where(there, jax.jacfwd(step)(z, x), jnp.eye(len(z), dtype=z.dtype))
        sigma = jnp.linalg.svd(J, compute_uv=False)
        P = P @ J
        size = jnp.linalg.norm(P)
        P = P / jnp.where(size > 0, size, 1)
        log = log + jnp.log(size)
        top = jnp.linalg.eigvalsh(P @ P.T)[-1]
        return (P, log), (log + jnp.log(jnp.maximum(top, 1e-30)) / 2, sigma[0], sigma[-1])

    zs = jax.lax.scan(onward, z, (inputs, mask))[1]
    items = jax.tree.map(lambda a: a[-last:], (zs, inputs, mask))
    eye = jnp.eye(len(z), dtype=z.dtype)
    zero = jnp.zeros((), z.dtype)
    return jax.lax.scan(product, (eye, zero), items, reverse=True)[1]
