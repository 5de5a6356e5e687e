r"""The steps of a network on the way to bounds, so that a combination of its numbers can be
followed back to the input.

A step is affine, and hands a weight on by its transpose; or it is bent, and hands it on by the line
that bounds it from the side that the sign of the weight asks for. What comes to the input is
$c \cdot z \ge \Lambda \cdot x' + o$.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...core import Scalar
from ...threat.ball import L0, Ball
from .interval_rules import AFFINE_MOVES, Interval, Operation, bound_subtraction, endpoints
from .linear_relaxations import (
    Relaxation,
    constant_relaxation,
    relax,
    relax_max,
    relax_min,
    relax_product,
)

BoundMethod = Literal["interval", "mixed", "linear"]
MAX_ROWS_AT_ONCE = 256  # so many outputs are followed back at once


class AffineNode(NamedTuple):
    """A step that is affine in what it came from."""

    parents: tuple[int, ...]
    do: Callable[..., Any]
    shapes: tuple[Any, ...]
    offset: Any  # what it gives for zeros; nothing if that is 0

    def back(self, g: Array) -> tuple[Any, Any]:
        _, pull = jax.vjp(self.do, *map(_zeros, self.shapes))
        return pull(g), 0.0 if self.offset is None else _weighed(g, self.offset)


class RelaxedNode(NamedTuple):
    """A step of which only a strip is known in which it lies."""

    parents: tuple[int, ...]
    strip: Relaxation

    def back(self, g: Array) -> tuple[Any, Any]:
        low, high = self.strip
        take = lambda below, above: jnp.where(g >= 0, below, above)
        slopes = [take(below, above) for below, above in zip(low.slopes, high.slopes)]
        return [g * slope for slope in slopes], _weighed(g, take(low.offset, high.offset))


class BackwardGraph:
    """The steps of a walk, so that a combination of numbers can be followed back to the input."""

    def __init__(self, x: Array, start: Interval, ball: Ball, bounds: BoundMethod):
        self.x, self.start, self.ball, self.bounds = x, start, ball, bounds
        self.nodes: list[Any] = [None]  # the first is the input
        self.narrowed: dict[int, Interval] = {}

    def before(self, name: str, ins: list[Any]) -> list[Any]:
        """The arguments of a bend, as well as they can be known."""
        level = name in ("max", "min", "ge", "gt", "le", "lt", "eq", "ne", "is_finite") or _affine(
            name, ins
        )
        return ins if level or self.bounds != "linear" else [self.tight(value) for value in ins]

    def after(
        self, name: str, do: Operation, ins: list[Any], outs: list[Interval]
    ) -> list[Interval]:
        if not jnp.issubdtype(outs[0].low.dtype, jnp.floating):
            return outs
        if _affine(name, ins):
            return [
                self.affine(lambda *v, at=at: do(*v)[at], ins, out) for at, out in enumerate(outs)
            ]
        if self.bounds != "interval":
            if name in ("max", "min"):
                return [self.extreme(name, ins, outs[0])]
            if name == "mul" and ins[0] is not ins[1]:
                x, y = (self.spread(value, outs[0]) for value in ins)
                return [self.add([x, y], relax_product(x, y, outs[0]), outs[0])]
            strip = relax(name, lambda z: do(z)[0], ins[0], outs[0]) if len(ins) == 1 else None
            if strip is not None:
                return [self.add(ins, strip, outs[0])]
        return [self.add([], constant_relaxation(out), out) for out in outs]

    def affine(self, do: Callable[..., Any], ins: list[Any], out: Interval) -> Interval:
        """A step whose certain arguments are part of it."""
        free = [at for at, value in enumerate(ins) if isinstance(value, Interval)]

        def step(*values):
            now = dict(zip(free, values))
            return do(*[now.get(at, value) for at, value in enumerate(ins)])

        shapes = tuple(jax.ShapeDtypeStruct(ins[at].low.shape, ins[at].low.dtype) for at in free)
        offset = step(*map(_zeros, shapes)) if len(free) < len(ins) else None
        return self.put(
            AffineNode(tuple(self.place(ins[at]) for at in free), step, shapes, offset), out
        )

    def extreme(self, name: str, ins: list[Any], out: Interval) -> Interval:
        """The larger or the smaller of two, by their difference."""
        a, b = (self.spread(value, out) for value in ins)
        minus = lambda a, b: [a - b]
        d = self.tight(
            self.affine(lambda a, b: a - b, [a, b], bound_subtraction(minus, None, [a, b])[0])
        )
        part = jax.nn.relu(d.low), jax.nn.relu(d.high)
        if name == "max":
            out = _meet(out, b.low + part[0], b.high + part[1])
            return self.add([a, b], relax_max(d, out), out)
        out = _meet(out, a.low - part[1], a.high - part[0])
        return self.add([a, b], relax_min(d, out), out)

    def spread(self, value: Any, like: Interval) -> Interval:
        """The value as an interval of the shape that comes out."""
        shape = like.low.shape
        if isinstance(value, Interval) and value.low.shape == shape:
            return value
        wide = partial(jnp.broadcast_to, shape=shape)
        low, high = (wide(jnp.asarray(end)) for end in endpoints(value))
        if isinstance(value, Interval):
            return self.affine(wide, [value], Interval(low, high))
        return self.add([], constant_relaxation(Interval(low, high)), Interval(low, high))

    def add(self, ins: list[Any], strip: Relaxation, out: Interval) -> Interval:
        return self.put(RelaxedNode(tuple(map(self.place, ins)), strip), out)

    def put(self, node: Any, out: Interval) -> Interval:
        self.nodes.append(node)
        return out._replace(node=len(self.nodes) - 1)

    def place(self, value: Interval) -> int:
        """Where a value is on the trail; what came from elsewhere is put there as two numbers."""
        found = value if value.node is not None else self.add([], constant_relaxation(value), value)
        assert found.node is not None
        return found.node

    def tight(self, value: Any) -> Any:
        """The interval, narrowed by lines."""
        if not isinstance(value, Interval) or value.node is None or self.bounds != "linear":
            return value
        if value.node not in self.narrowed:
            low, high = self.each(value.node, value.low)
            self.narrowed[value.node] = _meet(value, low, -high)
        return self.narrowed[value.node]

    def each(self, node: int, like: Array) -> Array:
        """Of every number at a node what it is never below, and then of its negative."""
        unit = lambda at: (
            (jnp.arange(like.size) == at % like.size).astype(like.dtype).reshape(like.shape)
        )
        row = lambda at: self.least(
            node, jnp.where(at < like.size, 1, -1).astype(like.dtype) * unit(at)
        )
        rows = jnp.arange(2 * like.size)
        found = (
            jax.vmap(row)(rows)
            if len(rows) <= MAX_ROWS_AT_ONCE
            else jax.lax.map(row, rows, batch_size=MAX_ROWS_AT_ONCE)
        )
        return found.reshape(2, *like.shape).astype(like.dtype)  # the input may have another

    def least(self, node: int, c: Array) -> Scalar:
        r"""A number that $c \cdot z$ is never below, for the $z$ at a node."""
        weights: dict[int, Any] = {node: c}
        total = jnp.zeros((), c.dtype)
        for at in range(node, 0, -1):
            if at in weights:
                handed, offset = self.nodes[at].back(weights.pop(at))
                total = total + offset
                for parent, g in zip(self.nodes[at].parents, handed):
                    weights[parent] = weights[parent] + g if parent in weights else g
        return total + (self.least_of_input(weights[0]) if 0 in weights else 0.0)

    def least_of_input(self, g: Array) -> Scalar:
        r"""$\min_{x'} g \cdot x'$ over the ball, or over what each number can be, whichever is
        more.
        """
        low = self.start.low - self.x
        high = self.start.high - self.x
        falls = jnp.maximum(-g * low, -g * high)
        if isinstance(self.ball, L0):
            return (g * self.x).sum() - self.ball.dual(falls)
        return (g * self.x).sum() - jnp.minimum(falls.sum(), self.ball.radius * self.ball.dual(g))


def _affine(name: str, ins: list[Any]) -> bool:
    """Whether the operation is affine in what is uncertain."""
    free = [at for at, value in enumerate(ins) if isinstance(value, Interval)]
    if any(not jnp.issubdtype(ins[at].low.dtype, jnp.floating) for at in free):
        return False
    if name in AFFINE_MOVES:
        return all(at in AFFINE_MOVES[name] for at in free)
    if name == "div":
        return free == [0]
    return name in ("neg", "sub") or (
        name in ("mul", "dot_general", "conv_general_dilated", "product") and len(free) == 1
    )


def _meet(out: Interval, low: Any, high: Any) -> Interval:
    """What lies in both. Rounding must neither turn it round nor carry it out of the interval.

    An end that is not finite stays: a number of the network may overflow where exact arithmetic
    would not.
    """
    low = jnp.where(
        jnp.isfinite(out.low) & jnp.isfinite(low), jnp.clip(low, out.low, out.high), out.low
    )
    high = jnp.where(
        jnp.isfinite(out.high) & jnp.isfinite(high), jnp.clip(high, out.low, out.high), out.high
    )
    return out._replace(low=jnp.minimum(low, high), high=jnp.maximum(low, high))


def _weighed(g: Array, offset: Any) -> Any:
    return jnp.where(g == 0, 0, g * offset).sum()


def _zeros(shape: Any) -> Array:
    return jnp.zeros(shape.shape, shape.dtype)
