r"""How each operation treats a parameter that has not been combined with data yet
(`ParameterSlice`).

A rule gets the interpreter, a function that evaluates the operation, the operation's parameters,
its operands, and the index of the parameter among them. It returns the output: another
`ParameterSlice`, or the array after the parameter was combined with data. If it returns None, the
parameter cannot be factored.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Evaluate = Callable[[list[Any]], list[Any]]  # evaluates an operation on its operands


def constant(value: Any) -> float | None:
    """The value as a float if it is a scalar constant of the program, otherwise None."""
    is_scalar = isinstance(value, (float, int, np.ndarray, np.generic)) and np.size(value) == 1
    return float(value) if is_scalar else None


def _reshape(interpreter: Any, evaluate: Evaluate, params: Any, ins: list[Any], index: int) -> Any:
    """Operations that only rearrange entries."""
    parameter = ins[index]
    if len(ins) != 1:
        return None
    return parameter._replace(value=evaluate([parameter.value])[0], reshaped=True)


def _slice(interpreter: Any, evaluate: Evaluate, params: Any, ins: list[Any], index: int) -> Any:
    """A slice of a parameter; its box is known while its axes are those of the leaf."""
    parameter = ins[index]
    if parameter.reshaped or any(step != 1 for step in params["strides"] or ()):
        return None
    box = tuple(
        (low + i, low + j)
        for (low, _), i, j in zip(parameter.box, params["start_indices"], params["limit_indices"])
    )
    return parameter._replace(value=evaluate([parameter.value])[0], box=box)


def _multiply(interpreter: Any, evaluate: Evaluate, params: Any, ins: list[Any], index: int) -> Any:
    """A parameter times a constant."""
    parameter = ins[index]
    factor = constant(ins[1 - index])
    if factor is None:
        return None
    (value,) = evaluate(_with_array(ins, index))
    return parameter._replace(value=value, scale=parameter.scale * factor)


def _add_bias(interpreter: Any, evaluate: Evaluate, params: Any, ins: list[Any], index: int) -> Any:
    """A bias that is added to the output of the last weight use, the same at all positions."""
    parameter = ins[index]
    last = interpreter.last
    use = (interpreter.weight_uses.uses or [None])[-1]
    if (
        ins[1 - index] is not last.z
        or use is None
        or use.bias is not None
        or parameter.scanned != last.scanned
    ):
        return None
    shape = tuple(size if axis in last.rows else 1 for axis, size in enumerate(last.z.shape))
    if parameter.value.shape != shape:
        return None
    interpreter.weight_uses.uses[-1] = use._replace(
        bias=parameter._replace(value=None, scale=parameter.scale / last.factor)
    )
    return evaluate(_with_array(ins, index))[0]


def _broadcast(
    interpreter: Any, evaluate: Evaluate, params: Any, ins: list[Any], index: int
) -> Any:
    """Adding axes of size 1 is a reshape."""
    if math.prod(params["shape"]) != ins[index].value.size:
        return None
    return _reshape(interpreter, evaluate, params, ins, index)


def _matrix_product(
    interpreter: Any, evaluate: Evaluate, params: Any, ins: list[Any], index: int
) -> Any:
    contracted, batch = params["dimension_numbers"]
    parameter = ins[index]
    h = ins[1 - index]
    free_axes = lambda x, i: [a for a in range(x.ndim) if a not in (*contracted[i], *batch[i])]
    rows = free_axes(parameter.value, index)
    positions = free_axes(h, 1 - index)
    groups = len(batch[0])
    # z has the batch axes first, then the free axes of the first operand and of the second
    n_first, n_second = (len(rows), len(positions)) if index == 0 else (len(positions), len(rows))
    first = range(groups, groups + n_first)
    second = range(groups + n_first, groups + n_first + n_second)
    z_rows, z_positions = (first, second) if index == 0 else (second, first)

    def factors(delta: Array, h: Array) -> tuple[Array, Array]:
        return (
            _merge_axes(delta, range(groups), z_positions, z_rows),
            _merge_axes(h, batch[1 - index], positions, contracted[1 - index]),
        )

    (z,) = evaluate(_with_array(ins, index))
    return interpreter.record_use(parameter, z, h, factors, rows=z_rows if not groups else ())


def _with_array(ins: list[Any], index: int) -> list[Any]:
    """The operands with the parameter as an array."""
    return [value.value if i == index else value for i, value in enumerate(ins)]


def _merge_axes(x: Array, *groups: Sequence[int]) -> Array:
    """A transpose and reshape: each axis of the result is a product of the given axes of x."""
    ordered = jnp.transpose(x, [axis for group in groups for axis in group])
    return ordered.reshape([math.prod(x.shape[axis] for axis in group) for group in groups])


def _convolution(
    interpreter: Any, evaluate: Evaluate, params: Any, ins: list[Any], index: int
) -> Any:
    axes = params["dimension_numbers"]
    if index != 1 or params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        return None
    h, parameter = ins
    size = [parameter.value.shape[axis] for axis in axes.rhs_spec[2:]]
    geometry = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    geometry = {name: params[name] for name in geometry}

    def factors(delta: Array, h: Array) -> tuple[Array, Array]:
        # patches are extracted by a product with ones and zeros, which must not round
        with jax.default_matmul_precision("highest"):
            patches = jax.lax.conv_general_dilated_patches(
                h, size, **geometry, dimension_numbers=axes
            )
        n, c, *space = axes.out_spec
        return (
            _merge_axes(delta, (), (n, *space), (c,)),
            _merge_axes(patches, (), (n, *space), (c,)),
        )

    (z,) = evaluate([h, parameter.value])
    return interpreter.record_use(parameter, z, h, factors)


def _lookup(interpreter: Any, evaluate: Evaluate, params: Any, ins: list[Any], index: int) -> Any:
    """Whole rows of a table, by their indices."""
    parameter = ins[index]
    axes = params["dimension_numbers"]
    table = parameter.value
    if index != 0 or table.ndim != 2 or params["slice_sizes"] != (1, table.shape[1]):
        return None
    if (
        axes.collapsed_slice_dims != (0,)
        or axes.start_index_map != (0,)
        or axes.operand_batching_dims
    ):
        return None
    (z,) = evaluate([table, ins[1]])
    (d,) = axes.offset_dims

    def factors(delta: Array, indices: Array) -> tuple[Array, Array]:
        positions = [axis for axis in range(delta.ndim) if axis != d]
        return _merge_axes(delta, (), positions, (d,)), indices.reshape(1, -1, 1)

    return interpreter.record_use(parameter, z, ins[1], factors, is_lookup=True)


RULES = {
    "dot_general": _matrix_product,
    "conv_general_dilated": _convolution,
    "gather": _lookup,
    "slice": _slice,
    "mul": _multiply,
    "add": _add_bias,
    "broadcast_in_dim": _broadcast,
} | dict.fromkeys(
    ("reshape", "transpose", "squeeze", "copy", "copy_p", "rev", "convert_element_type"), _reshape
)
