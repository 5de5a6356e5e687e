r"""What a network can put out when its input is anything between two ends (Gowal et al. 2018).

The program that JAX traces of the network is run with an interval $[l, h]$ in place of every number
that depends on the input. An affine map has the centre $Wc + b$ and the radius $|W| r$; what grows
has its ends where its argument has. All that the network can do lies inside, but not all that lies
inside can happen: each number is taken to be free of the others, and the more layers, the wider the
bounds.

Bounds are those of real numbers, computed in floating point: they hold up to rounding. Where the
network may give NaN or overflow to it, they are infinite.
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
from ...jaxpr import Scan, called, done, scan_of
from .interval_rules import Interval, Operation, apply_rule, as_scalar

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
    r"""Numbers $l \le f(x) \le h$ for all $x$ between `low` and `high`, elementwise, for each
    output of any function.

    They can be mapped, compiled and differentiated. An operation for which no rule is known to be
    valid is refused by its name with a `ValueError`. Gowal et al. 2018; Mirman, Gehr & Vechev 2018.

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
    put = partial(jax.tree.unflatten, jax.tree.structure(shapes))
    return put(lows), put(highs)


def check_interval(low: Any, high: Any) -> tuple[Array, Array]:
    """The ends as arrays, once they are known to be ends."""
    expect_floats("interval_bounds: low", low)
    low = jnp.asarray(low)
    high = jnp.asarray(high)
    if low.shape != high.shape or low.dtype != high.dtype:
        came = f"{low.dtype}{low.shape} and {high.dtype}{high.shape}"
        raise ValueError(f"interval_bounds: the ends must have one shape and dtype; got {came}.")
    seen = not isinstance(low, Tracer) and not isinstance(high, Tracer)
    if seen and not bool(np.all(np.asarray(low) <= np.asarray(high))):
        raise ValueError("interval_bounds: low must nowhere be above high.")
    return low, high


