r"""Interval bound propagation (IBP): bounds on the outputs of a function whose input lies in a box
(Gowal et al. 2018).

The function is traced to a jaxpr, and an interpreter runs it with an interval $[l, h]$ in place of
every value that depends on the input. An affine map of an interval with centre $c$ and radius $r$
has centre $Wc + b$ and radius $|W| r$; an increasing function maps end to end. The bounds are
sound, but not tight: every value is treated as independent of the others, so the bounds get looser
with every layer.

Bounds are those of real arithmetic, computed in floating point: they hold up to rounding. Where the
network may return NaN, or overflow to it, they are infinite.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, Float

from ...core import expect_floats
from ...jaxpr import Scan, called_program, evaluate_equation, scan_parts
from .interval_rules import Interval, Operation, apply_rule, as_scalar

# Bilinear primitives, and primitives that only rearrange one array (see `_is_product`).
PRODUCTS = ("dot_general", "conv_general_dilated")
LAYOUT_OPERATIONS = (
    "reshape",
    "transpose",
    "broadcast_in_dim",
    "squeeze",
    "expand_dims",
    "slice",
    "rev",
    "copy",
    "copy_p",
)


def interval_bounds(
    f: Callable[[Any], Any], low: Float[Array, "*s"], high: Float[Array, "*s"]
) -> tuple[Any, Any]:
    r"""Bounds $l \le f(x) \le h$ for all $x$ between `low` and `high`, elementwise, for each output
    of a function (IBP).

    They can be used under `vmap`, `jit` and `grad`. An operation without a rule raises a
    `ValueError` that names it. Gowal et al. 2018; Mirman, Gehr & Vechev 2018.

    >>> low, high = interval_bounds(
    ...     lambda x: jax.nn.relu(x) - 2 * x, jnp.array([-1.0, 1.0]), jnp.array([1.0, 3.0])
    ... )
    >>> low.tolist(), high.tolist()
    ([-2.0, -5.0], [3.0, 1.0])
    """
    low, high = check_interval(low, high)
    program, shapes = trace_program(f, low)
    outs = IntervalInterpreter().run(program.jaxpr, program.consts, [Interval(low, high)])
    lows, highs = zip(*map(output_bounds, outs))
    unflatten = partial(jax.tree.unflatten, jax.tree.structure(shapes))
    return unflatten(lows), unflatten(highs)


def check_interval(low: Any, high: Any) -> tuple[Array, Array]:
    """`low` and `high` as arrays; raises `ValueError` if they differ in shape or dtype, or low >
    high anywhere.
    """
    expect_floats("interval_bounds: low", low)
    low = jnp.asarray(low)
    high = jnp.asarray(high)
    if low.shape != high.shape or low.dtype != high.dtype:
        given = f"{low.dtype}{low.shape} and {high.dtype}{high.shape}"
        raise ValueError(
            f"interval_bounds: low and high must have the same shape and dtype; got {given}."
        )
    is_concrete = not isinstance(low, Tracer) and not isinstance(high, Tracer)
    if is_concrete and not bool(np.all(np.asarray(low) <= np.asarray(high))):
        raise ValueError("interval_bounds: low must be <= high everywhere.")
    return low, high


def trace_program(f: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """The jaxpr of a function, and the shapes of its outputs."""
    return jax.make_jaxpr(lambda x: f(x), return_shape=True)(jax.ShapeDtypeStruct(x.shape, x.dtype))


def output_bounds(out: Any) -> tuple[Any, Any]:
    """Lower and upper bound of an output; infinite where nothing is known."""
    if not isinstance(out, Interval):
        return out, out
    if not jnp.issubdtype(out.low.dtype, jnp.floating):
        return out.low, out.high
    return jnp.where(jnp.isnan(out.low), -jnp.inf, out.low), jnp.where(
        jnp.isnan(out.high), jnp.inf, out.high
    )


class IntervalInterpreter:
    """Interprets a jaxpr with intervals in place of values.

    A `BackwardGraph` may be given: it records every operation, so that linear bounds can be
    computed, and may tighten intervals before and after an operation.
    """

    def __init__(self, graph: Any = None):
        self.graph = graph

    def run(self, program: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """The outputs of a jaxpr; its arguments may be intervals or known values."""
        values: dict[Any, Any] = dict(
            zip((*program.constvars, *program.invars), (*consts, *args), strict=True)
        )
        read = lambda v: _literal_value(v) if isinstance(v, Literal) else values[v]
        for equation in program.eqns:
            outs = self.apply(program, equation, [read(v) for v in equation.invars])
            values.update(zip(equation.outvars, outs, strict=True))
        return [read(v) for v in program.outvars]

    def apply(self, program: Any, equation: Any, ins: list[Any]) -> list[Any]:
        """The outputs of one equation; computed as usual if none of its inputs is an interval."""
        if not any(isinstance(value, Interval) for value in ins):
            return evaluate_equation(program, equation, ins)
        name, params = equation.primitive.name, equation.params
        if name == "stop_gradient":  # the identity; only its derivative differs
            return ins
        if name == "scan":
            return bound_scan(scan_parts(equation), ins)
        inner = called_program(equation)
        if inner is None:
            name, op, ins = _recognise(name, partial(_evaluate, equation), ins)
            return self.bound(name, op, params, ins, op)
        # A function with a derivative of its own may compute a single product, which has tight
        # bounds as a whole. Every other call is interpreted inside.
        if name.startswith("custom_") and _is_product(inner.jaxpr):
            op = lambda *values: evaluate_equation(program, equation, list(values))
            without_own_derivative = jaxpr_as_fun(ClosedJaxpr(inner.jaxpr, inner.consts))
            return self.bound("product", op, params, ins, without_own_derivative)
        return self.run(inner.jaxpr, inner.consts, ins)

    def bound(
        self, name: str, op: Operation, params: Any, ins: list[Any], plain_op: Operation
    ) -> list[Any]:
        """The intervals of one operation. The graph records it as `plain_op`, because it
        differentiates the operation, and a custom derivative may be anything.
        """
        if self.graph is not None:
            ins = self.graph.tighten_inputs(name, ins)
        outs = apply_rule(name, op, params, ins)
        if outs is None:
            dtypes = ", ".join(str(value.low.dtype) for value in ins if isinstance(value, Interval))
            to = f" to {params['new_dtype']}" if name == "convert_element_type" else ""
            raise ValueError(
                f"interval_bounds: cannot bound '{name}' of {dtypes}{to}, applied to values that "
                "depend on the input. Bounds are for feed-forward networks; randomised_smoothing "
                "certifies any classifier."
            )
        return outs if self.graph is None else self.graph.record(name, plain_op, ins, outs)


def _literal_value(v: Any) -> np.ndarray:
    return np.asarray(v.val, v.aval.dtype)


def _evaluate(equation: Any, *values: Any) -> list[Any]:
    """The operation of an equation on other values."""
    outs = equation.primitive.bind(*values, **equation.params)
    return list(outs) if equation.primitive.multiple_results else [outs]


def _is_product(program: Any) -> bool:
    """Whether a jaxpr of two arguments is bilinear: one product, one factor of which depends on the
    first argument only and the other on the second, and otherwise rearrangements of one array.
    """
    if len(program.invars) != 2 or len(program.outvars) != 1 or program.constvars:
        return False
    # for each variable, the arguments it depends on
    sources: dict[Any, Any] = {v: {i} for i, v in enumerate(program.invars)}
    for equation in program.eqns:
        name, ins = equation.primitive.name, equation.invars
        if any(isinstance(v, Literal) for v in ins):
            return False
        if (
            name in PRODUCTS
            and [len(sources[v]) for v in ins] == [1, 1]
            and sources[ins[0]] != sources[ins[1]]
        ):
            sources[equation.outvars[0]] = {0, 1}
        elif name in LAYOUT_OPERATIONS and len(ins) == 1:
            sources[equation.outvars[0]] = sources[ins[0]]
        else:
            return False
    return not isinstance(program.outvars[0], Literal) and sources[program.outvars[0]] == {0, 1}


def _recognise(name: str, op: Operation, ins: list[Any]) -> tuple[str, Operation, list[Any]]:
    """Recognises a maximum, a minimum or a leaky ReLU that is written as `where(a > b, ...)`.

    As a choice between two intervals it would be bounded by their union, and have no linear bounds.
    """
    if name != "select_n" or not isinstance(ins[0], Interval) or ins[0].greater is None:
        return name, op, ins
    # select_n(a > b, if_false, if_true); the objects are compared by identity
    (a, b), if_false, if_true = ins[0].greater, *ins[1:]
    if if_true is a and if_false is b:
        return "max", lambda a, b: [jnp.maximum(a, b)], [a, b]
    if if_true is b and if_false is a:
        return "min", lambda a, b: [jnp.minimum(a, b)], [a, b]
    slope, of = (
        if_false.multiple if isinstance(if_false, Interval) and if_false.multiple else (None, None)
    )
    is_leaky = (
        if_true is a and of is a and as_scalar(b) == 0 and slope is not None and 0 <= slope <= 1
    )
    if is_leaky:
        return "leaky", lambda z: [jnp.where(z >= 0, z, slope * z)], [a]
    return name, op, ins


def bound_scan(scan: Scan, ins: list[Any]) -> list[Any]:
    """Interprets a `lax.scan`, without recording it in a graph.

    Which parts of the carry are intervals must be the same in every iteration. A part that starts
    as a known value becomes an interval if one iteration makes it one, so the set of interval parts
    is enlarged until it no longer changes.
    """
    n_consts, n_carry, body = scan.consts, scan.carry, scan.body
    consts = ins[:n_consts]
    start = ins[n_consts : n_consts + n_carry]
    sequences = ins[n_consts + n_carry :]
    uncertain = {i for i, value in enumerate(start) if isinstance(value, Interval)}

    def iteration(carry: list[Any], items: list[Any]) -> tuple[list[Any], list[Any]]:
        outs = IntervalInterpreter().run(body.jaxpr, body.consts, [*consts, *carry, *items])
        outs = [_drop_provenance(out) for out in outs]
        now_uncertain.update(i for i, out in enumerate(outs[:n_carry]) if isinstance(out, Interval))
        carry = [
            _as_interval(out) if i in uncertain else out for i, out in enumerate(outs[:n_carry])
        ]
        return carry, outs[n_carry:]

    while True:
        now_uncertain: set[int] = set()
        carry = [
            _as_interval(_drop_provenance(value)) if i in uncertain else value
            for i, value in enumerate(start)
        ]
        items = [_drop_provenance(value) for value in sequences]
        # trace one iteration abstractly, which fills `now_uncertain`
        slices = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), items)
        jax.eval_shape(iteration, carry, slices)
        if now_uncertain <= uncertain:
            carry, outs = jax.lax.scan(
                iteration, carry, items, scan.length, scan.reverse, scan.unroll
            )
            return [*carry, *outs]
        uncertain |= now_uncertain


def _drop_provenance(value: Any) -> Any:
    """An interval without graph node, comparison and multiple, which do not hold across a scan."""
    return Interval(value.low, value.high) if isinstance(value, Interval) else value


def _as_interval(value: Any) -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value)
