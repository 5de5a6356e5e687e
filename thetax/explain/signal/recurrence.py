"""The recurrence inside a model: its cell, what the cell reads, and its state as a vector of real
numbers.

A cell is a module with a `start`; one that only wraps another `cell`, as a table of words before it
and a readout after it do, is looked through. What the cell reads is overheard while the model runs.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ... import tree
from ...core import BATCH, Batch, apply
from ...layers import Cell, Recurrent, Truncated, unroll
from ..modules import is_cell, labels


class Recurrence(NamedTuple):
    """A cell as it is run in a model: where it began and what it read, for each of the examples."""

    cell: Any
    start: Any  # n ...
    inputs: Any  # n t ...
    mask: Bool[Array, "n t"]  # where there was an input
    layer: str


def _is_inner(node: Any) -> bool:
    return is_cell(node) and (isinstance(node, Truncated) or not hasattr(node, "cell"))


def cells(model: Any) -> list[Any]:
    """The cells of a model that wrap no other.

    >>> import jax.random as jr
    >>> from thetax.layers import Chain, Elman
    >>> [
    ...     type(cell).__name__
    ...     for cell in cells(Chain(Recurrent(Elman.init(2, 3, key=jr.key(0))), jnp.tanh))
    ... ]
    ['Elman']
    """
    return [node for node in jax.tree.leaves(model, is_leaf=_is_inner) if _is_inner(node)]


class _Heard(Cell):
    """A cell that tells what it is run along."""

    cell: Any
    name: str = eqx.field(static=True)
    hear: Callable[..., Any] = eqx.field(static=True)

    @property
    def start(self) -> Any:
        return self.cell.start

    @property
    def memory(self) -> Mapping[str, Any]:
        return self.cell.memory

    def read(self, x: Any) -> Any:
        return self.cell.read(x)

    def step(self, state: Any, a: Any, product: Any) -> tuple[Any, Any]:
        return self.cell.step(state, a, product)

    def __call__(self, state: Any, x: Any) -> tuple[Any, Any]:
        return self.cell(state, x)

    def along(self, state: Any, xs: Any, mask: Any) -> tuple[Any, Any]:
        there = jnp.ones(len(xs), bool) if mask is None else mask
        self.hear(self.name, state, xs, there)
        return unroll(self.cell, xs, state=state, mask=mask)


def recurrence(model: Any, xs: Batch) -> Recurrence:
    """The first cell that the model runs along something, with what it reads for each example of
    `xs`.

    `model` may be a cell itself; then an example is a sequence for it.

    >>> import jax.random as jr
    >>> from thetax.layers import Chain, Elman
    >>> found = recurrence(
    ...     Chain(jnp.tanh, Recurrent(Elman.init(2, 3, key=jr.key(0)))), jnp.ones((5, 7, 2))
    ... )
    >>> found.layer, found.inputs.shape, round(float(found.inputs[0, 0, 0]), 3)
    ('Elman 1', (5, 7, 2), 0.762)
    """
    if is_cell(model):
        model = Recurrent(model)
    nodes, structure = jax.tree.flatten_with_path(model, is_leaf=_is_inner)
    names = [tree.dotted(path) for path, _ in nodes]
    first = ""

    def overheard(parts: list[Any], x: Any) -> tuple[Any, Any, Any]:
        nonlocal first
        seen: dict[str, tuple[Any, Any, Any]] = {}
        hear = lambda name, *what: seen.setdefault(name, what)
        replaced = [
            _Heard(part, name, hear) if _is_inner(part) else part
            for name, part in zip(names, parts)
        ]
        apply(jax.tree.unflatten(structure, replaced), x)
        if not seen:
            raise ValueError(
                "recurrence: the model runs no cell along a sequence; this lens is for recurrent "
                "models."
            )
        first = next(iter(seen))
        return seen[first]

    parts = [part for _, part in nodes]
    start, inputs, mask = jax.jit(jax.vmap(overheard, (None, 0), axis_name=BATCH))(parts, xs)
    cell = parts[names.index(first)]
    return Recurrence(cell, start, inputs, mask, labels(model).get(first, type(cell).__name__))


def as_vector(state: Any) -> tuple[Float[Array, " m"], Callable[[Float[Array, " m"]], Any]]:
    """A state of any form as a vector, a complex number as the pair of its parts; and the way back.

    >>> vector, back = as_vector((jnp.array([1.0 + 2.0j]), jnp.array([3.0])))
    >>> vector.tolist(), back(2 * vector)[0].tolist()
    ([1.0, 2.0, 3.0], [(2+4j)])
    """
    leaves, structure = jax.tree.flatten(state)
    if not all(jnp.issubdtype(z.dtype, jnp.inexact) for z in leaves):
        raise ValueError(
            "recurrence: the state of the cell is of whole numbers, as counts are, and has no "
            "derivative."
        )
    parted = [jnp.stack([z.real, z.imag]) if jnp.iscomplexobj(z) else z for z in leaves]
    vector, split = tree.ravel(parted)

    def back(vector: Any) -> Any:
        joined = [
            jax.lax.complex(part[0], part[1]) if jnp.iscomplexobj(z) else part
            for part, z in zip(split(vector), leaves)
        ]
        return jax.tree.unflatten(structure, joined)

    return vector, back
