r"""What an operation makes of numbers of which only the least and the largest are known:
$l \le z \le h$.

An operation is bounded only if it is in the table `RULES`, for arguments at the places and of the
dtypes listed there. Everything else is refused: integers, complex numbers, casts to bool or to
integers, functions that a reduction calls.

An operation that grows with each of its arguments has its ends where they have theirs. A product
$\sum_i w_i z_i$ has the centre of $z$ for its centre, and the radius
$\sum_i |w_i| \frac{h_i - l_i}{2}$; where both factors are uncertain,
$c_v c_z \pm ((|c_v| + r_v)\, r_z + r_v |c_z|)$. A comparison may be undecided, and a choice that
hangs on it is then either.

Ends may be infinite. If both ends are NaN, nothing is known about the number, and it may be NaN
itself: a logarithm of what may be negative, a quotient whose divisor may be 0, a sum in which
infinities may cancel. A number that may be anything from $-\infty$ to $\infty$ is written in the
same way wherever infinities could cancel.
"""

from collections.abc import Callable, Container
from functools import reduce
from itertools import product as pairs
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

Operation = Callable[..., list[Any]]  # the operation itself, on numbers


class Interval(NamedTuple):
    """The least and the largest that a number can be; both are NaN if nothing is known, not even
    that it is no NaN.
    """

    low: Any
    high: Any
    node: int | None = None  # where it is found on a trail
    greater: tuple[Any, Any] | None = (
        None  # of a truth value: "the first is greater than the second", if it says that
    )
    multiple: tuple[float, Any] | None = None  # so many times another interval, if it is that


class Rule(NamedTuple):
    """How an operation is bounded, and for which arguments the rule is valid."""

    bounds: Callable[
        [Operation, Any, list[Any]], list[Interval] | None
    ]  # of the operation, its parameters, its arguments
    dtypes: tuple[str, ...]  # that uncertain arguments may have
    places: Container[int]  # at which arguments may be uncertain


