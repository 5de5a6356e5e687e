r"""Certified accuracy from bounds on the logits, and training on these bounds (§13.2).

An example is certified if the margin $m_j \le z_y(x') - z_j(x')$ is above 0 for every other class
$j$ and all $x'$ in the ball. Each difference is bounded as one function, backwards through the last
affine layer: that is tighter than the difference of two intervals.

Interval bound propagation (IBP) training minimises (Gowal et al. 2018)

$$(1 - \kappa)\, \ell(f(x), y) + \kappa\, \ell(-m, y),$$

where the second term is the cross-entropy of the worst-case logits, $-m$ with $m_y = 0$. Radius and
$\kappa$ should grow from 0 during training: `scheduled_objective`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from ..check import expect_count
from ..core import BATCH_AXIS, Iteration, Model, Objective, Scalar
from ..progress import count_progress
from ..serialise import recorded
from ..threat.ball import Ball, check_ball
from ..threat.inputs import Box, check_attack_data, check_input, expect_single_array
from ..train.objectives.loss import cross_entropy, log_loss
from ..train.optimisers.descend import descend
from .bounds.interval_rules import Interval
from .bounds.linear_backward import BoundMethod
from .bounds.linear_bounds import trace_bounds

# The margins of a method are the best of these bounds: linear bounds are not always tighter.
METHOD_PASSES: dict[str, tuple[BoundMethod, ...]] = {
    "interval": ("interval",),
    "mixed": ("interval", "mixed"),
    "linear": ("interval", "linear"),
}


@dataclass(frozen=True)
class CertifiedAccuracy:
    """The certified accuracy, and for each example a lower bound of its margin in the ball."""

    accuracy: float
    margins: Float[np.ndarray, " n"]


def certified_accuracy(
    model: Model,
    data: tuple[Any, Any],
    ball: Ball,
    *,
    box: Box | None = None,
    bounds: BoundMethod = "linear",
    batch_size: int = 32,
) -> CertifiedAccuracy:
    r"""Certified accuracy on `(xs, ys)`: the fraction of examples that are proven to be classified
    correctly everywhere in the ball and the box. No attack can bring the accuracy below it.

    The bounds are those of `certified_margins`; `batch_size` examples are bounded at once.

    >>> from thetax.threat import Linf
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> certified_accuracy(
    ...     line, (jnp.array([[-2.0], [-0.5]]), jnp.array([0, 0])), Linf(1.0)
    ... ).accuracy
    0.5
    """
    _check_bounds("certified_accuracy", bounds)
    check_ball("certified_accuracy", ball)
    xs, ys = check_attack_data("certified_accuracy", None, model, data)
    if box is not None:
        check_input("certified_accuracy", model, xs, jnp.zeros(0), box)
    expect_count("certified_accuracy", batch_size=batch_size)
    n = len(xs)
    size = min(batch_size, n)
    ball = jax.tree.map(jnp.asarray, ball)  # numbers as arrays: another radius does not recompile
    blocks = []
    with count_progress("certified_accuracy: examples", n) as update:
        for first in range(0, n, size):
            # the last block is padded with its last example to the size of the others
            rows = np.minimum(np.arange(first, first + size), n - 1)
            block = _smallest_margins(model, xs[rows], ys[rows], ball, box, bounds)
            blocks.append(np.asarray(block)[: n - first])
            update(min(first + size, n))
    margins = np.concatenate(blocks)
    return CertifiedAccuracy(float((margins > 0).mean()), margins)


@eqx.filter_jit
def _smallest_margins(model, xs, ys, ball, box, bounds):
    def one(x, y):
        margins = certified_margins(model, x, y, ball, box=box, bounds=bounds)
        return jnp.where(jnp.arange(len(margins)) == y, jnp.inf, margins).min()

    return jax.vmap(one, axis_name=BATCH_AXIS)(xs, ys)


def certified_margins(
    model: Model,
    x: Float[Array, "*s"],
    y: Int[Array, ""],
    ball: Ball,
    *,
    box: Box | None = None,
    bounds: BoundMethod = "linear",
) -> Float[Array, " k"]:
    r"""Lower bounds of the margins in a ball: $m_j \le z_y(x') - z_j(x')$ for all $x'$ in the ball
    and the box, for each class $j$; $m_y = 0$.

    `bounds="interval"` propagates intervals (IBP). `"linear"` propagates linear bounds (CROWN),
    with a backward pass for every unit, and is the tightest. `"mixed"` bounds the inputs of the
    nonlinearities by intervals and only the margins by linear bounds (CROWN-IBP, Zhang et al.
    2020). Neither of the last two is ever looser than the first.

    >>> from thetax.threat import Linf
    >>> from thetax.layers import Linear
    >>> # two intervals of width 2 and 3, one margin of width 1
    >>> line = Linear(jnp.array([[1.0], [1.5]]), jnp.zeros(2))
    >>> certified_margins(line, jnp.array([-4.0]), jnp.array(0), Linf(1.0)).tolist()
    [0.0, 1.5]
    """
    _check_bounds("certified_margins", bounds)
    if not jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer):
        raise ValueError(
            "certified_margins: expected an integer label, got "
            f"{jnp.asarray(y).dtype}{jnp.shape(y)}."
        )
    first, *others = (
        _bound_margins(model, jnp.asarray(x), y, ball, box, method)
        for method in METHOD_PASSES[bounds]
    )
    margins = first
    for other in others:
        margins = jnp.fmax(margins, other)
    return jnp.where(jnp.arange(len(margins)) == y, 0.0, margins)


def _bound_margins(
    model: Model, x: Array, y: Any, ball: Ball, box: Box | None, method: BoundMethod
) -> Array:
    """The margins by one method; -inf where it cannot bound them."""
    logits, graph = trace_bounds(model, x, ball, box, method)
    ndim = logits.low.ndim if isinstance(logits, Interval) else jnp.ndim(logits)
    if ndim != 1:
        raise ValueError(
            "certified_margins: expected a model that returns one logit per class, an array (k,)."
        )
    if not isinstance(logits, Interval):  # the model does not depend on its input
        return jnp.asarray(logits)[y] - jnp.asarray(logits)
    unit = jnp.eye(len(logits.low), dtype=logits.low.dtype)
    node = graph.node_of(logits)
    margins = jax.vmap(lambda c: graph.lower_bound(node, c))(unit[y][None] - unit)
    # a logit that may be NaN or overflow has no margin
    finite = (logits.low[y] > -jnp.inf) & (logits.high < jnp.inf)
    return jnp.where(finite & ~jnp.isnan(margins), margins, -jnp.inf)


@recorded
def interval_cross_entropy(
    ball: Ball,
    *,
    box: Box | None = None,
    strength: float | Scalar = 0.5,
    bounds: BoundMethod = "interval",
) -> Objective:
    r"""Certified training (IBP): $(1 - \kappa)\, \ell(f(x), y) + \kappa\, \ell(-m, y)$ with the
    margins $m$ of `certified_margins`.

    `strength` is $\kappa$. Radius and $\kappa$ may be traced values: see `scheduled_objective`.
    Gowal et al. 2018; with `bounds="mixed"` it is CROWN-IBP, Zhang et al. 2020.

    >>> from thetax.threat import Linf
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> batch = (jnp.array([[-2.0]]), jnp.array([0]))
    >>> worst = interval_cross_entropy(Linf(1.0), strength=1.0)(line, batch)
    >>> bool(jnp.isclose(worst, jnp.log1p(jnp.exp(-1.0))))
    True
    """
    _check_bounds("interval_cross_entropy", bounds)
    if isinstance(strength, float | int) and not 0 <= strength <= 1:
        raise ValueError(f"interval_cross_entropy: strength must lie in [0, 1]; got {strength}.")

    def objective(model, batch, *, key=None):
        xs, ys = batch
        expect_single_array("interval_cross_entropy", xs)
        if not jnp.issubdtype(ys.dtype, jnp.integer):
            raise ValueError(
                f"interval_cross_entropy: expected integer labels, got {ys.dtype}{ys.shape}."
            )
        worst = lambda x, y: log_loss(
            -certified_margins(model, x, y, ball, box=box, bounds=bounds), y
        )
        bound = jax.vmap(worst, axis_name=BATCH_AXIS)(xs, ys).mean()
        return (1 - strength) * cross_entropy(model, batch, key=key) + strength * bound

    return objective


class RampState(NamedTuple):
    """The model, the optimiser's state, and the number of steps made."""

    model: Any
    inner: Any
    steps: Int[Array, ""]


