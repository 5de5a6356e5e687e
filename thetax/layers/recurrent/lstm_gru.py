r"""Gates (§5.1): $z \leftarrow s \odot z$ with $s \in (0, 1)^m$, so that what is to be kept is
kept.

An Elman cell multiplies its state by a matrix at every step, and gradients with it. A gated cell
can copy: where its gate is near 1 the state passes unchanged, and so does the gradient.

The blocks of the weights lie below one another in the usual order: input, forget, candidate, output
in an `LSTM`, and reset, keep, candidate in a `GRU`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, lecun, orthogonal
from ..linear import dense
from .elman import Cell, Product


class Kept(NamedTuple):
    r"""What an `LSTM` remembers: $\zeta$, which it shows, and the cell $z$, which it keeps."""

    shown: Float[Array, " m"]
    cell: Float[Array, " m"]


class LSTM(Cell):
    r"""Long short-term memory (§5.1): with $i, f, g, o$ the four blocks of
    $V x_t + U \zeta_{t-1} + b$,

    $$z_t = \sigma(f) \odot z_{t-1} + \sigma(i) \odot \tanh(g), \qquad \zeta_t = \sigma(o) \odot
    \tanh(M z_t).$$

    Without $M$, which is then the identity, it is the standard form (Hochreiter & Schmidhuber 1997,
    Gers et al. 2000). Along the cell alone
    $\partial z_T / \partial z_t = \prod_j \mathrm{diag}\, \sigma(f_j)$.

    Departs: the notes have $M$, called $U$, and no offset; they exchange the names of $\sigma(i)$
    and $\tanh(g)$; and they say that the gradient cannot vanish: it need not, where the forget
    gates are near 1.

    >>> cell = LSTM.init(3, 5, key=jr.key(0))
    >>> state, y = cell(cell.start, jnp.ones(3))
    >>> y.shape, state.cell.shape
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
        forget: float = 1.0,
        mixed: bool = False,
        initialiser: Initialiser = lecun,
        recurrent_initialiser: Initialiser = orthogonal,
        key: PRNGKeyArray,
    ) -> "LSTM":
        r"""Draws the blocks each by itself; the offset of the forget gate begins at `forget`, the
        others at 0.

        `mixed` gives it the matrix $M$ of the notes, which begins as the identity.
        """
        key_U, key_V = jr.split(key)
        b = jnp.zeros(4 * m).at[m : 2 * m].set(forget)
        return cls(
            _blocks(recurrent_initialiser, key_U, 4, m, m),
            _blocks(initialiser, key_V, 4, m, n),
            b,
            jnp.eye(m) if mixed else None,
        )

    def __check_init__(self):
        m = self.U.shape[-1]
        _check("LSTM", self, 4)
        if self.M is not None and self.M.shape != (m, m):
            raise ValueError(
                f"LSTM: M must be ({m}, {m}), as large as the state; got {self.M.shape}."
            )

    @property
    def start(self) -> Kept:
        """Zero."""
        zero = jnp.zeros(self.U.shape[1], self.U.dtype)
        return Kept(zero, zero)

    @property
    def memory(self) -> Mapping[str, Float[Array, "_ m"]]:
        """$U$, and $M$ if there is one."""
        return {"U": self.U} | ({} if self.M is None else {"M": self.M})

    def read(self, x: Float[Array, " n"]) -> Float[Array, " g"]:
        """$Vx + b$."""
        expect_shape("LSTM", x, self.V.shape[1:])
        return dense(self.V, x) + self.b

    def step(
        self, state: Kept, a: Float[Array, " g"], product: Product
    ) -> tuple[Kept, Float[Array, " m"]]:
        """The equations above, after what was read."""
        i, f, g, o = jnp.split(a + product("U", state.shown), 4)
        z = jax.nn.sigmoid(f) * state.cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        shown = jax.nn.sigmoid(o) * jnp.tanh(z if self.M is None else product("M", z))
        return Kept(shown, z), shown


