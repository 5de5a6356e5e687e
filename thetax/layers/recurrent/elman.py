r"""Recurrent cells and how to run them along a sequence (§5): the same cell at every time step,
with its state carried on.

A cell maps `(state, x)` to `(state, y)`, the signature of `lax.scan`, and `cell.start` is its
initial state:

    state, ys = jax.lax.scan(lambda state, x: cell(state, x), cell.start, xs)

`unroll` computes the same, with masks, either direction, and faster: most cells use the past only
in products $U v_t$ of a weight matrix with the state or a part of it. `Cell` separates these. Its
input projection is one matrix product for all time steps before the recurrence starts, and the
gradient of a recurrent matrix, $\bar U = \sum_t \bar e_t v_t^\top$ with $\bar e_t$ the gradient at
the product of step $t$, is one matrix product after it and not a sum of $T$ outer products.
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
from ..linear import matvec

Product = Callable[[str, Array], Array]  # product("U", v) is the recurrent matrix U times v


class Cell(eqx.Module):
    """Base class of cells in three parts: `project_input`, the `recurrent_matrices`, and the `step`
    that combines them.

    `step(state, a, product)` takes the state, the projected input `a` and a function
    `product("U", v)` that returns $Uv$ for `recurrent_matrices["U"]`. A step must use each
    recurrent matrix exactly once.
    """

    @property
    def start(self) -> Any:
        """The initial state."""
        raise NotImplementedError

    def project_input(self, x: Float[Array, " n"]) -> Any:
        """The part of the step that depends on the input only."""
        raise NotImplementedError

    @property
    def recurrent_matrices(self) -> Mapping[str, Float[Array, "_ _"]]:
        """The matrices that multiply the state, or what is computed from it."""
        raise NotImplementedError

    def step(self, state: Any, a: Any, product: Product) -> tuple[Any, Any]:
        """The next state and the output."""
        raise NotImplementedError

    def __call__(self, state: Any, x: Float[Array, " n"]) -> tuple[Any, Any]:
        matrices = self.recurrent_matrices
        product = lambda name, v: matvec(matrices[name], v)
        return self.step(state, self.project_input(x), product)


class Elman(Cell):
    r"""The simple recurrent (Elman) cell, $z_t = \varphi(U z_{t-1} + V x_t + b)$, whose output is
    its state (§5; Elman 1990).

    Departs: the notes have no bias $b$.

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
                f"and {self.b.shape}. The number of rows is the width of the state."
            )

    @property
    def start(self) -> Float[Array, " m"]:
        """The initial state, zero."""
        return jnp.zeros_like(self.b)

    @property
    def recurrent_matrices(self) -> Mapping[str, Float[Array, "m m"]]:
        """$U$."""
        return {"U": self.U}

    def project_input(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        """$Vx + b$."""
        expect_shape("Elman", x, self.V.shape[1:])
        return matvec(self.V, x) + self.b

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
    r"""Runs a cell along the sequence $x_1, \dots, x_T$: its last state, and its outputs
    $y_1, \dots, y_T$ (§5).

    Inputs are vectors, or tokens if the cell embeds tokens. The run starts at `state`, by default
    `cell.start`; passing the last state of one segment continues it in the next. Where `mask` is
    false (padding) the state does not change and the output is 0. With `reverse=True` the sequence
    is read from its end.

    >>> total = Elman(jnp.eye(1), jnp.eye(1), jnp.zeros(1), jax.nn.identity)
    >>> xs = jnp.array([[1.0], [2.0], [3.0]])
    >>> state, ys = unroll(total, xs)
    >>> state.tolist(), ys.ravel().tolist()
    ([6.0], [1.0, 3.0, 6.0])
    >>> unroll(total, xs, mask=jnp.array([True, True, False]), reverse=True)[1].ravel().tolist()
    [3.0, 2.0, 0.0]

    It is `lax.scan` over the cell:

    >>> jax.lax.scan(lambda state, x: total(state, x), total.start, xs)[1].ravel().tolist()
    [1.0, 3.0, 6.0]
    """
    xs = jnp.asarray(xs)
    mask = None if mask is None else jnp.asarray(mask)
    _check_sequence(xs, mask)
    if reverse:
        reversed_mask = None if mask is None else mask[::-1]
        state, ys = unroll(cell, xs[::-1], state=state, mask=reversed_mask)
        return state, jax.tree.map(lambda y: y[::-1], ys)
    if state is None:
        check_cell("unroll", cell)
        state = cell.start
    elif hasattr(cell, "start"):
        _check_state(cell, state)
    if hasattr(cell, "scan"):
        return cell.scan(state, xs, mask)
    if isinstance(cell, Cell):
        projected = jax.vmap(cell.project_input)(xs)
        return _recur(cell, dict(cell.recurrent_matrices), state, projected, mask)
    return _masked_scan(lambda state, x: cell(state, x), state, xs, mask)


def check_cell(name: str, *cells: Any) -> None:
    """Raises `ValueError` unless each argument is a cell."""
    for cell in cells:
        if isinstance(cell, type) or not (hasattr(type(cell), "start") or hasattr(cell, "start")):
            given = (
                f"the class {cell.__name__}"
                if isinstance(cell, type)
                else f"a {type(cell).__name__}"
            )
            raise ValueError(
                f"{name}: expected a cell, got {given}. A cell maps (state, x) to (state, y) and "
                "has an initial state `start`, for example Elman.init(3, 4, key=key). Cells are "
                "combined by StackedCells(one, two), layers by Chain(one, two)."
            )


def _check_sequence(xs: Any, mask: Any) -> None:
    tokens = jnp.issubdtype(xs.dtype, jnp.integer)
    if xs.ndim != (1 if tokens else 2):
        form = "(t,) of tokens" if tokens else "(t, n)"
        advice = "map over a batch with jax.vmap"
        if tokens and xs.ndim == 2:
            advice += ", or convert vectors to floats"
        if not tokens and xs.ndim == 1:
            advice = "tokens must be integers, and vectors need a second axis"
        raise ValueError(f"unroll: expected one sequence {form}, got {xs.shape}; {advice}.")
    if not len(xs):
        raise ValueError("unroll: the sequence is empty; give at least one time step.")
    if mask is not None and (mask.shape != xs.shape[:1] or mask.dtype != bool):
        raise ValueError(
            f"unroll: the mask must be bool with one entry for each of the {len(xs)} time steps; "
            f"got {mask.dtype} {mask.shape}."
        )


def _check_state(cell: Any, state: Any) -> None:
    """Raises `ValueError` if the state does not have the structure of the cell's states."""
    start = jax.eval_shape(lambda: cell.start)
    form = lambda tree: (
        jax.tree.structure(tree),
        [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)],
    )
    if form(start) != form(state):
        shapes = lambda tree: jax.tree.map(jnp.shape, tree)
        raise ValueError(
            f"unroll: the state must have the shapes of cell.start, {shapes(start)}; got "
            f"{shapes(state)}. Give the last state of another run, or leave it out."
        )


