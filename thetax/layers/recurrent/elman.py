r"""What a network remembers (§5): one cell used again at every time, its state carried on.

A cell is a map `(state, x) -> (state, y)`, as `lax.scan` wants it, and says by `cell.start` what it
remembers at the beginning. `unroll` runs a cell along a sequence.

Most cells meet the past in products $U v_t$ of a matrix with something remembered. A `Cell` tells
these apart: what it reads of the input is computed for all times in one product before the
recurrence begins; and when it has been run back, $\bar U = \sum_t \bar e_t v_t^\top$, with
$\bar e_t$ the gradient at the product of time $t$, is one product too, and not a sum of $T$ outer
products.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...core import expect_shape
from ..activation import Activation, tanh
from ..initialise import Initialiser, lecun, orthogonal
from ..linear import dense

Product = Callable[[str, Array], Array]


class Cell(eqx.Module):
    """A cell in three parts: what it `read`s of an input, the `memory` matrices, and the `step`
    that joins them.

    `step(state, a, product)` goes on from what was read; `product("U", v)` is $Uv$ for
    `memory["U"]`, and a step asks for each product once.
    """

    @property
    def start(self) -> Any:
        """What is remembered before anything was read."""
        raise NotImplementedError

    def read(self, x: Float[Array, " n"]) -> Any:
        """What the input contributes, whatever is remembered."""
        raise NotImplementedError

    @property
    def memory(self) -> Mapping[str, Float[Array, "_ _"]]:
        """The matrices that multiply what is remembered."""
        raise NotImplementedError

    def step(self, state: Any, a: Any, product: Product) -> tuple[Any, Any]:
        """The next state, and what is put out."""
        raise NotImplementedError

    def __call__(self, state: Any, x: Float[Array, " n"]) -> tuple[Any, Any]:
        memory = self.memory
        return self.step(state, self.read(x), lambda name, v: dense(memory[name], v))


class Elman(Cell):
    r"""$z_t = \varphi(U z_{t-1} + V x_t + b)$: the simple recurrent cell, which puts out its state
    (§5; Elman 1990).

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
        initialiser: Initialiser = lecun,
        recurrent_initialiser: Initialiser = orthogonal,
        key: PRNGKeyArray,
    ) -> "Elman":
        r"""Draws $V_0$ and $b_0$ by `initialiser` and $U_0$ by `recurrent_initialiser`.

        The default recurrent matrix is orthogonal, so it preserves the norm of the state.
        """

        key_U, key_V, key_b = jr.split(key, 3)
        return cls(
            recurrent_initialiser(key_U, (m, m)),
            initialiser(key_V, (m, n)),
            initialiser.bias(key_b, m),
            activation,
        )

    def __check_init__(self):
        m = len(self.b)
        if self.U.shape != (m, m) or self.V.ndim != 2 or len(self.V) != m:
            raise ValueError(
                f"Elman: U must be (m, m), V (m, n) and b (m,); got {self.U.shape}, {self.V.shape} "
                f"and {self.b.shape}. The number of rows is the size of the state."
            )

    @property
    def start(self) -> Float[Array, " m"]:
        """The state before anything was read: zero."""
        return jnp.zeros_like(self.b)

    @property
    def memory(self) -> Mapping[str, Float[Array, "m m"]]:
        """$U$."""
        return {"U": self.U}

    def read(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        """$Vx + b$."""
        expect_shape("Elman", x, self.V.shape[1:])
        return dense(self.V, x) + self.b

    def step(
        self, state: Float[Array, " m"], a: Float[Array, " m"], product: Product
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        r"""$z = \varphi(a + Uz)$."""
        z = self.activation(a + product("U", state))
        return z, z


def unroll(
    cell: Any,
    xs: Float[Array, "t n"] | Int[Array, " t"],
    *,
    state: Any = None,
    mask: Bool[Array, " t"] | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    r"""The cell run along $x_1, \dots, x_T$: its last state, and all it put out, $y_1, \dots, y_T$
    (§5).

    An input is a vector, or a token if the cell reads tokens. It begins at `state`, or else at the
    cell's own start; where one stretch ends the next may begin. Where the mask is false there is no
    input: the state stays as it is, and 0 is put out. In `reverse` it begins at the end.

    >>> total = Elman(jnp.eye(1), jnp.eye(1), jnp.zeros(1), jax.nn.identity)
    >>> xs = jnp.array([[1.0], [2.0], [3.0]])
    >>> state, ys = unroll(total, xs)
    >>> state.tolist(), ys.ravel().tolist()
    ([6.0], [1.0, 3.0, 6.0])
    >>> unroll(total, xs, mask=jnp.array([True, True, False]), reverse=True)[1].ravel().tolist()
    [3.0, 2.0, 0.0]
    """
    xs = jnp.asarray(xs)
    mask = None if mask is None else jnp.asarray(mask)
    _check(xs, mask)
    if reverse:
        turned = None if mask is None else mask[::-1]
        state, ys = unroll(cell, xs[::-1], state=state, mask=turned)
        return state, jax.tree.map(lambda y: y[::-1], ys)
    if state is None:
        check_cell("unroll", cell)
        state = cell.start
    elif hasattr(cell, "start"):
        _check_state(cell, state)
    if hasattr(cell, "along"):
        return cell.along(state, xs, mask)
    if isinstance(cell, Cell):
        return _recur(cell, dict(cell.memory), state, jax.vmap(cell.read)(xs), mask)
    return _scan(lambda state, x: cell(state, x), state, xs, mask)


def check_cell(name: str, *cells: Any) -> None:
    """Refuses what is no cell."""
    for cell in cells:
        if isinstance(cell, type) or not (hasattr(type(cell), "start") or hasattr(cell, "start")):
            what = (
                f"the class {cell.__name__}"
                if isinstance(cell, type)
                else f"a {type(cell).__name__}"
            )
            raise ValueError(
                f"{name}: got {what}, which is no cell: a cell maps (state, x) to (state, y) and "
                "has a `start`, as Elman.init(3, 4, key=key) has. Cells are joined by Stack(one, "
                "two), layers by Chain(one, two)."
            )


def _check(xs: Any, mask: Any) -> None:
    tokens = jnp.issubdtype(xs.dtype, jnp.integer)
    if xs.ndim != (1 if tokens else 2):
        form = "(t,) of tokens" if tokens else "(t, n)"
        cure = "map over a batch with jax.vmap"
        if tokens and xs.ndim == 2:
            cure += ", or if these are vectors: a cell that reads vectors wants floats"
        if not tokens and xs.ndim == 1:
            cure = "tokens are whole numbers, and a vector for each time makes a second axis"
        raise ValueError(f"unroll: expected one sequence {form}, got {xs.shape}; {cure}.")
    if not len(xs):
        raise ValueError("unroll: the sequence has no times; give at least one.")
    if mask is not None and (mask.shape != xs.shape[:1] or mask.dtype != bool):
        raise ValueError(
            f"unroll: the mask must be bool, one for each of the {len(xs)} times; got "
            f"{mask.dtype} {mask.shape}."
        )


def _check_state(cell: Any, state: Any) -> None:
    """Refuses a state that the cell could not have come to."""
    start = jax.eval_shape(lambda: cell.start)
    form = lambda tree: (
        jax.tree.structure(tree),
        [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)],
    )
    if form(start) != form(state):
        told = lambda tree: jax.tree.map(jnp.shape, tree)
        raise ValueError(
            f"unroll: the state must have the shapes of the cell's start, {told(start)}; got "
            f"{told(state)}. Give what another stretch ended in, or nothing."
        )


def _scan(step: Callable[..., Any], state: Any, items: Any, mask: Any) -> tuple[Any, Any]:
    """`lax.scan` of a step that is skipped where the mask is false."""
    if mask is None:
        return jax.lax.scan(step, state, items)

    def masked(state, item):
        there, item = item
        after, y = step(state, item)
        keep = lambda new, old: jnp.where(there, new, old)
        return jax.tree.map(keep, after, state), jax.tree.map(
            lambda y: keep(y, jnp.zeros_like(y)), y
        )

    return jax.lax.scan(masked, state, (mask, items))


@jax.custom_jvp
def _recur(cell: Cell, memory: dict[str, Array], state: Any, a: Any, mask: Any) -> tuple[Any, Any]:
    """A cell along what it has read."""
    return _scan(
        lambda state, a: cell.step(state, a, lambda name, v: dense(memory[name], v)), state, a, mask
    )


@_recur.defjvp
def _push(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Changes of a memory matrix reach the recurrence as changes $\\dot U v_t$ of its products, all
    made at once.
    """
    cell, memory, state, a, mask = primals
    d_cell, d_memory, d_state, d_a, _ = tangents

    def along(cell, state, a, e):
        def step(state, item):
            (a, e), met = item, {}

            def product(name, v):
                met[name] = v
                return dense(memory[name], v) + e[name]

            state, y = cell.step(state, a, product)
            return state, (y, met)

        state, (ys, met) = _scan(step, state, (a, e), mask)
        return (state, ys), met

    times = len(jax.tree.leaves(a)[0])
    none = {name: jnp.zeros((times, len(U)), U.dtype) for name, U in memory.items()}
    out, push, met = jax.linearize(along, cell, state, a, none, has_aux=True)
    d_e = {name: jax.vmap(lambda v, dU=d_memory[name]: dense(dU, v))(v) for name, v in met.items()}
    return out, push(d_cell, d_state, d_a, d_e)
