"""The recurrent cell inside a model, with its inputs, and its state as a real vector.

A cell is a module with a `start`. Cells that wrap another one in their field `cell`, such as those
with an embedding before it and a readout after it, are unwrapped. The inputs of the cell are
recorded while the model runs.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ... import tree
from ...core import BATCH_AXIS, Batch, apply
from ...layers import Cell, Recurrent, TruncatedBPTT, unroll
from ..modules import is_cell, module_names


class CapturedRecurrence(NamedTuple):
    """A cell as it runs in a model: its initial state and its inputs for each example."""

    cell: Any
    start: Any  # n ...
    inputs: Any  # n t ...
    mask: Bool[Array, "n t"]  # False where the input is padding
    layer: str


def _is_inner(node: Any) -> bool:
    return is_cell(node) and (isinstance(node, TruncatedBPTT) or not hasattr(node, "cell"))


def recurrent_cells(model: Any) -> list[Any]:
    """The innermost cells of a model.

    >>> import jax.random as jr
    >>> from thetax.layers import Chain, Elman
    >>> model = Chain(Recurrent(Elman.init(2, 3, key=jr.key(0))), jnp.tanh)
    >>> [type(cell).__name__ for cell in recurrent_cells(model)]
    ['Elman']
    """
    return [node for node in jax.tree.leaves(model, is_leaf=_is_inner) if _is_inner(node)]


class _RecordingCell(Cell):
    """A cell that records its initial state and inputs."""

    cell: Any
    name: str = eqx.field(static=True)
    record: Callable[..., Any] = eqx.field(static=True)

    @property
    def start(self) -> Any:
        return self.cell.start

    @property
    def recurrent_matrices(self) -> Mapping[str, Any]:
        return self.cell.recurrent_matrices

    def project_input(self, x: Any) -> Any:
        return self.cell.project_input(x)

    def step(self, state: Any, a: Any, product: Any) -> tuple[Any, Any]:
        return self.cell.step(state, a, product)

    def __call__(self, state: Any, x: Any) -> tuple[Any, Any]:
        return self.cell(state, x)

    def scan(self, state: Any, xs: Any, mask: Any) -> tuple[Any, Any]:
        full_mask = jnp.ones(len(xs), bool) if mask is None else mask
        self.record(self.name, state, xs, full_mask)
        return unroll(self.cell, xs, state=state, mask=mask)


def capture_recurrence(model: Any, xs: Batch) -> CapturedRecurrence:
    """The first recurrent cell that the model runs, with its inputs for each example of `xs`.

    If `model` is itself a cell, the examples are its input sequences.

    >>> import jax.random as jr
    >>> from thetax.layers import Chain, Elman
    >>> model = Chain(jnp.tanh, Recurrent(Elman.init(2, 3, key=jr.key(0))))
    >>> recurrence = capture_recurrence(model, jnp.ones((5, 7, 2)))
    >>> recurrence.layer, recurrence.inputs.shape, round(float(recurrence.inputs[0, 0, 0]), 3)
    ('Elman 1', (5, 7, 2), 0.762)
    """
    if is_cell(model):
        model = Recurrent(model)
    nodes, structure = jax.tree.flatten_with_path(model, is_leaf=_is_inner)
    names = [tree.path_name(path) for path, _ in nodes]
    first = ""

    def run_recorded(parts: list[Any], x: Any) -> tuple[Any, Any, Any]:
        nonlocal first
        runs: dict[str, tuple[Any, Any, Any]] = {}
        record = lambda name, *run: runs.setdefault(name, run)
        recording_parts = [
            _RecordingCell(part, name, record) if _is_inner(part) else part
            for name, part in zip(names, parts)
        ]
        apply(jax.tree.unflatten(structure, recording_parts), x)
        if not runs:
            raise ValueError("capture_recurrence: the model runs no recurrent cell.")
        first = next(iter(runs))
        return runs[first]

    parts = [part for _, part in nodes]
    run_batch = jax.jit(jax.vmap(run_recorded, (None, 0), axis_name=BATCH_AXIS))
    start, inputs, mask = run_batch(parts, xs)
    cell = parts[names.index(first)]
    layer = module_names(model).get(first, type(cell).__name__)
    return CapturedRecurrence(cell, start, inputs, mask, layer)


def as_vector(state: Any) -> tuple[Float[Array, " m"], Callable[[Float[Array, " m"]], Any]]:
    """A state as a real vector, in which a complex entry becomes two real ones; and the inverse
    map.

    >>> vector, from_vector = as_vector((jnp.array([1.0 + 2.0j]), jnp.array([3.0])))
    >>> vector.tolist(), from_vector(2 * vector)[0].tolist()
    ([1.0, 2.0, 3.0], [(2+4j)])
    """
    leaves, structure = jax.tree.flatten(state)
    if not all(jnp.issubdtype(z.dtype, jnp.inexact) for z in leaves):
        raise ValueError(
            "as_vector: the state of the cell has integer entries, such as counts, and cannot be "
            "differentiated."
        )
    real_leaves = [jnp.stack([z.real, z.imag]) if jnp.iscomplexobj(z) else z for z in leaves]
    vector, unravel = tree.ravel(real_leaves)

    def from_vector(vector: Any) -> Any:
        state_leaves = [
            jax.lax.complex(part[0], part[1]) if jnp.iscomplexobj(z) else part
            for part, z in zip(unravel(vector), leaves)
        ]
        return jax.tree.unflatten(structure, state_leaves)

    return vector, from_vector