FLOATS = ("float16", "bfloat16", "float32", "float64")
BOOLS = ("bool",)
ANY = range(10**6)
DATA_MOVEMENT: dict[
    str, Any
] = {  # numbers change their places, whatever they are; uncertain ones at these arguments
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
AFFINE_MOVES = {
    **DATA_MOVEMENT,
    **SUMS,
    "convert_element_type": ANY,
}  # of floats: affine in the arguments at these places
INCREASING = (  # in every argument, wherever it is a float
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
DOMAINS: dict[
    str, Callable[[Any], Any]
] = {  # where the least that the argument can be has to lie; else it may be NaN
    "log": lambda low: low >= 0,
    "log1p": lambda low: low >= -1,
    "sqrt": lambda low: low >= 0,
    "rsqrt": lambda low: low > 0,  # of -0 it is -inf
}


def apply_rule(name: str, do: Operation, how: Any, ins: list[Any]) -> list[Interval] | None:
    """What the operation gives, or nothing if no rule is valid for it."""
    rule = RULES.get(name)
    if rule is None:
        return None
    for place, value in enumerate(ins):
        if isinstance(value, Interval) and not (
            place in rule.places and value.low.dtype.name in rule.dtypes
        ):
            return None
    outs = rule.bounds(do, how, ins)
    valid = outs is not None and all(out.low.dtype.name in FLOATS + BOOLS for out in outs)
    return outs if valid else None


def monotone_increasing(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """What grows with everything it reads: lows from lows, highs from highs."""
    lows = do(*[endpoints(v)[0] for v in ins])
    highs = do(*[endpoints(v)[1] for v in ins])
    return [Interval(low, high) for low, high in zip(lows, highs)]


def monotone_decreasing(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """What falls with its only argument."""
    return monotone_increasing(do, how, [Interval(ins[0].high, ins[0].low)])


def bound_sum(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """A sum: as what rises, unless infinities may cancel."""
    return [interval_or_unknown(out.low, out.high) for out in monotone_increasing(do, how, ins)]


def bound_cast(do: Operation, how: Any, ins: list[Any]) -> list[Interval] | None:
    """To a float, which rises up to infinity; a cast of floats to bool or to an integer does not
    rise.
    """
    return monotone_increasing(do, how, ins) if how["new_dtype"].name in FLOATS else None


def on_domain(
    domain: Callable[[Any], Any], rule: Callable[..., Any]
) -> Callable[[Operation, Any, list[Any]], Any]:
    """A function that is defined above a number only: where its argument may lie below, nothing is
    known.
    """

    def bounds(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
        (out,) = rule(do, how, ins)
        inside = domain(ins[0].low)
        return [Interval(jnp.where(inside, out.low, jnp.nan), jnp.where(inside, out.high, jnp.nan))]

    return bounds


def interval_or_unknown(low: Any, high: Any) -> Interval:
    """The ends, or NaN where infinities may have met: where one end is NaN, or where nothing is
    left to say.
    """
    lost = jnp.isnan(low) | jnp.isnan(high) | ((low == -jnp.inf) & (high == jnp.inf))
    return Interval(jnp.where(lost, jnp.nan, low), jnp.where(lost, jnp.nan, high))


def endpoints(value: Any) -> tuple[Any, Any]:
    """Low and high; of what is certain both the same."""
    return (value.low, value.high) if isinstance(value, Interval) else (value, value)


def centre_and_radius(value: Any) -> tuple[Any, Any]:
    """Centre and radius; none of what is certain."""
    if not isinstance(value, Interval):
        return value, None
    return (value.low + value.high) / 2, (value.high - value.low) / 2


def bound_bilinear(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """A product of two arrays in any sense: of matrices, of a kernel and a signal, of numbers."""
    (c_v, r_v), (c_z, r_z) = map(centre_and_radius, ins)
    (c,) = do(c_v, c_z)
    parts = [] if r_z is None else [(jnp.abs(c_v) + (0 if r_v is None else r_v), r_z)]
    parts += [] if r_v is None else [(r_v, jnp.abs(c_z))]
    r = sum(do(*part)[0] for part in parts)
    return [interval_or_unknown(c - r, c + r)]


def bound_multiplication(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """A product, number by number: of a value with itself a square, otherwise the extremes of the
    corners.
    """
    a, b = ins
    if a is b:
        return bound_even(lambda z: do(z, z), how, ins[:1])
    out = _extremes(do, a, b)
    if isinstance(a, Interval) and isinstance(b, Interval):
        return [out]
    factor, of = (b, a) if isinstance(a, Interval) else (a, b)
    return [out._replace(multiple=(as_scalar(factor), of))]


def bound_division(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """A quotient; nothing is known where the divisor may be 0."""
    a, b = ins
    out = _extremes(do, a, b)
    if not isinstance(b, Interval):
        return [out]
    apart = (b.low > 0) | (b.high < 0)
    return [Interval(jnp.where(apart, out.low, jnp.nan), jnp.where(apart, out.high, jnp.nan))]


def bound_subtraction(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """A difference: least where the first is least and the second largest."""
    (a, b), (c, d) = endpoints(ins[0]), endpoints(ins[1])
    return [interval_or_unknown(do(a, d)[0], do(b, c)[0])]


def bound_even(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """An even function that grows with $|z|$."""
    low, high = endpoints(ins[0])
    return [
        Interval(
            do(jnp.clip(0.0, low, high).astype(low.dtype))[0], jnp.maximum(do(low)[0], do(high)[0])
        )
    ]


def bound_integer_power(do: Operation, how: Any, ins: list[Any]) -> list[Interval] | None:
    """A power; one with a negative exponent has no rule."""
    if how["y"] < 0:
        return None
    return monotone_increasing(do, how, ins) if how["y"] % 2 else bound_even(do, how, ins)


def bound_sort(do: Operation, how: Any, ins: list[Any]) -> list[Interval] | None:
    """Numbers in order rise with each of them; where one may be NaN, it may take any place."""
    if len(ins) != 1:
        return None
    (out,) = monotone_increasing(do, how, ins)
    lost = jnp.isnan(ins[0].low).any(how["dimension"], keepdims=True)
    return [Interval(jnp.where(lost, jnp.nan, out.low), jnp.where(lost, jnp.nan, out.high))]


def bound_select(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """A choice that hangs on an undecided truth: either, where it is undecided."""
    which, no, yes = ins
    if not isinstance(which, Interval):
        return monotone_increasing(do, how, ins)
    (a, b), (c, d) = endpoints(no), endpoints(yes)
    low = jnp.where(which.low, c, jnp.where(which.high, jnp.minimum(a, c), a))
    return [Interval(low, jnp.where(which.low, d, jnp.where(which.high, jnp.maximum(b, d), b)))]


def bound_greater(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """a > b or a ≥ b: certain if it holds at the worst ends, possible unless it fails at the
    best.
    """
    (a, b), (c, d) = endpoints(ins[0]), endpoints(ins[1])
    return [
        Interval(do(a, d)[0], do(b, c)[0] | jnp.isnan(b) | jnp.isnan(c), greater=(ins[0], ins[1]))
    ]


def bound_less(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """a < b or a ≤ b, as b over a."""
    return bound_greater(lambda a, b: do(b, a), how, ins[::-1])


def bound_equal(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """Certain if both are single numbers and the same, or one value that is not NaN; possible if
    they overlap.
    """
    (a, b), (c, d) = endpoints(ins[0]), endpoints(ins[1])
    certain = (a == b) & (c == d) & (a == c)
    if ins[0] is ins[1]:
        certain = ~jnp.isnan(a)
    return [Interval(certain, ~((b < c) | (d < a)))]


def bound_not_equal(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """The contrary of equal."""
    (same,) = bound_equal(do, how, ins)
    return [Interval(~same.high, ~same.low)]


def bound_is_finite(do: Operation, how: Any, ins: list[Any]) -> list[Interval]:
    """Certain if both ends are finite; always possible."""
    certain = do(ins[0].low)[0] & do(ins[0].high)[0]
    return [Interval(certain, jnp.ones_like(certain))]


def as_scalar(value: Any) -> float | None:
    """The value, if it is a single number of the program itself."""
    return (
        float(value)
        if isinstance(value, float | int | np.ndarray | np.generic) and np.size(value) == 1
        else None
    )


def _extremes(do: Operation, a: Any, b: Any) -> Interval:
    """The least and the largest at the corners."""
    sides = [endpoints(v) if isinstance(v, Interval) else (v,) for v in (a, b)]
    corners = [do(*corner)[0] for corner in pairs(*sides)]
    return interval_or_unknown(reduce(jnp.minimum, corners), reduce(jnp.maximum, corners))


RULES: dict[str, Rule] = {
    **{
        name: Rule(monotone_increasing, FLOATS + BOOLS, places)
        for name, places in DATA_MOVEMENT.items()
    },
    **{name: Rule(bound_sum, FLOATS, places) for name, places in SUMS.items()},
    **dict.fromkeys(INCREASING, Rule(monotone_increasing, FLOATS, ANY)),
    **dict.fromkeys(DECREASING, Rule(monotone_decreasing, FLOATS, ANY)),
    **dict.fromkeys(
        ("and", "or", "reduce_and", "reduce_or"), Rule(monotone_increasing, BOOLS, ANY)
    ),  # bitwise on integers
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
