r"""Which examples no attack in a ball can change, and a training that makes them many (§13.2).

An example is certified if the margin $m_j \le z_y(x') - z_j(x')$ is above 0 for every other class
$j$ and all $x'$ in the ball. Each difference is bounded as one function, back through the last
affine layer: the interval of a difference is narrower than the difference of two intervals.

Training on the bound makes small (Gowal et al. 2018)

$$(1 - \kappa)\, \ell(f(x), y) + \kappa\, \ell(-m, y),$$

the second being the cross-entropy of the worst logits, $-m$ with $m_y = 0$. It is trained best from
a radius and a $\kappa$ that grow from 0: `ramp_objective`.
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

from ..core import BATCH, Iteration, Model, Objective, Scalar
from ..progress import counted
from ..threat.ball import Ball
from ..threat.inputs import Range, check_attacked, check_input, check_one_array
from ..train.objectives.loss import cross_entropy, log_loss
from ..train.optimisers.descend import descend
from .bounds.interval_rules import Interval
from .bounds.linear_backward import BoundMethod
from .bounds.linear_bounds import trace_bounds

METHOD_PASSES: dict[str, tuple[BoundMethod, ...]] = {
    "interval": ("interval",),
    "mixed": ("interval", "mixed"),
    "linear": ("interval", "linear"),
}


@dataclass(frozen=True)
class CertifiedAccuracy:
    """The share of examples that are right all over the ball, and of each a number that its margin
    is never below.
    """

    accuracy: float
    margins: Float[np.ndarray, " n"]


def certified_accuracy(
    model: Model,
    data: tuple[Any, Any],
    ball: Ball,
    *,
    box: Range | None = None,
    bounds: BoundMethod = "linear",
    batch: int = 32,
) -> CertifiedAccuracy:
    r"""The certified accuracy on `(xs, ys)`: no attack in the ball and the box brings the accuracy
    below it.

    The bounds are those of `certified_margins`; so many examples are looked at together.

    >>> from thetax.threat import Linf
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> certified_accuracy(
    ...     line, (jnp.array([[-2.0], [-0.5]]), jnp.array([0, 0])), Linf(1.0)
    ... ).accuracy
    0.5
    """
    _check_bounds("certified", bounds)
    xs, ys = check_attacked("certified", None, model, data)
    if box is not None:
        check_input("certified", model, xs, jnp.zeros(0), box)
    if batch < 1:
        raise ValueError(f"certified: batch must be at least 1; got {batch}.")
    n = len(xs)
    size = min(batch, len(xs))
    ball = jax.tree.map(jnp.asarray, ball)
    blocks = []
    with counted("certified: examples", n) as update:
        for first in range(0, n, size):
            rows = np.minimum(
                np.arange(first, first + size), n - 1
            )  # the last block is as long as the others
            blocks.append(
                np.asarray(_margins(model, xs[rows], ys[rows], ball, box, bounds))[: n - first]
            )
            update(min(first + size, n))
    margins = np.concatenate(blocks)
    return CertifiedAccuracy(float((margins > 0).mean()), margins)


@eqx.filter_jit
def _margins(model, xs, ys, ball, box, bounds):
    def one(x, y):
        margins = certified_margins(model, x, y, ball, box=box, bounds=bounds)
        return jnp.where(jnp.arange(len(margins)) == y, jnp.inf, margins).min()

    return jax.vmap(one, axis_name=BATCH)(xs, ys)


def certified_margins(
    model: Model,
    x: Float[Array, "*s"],
    y: Int[Array, ""],
    ball: Ball,
    *,
    box: Range | None = None,
    bounds: BoundMethod = "linear",
) -> Float[Array, " k"]:
    r"""$m_j \le z_y(x') - z_j(x')$ for all $x'$ in the ball and the box, for each class $j$;
    $m_y = 0$.

    `interval` carries numbers through the network, `linear` lines, which takes a pass backwards for
    every unit and is the narrowest; `mixed` follows the margins back along lines, and bounds what a
    bend gets by numbers (Zhang et al. 2020). Neither of the last two is ever wider than the first.

    >>> from thetax.threat import Linf
    >>> from thetax.layers import Linear
    >>> # two intervals of width 2 and 3, one margin of width 1
    >>> line = Linear(jnp.array([[1.0], [1.5]]), jnp.zeros(2))
    >>> certified_margins(line, jnp.array([-4.0]), jnp.array(0), Linf(1.0)).tolist()
    [0.0, 1.5]
    """
    _check_bounds("worst_margins", bounds)
    if not jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer):
        raise ValueError(
            f"worst_margins: expected an integer label, got {jnp.asarray(y).dtype}{jnp.shape(y)}."
        )
    found = [
        _followed(model, jnp.asarray(x), y, ball, box, which) for which in METHOD_PASSES[bounds]
    ]
    margins = found[0]
    for more in found[1:]:
        margins = jnp.fmax(margins, more)
    return jnp.where(jnp.arange(len(margins)) == y, 0.0, margins)


def _followed(
    model: Model, x: Array, y: Any, ball: Ball, box: Range | None, bounds: BoundMethod
) -> Array:
    out, trail = trace_bounds(model, x, ball, box, bounds)
    if out.low.ndim != 1 if isinstance(out, Interval) else jnp.ndim(out) != 1:
        raise ValueError(
            "worst_margins: expected a model that gives one logit a class, an array (k,)."
        )
    if not isinstance(out, Interval):  # the model does not depend on its input
        return jnp.asarray(out)[y] - jnp.asarray(out)
    unit = jnp.eye(len(out.low), dtype=out.low.dtype)
    margins = jax.vmap(lambda c: trail.least(trail.place(out), c))(unit[y][None] - unit)
    finite = (out.low[y] > -jnp.inf) & (
        out.high < jnp.inf
    )  # a logit that may be NaN or overflow has no margin
    return jnp.where(finite & ~jnp.isnan(margins), margins, -jnp.inf)


def interval_cross_entropy(
    ball: Ball,
    *,
    box: Range | None = None,
    strength: float | Scalar = 0.5,
    bounds: BoundMethod = "interval",
) -> Objective:
    r"""The objective $(1 - \kappa)\, \ell(f(x), y) + \kappa\, \ell(-m, y)$ with the margins $m$ of
    `certified_margins`.

    `strength` is $\kappa$. Radius and $\kappa$ may be numbers of a running program: see
    `ramp_objective`. Gowal et al. 2018; with `bounds="mixed"`, Zhang et al. 2020.

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
        check_one_array("interval_cross_entropy", xs)
        if not jnp.issubdtype(ys.dtype, jnp.integer):
            raise ValueError(
                f"interval_cross_entropy: expected integer labels, got {ys.dtype}{ys.shape}."
            )
        worst = lambda x, y: log_loss(
            -certified_margins(model, x, y, ball, box=box, bounds=bounds), y
        )
        bound = jax.vmap(worst, axis_name=BATCH)(xs, ys).mean()
        return (1 - strength) * cross_entropy(model, batch, key=key) + strength * bound

    return objective


