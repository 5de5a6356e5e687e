r"""What an operation makes of numbers of which only the least and the largest are known: $l \le z \le h$.

An operation that grows with each of its arguments has its ends where they have theirs. A product
$\sum_i w_i z_i$ has the centre of $z$ for its centre, and the radius $\sum_i |w_i| \frac{h_i - l_i}{2}$; where both
factors are uncertain, $c_v c_z \pm ((|c_v| + r_v)\, r_z + r_v |c_z|)$. A comparison may be undecided, and a choice that
hangs on it is then either.
"""

from collections.abc import Callable
from itertools import product as pairs
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

Do = Callable[..., list[Any]]  # the operation itself, on numbers


class Interval(NamedTuple):
    """The least and the largest that a number can be."""

    low: Any
    high: Any
    node: int | None = None  # where it is found on a trail
    greater: tuple[Any, Any] | None = None  # of a truth value: "the first is greater than the second", if it says that
    multiple: tuple[float, Any] | None = None  # so many times another interval, if it is that


ANY = range(10**6)
MOVES: dict[str, Any] = {  # sums and moves: affine, and growing with the arguments at these places
    **dict.fromkeys(("reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "rev"), ANY),
    **dict.fromkeys(("concatenate", "stack", "split", "pad", "copy", "copy_p"), ANY),
    **dict.fromkeys(("reduce_sum", "cumsum", "reduce_window_sum", "add", "add_any", "reduce_precision"), ANY),
    "convert_element_type": ANY,
    "gather": (0,),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "scatter-add": (0, 2),
    "select_n": ANY[1:],
}
RISING: dict[str, Any] = {
    **MOVES,
    **dict.fromkeys(("max", "min", "clamp", "reduce_max", "reduce_min", "cummax", "cummin", "cumlogsumexp"), ANY),
    **dict.fromkeys(("reduce_window_max", "reduce_window_min", "and", "or", "reduce_and", "reduce_or"), ANY),
    **dict.fromkeys(("tanh", "logistic", "exp", "exp2", "expm1", "erf", "log", "log1p", "sqrt", "cbrt"), ANY),
    **dict.fromkeys(("sinh", "asinh", "atan", "floor", "ceil", "round", "sign", "leaky"), ANY),
}
FALLING = ("neg", "not", "erfc", "rsqrt")
FLOOR = {"log": 0.0, "sqrt": 0.0, "rsqrt": 0.0, "log1p": -1.0}  # there is no number below


def bounded(name: str, do: Do, how: Any, ins: list[Any]) -> list[Interval] | None:
    """What the operation gives, or nothing if it is none that is known."""
    at = [place for place, value in enumerate(ins) if isinstance(value, Interval)]
    if name in FLOOR:
        ins = [ins[0]._replace(low=jnp.maximum(ins[0].low, FLOOR[name]))]
    if name in RISING and all(place in RISING[name] for place in at):
        return rising(do, ins)
    if name in FALLING:
        return rising(do, [Interval(ins[0].high, ins[0].low)])
    if name == "sort" or name == "integer_pow":
        return _sort(do, how, ins) if name == "sort" else _power(do, how, ins)
    return RULES[name](do, ins) if name in RULES else None


def rising(do: Do, ins: list[Any]) -> list[Interval]:
    """What grows with everything it reads: lows from lows, highs from highs."""
    lows, highs = do(*[ends(v)[0] for v in ins]), do(*[ends(v)[1] for v in ins])
    return [Interval(low, high) for low, high in zip(lows, highs)]


def ends(value: Any) -> tuple[Any, Any]:
    """Low and high; of what is certain both the same."""
    return (value.low, value.high) if isinstance(value, Interval) else (value, value)


def ball_of(value: Any) -> tuple[Any, Any]:
    """Centre and radius; none of what is certain."""
    if not isinstance(value, Interval):
        return value, None
    return (value.low + value.high) / 2, (value.high - value.low) / 2


def multiplied(do: Do, ins: list[Any]) -> list[Interval]:
    """A product of two arrays in any sense: of matrices, of a kernel and a signal, of numbers."""
    (c_v, r_v), (c_z, r_z) = map(ball_of, ins)
    (c,) = do(c_v, c_z)
    parts = [] if r_z is None else [(jnp.abs(c_v) + (0 if r_v is None else r_v), r_z)]
    parts += [] if r_v is None else [(r_v, jnp.abs(c_z))]
    r = sum(do(*part)[0] for part in parts)
    return [Interval(c - r, c + r)]


def times(do: Do, ins: list[Any]) -> list[Interval]:
    """A product, number by number: of a value with itself a square, of two that vary the extremes of the corners."""
    a, b = ins
    if a is b:
        return bowl(lambda z: do(z, z), ins[:1])
    if isinstance(a, Interval) and isinstance(b, Interval):
        return _extremes([do(*corner)[0] for corner in pairs(ends(a), ends(b))])
    (out,) = multiplied(do, ins)
    factor, of = (b, a) if isinstance(a, Interval) else (a, b)
    return [out._replace(multiple=(number(factor), of))]


def divided(do: Do, ins: list[Any]) -> list[Interval]:
    """A quotient; anything at all where the divisor may be 0."""
    a, b = ins
    if not isinstance(b, Interval):
        c, r = ball_of(a)
        (c,), (r,) = do(c, b), do(r, jnp.abs(b))
        return [Interval(c - r, c + r)]
    (out,) = _extremes([do(*corner)[0] for corner in pairs(ends(a), ends(b))])
    apart = (b.low > 0) | (b.high < 0)
    return [Interval(jnp.where(apart, out.low, -jnp.inf), jnp.where(apart, out.high, jnp.inf))]


def less(do: Do, ins: list[Any]) -> list[Interval]:
    """A difference: least where the first is least and the second largest."""
    (a, b), (c, d) = ends(ins[0]), ends(ins[1])
    return [Interval(do(a, d)[0], do(b, c)[0])]


def bowl(do: Do, ins: list[Any]) -> list[Interval]:
    """An even function that grows with $|z|$."""
    low, high = ends(ins[0])
    return [Interval(do(jnp.clip(0.0, low, high).astype(low.dtype))[0], jnp.maximum(do(low)[0], do(high)[0]))]


def chosen(do: Do, ins: list[Any]) -> list[Interval]:
    """A choice that hangs on an undecided truth: either, where it is undecided."""
    which, no, yes = ins
    (a, b), (c, d) = ends(no), ends(yes)
    low = jnp.where(which.low, c, jnp.where(which.high, jnp.minimum(a, c), a))
    return [Interval(low, jnp.where(which.low, d, jnp.where(which.high, jnp.maximum(b, d), b)))]


def over(do: Do, ins: list[Any]) -> list[Interval]:
    """a > b or a ≥ b: certain if it holds at the worst ends, possible unless it fails at the best."""
    (a, b), (c, d) = ends(ins[0]), ends(ins[1])
    return [Interval(do(a, d)[0], do(b, c)[0] | jnp.isnan(b) | jnp.isnan(c), greater=(ins[0], ins[1]))]


def under(do: Do, ins: list[Any]) -> list[Interval]:
    """a < b or a ≤ b, as b over a."""
    return over(lambda a, b: do(b, a), ins[::-1])


def equal(do: Do, ins: list[Any]) -> list[Interval]:
    """Certain if both are single numbers and the same, possible if they overlap."""
    (a, b), (c, d) = ends(ins[0]), ends(ins[1])
    certain = (a == b) & (c == d) & (a == c)
    return [Interval(certain | (ins[0] is ins[1]), ~((b < c) | (d < a)))]


def unequal(do: Do, ins: list[Any]) -> list[Interval]:
    """The contrary of equal."""
    (same,) = equal(do, ins)
    return [Interval(~same.high & (ins[0] is not ins[1]), ~same.low)]


def finite(do: Do, ins: list[Any]) -> list[Interval]:
    """Certain if both ends are finite; always possible."""
    certain = do(ins[0].low)[0] & do(ins[0].high)[0]
    return [Interval(certain, jnp.ones_like(certain))]


def number(value: Any) -> float | None:
    """The value, if it is a single number of the program itself."""
    return float(value) if isinstance(value, float | int | np.ndarray | np.generic) and np.size(value) == 1 else None


def _extremes(values: list[Any]) -> list[Interval]:
    stacked = jnp.stack(jnp.broadcast_arrays(*values))
    return [Interval(stacked.min(0), stacked.max(0))]


def _sort(do: Do, how: Any, ins: list[Any]) -> list[Interval] | None:
    return rising(do, ins) if len(ins) == 1 else None


def _power(do: Do, how: Any, ins: list[Any]) -> list[Interval] | None:
    if how["y"] < 0:
        return None
    return rising(do, ins) if how["y"] % 2 else bowl(do, ins)


RULES: dict[str, Callable[[Do, list[Any]], list[Interval]]] = {
    "dot_general": multiplied,
    "conv_general_dilated": multiplied,
    "product": multiplied,
    "mul": times,
    "div": divided,
    "sub": less,
    "square": bowl,
    "abs": bowl,
    "select_n": chosen,
    **dict.fromkeys(("ge", "gt"), over),
    **dict.fromkeys(("le", "lt"), under),
    "eq": equal,
    "ne": unequal,
    "is_finite": finite,
}
