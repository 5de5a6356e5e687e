r"""Interval rules: the bounds of each operation's outputs from bounds of its inputs,
$l \le z \le h$.

An operation is bounded only if the table `RULES` lists it, with intervals only at the arguments and
of the dtypes listed there. Everything else is refused: integers, complex numbers, casts to bool or
to integers, functions that a reduction calls.

An operation that increases in each argument maps lower ends to the lower end and upper ends to the
upper end. A product $\sum_i w_i z_i$ has the centre of $z$ as its centre, and the radius
$\sum_i |w_i| \frac{h_i - l_i}{2}$; if both factors are intervals,
$c_v c_z \pm ((|c_v| + r_v)\, r_z + r_v |c_z|)$. A comparison may be undecided; a selection by it is
then bounded by the union of both cases.

Ends may be infinite. If both ends are NaN nothing is known about the value, which may be NaN
itself: a logarithm of a possibly negative number, a quotient whose divisor may be 0, a sum in which
infinities may cancel. Wherever infinities could cancel, the interval from $-\infty$ to $\infty$ is
written the same way.
"""

from collections.abc import Callable, Container
from functools import reduce
from itertools import product as pairs
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

Operation = Callable[..., list[Any]]  # the operation on arrays


class Interval(NamedTuple):
    """Lower and upper bounds of every entry of an array; both are NaN where nothing is known, and
    the entry itself may be NaN.
    """

    low: Any
    high: Any
    node: int | None = None  # its node in the graph that records it
    greater: tuple[Any, Any] | None = None  # (a, b) if it is the result of the comparison a > b
    multiple: tuple[float, Any] | None = None  # (c, z) if it is c times the interval z


class Rule(NamedTuple):
    """How an operation is bounded, and for which arguments the rule is valid."""

    # from the operation, its parameters and its arguments
    bounds: Callable[[Operation, Any, list[Any]], list[Interval] | None]
    dtypes: tuple[str, ...]  # allowed dtypes of arguments that are intervals
    arguments: Container[int]  # indices of the arguments that may be intervals


