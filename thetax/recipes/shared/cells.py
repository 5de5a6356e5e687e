"""Recurrent cells whose initial memory is as long as the sequences of a task."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...layers import (
    GRU,
    LRU,
    LSTM,
    Chain,
    Elman,
    LayerNorm,
    Linear,
    MinGRU,
    ResidualCell,
    StackedCells,
    gelu,
    unroll,
)

LRU_INPUT_SCALE = 0.02


class CellWithInputNetwork(eqx.Module):
    r"""$(z, x_t) \mapsto F(z, R(x_t))$: a cell $F$ with a network $R$ applied to each input.

    >>> k1, k2 = jr.split(jr.key(0))
    >>> cell = CellWithInputNetwork(Linear.init(2, 4, key=k1), LRU.init(4, 8, 3, key=k2))
    >>> unroll(cell, jnp.ones((7, 2)))[1].shape
    (7, 3)
    """

    network: Any
    cell: Any

    @property
    def start(self) -> Any:
        """The initial state of the inner cell."""
        return self.cell.start

    def __call__(self, state: Any, x: Any) -> tuple[Any, Any]:
        return self.cell(state, self.network(x))

    def scan(self, state: Any, xs: Any, mask: Any) -> tuple[Any, Any]:
        """Applies the network to all inputs at once."""
        return unroll(self.cell, jax.vmap(lambda x: self.network(x))(xs), state=state, mask=mask)


def elman(n: int, m: int, *, timescale: int, key: PRNGKeyArray) -> Elman:
    """An `Elman` cell with the default initialisation."""
    return Elman.init(n, m, key=key)


def lstm(n: int, m: int, *, timescale: int, key: PRNGKeyArray) -> LSTM:
    """An `LSTM` with forget gates of all timescales up to `timescale` (chrono initialisation); the
    biases of the input gates are the negative ones.
    """
    key_cell, key_bias = jr.split(key)
    bias = _timescale_bias(m, timescale, key_bias)
    cell = LSTM.init(n, m, key=key_cell)
    return LSTM(cell.U, cell.V, jnp.zeros(4 * m).at[: 2 * m].set(jnp.concatenate([-bias, bias])))


def gru(n: int, m: int, *, timescale: int, key: PRNGKeyArray) -> GRU:
    """A `GRU` with gates of all timescales up to `timescale` (chrono initialisation)."""
    key_cell, key_bias = jr.split(key)
    cell = GRU.init(n, m, key=key_cell)
    bias = _timescale_bias(m, timescale, key_bias)
    return GRU(cell.U, cell.V, jnp.zeros(3 * m).at[m : 2 * m].set(bias))


def lru(n: int, m: int, *, timescale: int, key: PRNGKeyArray) -> CellWithInputNetwork:
    """An `LRU` with timescales from `timescale` to a hundred times that, after a network with a
    hidden layer.

    The initial phases are at most one turn in `timescale` steps, since what has to be remembered
    does not oscillate. The input scale is small, since correlated inputs accumulate in a long
    memory.
    """
    key_in, key_hidden, key_cell = jr.split(key, 3)
    network = Chain(Linear.init(n, m, key=key_in), gelu, Linear.init(m, m, key=key_hidden))
    cell = LRU.init(
        m, m, m, radius=(1 - 1 / (timescale + 1), 1 - 0.01 / (timescale + 1)), key=key_cell
    )
    return CellWithInputNetwork(
        network, LRU(cell.nu, cell.phi / timescale, cell.C, LRU_INPUT_SCALE * cell.G)
    )


def residual_blocks(unit: str, depth: int) -> Callable[..., CellWithInputNetwork]:
    """Residual blocks of an `LRU` or a `MinGRU` with a nonlinear layer after each recurrence.

    The initial timescales are at most `timescale`, so that the cell behaves alike on longer
    sequences.
    """

    def init(n: int, m: int, *, timescale: int, key: PRNGKeyArray) -> CellWithInputNetwork:
        key_in, *keys = jr.split(key, 2 * depth + 1)
        init_unit = {
            "lru": lambda key: LRU.init(m, m, m, radius=(0.5, 1 - 1 / (timescale + 2)), key=key),
            "mingru": lambda key: _with_timescales(MinGRU.init(m, m, key=key), timescale, key),
        }[unit]
        init_layer = lambda key: Chain(gelu, Linear.init(m, m, key=key))
        blocks = [
            ResidualCell(LayerNorm.init(m), init_unit(key_unit), init_layer(key_layer))
            for key_unit, key_layer in zip(keys[::2], keys[1::2])
        ]
        return CellWithInputNetwork(Linear.init(n, m, key=key_in), StackedCells(*blocks))

    return init


def _with_timescales(cell: MinGRU, timescale: int, key: PRNGKeyArray) -> MinGRU:
    return MinGRU(cell.G, cell.V, _timescale_bias(len(cell.g), timescale, key), cell.v)


def _timescale_bias(m: int, timescale: int, key: PRNGKeyArray) -> Float[Array, " m"]:
    r"""$\log u$ with $u$ uniform up to `timescale`: a gate $\sigma(\log u)$ has a timescale of
    about $u$ steps (Tallec & Ollivier 2018).
    """
    return jnp.log(jr.uniform(key, (m,), minval=1.0, maxval=max(2.0, timescale - 1.0)))
