r"""Layers made of cells, and cells made of cells (§5): recurrent layers, bidirectional layers,
stacked cells, residual cells, truncated backpropagation through time.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ...check import expect_count
from .elman import check_cell, unroll


class Recurrent(eqx.Module):
    r"""A recurrent layer: maps a sequence $(x_1, \dots, x_T)$ of any length to the outputs
    $(y_1, \dots, y_T)$ of a cell that starts at its initial state (§5).

    With `reverse=True` the sequence is read from its end, so an output depends on later inputs.

    >>> import jax.random as jr
    >>> from thetax.layers import Elman
    >>> layer = Recurrent(Elman.init(3, 5, key=jr.key(0)))
    >>> layer(jnp.ones((7, 3))).shape
    (7, 5)
    """

    is_leaf_module: ClassVar[bool] = True

    cell: Any
    reverse: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_cell("Recurrent", self.cell)

    def __call__(
        self, xs: Float[Array, "t n"] | Int[Array, " t"], *, mask: Bool[Array, " t"] | None = None
    ) -> Float[Array, "t m"]:
        return unroll(self.cell, xs, mask=mask, reverse=self.reverse)[1]


class Bidirectional(eqx.Module):
    r"""A bidirectional recurrent layer, $[y_t^\to, y_t^\leftarrow]$: one cell reads the sequence
    forwards, another backwards, so each output depends on all inputs (§5; Schuster & Paliwal 1997).

    >>> import jax.random as jr
    >>> from thetax.layers import Elman
    >>> k1, k2 = jr.split(jr.key(0))
    >>> Bidirectional(Elman.init(3, 5, key=k1), Elman.init(3, 5, key=k2))(jnp.ones((7, 3))).shape
    (7, 10)
    """

    is_leaf_module: ClassVar[bool] = True

    forward: Any
    backward: Any

    def __check_init__(self):
        check_cell("Bidirectional", self.forward, self.backward)

    def scan(self, xs: Any, mask: Any) -> tuple[tuple[Any, Any], Any]:
        """The last states of both cells, and the concatenated outputs."""
        forward_state, forward_ys = unroll(self.forward, xs, mask=mask)
        backward_state, backward_ys = unroll(self.backward, xs, mask=mask, reverse=True)
        ys = jnp.concatenate([forward_ys, backward_ys], axis=1)
        return (forward_state, backward_state), ys

    def __call__(
        self, xs: Float[Array, "t n"], *, mask: Bool[Array, " t"] | None = None
    ) -> Float[Array, "t m"]:
        return self.scan(xs, mask)[1]


class StackedCells(eqx.Module):
    r"""A multi-layer recurrent cell: the output of each cell is the input of the next,
    $z_{t,\ell} = F_\ell(z_{t-1,\ell}, z_{t,\ell-1})$ with $z_{t,0} = x_t$ (§5).

    >>> import jax.random as jr
    >>> from thetax.layers import Elman
    >>> k1, k2 = jr.split(jr.key(0))
    >>> cell = StackedCells(Elman.init(3, 5, key=k1), Elman.init(5, 2, key=k2))
    >>> unroll(cell, jnp.ones((7, 3)))[1].shape
    (7, 2)
    """

    cells: tuple[Any, ...]

    def __init__(self, *cells: Any):
        self.cells = cells

    def __check_init__(self):
        check_cell("StackedCells", *self.cells)

    @property
    def start(self) -> tuple[Any, ...]:
        """The initial states of all cells."""
        return tuple(cell.start for cell in self.cells)

    def __call__(self, state: tuple[Any, ...], x: Any) -> tuple[Any, Any]:
        states = []
        for cell, z in zip(self.cells, state, strict=True):
            z, x = cell(z, x)
            states.append(z)
        return tuple(states), x

    def scan(self, state: tuple[Any, ...], xs: Any, mask: Any) -> tuple[Any, Any]:
        """Runs one cell after the other, each along the whole sequence."""
        states = []
        for cell, z in zip(self.cells, state, strict=True):
            z, xs = unroll(cell, xs, state=z, mask=mask)
            states.append(z)
        return tuple(states), xs


class DeepTransition(eqx.Module):
    r"""A deep-transition cell, $z_t = F([z_{t-1}, x_t])$ with any network $F$ (§5; Pascanu et al.
    2014). `size` is the width of the state.

    >>> from thetax.layers import Linear
    >>> cell = DeepTransition(Linear(jnp.array([[1.0, 1.0]])), 1)
    >>> unroll(cell, jnp.array([[1.0], [2.0]]))[1].tolist()
    [[1.0], [3.0]]
    """

    inner: Any
    size: int = eqx.field(static=True)

    @property
    def start(self) -> Float[Array, " m"]:
        """The initial state, zero."""
        return jnp.zeros(self.size)

    def __call__(
        self, z: Float[Array, " m"], x: Float[Array, " n"]
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        z = self.inner(jnp.concatenate([z, x]))
        return z, z


class ResidualCell(eqx.Module):
    r"""A residual block around a cell: the output is $x_t + F(y_t)$, with $y_t$ the output of the
    cell for the normalised $x_t$; many can be stacked (§2.4, §5.2; Orvieto et al. 2023).

    `after` is $F$, which maps back to the width of $x$.

    >>> import jax.random as jr
    >>> from thetax.layers import LRU, LayerNorm, Linear
    >>> k1, k2 = jr.split(jr.key(0))
    >>> lru = LRU.init(3, 8, 5, key=k1)
    >>> cell = ResidualCell(LayerNorm.init(3), lru, Linear.init(5, 3, key=k2))
    >>> unroll(cell, jnp.ones((7, 3)))[1].shape
    (7, 3)
    """

    normalise: Any
    cell: Any
    after: Any

    def __check_init__(self):
        check_cell("ResidualCell", self.cell)

    @property
    def start(self) -> Any:
        """The initial state of the cell."""
        return self.cell.start

    def __call__(self, state: Any, x: Any) -> tuple[Any, Any]:
        state, y = self.cell(state, self.normalise(x))
        return state, x + self.after(y)

    def scan(self, state: Any, xs: Any, mask: Any) -> tuple[Any, Any]:
        """Runs the cell along the sequence; the rest is mapped over all time steps at once."""
        state, ys = unroll(self.cell, jax.vmap(self.normalise)(xs), state=state, mask=mask)
        ys = xs + jax.vmap(lambda y: self.after(y))(ys)
        return state, ys if mask is None else jnp.where(mask[:, None], ys, 0)


class TruncatedBPTT(eqx.Module):
    r"""Truncated backpropagation through time: the same cell, whose gradient goes back through at
    most `steps` time steps (§5; Williams & Peng 1990).

    The sequence is cut into windows of `steps` time steps. The state passes from one window to the
    next, its gradient does not; the gradient of a given initial state does pass into the first.

    >>> from thetax.layers import Elman
    >>> total = Elman(jnp.eye(1), jnp.eye(1), jnp.zeros(1), jax.nn.identity)
    >>> end = lambda xs: unroll(TruncatedBPTT(total, 2), xs)[0].sum()
    >>> jax.grad(end)(jnp.ones((5, 1))).ravel().tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0]
    """

    cell: Any
    steps: int = eqx.field(static=True)

    def __check_init__(self):
        check_cell("TruncatedBPTT", self.cell)
        expect_count("TruncatedBPTT", steps=self.steps)

    @property
    def start(self) -> Any:
        """The initial state of the cell."""
        return self.cell.start

    def __call__(self, state: Any, x: Any) -> tuple[Any, Any]:
        return self.cell(state, x)

    def scan(self, state: Any, xs: Any, mask: Any) -> tuple[Any, Any]:
        """Runs the whole windows in a scan, then the remaining time steps."""
        whole = len(xs) - len(xs) % self.steps

        def run_window(state, window):
            index, xs, mask = window
            keep_first = lambda z: jnp.where(index == 0, z, jax.lax.stop_gradient(z))
            return unroll(self.cell, xs, state=jax.tree.map(keep_first, state), mask=mask)

        split = lambda a: a[:whole].reshape(-1, self.steps, *a.shape[1:])
        parts = []
        if whole:
            windows = jnp.arange(whole // self.steps), *jax.tree.map(split, (xs, mask))
            state, ys = jax.lax.scan(run_window, state, windows)
            parts.append(jax.tree.map(lambda y: y.reshape(whole, *y.shape[2:]), ys))
        if whole < len(xs):
            rest = jax.tree.map(lambda a: a[whole:], (xs, mask))
            state, ys = run_window(state, (whole, *rest))
            parts.append(ys)
        return state, jax.tree.map(lambda *ys: jnp.concatenate(ys), *parts)
