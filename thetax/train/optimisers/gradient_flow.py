r"""The gradient flow $\dot\theta = -\nabla h(\theta)$ (§3.2): what gradient descent follows in
steps of $\eta$.

Along it $\dot h = -\|\nabla h\|^2$, so the loss never rises. It is solved by Diffrax with steps
that adapt to the tolerance; Euler's method with a constant step $\eta$ would be gradient descent
itself.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ... import tree
from ...core import Batch, Objective


class Flow(NamedTuple):
    r"""$\theta$ at the last of the times; $\theta$, $h$ and $\|\nabla h\|$ at each; and the
    solver's steps.
    """

    model: Any
    models: Any  # stacked along a first axis of every leaf
    times: Float[Array, " t"]
    losses: Float[Array, " t"]
    gradients: Float[Array, " t"]
    steps: Int[Array, ""]


def gradient_flow(
    objective: Objective,
    model: Any,
    batch: Batch,
    *,
    times: Any,
    tolerance: float = 1e-6,
    solver: Any = None,
    limit: int = 100_000,
) -> Flow:
    r"""Solves $\dot\theta = -\nabla h(\theta)$ from the given model at $t = 0$, and reports at the
    given times (§3.2).

    `solver` is any of Diffrax's, `Tsit5()` unless told; where the curvature is large along some
    directions and small along others take an implicit one, `diffrax.Kvaerno5()`. The solver gives
    up after `limit` steps.

    >>> bowl = lambda w, batch: jnp.vdot(w, w) / 2
    >>> found = gradient_flow(bowl, jnp.ones(2), None, times=[0.0, 1.0])
    >>> found.model.round(3).tolist(), found.losses.round(3).tolist()
    ([0.368..., 0.368...], [1.0, 0.135...])
    """
    import diffrax  # here, for whoever only trains does not need it

    ts = np.asarray(times, float)
    if (
        ts.ndim != 1
        or not len(ts)
        or ts[0] < 0
        or not np.isfinite(ts).all()
        or (np.diff(ts) <= 0).any()
    ):
        raise ValueError(
            f"gradient_flow: times must be a row of increasing times from 0 on; got {times!r}."
        )
    if not tolerance > 0:
        raise ValueError(f"gradient_flow: tolerance must be positive; got {tolerance}.")
    if ts[-1] == 0:
        raise ValueError(
            "gradient_flow: the last time is 0, where the flow begins; give a later one."
        )
    _expect_finite(*_measure(objective, model, batch))
    found, done = _flow(
        objective, model, batch, jnp.asarray(ts), tolerance, solver or diffrax.Tsit5(), limit
    )
    if not isinstance(done, Tracer) and not done:
        raise RuntimeError(
            f"gradient_flow: the solver gave up after {int(found.steps)} of limit={limit} steps, "
            f"before time {ts[-1]}; try solver=diffrax.Kvaerno5() if the flow is stiff, a larger "
            "limit, or a larger tolerance."
        )
    return found


def _expect_finite(loss: Any, gradient: Any) -> None:
    if not isinstance(loss, Tracer) and not (np.isfinite(loss) and np.isfinite(gradient)):
        raise ValueError(
            f"gradient_flow: the loss at the given model is {float(loss):g} and its gradient has "
            f"norm {float(gradient):g}, but a flow needs both finite; look for NaN or infinity in "
            "the model and the batch."
        )


@partial(jax.jit, static_argnames="objective")
def _measure(objective: Objective, model: Any, batch: Any) -> tuple[Any, Any]:
    r"""$h(\theta)$ and $\|\nabla h(\theta)\|$."""
    loss, g = jax.value_and_grad(objective)(model, batch)
    return loss, tree.norm(g)


@partial(jax.jit, static_argnames=("objective", "solver", "limit"))
def _flow(
    objective: Objective,
    model: Any,
    batch: Any,
    times: Any,
    tolerance: Any,
    solver: Any,
    limit: int,
) -> tuple[Flow, Any]:
    import diffrax

    velocity = lambda t, theta, batch: jax.tree.map(jnp.negative, jax.grad(objective)(theta, batch))
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        solver,
        t0=0.0,
        t1=times[-1],
        dt0=None,
        y0=model,
        args=batch,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
        max_steps=limit,
        throw=False,
    )

    models = solution.ys
    losses, gradients = jax.lax.map(lambda theta: _measure(objective, theta, batch), models)
    last = jax.tree.map(lambda leaf: leaf[-1], models)
    flow = Flow(last, models, times, losses, gradients, solution.stats["num_steps"])
    return flow, solution.result == diffrax.RESULTS.successful
