r"""How each operation treats a parameter that no data have met yet: what it joins with data, what
it leaves apart.

A rule is given the walk through the program, the operation, how it is done, what goes in, and where
among it the parameter is. It gives what comes out, or nothing: then the parameter's gradient is
kept whole.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Do = Callable[[list[Any]], list[Any]]  # one operation, given its inputs


def _move(walk: Any, do: Do, how: Any, ins: list[Any], at: int) -> Any:
    """What only moves numbers leaves a piece a piece."""
    piece = ins[at]
    return piece._replace(value=do([piece.value])[0], moved=True) if len(ins) == 1 else None


def _slice(walk: Any, do: Do, how: Any, ins: list[Any], at: int) -> Any:
    """A part of a leaf, whose places are known while its axes are those of the leaf."""
    piece = ins[at]
    if piece.moved or any(step != 1 for step in how["strides"] or ()):
        return None
    box = tuple(
        (low + i, low + j)
        for (low, _), i, j in zip(piece.box, how["start_indices"], how["limit_indices"])
    )
    return piece._replace(value=do([piece.value])[0], box=box)


def _times(walk: Any, do: Do, how: Any, ins: list[Any], at: int) -> Any:
    """A leaf times a number of the program."""
    piece = ins[at]
    factor = number(ins[1 - at])
    if factor is None:
        return None
    (value,) = do([piece.value if i == at else value for i, value in enumerate(ins)])
    return piece._replace(value=value, scale=piece.scale * factor)


def number(value: Any) -> float | None:
    """The value, if it is a single number of the program itself."""
    return (
        float(value)
        if isinstance(value, (float, int, np.ndarray, np.generic)) and np.size(value) == 1
        else None
    )


def _bias(walk: Any, do: Do, how: Any, ins: list[Any], at: int) -> Any:
    """What is added to the product of the last junction, the same at all places."""
    piece = ins[at]
    last = walk.last
    junction = (walk.found.junctions or [None])[-1]
    if (
        ins[1 - at] is not last.z
        or junction is None
        or junction.bias is not None
        or piece.handed != last.handed
    ):
        return None
    if piece.value.shape != tuple(
        size if axis in last.rows else 1 for axis, size in enumerate(last.z.shape)
    ):
        return None
    walk.found.junctions[-1] = junction._replace(
        bias=piece._replace(value=None, scale=piece.scale / last.factor)
    )
    return do([piece.value if i == at else value for i, value in enumerate(ins)])[0]


def _broadcast(walk: Any, do: Do, how: Any, ins: list[Any], at: int) -> Any:
    """New axes of one number move nothing."""
    return _move(walk, do, how, ins, at) if math.prod(how["shape"]) == ins[at].value.size else None


def _product(walk: Any, do: Do, how: Any, ins: list[Any], at: int) -> Any:
    contracted, shared = how["dimension_numbers"]
    piece = ins[at]
    h = ins[1 - at]
    own = [axis for axis in range(piece.value.ndim) if axis not in (*contracted[at], *shared[at])]
    free = [axis for axis in range(h.ndim) if axis not in (*contracted[1 - at], *shared[1 - at])]
    groups, first, second = (
        len(shared[0]),
        *((len(own), len(free)) if at == 0 else (len(free), len(own))),
    )
    a = range(groups, groups + first)
    b = range(groups + first, groups + first + second)
    mine, theirs = (a, b) if at == 0 else (b, a)

    def factors(delta: Array, h: Array) -> tuple[Array, Array]:
        return _three(delta, range(groups), theirs, mine), _three(
            h, shared[1 - at], free, contracted[1 - at]
        )

    (z,) = do([piece.value if i == at else value for i, value in enumerate(ins)])
    return walk.meet(piece, z, h, factors, rows=mine if not groups else ())


def _three(x: Array, *axes: Sequence[int]) -> Array:
    """An array of three axes, each made of some of these."""
    moved = jnp.transpose(x, [axis for part in axes for axis in part])
    return moved.reshape([math.prod(x.shape[axis] for axis in part) for part in axes])


def _convolution(walk: Any, do: Do, how: Any, ins: list[Any], at: int) -> Any:
    axes = how["dimension_numbers"]
    if at != 1 or how["feature_group_count"] != 1 or how["batch_group_count"] != 1:
        return None
    h, piece = ins
    size = [piece.value.shape[axis] for axis in axes.rhs_spec[2:]]
    steps = {"window_strides": how["window_strides"], "padding": how["padding"]}
    spread = {"lhs_dilation": how["lhs_dilation"], "rhs_dilation": how["rhs_dilation"]}

    def factors(delta: Array, h: Array) -> tuple[Array, Array]:
        with jax.default_matmul_precision(
            "highest"
        ):  # it is a product with ones, which must not round
            seen = jax.lax.conv_general_dilated_patches(
                h, size, **steps, **spread, dimension_numbers=axes
            )
        n, c, *s = axes.out_spec
        return _three(delta, (), (n, *s), (c,)), _three(seen, (), (n, *s), (c,))

    return walk.meet(piece, do([h, piece.value])[0], h, factors)


def _lookup(walk: Any, do: Do, how: Any, ins: list[Any], at: int) -> Any:
    """Whole rows of a table, each by its number."""
    piece = ins[at]
    axes = how["dimension_numbers"]
    if at != 0 or piece.value.ndim != 2 or how["slice_sizes"] != (1, piece.value.shape[1]):
        return None
    if (
        axes.collapsed_slice_dims != (0,)
        or axes.start_index_map != (0,)
        or axes.operand_batching_dims
    ):
        return None
    (z,) = do([piece.value, ins[1]])
    (d,) = axes.offset_dims

    def factors(delta: Array, rows: Array) -> tuple[Array, Array]:
        others = [axis for axis in range(delta.ndim) if axis != d]
        return _three(delta, (), others, (d,)), rows.reshape(1, -1, 1)

    return walk.meet(piece, z, ins[1], factors, looked_up=True)


RULES = {
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "gather": _lookup,
    "slice": _slice,
    "mul": _times,
    "add": _bias,
    "broadcast_in_dim": _broadcast,
} | dict.fromkeys(
    ("reshape", "transpose", "squeeze", "copy", "copy_p", "rev", "convert_element_type"), _move
)
