r"""Layers made of cells, and cells made of cells (§5): along a sequence, both ways, on top of one
another.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .elman import check_cell, unroll


class Recurrent(eqx.Module):
    r"""The layer $(x_1, \dots, x_T) \mapsto (y_1, \dots, y_T)$ of a cell, from its start; any $T$
    will do (§5).

    In `reverse` what it puts out at a time depends on what comes later.

    >>> import jax.random as jr
    >>> from thetax.layers import Elman
    >>> layer = Recurrent(Elman.init(3, 5, key=jr.key(0)))
    >>> layer(jnp.ones((7, 3))).shape
    (7, 5)
    """

    heard_whole: ClassVar[bool] = True

    cell: Any
    reverse: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_cell("Recurrent", self.cell)

    def __call__(
        self, xs: Float[Array, "t n"] | Int[Array, " t"], *, mask: Bool[Array, " t"] | None = None
    ) -> Float[Array, "t m"]:
        return unroll(self.cell, xs, mask=mask, reverse=self.reverse)[1]


class Bidirectional(eqx.Module):
    r"""$[y_t^\to, y_t^\leftarrow]$: one cell along the sequence, another against it, so that each
    time knows all others (§5; Schuster & Paliwal 1997).

    >>> import jax.random as jr
    >>> from thetax.layers import Elman
    >>> k1, k2 = jr.split(jr.key(0))
    >>> Bidirectional(Elman.init(3, 5, key=k1), Elman.init(3, 5, key=k2))(jnp.ones((7, 3))).shape
    (7, 10)
    """

    heard_whole: ClassVar[bool] = True

    onward: Any
    back: Any

    def __check_init__(self):
        check_cell("Bidirectional", self.onward, self.back)

    def along(self, xs: Any, mask: Any) -> tuple[tuple[Any, Any], Any]:
        """The last states of both, and all they put out."""
        onward, there = unroll(self.onward, xs, mask=mask)
        back, again = unroll(self.back, xs, mask=mask, reverse=True)
        return (onward, back), jnp.concatenate([there, again], axis=1)

    def __call__(
        self, xs: Float[Array, "t n"], *, mask: Bool[Array, " t"] | None = None
    ) -> Float[Array, "t m"]:
        return self.along(xs, mask)[1]


class Stack(eqx.Module):
    r"""Cells on top of one another as one, $z_{t,\ell} = F_\ell(z_{t-1,\ell}, z_{t,\ell-1})$ with
    $z_{t,0} = x_t$ (§5).

    >>> import jax.random as jr
    >>> from thetax.layers import Elman
    >>> k1, k2 = jr.split(jr.key(0))
    >>> cell = Stack(Elman.init(3, 5, key=k1), Elman.init(5, 2, key=k2))
    >>> unroll(cell, jnp.ones((7, 3)))[1].shape
    (7, 2)
    """

    cells: tuple[Any, ...]

    def __init__(self, *cells: Any):
        self.cells = cells

    def __check_init__(self):
        check_cell("Stack", *self.cells)

    @property
    def start(self) -> tuple[Any, ...]:
        """Every cell at its own."""
        return tuple(cell.start for cell in self.cells)

    def __call__(self, state: tuple[Any, ...], x: Any) -> tuple[Any, Any]:
        states = []
        for cell, z in zip(self.cells, state, strict=True):
            z, x = cell(z, x)
            states.append(z)
        return tuple(states), x

    def along(self, state: tuple[Any, ...], xs: Any, mask: Any) -> tuple[Any, Any]:
        """Cell after cell, each along the whole sequence."""
        states = []
        for cell, z in zip(self.cells, state, strict=True):
            z, xs = unroll(cell, xs, state=z, mask=mask)
            states.append(z)
        return tuple(states), xs


class Transition(eqx.Module):
    r"""$z_t = F([z_{t-1}, x_t])$ with any network $F$: a deep transition (§5; Pascanu et al. 2014).

    >>> from thetax.layers import Linear
    >>> cell = Transition(Linear(jnp.array([[1.0, 1.0]])), 1)
    >>> unroll(cell, jnp.array([[1.0], [2.0]]))[1].tolist()
    [[1.0], [3.0]]
    """

    inner: Any
    size: int = eqx.field(static=True)

    @property
    def start(self) -> Float[Array, " m"]:
        """Zero."""
        return jnp.zeros(self.size)

    def __call__(
        self, z: Float[Array, " m"], x: Float[Array, " n"]
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        z = self.inner(jnp.concatenate([z, x]))
        return z, z


class Block(eqx.Module):
    r"""$x_t + F(y_t)$, with $y_t$ what a cell puts out for the normalised $x_t$: a step that many
    can be stacked of (§2.4, §5.2; Orvieto et al. 2023).

    >>> import jax.random as jr
    >>> from thetax.layers import LRU, LayerNorm, Linear
    >>> k1, k2 = jr.split(jr.key(0))
    >>> cell = Block(LayerNorm.init(3), LRU.init(3, 8, 5, key=k1), Linear.init(5, 3, key=k2))
    >>> unroll(cell, jnp.ones((7, 3)))[1].shape
    (7, 3)
    """

    normalise: Any
    cell: Any
    after: Any  # F, back to the size of x

    def __check_init__(self):
        check_cell("Block", self.cell)

    @property
    def start(self) -> Any:
        """The cell's own."""
        return self.cell.start

    def __call__(self, state: Any, x: Any) -> tuple[Any, Any]:
        state, y = self.cell(state, self.normalise(x))
        return state, x + self.after(y)

    def along(self, state: Any, xs: Any, mask: Any) -> tuple[Any, Any]:
        """The cell along the sequence, all else at once."""
        state, ys = unroll(self.cell, jax.vmap(self.normalise)(xs), state=state, mask=mask)
        ys = xs + jax.vmap(lambda y: self.after(y))(ys)
        return state, ys if mask is None else jnp.where(mask[:, None], ys, 0)