class RampState(NamedTuple):
    """Weights, what the optimiser remembers, and how many steps were made."""

    model: Any
    inner: Any
    steps: Int[Array, ""]


def ramp_objective(
    objective: Callable[[Scalar], Objective],
    optimiser: optax.GradientTransformation,
    *,
    start: int = 0,
    steps: int,
) -> Iteration:
    r"""Descends an objective that changes with time: `objective(t)` with $t$ from 0, up to step
    `start`, to 1, `steps` steps later, and from there on.

    >>> from thetax.threat import Linf
    >>> grown = lambda t: interval_cross_entropy(Linf(0.1 * t), strength=0.5 * t)
    >>> iteration = ramp_objective(grown, optax.adam(1e-3), steps=1000)
    """
    if start < 0 or steps < 1:
        raise ValueError(
            f"ramped: start must not be negative and steps at least 1; got start={start}, "
            f"steps={steps}."
        )

    def init(model):
        inner = descend(objective(jnp.zeros(())), optimiser).init(model)
        return RampState(model, inner, jnp.zeros((), jnp.int32))

    def step(state, batch, *, key):
        t = jnp.clip((state.steps - start) / steps, 0.0, 1.0)
        inner, info = descend(objective(t), optimiser).step(state.inner, batch, key=key)
        return RampState(inner.model, inner, state.steps + 1), info

    return Iteration(init, step)


def _check_bounds(name: str, bounds: str) -> None:
    if bounds not in METHOD_PASSES:
        raise ValueError(f"{name}: bounds is one of {', '.join(METHOD_PASSES)}; got {bounds!r}.")