def trace_program(f: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """The program of a function, and the shapes of what it gives."""
    return jax.make_jaxpr(lambda x: f(x), return_shape=True)(jax.ShapeDtypeStruct(x.shape, x.dtype))


def output_bounds(out: Any) -> tuple[Any, Any]:
    """The ends of an output; those about which nothing is known are infinite."""
    if not isinstance(out, Interval):
        return out, out
    if not jnp.issubdtype(out.low.dtype, jnp.floating):
        return out.low, out.high
    return jnp.where(jnp.isnan(out.low), -jnp.inf, out.low), jnp.where(
        jnp.isnan(out.high), jnp.inf, out.high
    )


class IntervalInterpreter:
    """One run through a program, with intervals; a trail is told of every step, and may narrow
    them.
    """

    def __init__(self, trail: Any = None):
        self.trail = trail

    def run(self, program: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        held: dict[Any, Any] = dict(
            zip((*program.constvars, *program.invars), (*consts, *args), strict=True)
        )
        read = lambda v: _literal(v) if isinstance(v, Literal) else held[v]
        for equation in program.eqns:
            outs = self.step(program, equation, [read(v) for v in equation.invars])
            held.update(zip(equation.outvars, outs, strict=True))
        return [read(v) for v in program.outvars]

    def step(self, program: Any, equation: Any, ins: list[Any]) -> list[Any]:
        """What an operation gives; one on what is certain is done as it stands."""
        if not any(isinstance(value, Interval) for value in ins):
            return done(program, equation, ins)
        name, how = equation.primitive.name, equation.params
        if name == "stop_gradient":  # which changes no number, though its derivative says so
            return ins
        if name == "scan":
            return bound_scan(scan_of(equation), ins)
        inner = called(equation)
        if inner is not None and not (name.startswith("custom_") and _is_product(inner.jaxpr)):
            return self.run(inner.jaxpr, inner.consts, ins)
        if inner is not None:
            own = jaxpr_as_fun(ClosedJaxpr(inner.jaxpr, inner.consts))
            return self.bound(
                "product", lambda *values: done(program, equation, list(values)), how, ins, own
            )
        name, do, ins = _spelt(name, partial(_alone, equation), ins)
        return self.bound(name, do, how, ins, do)

    def bound(
        self, name: str, do: Operation, how: Any, ins: list[Any], plain: Operation
    ) -> list[Any]:
        """Bounds of one operation. A trail has it as `plain`, without a derivative of its own,
        which may be any.
        """
        if self.trail is not None:
            ins = self.trail.before(name, ins)
        outs = apply_rule(name, do, how, ins)
        if outs is None:
            kinds = ", ".join(str(value.low.dtype) for value in ins if isinstance(value, Interval))
            to = f" to {how['new_dtype']}" if name == "convert_element_type" else ""
            raise ValueError(
                f"interval_bounds: cannot bound '{name}' of {kinds}{to}, which is done to what "
                "depends on the input. Bounds are for feed-forward networks; to certify any "
                "classifier at all, take smoothed."
            )
        return outs if self.trail is None else self.trail.after(name, plain, ins, outs)


def _literal(v: Any) -> np.ndarray:
    return np.asarray(v.val, v.aval.dtype)


def _alone(equation: Any, *values: Any) -> list[Any]:
    """One operation on other numbers than the program has for it."""
    found = equation.primitive.bind(*values, **equation.params)
    return list(found) if equation.primitive.multiple_results else [found]


def _is_product(program: Any) -> bool:
    """Whether a program of two arguments is bilinear: one product, whose one side comes from the
    first argument alone and whose other side from the second, and moves of a single array.
    """
    if len(program.invars) != 2 or len(program.outvars) != 1 or program.constvars:
        return False
    come: dict[Any, Any] = {v: {at} for at, v in enumerate(program.invars)}  # from which arguments
    for equation in program.eqns:
        name, ins = equation.primitive.name, equation.invars
        if any(isinstance(v, Literal) for v in ins):
            return False
        if (
            name in PRODUCTS
            and [len(come[v]) for v in ins] == [1, 1]
            and come[ins[0]] != come[ins[1]]
        ):
            come[equation.outvars[0]] = {0, 1}
        elif name in LAYOUT_OPERATIONS and len(ins) == 1:
            come[equation.outvars[0]] = come[ins[0]]
        else:
            return False
    return not isinstance(program.outvars[0], Literal) and come[program.outvars[0]] == {0, 1}


def _spelt(name: str, do: Operation, ins: list[Any]) -> tuple[str, Operation, list[Any]]:
    """A maximum, a minimum or a leaky ReLU that is written as a choice, by its name."""
    if name != "select_n" or not isinstance(ins[0], Interval) or ins[0].greater is None:
        return name, do, ins
    (a, b), no, yes = ins[0].greater, *ins[1:]
    if yes is a and no is b:
        return "max", lambda a, b: [jnp.maximum(a, b)], [a, b]
    if yes is b and no is a:
        return "min", lambda a, b: [jnp.minimum(a, b)], [a, b]
    slope, of = no.multiple if isinstance(no, Interval) and no.multiple else (None, None)
    if yes is a and of is a and as_scalar(b) == 0 and slope is not None and 0 <= slope <= 1:
        return "leaky", lambda z: [jnp.where(z >= 0, z, slope * z)], [a]
    return name, do, ins


def bound_scan(how: Scan, ins: list[Any]) -> list[Any]:
    """A scan: what it carries is an interval as soon as one round makes it one."""
    kept, carried, body = how.consts, how.carry, how.body
    fixed = ins[:kept]
    start = ins[kept : kept + carried]
    along = ins[kept + carried :]
    free = {at for at, value in enumerate(start) if isinstance(value, Interval)}

    def one(state: list[Any], items: list[Any]) -> tuple[list[Any], list[Any]]:
        outs = [
            _bare(out)
            for out in IntervalInterpreter().run(body.jaxpr, body.consts, [*fixed, *state, *items])
        ]
        found.update(at for at, out in enumerate(outs[:carried]) if isinstance(out, Interval))
        return [_wide(out) if at in free else out for at, out in enumerate(outs[:carried])], outs[
            carried:
        ]

    while True:
        found: set[int] = set()
        state = [_wide(_bare(value)) if at in free else value for at, value in enumerate(start)]
        items = [_bare(value) for value in along]
        jax.eval_shape(
            one, state, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), items)
        )
        if found <= free:
            state, outs = jax.lax.scan(one, state, items, how.length, how.reverse, how.unroll)
            return [*state, *outs]
        free |= found


def _bare(value: Any) -> Any:
    return Interval(value.low, value.high) if isinstance(value, Interval) else value


def _wide(value: Any) -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value)
