r"""What a network can put out when its input lies in a ball, by lines instead of numbers (CROWN,
Zhang et al. 2018).

Every bend of the network is replaced by a line below it and a line above it, which hold between the
least and the largest that its argument can be. What is left is affine, and one pass backwards
bounds any combination $c$ of outputs:

$$c \cdot f(x') \ge \Lambda \cdot x' + o \qquad \text{for all } x' \text{ in the ball},$$

where a bend that is reached with a positive weight hands on its lower line, and with a negative one
its upper. The right-hand side is least at distance $\varepsilon$ against $\Lambda$:
$\Lambda \cdot x - \varepsilon \|\Lambda\|_q + o$, with the dual norm. What the argument of each
bend can be is found in the same way, from the first to the last.

Unlike intervals, lines know that two numbers come from one input: an affine network is bounded
exactly.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...threat.ball import L0, Ball
from ...threat.inputs import Range, check_box
from .interval import IntervalInterpreter, check_interval, output_bounds, trace_program
from .interval_rules import Interval
from .linear_backward import BackwardGraph, BoundMethod


def linear_bounds(
    f: Callable[[Any], Any], x: Float[Array, "*s"], ball: Ball, *, box: Range | None = None
) -> tuple[Array, Array]:
    r"""Numbers $l \le f(x + \eta) \le h$ for all $\eta$ of the ball for which $x + \eta$ lies in
    the box.

    They are nowhere wider than those of `interval_bounds`. For an affine $f$ they are exact without
    a box, and with one in the ball of the maximum norm. ReLU, leaky ReLU, maxima, tanh, the
    sigmoid, exp, log and products have lines; all else that intervals can follow has two levels.
    Zhang et al. 2018.

    >>> from thetax.threat import L2
    >>> low, high = linear_bounds(lambda x: 3 * x[:1] + 4 * x[1:], jnp.zeros(2), L2(1.0))
    >>> low.tolist(), high.tolist()
    ([-5.0], [5.0])
    """
    walked = trace_bounds(f, x, ball, box, "linear")
    return output_bounds(walked.trail.tight(walked.out))


class TracedBounds(NamedTuple):
    """What came out, and how."""

    out: Any
    trail: BackwardGraph


def trace_bounds(
    f: Callable[[Any], Any], x: Any, ball: Ball, box: Range | None, bounds: BoundMethod
) -> TracedBounds:
    """One way through a function of one array, with a trail."""
    if box is not None:
        check_box("linear_bounds", box)
    x = jnp.asarray(x)
    low, high = check_interval(*input_interval(x, ball, box))
    program, shapes = trace_program(f, x)
    if len(jax.tree.leaves(shapes)) != 1:
        raise ValueError(
            "linear_bounds: expected a function with one array to give, got "
            f"{jax.tree.structure(shapes)}."
        )
    trail = BackwardGraph(x, Interval(low, high), ball, bounds)
    (out,) = IntervalInterpreter(trail).run(
        program.jaxpr, program.consts, [Interval(low, high, node=0)]
    )
    return TracedBounds(out, trail)


def input_interval(x: Any, ball: Ball, box: Range | None) -> tuple[Any, Any]:
    """The least and the largest that each number of an input can be."""
    if isinstance(ball, L0):
        if box is None:
            raise ValueError(
                "linear_bounds: in an L0 ball a number may become anything; give the box it stays "
                "in."
            )
        low, high = (jnp.where(ball.radius >= 1, jnp.full_like(x, end), x) for end in box)
        return low, high
    low = (x - ball.radius).astype(x.dtype)
    high = (x + ball.radius).astype(x.dtype)
    return (low, high) if box is None else (jnp.clip(low, *box), jnp.clip(high, *box))
