r"""Linear relaxations of nonlinear operations: $a z + b \le f(z) \le a' z + b'$ for all
$l \le z \le h$.

A convex function lies below its chord and above each of its tangents. The tangent at the midpoint
is used, which for ReLU is the line of slope 1 if $h > -l$, and else 0 (Zhang et al. 2018). A
sigmoidal function like tanh, whose slope decreases on both sides of 0, has on $[l, h]$ at least the
slope $k = \min(f'(l), f'(h))$, so it lies above $f(l) + k (z - l)$ and below $f(h) + k (z - h)$
(Singh et al. 2019). A product lies between the planes through the corners of the rectangle of its
factors (McCormick 1976).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .interval_rules import Interval

CONVEX = ("exp", "exp2", "expm1", "square", "abs", "rsqrt", "leaky")
CONCAVE = ("log", "log1p", "sqrt")
S_CURVES = ("tanh", "logistic", "erf")


class Line(NamedTuple):
    """An affine function: a slope for each argument, and an offset."""

    slopes: tuple[Any, ...]
    offset: Any


class Relaxation(NamedTuple):
    """A lower and an upper bound that are affine in the arguments."""

    low: Line
    high: Line


def constant_relaxation(out: Interval) -> Relaxation:
    """The constant bounds of an interval."""
    return Relaxation(Line((), out.low), Line((), out.high))


def relax(name: str, f: Callable[[Any], Any], z: Interval, out: Interval) -> Relaxation | None:
    """The relaxation of an elementwise function; None unless it is convex, concave or sigmoidal."""
    if name in CONVEX:
        relaxation = relax_convex(f, z)
    elif name in CONCAVE:
        low, high = relax_convex(lambda z: -f(z), z)
        relaxation = Relaxation(_negative(high), _negative(low))
    elif name in S_CURVES:
        relaxation = relax_s_curve(f, z)
    else:
        return None
    return _sound(relaxation, (z.low >= -_far(z)) & (z.high <= _far(z)), out)


def relax_convex(f: Callable[[Any], Any], z: Interval) -> Relaxation:
    """A convex function lies above its tangent at the midpoint and below its chord."""
    l, h = _finite(z)
    middle = l / 2 + h / 2
    value, slope = _tangent(f, middle)
    return Relaxation(Line((slope,), value - slope * middle), _chord(f, l, h))


def relax_s_curve(f: Callable[[Any], Any], z: Interval) -> Relaxation:
    """A sigmoidal function, steepest at 0: the chord on the side where it is convex or concave,
    otherwise lines through the ends with the smaller of the two end slopes.
    """
    l, h = _finite(z)
    (at_l, slope_l), (at_h, slope_h), chord = _tangent(f, l), _tangent(f, h), _chord(f, l, h)
    k = jnp.minimum(slope_l, slope_h)
    low = Line((k,), at_l - k * l)
    high = Line((k,), at_h - k * h)
    return Relaxation(_where(l >= 0, chord, low), _where(h <= 0, chord, high))


def relax_max(d: Interval, out: Interval) -> Relaxation:
    r"""$\max(a, b) = b + (a - b)_+$, for the difference $d = a - b$."""
    low, high = (
        Line((line.slopes[0], 1 - line.slopes[0]), line.offset)
        for line in relax_convex(jax.nn.relu, d)
    )
    return _sound(Relaxation(low, high), _has_lines(d), out)


def relax_min(d: Interval, out: Interval) -> Relaxation:
    r"""$\min(a, b) = a - (a - b)_+$."""
    high, low = (
        Line((1 - line.slopes[0], line.slopes[0]), -line.offset)
        for line in relax_convex(jax.nn.relu, d)
    )
    return _sound(Relaxation(low, high), _has_lines(d), out)


def relax_product(x: Interval, y: Interval, out: Interval) -> Relaxation:
    r"""$xy \ge l_y x + l_x y - l_x l_y$ and $xy \le h_y x + l_x y - l_x h_y$."""
    low = Line((y.low, x.low), -x.low * y.low)
    high = Line((y.high, x.low), -x.low * y.high)
    finite = jnp.isfinite(x.low) & jnp.isfinite(x.high) & jnp.isfinite(y.low) & jnp.isfinite(y.high)
    return _sound(Relaxation(low, high), finite, out)


def _far(z: Interval) -> Any:
    """The largest magnitude for which lines are computed without overflow."""
    return jnp.asarray(jnp.finfo(z.low.dtype).max / 4, z.low.dtype)


def _has_lines(d: Interval) -> Any:
    """Where the lines of a ReLU are valid: within `_far`, or anywhere if the sign is known."""
    return (d.low >= 0) | (d.high <= 0) | ((d.low >= -_far(d)) & (d.high <= _far(d)))


def _finite(z: Interval) -> tuple[Any, Any]:
    """The ends of the interval, clipped to `_far`."""
    far = _far(z)
    low = jnp.where(jnp.isnan(z.low), -far, z.low)
    high = jnp.where(jnp.isnan(z.high), far, z.high)
    return jnp.clip(low, -far, far), jnp.clip(high, -far, far)


def _tangent(f: Callable[[Any], Any], z: Any) -> tuple[Any, Any]:
    return jax.jvp(f, (z,), (jnp.ones_like(z),))


def _chord(f: Callable[[Any], Any], l: Any, h: Any) -> Line:
    _, there = _tangent(f, l)
    slope = jnp.where(h > l, (f(h) - f(l)) / jnp.where(h > l, h - l, 1), there)
    return Line((slope,), f(l) - slope * l)


def _negative(line: Line) -> Line:
    return Line(tuple(-slope for slope in line.slopes), -line.offset)


def _where(which: Any, one: Line, other: Line) -> Line:
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), one, other)


def _sound(relaxation: Relaxation, valid: Any, out: Interval) -> Relaxation:
    """The lines, or constant bounds where the lines are not valid or not finite."""
    return Relaxation(
        *(_or_constant(line, valid, level) for line, level in zip(relaxation, (out.low, out.high)))
    )


def _or_constant(line: Line, valid: Any, level: Any) -> Line:
    for number in (*line.slopes, line.offset):
        valid = valid & jnp.isfinite(number)
    return Line(
        tuple(jnp.where(valid, slope, 0) for slope in line.slopes),
        jnp.where(valid, line.offset, level),
    )