FLOATS = ("float16", "bfloat16", "float32", "float64")
BOOLS = ("bool",)
ANY = range(10**6)
# Operations that only move entries; the values are the indices of the arguments that may be
# intervals.
DATA_MOVEMENT: dict[str, Any] = {
    **dict.fromkeys(
        ("reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "rev"), ANY
    ),
    **dict.fromkeys(("concatenate", "stack", "split", "pad", "tile", "copy", "copy_p"), ANY),
    "gather": (0,),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "select_n": ANY[1:],
}
SUMS: dict[str, Any] = {
    **dict.fromkeys(("reduce_sum", "cumsum", "reduce_window_sum", "add", "add_any"), ANY),
    "scatter-add": (0, 2),
}
# Affine in these arguments if they are floats.
AFFINE_MOVES = {**DATA_MOVEMENT, **SUMS, "convert_element_type": ANY}
# Increasing in every float argument.
INCREASING = (
    *("max", "min", "clamp", "reduce_max", "reduce_min", "cummax", "cummin", "cumlogsumexp"),
    *(
        "reduce_window_max",
        "reduce_window_min",
        "reduce_precision",
        "floor",
        "ceil",
        "round",
        "sign",
        "leaky",
    ),
    *("tanh", "logistic", "exp", "exp2", "expm1", "erf", "cbrt", "sinh", "asinh", "atan"),
)
DECREASING = ("neg", "erfc")
# Conditions on the lower end of the argument; where they fail, the result may be NaN.
DOMAINS: dict[str, Callable[[Any], Any]] = {
    "log": lambda low: low >= 0,
    "log1p": lambda low: low >= -1,
    "sqrt": lambda low: low >= 0,
    "rsqrt": lambda low: low > 0,  # rsqrt(-0) is -inf
}


def apply_rule(name: str, op: Operation, params: Any, ins: list[Any]) -> list[Interval] | None:
    """The intervals of the outputs; None if no rule is valid for these arguments."""
    rule = RULES.get(name)
    if rule is None:
        return None
    for i, value in enumerate(ins):
        if isinstance(value, Interval) and not (
            i in rule.arguments and value.low.dtype.name in rule.dtypes
        ):
            return None
    outs = rule.bounds(op, params, ins)
    valid = outs is not None and all(out.low.dtype.name in FLOATS + BOOLS for out in outs)
    return outs if valid else None


def monotone_increasing(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """An operation that increases in every argument: lows from lows, highs from highs."""
    lows = op(*[endpoints(v)[0] for v in ins])
    highs = op(*[endpoints(v)[1] for v in ins])
    return [Interval(low, high) for low, high in zip(lows, highs)]


def monotone_decreasing(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """An operation of one argument that decreases in it."""
    return monotone_increasing(op, params, [Interval(ins[0].high, ins[0].low)])


def bound_sum(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """A sum: increasing, but unknown where infinities may cancel."""
    return [interval_or_unknown(out.low, out.high) for out in monotone_increasing(op, params, ins)]


def bound_cast(op: Operation, params: Any, ins: list[Any]) -> list[Interval] | None:
    """A cast to a float type, which is increasing; casts of floats to bool or to integers are not,
    and have no rule.
    """
    return monotone_increasing(op, params, ins) if params["new_dtype"].name in FLOATS else None


def on_domain(
    domain: Callable[[Any], Any], rule: Callable[..., Any]
) -> Callable[[Operation, Any, list[Any]], Any]:
    """The rule of a function that is defined above a number only: unknown where the argument may
    lie below it.
    """

    def bounds(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
        (out,) = rule(op, params, ins)
        inside = domain(ins[0].low)
        return [Interval(jnp.where(inside, out.low, jnp.nan), jnp.where(inside, out.high, jnp.nan))]

    return bounds


def interval_or_unknown(low: Any, high: Any) -> Interval:
    r"""The interval; NaN where infinities may have cancelled: where an end is NaN, or the interval
    is $[-\infty, \infty]$.
    """
    unknown = jnp.isnan(low) | jnp.isnan(high) | ((low == -jnp.inf) & (high == jnp.inf))
    return Interval(jnp.where(unknown, jnp.nan, low), jnp.where(unknown, jnp.nan, high))


def endpoints(value: Any) -> tuple[Any, Any]:
    """Lower and upper end; both are the value itself if it is not an interval."""
    return (value.low, value.high) if isinstance(value, Interval) else (value, value)


def centre_and_radius(value: Any) -> tuple[Any, Any]:
    """Centre and radius; the radius of a known value is None."""
    if not isinstance(value, Interval):
        return value, None
    return (value.low + value.high) / 2, (value.high - value.low) / 2


def bound_bilinear(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """A bilinear operation: a matrix product, a convolution."""
    (c_v, r_v), (c_z, r_z) = map(centre_and_radius, ins)
    (c,) = op(c_v, c_z)
    parts = [] if r_z is None else [(jnp.abs(c_v) + (0 if r_v is None else r_v), r_z)]
    parts += [] if r_v is None else [(r_v, jnp.abs(c_z))]
    r = sum(op(*part)[0] for part in parts)
    return [interval_or_unknown(c - r, c + r)]


def bound_multiplication(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """An elementwise product: a square if both factors are the same value, otherwise the extremes
    of the products of the ends.
    """
    a, b = ins
    if a is b:
        return bound_even(lambda z: op(z, z), params, ins[:1])
    out = _extremes(op, a, b)
    if isinstance(a, Interval) and isinstance(b, Interval):
        return [out]
    factor, of = (b, a) if isinstance(a, Interval) else (a, b)
    return [out._replace(multiple=(as_scalar(factor), of))]


def bound_division(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """A quotient; unknown where the divisor may be 0."""
    a, b = ins
    out = _extremes(op, a, b)
    if not isinstance(b, Interval):
        return [out]
    nonzero = (b.low > 0) | (b.high < 0)
    return [Interval(jnp.where(nonzero, out.low, jnp.nan), jnp.where(nonzero, out.high, jnp.nan))]


def bound_subtraction(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """A difference: smallest for the smallest first and the largest second argument."""
    (a, b), (c, d) = endpoints(ins[0]), endpoints(ins[1])
    return [interval_or_unknown(op(a, d)[0], op(b, c)[0])]


def bound_even(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """An even function that increases with $|z|$."""
    low, high = endpoints(ins[0])
    return [
        Interval(
            op(jnp.clip(0.0, low, high).astype(low.dtype))[0], jnp.maximum(op(low)[0], op(high)[0])
        )
    ]


def bound_integer_power(op: Operation, params: Any, ins: list[Any]) -> list[Interval] | None:
    """An integer power; negative exponents have no rule."""
    if params["y"] < 0:
        return None
    return monotone_increasing(op, params, ins) if params["y"] % 2 else bound_even(op, params, ins)


def bound_sort(op: Operation, params: Any, ins: list[Any]) -> list[Interval] | None:
    """Sorted values increase in each input; a possible NaN may end up anywhere along the axis."""
    if len(ins) != 1:
        return None
    (out,) = monotone_increasing(op, params, ins)
    unknown = jnp.isnan(ins[0].low).any(params["dimension"], keepdims=True)
    return [Interval(jnp.where(unknown, jnp.nan, out.low), jnp.where(unknown, jnp.nan, out.high))]


def bound_select(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """A selection; where the condition is undecided, the union of both cases."""
    condition, if_false, if_true = ins
    if not isinstance(condition, Interval):
        return monotone_increasing(op, params, ins)
    (a, b), (c, d) = endpoints(if_false), endpoints(if_true)
    is_certain, is_possible = condition.low, condition.high
    low = jnp.where(is_certain, c, jnp.where(is_possible, jnp.minimum(a, c), a))
    high = jnp.where(is_certain, d, jnp.where(is_possible, jnp.maximum(b, d), b))
    return [Interval(low, high)]


def bound_greater(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """a > b or a ≥ b: certain if it holds for the least favourable ends, possible unless it fails
    for the most favourable ones.
    """
    (a, b), (c, d) = endpoints(ins[0]), endpoints(ins[1])
    return [
        Interval(op(a, d)[0], op(b, c)[0] | jnp.isnan(b) | jnp.isnan(c), greater=(ins[0], ins[1]))
    ]


def bound_less(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """a < b or a ≤ b: the rule of b > a."""
    return bound_greater(lambda a, b: op(b, a), params, ins[::-1])


def bound_equal(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """Certain if both intervals are the same single number, or both arguments are the same value
    and not NaN; possible if the intervals overlap.
    """
    (a, b), (c, d) = endpoints(ins[0]), endpoints(ins[1])
    certain = (a == b) & (c == d) & (a == c)
    if ins[0] is ins[1]:
        certain = ~jnp.isnan(a)
    return [Interval(certain, ~((b < c) | (d < a)))]


def bound_not_equal(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """The negation of `bound_equal`."""
    (equal,) = bound_equal(op, params, ins)
    return [Interval(~equal.high, ~equal.low)]


def bound_is_finite(op: Operation, params: Any, ins: list[Any]) -> list[Interval]:
    """Certain if both ends are finite; always possible."""
    certain = op(ins[0].low)[0] & op(ins[0].high)[0]
    return [Interval(certain, jnp.ones_like(certain))]


def as_scalar(value: Any) -> float | None:
    """The value, if it is a known single number; else None."""
    return (
        float(value)
        if isinstance(value, float | int | np.ndarray | np.generic) and np.size(value) == 1
        else None
    )


def _extremes(op: Operation, a: Any, b: Any) -> Interval:
    """The smallest and largest result over all combinations of the ends."""
    sides = [endpoints(v) if isinstance(v, Interval) else (v,) for v in (a, b)]
    corners = [op(*corner)[0] for corner in pairs(*sides)]
    return interval_or_unknown(reduce(jnp.minimum, corners), reduce(jnp.maximum, corners))


RULES: dict[str, Rule] = {
    **{
        name: Rule(monotone_increasing, FLOATS + BOOLS, arguments)
        for name, arguments in DATA_MOVEMENT.items()
    },
    **{name: Rule(bound_sum, FLOATS, arguments) for name, arguments in SUMS.items()},
    **dict.fromkeys(INCREASING, Rule(monotone_increasing, FLOATS, ANY)),
    **dict.fromkeys(DECREASING, Rule(monotone_decreasing, FLOATS, ANY)),
    # on integers these are bitwise, so only for bools
    **dict.fromkeys(
        ("and", "or", "reduce_and", "reduce_or"), Rule(monotone_increasing, BOOLS, ANY)
    ),
    "not": Rule(monotone_decreasing, BOOLS, ANY),
    "convert_element_type": Rule(bound_cast, FLOATS + BOOLS, ANY),
    **{
        name: Rule(on_domain(DOMAINS[name], monotone_increasing), FLOATS, ANY)
        for name in ("log", "log1p", "sqrt")
    },
    "rsqrt": Rule(on_domain(DOMAINS["rsqrt"], monotone_decreasing), FLOATS, ANY),
    **dict.fromkeys(
        ("dot_general", "conv_general_dilated", "product"), Rule(bound_bilinear, FLOATS, ANY)
    ),
    "mul": Rule(bound_multiplication, FLOATS, ANY),
    "div": Rule(bound_division, FLOATS, ANY),
    "sub": Rule(bound_subtraction, FLOATS, ANY),
    **dict.fromkeys(("square", "abs"), Rule(bound_even, FLOATS, ANY)),
    "integer_pow": Rule(bound_integer_power, FLOATS, ANY),
    "sort": Rule(bound_sort, FLOATS, ANY),
    "select_n": Rule(bound_select, FLOATS + BOOLS, ANY),
    **dict.fromkeys(("ge", "gt"), Rule(bound_greater, FLOATS, ANY)),
    **dict.fromkeys(("le", "lt"), Rule(bound_less, FLOATS, ANY)),
    "eq": Rule(bound_equal, FLOATS, ANY),
    "ne": Rule(bound_not_equal, FLOATS, ANY),
    "is_finite": Rule(bound_is_finite, FLOATS, ANY),
}