class Truncated(eqx.Module):
    r"""The same cell, whose gradient goes back through at most `steps` times (§5; Williams & Peng
    1990).

    The sequence is cut into windows of that many times; the state passes from one to the next, its
    gradient does not. That of the state given at the beginning does.

    >>> from thetax.layers import Elman
    >>> total = Elman(jnp.eye(1), jnp.eye(1), jnp.zeros(1), jax.nn.identity)
    >>> end = lambda xs: unroll(Truncated(total, 2), xs)[0].sum()
    >>> jax.grad(end)(jnp.ones((5, 1))).ravel().tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0]
    """

    cell: Any
    steps: int = eqx.field(static=True)

    def __check_init__(self):
        check_cell("Truncated", self.cell)
        if self.steps < 1:
            raise ValueError(
                f"Truncated: steps counts times and must be at least 1; got {self.steps}."
            )

    @property
    def start(self) -> Any:
        """The cell's own."""
        return self.cell.start

    def __call__(self, state: Any, x: Any) -> tuple[Any, Any]:
        return self.cell(state, x)

    def along(self, state: Any, xs: Any, mask: Any) -> tuple[Any, Any]:
        """Window after window, and what is left."""
        whole = len(xs) - len(xs) % self.steps

        def window(state, part):
            at, xs, mask = part
            past = jax.tree.map(lambda z: jnp.where(at == 0, z, jax.lax.stop_gradient(z)), state)
            return unroll(self.cell, xs, state=past, mask=mask)

        cut = lambda a: a[:whole].reshape(-1, self.steps, *a.shape[1:])
        parts = []
        if whole:
            windows = jnp.arange(whole // self.steps), *jax.tree.map(cut, (xs, mask))
            state, ys = jax.lax.scan(window, state, windows)
            parts.append(jax.tree.map(lambda y: y.reshape(whole, *y.shape[2:]), ys))
        if whole < len(xs):
            state, ys = window(state, (whole, *jax.tree.map(lambda a: a[whole:], (xs, mask))))
            parts.append(ys)
        return state, jax.tree.map(lambda *ys: jnp.concatenate(ys), *parts)
