r"""Recurrent cells that are Euler steps of a stable differential equation (§5), so that the
gradient neither vanishes nor explodes.

$\dot z = \varphi(Az + Vx + b)$ with an antisymmetric $A$ rotates states and does not stretch them:
the eigenvalues of its Jacobian are imaginary. A little damping, $-\gamma I$, makes the steps of
Euler's method stable too.
"""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, lecun
from ..linear import matvec
from .elman import Cell, Product


class AntisymmetricRNN(Cell):
    r"""The antisymmetric RNN,
    $z_t = z_{t-1} + \varepsilon \tanh((W - W^\top - \gamma I) z_{t-1} + V x_t + b)$ (Chang et al.
    2019). `step_size` is $\varepsilon$ and `damping` is $\gamma$.

    >>> cell = AntisymmetricRNN.init(3, 5, key=jr.key(0))
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
    ) -> "AntisymmetricRNN":
        """Draws $W$ and $V$ with the initialiser; $b = 0$."""
        key_W, key_V = jr.split(key)
        return cls(
            initialiser(key_W, (m, m)), initialiser(key_V, (m, n)), jnp.zeros(m), step_size, damping
        )

    @property
    def start(self) -> Float[Array, " m"]:
        """The initial state, zero."""
        return jnp.zeros_like(self.b)

    @property
    def recurrent_matrices(self) -> Mapping[str, Float[Array, "m m"]]:
        r"""$W - W^\top - \gamma I$."""
        return {"A": self.W - self.W.T - self.damping * jnp.eye(len(self.W), dtype=self.W.dtype)}

    def project_input(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        """$Vx + b$."""
        expect_shape("AntisymmetricRNN", x, self.V.shape[1:])
        return matvec(self.V, x) + self.b

    def step(
        self, state: Float[Array, " m"], a: Float[Array, " m"], product: Product
    ) -> tuple[Array, Array]:
        """One step of Euler's method."""
        z = state + self.step_size * jnp.tanh(a + product("A", state))
        return z, z


class LipschitzRNN(Cell):
    r"""The Lipschitz RNN,
    $z_t = z_{t-1} + \varepsilon (A z_{t-1} + \tanh(W z_{t-1} + V x_t + b))$ (Erichson et al. 2021).

    $A$ and $W$ are $(1 - \beta)(M + M^\top) + \beta(M - M^\top) - \gamma I$, each with its own
    $M$: the symmetric part, by which states grow or decay, has the eigenvalues
    $2(1 - \beta)\,\mathrm{eig}(\mathrm{sym} M) - \gamma$. `step_size` is $\varepsilon$, `skew` is
    $\beta$ and `damping` is $\gamma$.

    >>> cell = LipschitzRNN.init(3, 5, key=jr.key(0))
    >>> cell(cell.start, jnp.ones(3))[1].shape
    (5,)
    """

    M: Float[Array, "2 m m"]  # the matrices M of A and of W
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
    ) -> "LipschitzRNN":
        """Draws the matrices with the initialiser; $b = 0$."""
        key_A, key_W, key_V = jr.split(key, 3)
        M = jnp.stack([initialiser(key_A, (m, m)), initialiser(key_W, (m, m))])
        return cls(M, initialiser(key_V, (m, n)), jnp.zeros(m), step_size, skew, damping)

    @property
    def start(self) -> Float[Array, " m"]:
        """The initial state, zero."""
        return jnp.zeros_like(self.b)

    @property
    def recurrent_matrices(self) -> Mapping[str, Float[Array, "m m"]]:
        """$A$ and $W$."""
        return {"A": self._mix(self.M[0]), "W": self._mix(self.M[1])}

    def _mix(self, M: Float[Array, "m m"]) -> Float[Array, "m m"]:
        mixed = (1 - self.skew) * (M + M.T) + self.skew * (M - M.T)
        return mixed - self.damping * jnp.eye(len(M), dtype=M.dtype)

    def project_input(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        """$Vx + b$."""
        expect_shape("LipschitzRNN", x, self.V.shape[1:])
        return matvec(self.V, x) + self.b

    def step(
        self, state: Float[Array, " m"], a: Float[Array, " m"], product: Product
    ) -> tuple[Array, Array]:
        """One step of Euler's method."""
        z = state + self.step_size * (product("A", state) + jnp.tanh(a + product("W", state)))
        return z, z
