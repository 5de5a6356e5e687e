r"""Gated recurrent cells (§5.1): LSTM and GRU.

An Elman cell multiplies its state by a matrix at every step, and gradients with it. A gated cell
can copy its state: where its gate is near 1 the state passes unchanged, and so does the gradient.

The gates are stacked along the rows of the weights: i, f, g, o (input, forget, candidate, output)
in an `LSTM`, and r, z, n (reset, update, candidate) in a `GRU`, as in PyTorch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, lecun, orthogonal
from ..linear import matvec
from .elman import Cell, Product


class LSTMState(NamedTuple):
    """The state of an `LSTM`: the hidden state `h`, which is its output, and the cell state `c`."""

    h: Float[Array, " m"]
    c: Float[Array, " m"]


class LSTM(Cell):
    r"""Long short-term memory (§5.1): with the pre-activations
    $(a_i, a_f, a_g, a_o) = V x_t + U h_{t-1} + b$,

    $$i = \sigma(a_i), \quad f = \sigma(a_f), \quad g = \tanh(a_g), \quad o = \sigma(a_o),$$
    $$c_t = f \odot c_{t-1} + i \odot g, \qquad h_t = o \odot \tanh(M c_t).$$

    Without $M$, the identity, it is the standard form (Hochreiter & Schmidhuber 1997, Gers et al.
    2000). Along the cell state alone
    $\partial c_T / \partial c_t = \prod_j \mathrm{diag}\, f_j$.

    Departs: the notes write $\zeta$ for $h$ and $z$ for $c$; they have $M$, called $U$, and no
    bias; they exchange the names of $i$ and $g$; and they say that the gradient cannot vanish,
    which holds only where the forget gates are near 1.

    >>> cell = LSTM.init(3, 5, key=jr.key(0))
    >>> state, y = cell(cell.start, jnp.ones(3))
    >>> y.shape, state.c.shape
    ((5,), (5,))
    """

    U: Float[Array, "g m"]
    V: Float[Array, "g n"]
    b: Float[Array, " g"]
    M: Float[Array, "m m"] | None = None

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        *,
        forget_bias: float = 1.0,
        output_matrix: bool = False,
        initialiser: Initialiser = lecun,
        recurrent_initialiser: Initialiser = orthogonal,
        key: PRNGKeyArray,
    ) -> "LSTM":
        r"""Draws the weights of each gate separately; biases are 0 except that of the forget gate.

        With `output_matrix=True` it has the matrix $M$ of the notes, initially the identity.
        """
        key_U, key_V = jr.split(key)
        b = jnp.zeros(4 * m).at[m : 2 * m].set(forget_bias)
        return cls(
            _draw_gates(recurrent_initialiser, key_U, 4, m, m),
            _draw_gates(initialiser, key_V, 4, m, n),
            b,
            jnp.eye(m) if output_matrix else None,
        )

    def __check_init__(self):
        m = self.U.shape[-1]
        _check_shapes("LSTM", self, 4)
        if self.M is not None and self.M.shape != (m, m):
            raise ValueError(
                f"LSTM: M must be ({m}, {m}), the width of the state; got {self.M.shape}."
            )

    @property
    def start(self) -> LSTMState:
        """The initial state, zero."""
        zero = jnp.zeros(self.U.shape[1], self.U.dtype)
        return LSTMState(h=zero, c=zero)

    @property
    def recurrent_matrices(self) -> Mapping[str, Float[Array, "_ m"]]:
        """$U$, and $M$ if there is one."""
        return {"U": self.U} | ({} if self.M is None else {"M": self.M})

    def project_input(self, x: Float[Array, " n"]) -> Float[Array, " g"]:
        """$Vx + b$."""
        expect_shape("LSTM", x, self.V.shape[1:])
        return matvec(self.V, x) + self.b

    def step(
        self, state: LSTMState, a: Float[Array, " g"], product: Product
    ) -> tuple[LSTMState, Float[Array, " m"]]:
        """The equations above, given the projected input `a`."""
        a_i, a_f, a_g, a_o = jnp.split(a + product("U", state.h), 4)
        i, f, g, o = jax.nn.sigmoid(a_i), jax.nn.sigmoid(a_f), jnp.tanh(a_g), jax.nn.sigmoid(a_o)
        c = f * state.c + i * g
        h = o * jnp.tanh(c if self.M is None else product("M", c))
        return LSTMState(h, c), h


class GRU(Cell):
    r"""The gated recurrent unit (§5.1; Cho et al. 2014): with the projected inputs
    $(a_r, a_z, a_n) = V x_t + b$,

    $$r = \sigma(a_r + U_r h_{t-1}), \quad z = \sigma(a_z + U_z h_{t-1}), \quad
    n = \tanh(a_n + U_n (r \odot h_{t-1})), \quad h_t = z \odot h_{t-1} + (1 - z) \odot n.$$

    With a bias $c$ the reset gate acts after the product,
    $n = \tanh(a_n + r \odot (U_n h_{t-1} + c))$, as in cuDNN and PyTorch: then one product serves
    all gates.

    >>> cell = GRU.init(3, 5, key=jr.key(0))
    >>> cell(cell.start, jnp.ones(3))[1].shape
    (5,)
    """

    U: Float[Array, "g m"]
    V: Float[Array, "g n"]
    b: Float[Array, " g"]
    c: Float[Array, " m"] | None = None

    @classmethod
    def init(
        cls,
        n: int,
        m: int,
        *,
        update_bias: float = 0.0,
        reset_after: bool = False,
        initialiser: Initialiser = lecun,
        recurrent_initialiser: Initialiser = orthogonal,
        key: PRNGKeyArray,
    ) -> "GRU":
        """Draws the weights of each gate separately; biases are 0 except that of the update gate.

        `reset_after=True` is the variant of cuDNN and PyTorch. A positive `update_bias` keeps the
        state for longer.
        """
        key_U, key_V = jr.split(key)
        b = jnp.zeros(3 * m).at[m : 2 * m].set(update_bias)
        c = jnp.zeros(m) if reset_after else None
        return cls(
            _draw_gates(recurrent_initialiser, key_U, 3, m, m),
            _draw_gates(initialiser, key_V, 3, m, n),
            b,
            c,
        )

    def __check_init__(self):
        _check_shapes("GRU", self, 3)
        if self.c is not None and self.c.shape != self.U.shape[1:]:
            raise ValueError(
                f"GRU: c must be {self.U.shape[1:]}, the width of the state; got {self.c.shape}."
            )

    @property
    def start(self) -> Float[Array, " m"]:
        """The initial state, zero."""
        return jnp.zeros(self.U.shape[1], self.U.dtype)

    @property
    def recurrent_matrices(self) -> Mapping[str, Float[Array, "_ m"]]:
        """$U$; without `reset_after`, that of the gates and that of the candidate separately."""
        if self.c is not None:
            return {"U": self.U}
        m = self.U.shape[1]
        return {"gates": self.U[: 2 * m], "candidate": self.U[2 * m :]}

    def project_input(self, x: Float[Array, " n"]) -> Float[Array, " g"]:
        """$Vx + b$."""
        expect_shape("GRU", x, self.V.shape[1:])
        return matvec(self.V, x) + self.b

    def step(
        self, state: Float[Array, " m"], a: Float[Array, " g"], product: Product
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The equations above, given the projected input `a`."""
        m = len(state)
        a_gates, a_n = a[: 2 * m], a[2 * m :]
        if self.c is None:
            r, z = jnp.split(jax.nn.sigmoid(a_gates + product("gates", state)), 2)
            n = jnp.tanh(a_n + product("candidate", r * state))
        else:
            recurrent = product("U", state)
            r, z = jnp.split(jax.nn.sigmoid(a_gates + recurrent[: 2 * m]), 2)
            n = jnp.tanh(a_n + r * (recurrent[2 * m :] + self.c))
        h = z * state + (1 - z) * n
        return h, h


def _draw_gates(
    initialiser: Initialiser, key: PRNGKeyArray, n_gates: int, m: int, n: int
) -> Float[Array, "_ n"]:
    """The (m, n) matrices of all gates, drawn separately and stacked along the rows."""
    return jnp.concatenate([initialiser(key, (m, n)) for key in jr.split(key, n_gates)])


def _check_shapes(name: str, cell: Any, n_gates: int) -> None:
    m = cell.U.shape[-1]
    if (
        cell.U.shape != (n_gates * m, m)
        or cell.V.ndim != 2
        or len(cell.V) != n_gates * m
        or cell.b.shape != (n_gates * m,)
    ):
        raise ValueError(
            f"{name}: U must be ({n_gates}m, m), V ({n_gates}m, n) and b ({n_gates}m,), with "
            f"{n_gates} gates stacked along the rows; got {cell.U.shape}, {cell.V.shape} and "
            f"{cell.b.shape}."
        )