class GRU(Cell):
    r"""The gated recurrent unit (§5.1; Cho et al. 2014): with $r, s, v$ the blocks of $Vx_t + b$,

    $$\zeta = \sigma(r + U_r z_{t-1}), \quad s = \sigma(s + U_s z_{t-1}), \quad
    \tilde z = \tanh(v + U_v (\zeta \odot z_{t-1})), \quad z_t = s \odot z_{t-1} + (1 - s) \odot
    \tilde z.$$

    So $s$ keeps. With an offset $c$ the reset comes after the product,
    $\tilde z = \tanh(v + \zeta \odot (U_v z_{t-1} + c))$, as in cuDNN and PyTorch: then one product
    serves all blocks.

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
        keep: float = 0.0,
        reset_after: bool = False,
        initialiser: Initialiser = lecun,
        recurrent_initialiser: Initialiser = orthogonal,
        key: PRNGKeyArray,
    ) -> "GRU":
        """Draws the blocks each by itself; the offset of the gate that keeps begins at `keep`, the
        others at 0.
        """
        key_U, key_V = jr.split(key)
        b = jnp.zeros(3 * m).at[m : 2 * m].set(keep)
        c = jnp.zeros(m) if reset_after else None
        return cls(
            _blocks(recurrent_initialiser, key_U, 3, m, m),
            _blocks(initialiser, key_V, 3, m, n),
            b,
            c,
        )

    def __check_init__(self):
        _check("GRU", self, 3)
        if self.c is not None and self.c.shape != self.U.shape[1:]:
            raise ValueError(
                f"GRU: c must be {self.U.shape[1:]}, as large as the state; got {self.c.shape}."
            )

    @property
    def start(self) -> Float[Array, " m"]:
        """Zero."""
        return jnp.zeros(self.U.shape[1], self.U.dtype)

    @property
    def memory(self) -> Mapping[str, Float[Array, "_ m"]]:
        """$U$; where the reset comes first, its last block by itself."""
        if self.c is not None:
            return {"U": self.U}
        m = self.U.shape[1]
        return {"gates": self.U[: 2 * m], "candidate": self.U[2 * m :]}

    def read(self, x: Float[Array, " n"]) -> Float[Array, " g"]:
        """$Vx + b$."""
        expect_shape("GRU", x, self.V.shape[1:])
        return dense(self.V, x) + self.b

    def step(
        self, state: Float[Array, " m"], a: Float[Array, " g"], product: Product
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The equations above, after what was read."""
        m = len(state)
        if self.c is None:
            reset, keep = jnp.split(jax.nn.sigmoid(a[: 2 * m] + product("gates", state)), 2)
            new = jnp.tanh(a[2 * m :] + product("candidate", reset * state))
        else:
            past = product("U", state)
            reset, keep = jnp.split(jax.nn.sigmoid(a[: 2 * m] + past[: 2 * m]), 2)
            new = jnp.tanh(a[2 * m :] + reset * (past[2 * m :] + self.c))
        z = keep * state + (1 - keep) * new
        return z, z


def _blocks(
    initialiser: Initialiser, key: PRNGKeyArray, count: int, m: int, n: int
) -> Float[Array, "_ n"]:
    """Matrices of one law below one another."""
    return jnp.concatenate([initialiser(key, (m, n)) for key in jr.split(key, count)])


def _check(name: str, cell: Any, blocks: int) -> None:
    m = cell.U.shape[-1]
    if (
        cell.U.shape != (blocks * m, m)
        or cell.V.ndim != 2
        or len(cell.V) != blocks * m
        or cell.b.shape != (blocks * m,)
    ):
        raise ValueError(
            f"{name}: U must be ({blocks}m, m), V ({blocks}m, n) and b ({blocks}m,), {blocks} "
            f"blocks below one another; got {cell.U.shape}, {cell.V.shape} and {cell.b.shape}."
        )
