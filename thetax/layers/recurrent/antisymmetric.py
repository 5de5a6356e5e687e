r"""Recurrences that are steps of a stable differential equation (§5): the gradient neither vanishes
nor explodes.

$\dot z = \varphi(Az + Vx + b)$ with an antisymmetric $A$ turns states round and does not stretch
them: the eigenvalues of its Jacobian are imaginary. A little damping, $-\gamma I$, makes the steps
of Euler's method stable too.
"""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, lecun
from ..linear import dense
from .elman import Cell, Product


class Antisymmetric(Cell):
    r"""$z_t = z_{t-1} + \varepsilon \tanh((W - W^\top - \gamma I) z_{t-1} + V x_t + b)$ (Chang et
    al. 2019).

    >>> cell = Antisymmetric.init(3, 5, key=jr.key(0))
    >>> cell(cell.start, jnp.ones(3))[1].shape
    (5,)
    """

    W: Float[Array, "m m"]
    V: Float[Array, "m n"]
    b: Float[Array, " m"]
    step_size: float = eqx.field(static=True, default=0.1)
    damping: float = eqx.field(static=True, default=0.01)

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        *,
        step_size: float = 0.1,
        damping: float = 0.01,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "Antisymmetric":
        """Draws $W$ and $V$ from the law."""
        key_W, key_V = jr.split(key)
        return cls(
            initialiser(key_W, (m, m)), initialiser(key_V, (m, n)), jnp.zeros(m), step_size, damping
        )

    @property
    def start(self) -> Float[Array, " m"]:
        """Zero."""
        return jnp.zeros_like(self.b)

    @property
    def memory(self) -> Mapping[str, Float[Array, "m m"]]:
        r"""$W - W^\top - \gamma I$."""
        return {"A": self.W - self.W.T - self.damping * jnp.eye(len(self.W), dtype=self.W.dtype)}

    def read(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        """$Vx + b$."""
        expect_shape("Antisymmetric", x, self.V.shape[1:])
        return dense(self.V, x) + self.b

    def step(
        self, state: Float[Array, " m"], a: Float[Array, " m"], product: Product
    ) -> tuple[Array, Array]:
        """A step of Euler's method."""
        z = state + self.step_size * jnp.tanh(a + product("A", state))
        return z, z


class Lipschitz(Cell):
    r"""$z_t = z_{t-1} + \varepsilon (A z_{t-1} + \tanh(W z_{t-1} + V x_t + b))$ (Erichson et al.
    2021).

    $A$ and $W$ are $(1 - \beta)(M + M^\top) + \beta(M - M^\top) - \gamma I$, each of its own $M$:
    the symmetric part, by which states grow or fade, has the eigenvalues
    $2(1 - \beta)\,\mathrm{eig}(\mathrm{sym} M) - \gamma$.

    >>> cell = Lipschitz.init(3, 5, key=jr.key(0))
    >>> cell(cell.start, jnp.ones(3))[1].shape
    (5,)
    """

    M: Float[Array, "2 m m"]  # of A, and of W
    V: Float[Array, "m n"]
    b: Float[Array, " m"]
    step_size: float = eqx.field(static=True, default=0.1)
    skew: float = eqx.field(static=True, default=0.75)
    damping: float = eqx.field(static=True, default=0.001)

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        *,
        step_size: float = 0.1,
        skew: float = 0.75,
        damping: float = 0.001,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "Lipschitz":
        """Draws the matrices from the law."""
        key_A, key_W, key_V = jr.split(key, 3)
        M = jnp.stack([initialiser(key_A, (m, m)), initialiser(key_W, (m, m))])
        return cls(M, initialiser(key_V, (m, n)), jnp.zeros(m), step_size, skew, damping)

    @property
    def start(self) -> Float[Array, " m"]:
        """Zero."""
        return jnp.zeros_like(self.b)

    @property
    def memory(self) -> Mapping[str, Float[Array, "m m"]]:
        """$A$ and $W$."""
        return {"A": self._split(self.M[0]), "W": self._split(self.M[1])}

    def _split(self, M: Float[Array, "m m"]) -> Float[Array, "m m"]:
        parts = (1 - self.skew) * (M + M.T) + self.skew * (M - M.T)
        return parts - self.damping * jnp.eye(len(M), dtype=M.dtype)

    def read(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        """$Vx + b$."""
        expect_shape("Lipschitz", x, self.V.shape[1:])
        return dense(self.V, x) + self.b

    def step(
        self, state: Float[Array, " m"], a: Float[Array, " m"], product: Product
    ) -> tuple[Array, Array]:
        """A step of Euler's method."""
        z = state + self.step_size * (product("A", state) + jnp.tanh(a + product("W", state)))
        return z, z