def _masked_scan(step: Callable[..., Any], state: Any, items: Any, mask: Any) -> tuple[Any, Any]:
    """`lax.scan` of a step that is skipped where the mask is false."""
    if mask is None:
        return jax.lax.scan(step, state, items)

    def masked(state, item):
        active, item = item
        new_state, y = step(state, item)
        select = lambda new, old: jnp.where(active, new, old)
        y = jax.tree.map(lambda y: select(y, jnp.zeros_like(y)), y)
        return jax.tree.map(select, new_state, state), y

    return jax.lax.scan(masked, state, (mask, items))


@jax.custom_jvp
def _recur(
    cell: Cell, matrices: dict[str, Array], state: Any, a: Any, mask: Any
) -> tuple[Any, Any]:
    """Runs a cell along its projected inputs `a`."""
    product = lambda name, v: matvec(matrices[name], v)
    return _masked_scan(lambda state, a: cell.step(state, a, product), state, a, mask)


@_recur.defjvp
def _recur_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Derivative of `_recur`.

    A change $\\dot U$ of a recurrent matrix acts as the change $\\dot U v_t$ of its products. So
    the scan is linearised in additive perturbations `e` of the products, and all $\\dot U v_t$ are
    one matrix product. Transposed, that is the gradient of $U$ in one matrix product.
    """
    cell, matrices, state, a, mask = primals
    d_cell, d_matrices, d_state, d_a, _ = tangents

    def perturbed(cell, state, a, e):
        def step(state, item):
            (a, e), operands = item, {}

            def product(name, v):
                operands[name] = v
                return matvec(matrices[name], v) + e[name]

            state, y = cell.step(state, a, product)
            return state, (y, operands)

        state, (ys, operands) = _masked_scan(step, state, (a, e), mask)
        return (state, ys), operands

    steps = len(jax.tree.leaves(a)[0])
    zero = {name: jnp.zeros((steps, len(U)), U.dtype) for name, U in matrices.items()}
    out, push, operands = jax.linearize(perturbed, cell, state, a, zero, has_aux=True)
    d_e = {
        name: jax.vmap(lambda v, dU=d_matrices[name]: matvec(dU, v))(v)
        for name, v in operands.items()
    }
    return out, push(d_cell, d_state, d_a, d_e)
