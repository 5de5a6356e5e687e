"""Cells for long sequences, by name, as the recipes draw them: each begins with a memory of the
right length.
"""

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
    Block,
    Chain,
    Elman,
    LayerNorm,
    Linear,
    MinGRU,
    Stack,
    gelu,
    unroll,
)

QUIET = 0.02


class Reading(eqx.Module):
    r"""$(z, x_t) \mapsto F(z, R(x_t))$: a cell that reads each input through a network.

    >>> k1, k2 = jr.split(jr.key(0))
    >>> cell = Reading(Linear.init(2, 4, key=k1), LRU.init(4, 8, 3, key=k2))
    >>> unroll(cell, jnp.ones((7, 2)))[1].shape
    (7, 3)
    """

    network: Any
    cell: Any

    @property
    def start(self) -> Any:
        """That of the cell within."""
        return self.cell.start

    def __call__(self, state: Any, x: Any) -> tuple[Any, Any]:
        return self.cell(state, self.network(x))

    def along(self, state: Any, xs: Any, mask: Any) -> tuple[Any, Any]:
        """All inputs are read at once."""
        return unroll(self.cell, jax.vmap(lambda x: self.network(x))(xs), state=state, mask=mask)


def elman(n: int, m: int, *, times: int, key: PRNGKeyArray) -> Elman:
    """An `Elman` cell as it is drawn by default."""
    return Elman.init(n, m, key=key)


def lstm(n: int, m: int, *, times: int, key: PRNGKeyArray) -> LSTM:
    """An `LSTM` whose forget gates begin with memories of all lengths up to `times`; the input
    gates match.
    """
    key_cell, key_span = jr.split(key)
    span = _spans(m, times, key_span)
    cell = LSTM.init(n, m, key=key_cell)
    return LSTM(cell.U, cell.V, jnp.zeros(4 * m).at[: 2 * m].set(jnp.concatenate([-span, span])))


def gru(n: int, m: int, *, times: int, key: PRNGKeyArray) -> GRU:
    """A `GRU` whose gates begin with memories of all lengths up to `times`."""
    key_cell, key_span = jr.split(key)
    cell = GRU.init(n, m, key=key_cell)
    return GRU(cell.U, cell.V, jnp.zeros(3 * m).at[m : 2 * m].set(_spans(m, times, key_span)))


def lru(n: int, m: int, *, times: int, key: PRNGKeyArray) -> Reading:
    """An `LRU` with memories from `times` to a hundred times that, which reads its inputs through a
    hidden layer.

    It begins with states that turn at most once in `times` steps, for what is to be kept does not
    oscillate; inputs that are not white add up in so long a memory, so it puts out little at first.
    """
    key_in, key_hidden, key_cell = jr.split(key, 3)
    read = Chain(Linear.init(n, m, key=key_in), gelu, Linear.init(m, m, key=key_hidden))
    cell = LRU.init(m, m, m, radius=(1 - 1 / (times + 1), 1 - 0.01 / (times + 1)), key=key_cell)
    return Reading(read, LRU(cell.nu, cell.phi / times, cell.C, QUIET * cell.G))


def blocks(unit: str, depth: int) -> Callable[..., Reading]:
    """As many residual blocks of an `LRU` or a `MinGRU`, for linear recurrences need something
    between them.

    They begin with memories of all lengths up to `times`: what is longer would not be the same on
    longer sequences.
    """

    def draw(n: int, m: int, *, times: int, key: PRNGKeyArray) -> Reading:
        key_in, *keys = jr.split(key, 2 * depth + 1)
        inside = {
            "lru": lambda key: LRU.init(m, m, m, radius=(0.5, 1 - 1 / (times + 2)), key=key),
            "mingru": lambda key: MinGRU(*_spread(MinGRU.init(m, m, key=key), times, key)),
        }[unit]
        after = lambda key: Chain(gelu, Linear.init(m, m, key=key))
        parts = [
            Block(LayerNorm.init(m), inside(one), after(two))
            for one, two in zip(keys[::2], keys[1::2])
        ]
        return Reading(Linear.init(n, m, key=key_in), Stack(*parts))

    return draw


def _spread(cell: MinGRU, times: int, key: PRNGKeyArray) -> tuple[Array, Array, Array, Array]:
    return cell.G, cell.V, _spans(len(cell.g), times, key), cell.v


def _spans(m: int, times: int, key: PRNGKeyArray) -> Float[Array, " m"]:
    r"""$\log u$ with $u$ uniform up to `times`: a gate $\sigma(\log u)$ remembers for about $u$
    steps.

    Tallec & Ollivier 2018.
    """
    return jnp.log(jr.uniform(key, (m,), minval=1.0, maxval=max(2.0, times - 1.0)))
