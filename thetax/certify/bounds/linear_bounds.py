r"""Linear bounds (CROWN; Zhang et al. 2018): bounds on the outputs of a network whose input lies in
a ball.

Every nonlinear operation is replaced by a line below it and a line above it, valid between the
bounds of its argument. The rest is affine, and one backward pass bounds any combination $c$ of
outputs:

$$c \cdot f(x') \ge \Lambda \cdot x' + o \qquad \text{for all } x' \text{ in the ball},$$

where a positive coefficient takes the lower line and a negative one the upper. The minimum of the
right-hand side over the ball is $\Lambda \cdot x - \varepsilon \|\Lambda\|_q + o$ with the dual
norm. The bounds of the argument of every nonlinear operation are computed in the same way, from the
first to the last.

Unlike interval bounds, linear bounds keep track of the input that two values share: an affine
network is bounded exactly.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...threat.ball import L0, Ball
from ...threat.inputs import Box, check_box
from .interval import IntervalInterpreter, check_interval, output_bounds, trace_program
from .interval_rules import Interval
from .linear_backward import BackwardGraph, BoundMethod


def linear_bounds(
    f: Callable[[Any], Any], x: Float[Array, "*s"], ball: Ball, *, box: Box | None = None
) -> tuple[Array, Array]:
    r"""Bounds $l \le f(x + \eta) \le h$ for all $\eta$ in the ball with $x + \eta$ in the box
    (CROWN; Zhang et al. 2018).

    They are never looser than those of `interval_bounds`. For an affine $f$ they are exact without
    a box, and in an Linf ball also with one. ReLU, leaky ReLU, maximum, minimum, tanh, sigmoid,
    exp, log and products are relaxed by lines; other operations keep their interval bounds.

    >>> from thetax.threat import L2
    >>> low, high = linear_bounds(lambda x: 3 * x[:1] + 4 * x[1:], jnp.zeros(2), L2(1.0))
    >>> low.tolist(), high.tolist()
    ([-5.0], [5.0])
    """
    out, graph = trace_bounds(f, x, ball, box, "linear")
    return output_bounds(graph.tighten(out))


class TracedBounds(NamedTuple):
    """The output, an interval with its node, and the graph of all operations."""

    out: Any
    graph: BackwardGraph


def trace_bounds(
    f: Callable[[Any], Any], x: Any, ball: Ball, box: Box | None, bounds: BoundMethod
) -> TracedBounds:
    """Bounds the output of a function of one array and records its operations."""
    if box is not None:
        check_box("linear_bounds", box)
    x = jnp.asarray(x)
    low, high = check_interval(*input_interval(x, ball, box))
    program, shapes = trace_program(f, x)
    if len(jax.tree.leaves(shapes)) != 1:
        raise ValueError(
            "linear_bounds: expected a function that returns one array; it returns "
            f"{jax.tree.structure(shapes)}."
        )
    graph = BackwardGraph(x, Interval(low, high), ball, bounds)
    (out,) = IntervalInterpreter(graph).run(
        program.jaxpr, program.consts, [Interval(low, high, node=0)]
    )
    return TracedBounds(out, graph)


def input_interval(x: Any, ball: Ball, box: Box | None) -> tuple[Any, Any]:
    """The smallest and largest value of each entry of an input in the ball and the box."""
    if isinstance(ball, L0):
        if box is None:
            raise ValueError(
                "linear_bounds: an L0 ball does not limit the size of a change. Pass box=, for "
                "instance (0.0, 1.0)."
            )
        low, high = (jnp.where(ball.radius >= 1, jnp.full_like(x, end), x) for end in box)
        return low, high
    low = (x - ball.radius).astype(x.dtype)
    high = (x + ball.radius).astype(x.dtype)
    return (low, high) if box is None else (jnp.clip(low, *box), jnp.clip(high, *box))
