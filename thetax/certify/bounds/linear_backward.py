r"""Backward linear bounds (CROWN): the recorded operations of a function, and the backward pass.

A linear function $c \cdot z$ of the values $z$ of an operation is rewritten as a linear function
of its inputs: through an affine operation exactly, by its transpose; through any other operation by
the lower or upper line of its relaxation, according to the sign of each coefficient. At the input
the result is $c \cdot z \ge \Lambda \cdot x' + o$.
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
MAX_ROWS_AT_ONCE = 256  # backward passes mapped by vmap at once
COMPARISONS = ("max", "min", "ge", "gt", "le", "lt", "eq", "ne", "is_finite")


class AffineNode(NamedTuple):
    """An operation that is affine in its parents."""

    parents: tuple[int, ...]
    op: Callable[..., Any]
    shapes: tuple[Any, ...]
    offset: Any  # its value at zero; None if that is 0

    def backward(self, g: Array) -> tuple[Any, Any]:
        r"""The coefficients of the parents and the constant of $g \cdot z$."""
        _, transpose = jax.vjp(self.op, *map(_zeros, self.shapes))
        return transpose(g), 0.0 if self.offset is None else _dot(g, self.offset)


class RelaxedNode(NamedTuple):
    """An operation that is bounded by a line below and a line above."""

    parents: tuple[int, ...]
    relaxation: Relaxation

    def backward(self, g: Array) -> tuple[Any, Any]:
        r"""The coefficients of the parents and the constant of a lower bound of $g \cdot z$."""
        low, high = self.relaxation
        select = lambda below, above: jnp.where(g >= 0, below, above)
        slopes = [select(below, above) for below, above in zip(low.slopes, high.slopes)]
        return [g * slope for slope in slopes], _dot(g, select(low.offset, high.offset))


class BackwardGraph:
    """The recorded operations of a function, for backward passes from any of them to the input."""

    def __init__(self, x: Array, input_interval: Interval, ball: Ball, bounds: BoundMethod):
        self.x, self.input_interval, self.ball, self.bounds = x, input_interval, ball, bounds
        self.nodes: list[Any] = [None]  # node 0 is the input
        self.tightened: dict[int, Interval] = {}

    def tighten_inputs(self, name: str, ins: list[Any]) -> list[Any]:
        """The inputs of an operation that needs a relaxation, tightened by linear bounds."""
        if self.bounds != "linear" or name in COMPARISONS or _is_affine(name, ins):
            return ins
        return [self.tighten(value) for value in ins]

    def record(
        self, name: str, op: Operation, ins: list[Any], outs: list[Interval]
    ) -> list[Interval]:
        """Adds an operation to the graph; returns its intervals with their nodes."""
        if not jnp.issubdtype(outs[0].low.dtype, jnp.floating):
            return outs
        if _is_affine(name, ins):
            return [
                self.add_affine(lambda *v, i=i: op(*v)[i], ins, out) for i, out in enumerate(outs)
            ]
        if self.bounds != "interval":
            if name in ("max", "min"):
                return [self.add_extremum(name, ins, outs[0])]
            if name == "mul" and ins[0] is not ins[1]:
                x, y = (self.broadcast(value, outs[0]) for value in ins)
                return [self.add_relaxed([x, y], relax_product(x, y, outs[0]), outs[0])]
            if len(ins) == 1:
                relaxation = relax(name, lambda z: op(z)[0], ins[0], outs[0])
                if relaxation is not None:
                    return [self.add_relaxed(ins, relaxation, outs[0])]
        return [self.add_relaxed([], constant_relaxation(out), out) for out in outs]

    def add_affine(self, op: Callable[..., Any], ins: list[Any], out: Interval) -> Interval:
        """Adds an affine operation; known inputs become part of it."""
        free = [i for i, value in enumerate(ins) if isinstance(value, Interval)]

        def of_intervals(*values):
            given = dict(zip(free, values))
            return op(*[given.get(i, value) for i, value in enumerate(ins)])

        shapes = tuple(jax.ShapeDtypeStruct(ins[i].low.shape, ins[i].low.dtype) for i in free)
        offset = of_intervals(*map(_zeros, shapes)) if len(free) < len(ins) else None
        parents = tuple(self.node_of(ins[i]) for i in free)
        return self.add_node(AffineNode(parents, of_intervals, shapes, offset), out)

    def add_extremum(self, name: str, ins: list[Any], out: Interval) -> Interval:
        """Adds the maximum or minimum of two values, by the bounds of their difference."""
        a, b = (self.broadcast(value, out) for value in ins)
        difference = bound_subtraction(lambda a, b: [a - b], None, [a, b])[0]
        d = self.tighten(self.add_affine(lambda a, b: a - b, [a, b], difference))
        low, high = jax.nn.relu(d.low), jax.nn.relu(d.high)
        if name == "max":
            out = _intersect(out, b.low + low, b.high + high)
            return self.add_relaxed([a, b], relax_max(d, out), out)
        out = _intersect(out, a.low - high, a.high - low)
        return self.add_relaxed([a, b], relax_min(d, out), out)

    def broadcast(self, value: Any, like: Interval) -> Interval:
        """The value as an interval of the shape of `like`."""
        shape = like.low.shape
        if isinstance(value, Interval) and value.low.shape == shape:
            return value
        widen = partial(jnp.broadcast_to, shape=shape)
        low, high = (widen(jnp.asarray(end)) for end in endpoints(value))
        if isinstance(value, Interval):
            return self.add_affine(widen, [value], Interval(low, high))
        return self.add_relaxed([], constant_relaxation(Interval(low, high)), Interval(low, high))

    def add_relaxed(self, ins: list[Any], relaxation: Relaxation, out: Interval) -> Interval:
        return self.add_node(RelaxedNode(tuple(map(self.node_of, ins)), relaxation), out)

    def add_node(self, node: Any, out: Interval) -> Interval:
        self.nodes.append(node)
        return out._replace(node=len(self.nodes) - 1)

    def node_of(self, value: Interval) -> int:
        """The node of a value; a value that was not recorded is added with constant bounds."""
        if value.node is None:
            value = self.add_relaxed([], constant_relaxation(value), value)
        assert value.node is not None
        return value.node

    def tighten(self, value: Any) -> Any:
        """The intersection of an interval with its linear bounds."""
        if not isinstance(value, Interval) or value.node is None or self.bounds != "linear":
            return value
        if value.node not in self.tightened:
            low, high = self.lower_bounds(value.node, value.low)
            self.tightened[value.node] = _intersect(value, low, -high)
        return self.tightened[value.node]

    def lower_bounds(self, node: int, like: Array) -> Array:
        """Lower bounds of every entry of a node's value, and of the negative of every entry."""

        def lower_bound(row):
            unit = (jnp.arange(like.size) == row % like.size).astype(like.dtype)
            sign = jnp.where(row < like.size, 1, -1).astype(like.dtype)
            return self.lower_bound(node, sign * unit.reshape(like.shape))

        rows = jnp.arange(2 * like.size)
        if len(rows) <= MAX_ROWS_AT_ONCE:
            bounds = jax.vmap(lower_bound)(rows)
        else:
            bounds = jax.lax.map(lower_bound, rows, batch_size=MAX_ROWS_AT_ONCE)
        return bounds.reshape(2, *like.shape).astype(
            like.dtype
        )  # the dtype may differ from the input's

    def lower_bound(self, node: int, c: Array) -> Scalar:
        r"""A lower bound of $c \cdot z$ for the value $z$ of a node."""
        coefficients: dict[int, Any] = {node: c}
        constant = jnp.zeros((), c.dtype)
        for i in range(node, 0, -1):
            if i in coefficients:
                parent_coefficients, offset = self.nodes[i].backward(coefficients.pop(i))
                constant = constant + offset
                for parent, g in zip(self.nodes[i].parents, parent_coefficients):
                    coefficients[parent] = coefficients.get(parent, 0) + g
        return constant + (self.input_minimum(coefficients[0]) if 0 in coefficients else 0.0)

    def input_minimum(self, g: Array) -> Scalar:
        r"""$\min_{x'} g \cdot x'$ over the ball or over the input interval, whichever is larger."""
        low = self.input_interval.low - self.x
        high = self.input_interval.high - self.x
        decrease = jnp.maximum(-g * low, -g * high)
        if isinstance(self.ball, L0):
            return (g * self.x).sum() - self.ball.dual_norm(decrease)
        in_ball = self.ball.radius * self.ball.dual_norm(g)
        return (g * self.x).sum() - jnp.minimum(decrease.sum(), in_ball)


def _is_affine(name: str, ins: list[Any]) -> bool:
    """Whether the operation is affine in the inputs that are intervals."""
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


def _intersect(out: Interval, low: Any, high: Any) -> Interval:
    """The intersection with [low, high], kept inside the interval and non-empty despite rounding.

    An infinite end stays infinite: the network may overflow where exact arithmetic does not.
    """
    low = jnp.where(
        jnp.isfinite(out.low) & jnp.isfinite(low), jnp.clip(low, out.low, out.high), out.low
    )
    high = jnp.where(
        jnp.isfinite(out.high) & jnp.isfinite(high), jnp.clip(high, out.low, out.high), out.high
    )
    return out._replace(low=jnp.minimum(low, high), high=jnp.maximum(low, high))


def _dot(g: Array, offset: Any) -> Any:
    return jnp.where(g == 0, 0, g * offset).sum()


def _zeros(shape: Any) -> Array:
    return jnp.zeros(shape.shape, shape.dtype)
