r"""What a network remembers (§5): one cell used again at every time, its state carried on.

A cell is a map `(state, x) -> (state, y)`, as `lax.scan` wants it, and says by `cell.start` what it remembers at
the beginning. `unroll` runs a cell along a sequence, and `Recurrent` is that as a layer.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import expect_shape
from .activation import Activation, tanh
from .initialise import Law, lecun, orthogonal
from .linear import dense


class Elman(eqx.Module):
    r"""$z_t = \varphi(U z_{t-1} + V x_t + b)$: the simple recurrent cell, which puts out its state (§5; Elman 1990).

    Departs: the notes have no offset $b$.

    >>> cell = Elman(jnp.array([[0.5]]), jnp.array([[1.0]]), jnp.zeros(1), jax.nn.relu)
    >>> state, y = cell(jnp.array([2.0]), jnp.array([3.0]))
    >>> state.tolist(), y.tolist()
    ([4.0], [4.0])
    """

    U: Float[Array, "m m"]
    V: Float[Array, "m n"]
    b: Float[Array, " m"]
    activation: Activation = eqx.field(static=True, default=tanh)

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        *,
        activation: Activation = tanh,
        law: Law = lecun,
        remember: Law = orthogonal,
        key: PRNGKeyArray,
    ) -> "Elman":
        r"""Draws $V_0$ and $b_0$ from the `law` and $U_0$ from `remember`: an orthogonal one keeps every norm."""
        key_U, key_V, key_b = jr.split(key, 3)
        return cls(remember(key_U, (m, m)), law(key_V, (m, n)), law.bias(key_b, m), activation)

    def __check_init__(self):
        m = len(self.b)
        if self.U.shape != (m, m) or self.V.ndim != 2 or len(self.V) != m:
            raise ValueError(
                f"Elman: U must be (m, m), V (m, n) and b (m,); got {self.U.shape}, {self.V.shape} and {self.b.shape}. "
                "The number of rows is the size of the state."
            )

    @property
    def start(self) -> Float[Array, " m"]:
        """The state before anything was read: zero."""
        return jnp.zeros_like(self.b)

    def __call__(self, z: Float[Array, " m"], x: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        expect_shape("Elman", x, self.V.shape[1:])
        z = self.activation(dense(self.U, z) + dense(self.V, x) + self.b)
        return z, z


def unroll(cell: Any, xs: Float[Array, "t n"], *, state: Any = None) -> tuple[Any, Any]:
    r"""The cell run along $x_1, \dots, x_T$: its last state, and all it put out, $y_1, \dots, y_T$ (§5).

    It begins at `state`, or else at the cell's own start; where one stretch ends the next may begin.

    >>> total = Elman(jnp.eye(1), jnp.eye(1), jnp.zeros(1), jax.nn.identity)
    >>> state, ys = unroll(total, jnp.array([[1.0], [2.0], [3.0]]))
    >>> state.tolist(), ys.ravel().tolist()
    ([6.0], [1.0, 3.0, 6.0])
    """
    if xs.ndim != 2:
        raise ValueError(f"unroll: expected one sequence (t, n), got {xs.shape}; map over a batch with jax.vmap.")
    return jax.lax.scan(lambda state, x: cell(state, x), cell.start if state is None else state, xs)


class Recurrent(eqx.Module):
    r"""The layer $(x_1, \dots, x_T) \mapsto (y_1, \dots, y_T)$ of a cell, from its start; any $T$ will do (§5).

    >>> layer = Recurrent(Elman.init(3, 5, key=jr.key(0)))
    >>> layer(jnp.ones((7, 3))).shape
    (7, 5)
    """

    cell: Any

    def __call__(self, xs: Float[Array, "t n"]) -> Float[Array, "t m"]:
        return unroll(self.cell, xs)[1]