def scheduled_objective(
    objective: Callable[[Scalar], Objective],
    optimiser: optax.GradientTransformation,
    *,
    start_step: int = 0,
    steps: int,
) -> Iteration:
    r"""Gradient descent on an objective that changes during training: `objective(t)`, where $t$ is
    0 until step `start_step`, increases linearly to 1 over the next `steps` steps, and stays there.

    >>> from thetax.threat import Linf
    >>> objective = lambda t: interval_cross_entropy(Linf(0.1 * t), strength=0.5 * t)
    >>> iteration = scheduled_objective(objective, optax.adam(1e-3), steps=1000)
    """
    if start_step < 0:
        raise ValueError(f"scheduled_objective: start_step must be >= 0; got {start_step}.")
    expect_count("scheduled_objective", steps=steps)

    def init(model):
        inner = descend(objective(jnp.zeros(())), optimiser).init(model)
        return RampState(model, inner, jnp.zeros((), jnp.int32))

    def step(state, batch, *, key):
        t = jnp.clip((state.steps - start_step) / steps, 0.0, 1.0)
        inner, info = descend(objective(t), optimiser).step(state.inner, batch, key=key)
        return RampState(inner.model, inner, state.steps + 1), info

    return Iteration(init, step)


def _check_bounds(name: str, bounds: str) -> None:
    if bounds not in METHOD_PASSES:
        known = ", ".join(METHOD_PASSES)
        raise ValueError(f"{name}: bounds must be one of {known}; got {bounds!r}.")
