r"""Gradient flow $\dot\theta = -\nabla h(\theta)$ (§3.2), the limit of gradient descent for small
steps $\eta$.

Along the flow $\dot h = -\|\nabla h\|^2$, so the loss never increases. The equation is solved by
Diffrax with adaptive steps; Euler's method with a constant step $\eta$ is gradient descent.
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


class GradientFlow(NamedTuple):
    r"""The solution at given times: models $\theta$, losses $h$ and gradient norms
    $\|\nabla h\|$.

    `model` is the model at the last time; `steps` the number of steps the solver took.
    """

    model: Any
    models: Any  # stacked along a first axis of every leaf
    times: Float[Array, " t"]
    losses: Float[Array, " t"]
    gradient_norms: Float[Array, " t"]
    steps: Int[Array, ""]


def gradient_flow(
    objective: Objective,
    model: Any,
    batch: Batch,
    *,
    times: Any,
    tolerance: float = 1e-6,
    solver: Any = None,
    max_steps: int = 100_000,
) -> GradientFlow:
    r"""Solves $\dot\theta = -\nabla h(\theta)$ from the given model at $t = 0$; returns the
    solution at `times` (§3.2).

    `solver` is any Diffrax solver, by default `Tsit5()`. For stiff flows (curvature large in some
    directions and small in others) use an implicit one, `diffrax.Kvaerno5()`. `tolerance` is the
    relative and absolute tolerance of the step-size controller. `RuntimeError` is raised if
    `max_steps` steps do not reach the last time.

    >>> bowl = lambda w, batch: jnp.vdot(w, w) / 2
    >>> flow = gradient_flow(bowl, jnp.ones(2), None, times=[0.0, 1.0])
    >>> flow.model.round(3).tolist(), flow.losses.round(3).tolist()
    ([0.368..., 0.368...], [1.0, 0.135...])
    """
    import diffrax  # imported here because it is slow to import

    ts = np.asarray(times, float)
    if (
        ts.ndim != 1
        or not len(ts)
        or ts[0] < 0
        or not np.isfinite(ts).all()
        or (np.diff(ts) <= 0).any()
    ):
        raise ValueError(
            f"gradient_flow: times must be a 1-d array of increasing finite times >= 0; got "
            f"{times!r}."
        )
    if not tolerance > 0:
        raise ValueError(f"gradient_flow: tolerance must be > 0; got {tolerance}.")
    if ts[-1] == 0:
        raise ValueError(
            "gradient_flow: the last of times must be > 0, where the flow begins; got 0."
        )
    _expect_finite(*_loss_and_gradient_norm(objective, model, batch))
    flow, done = _flow(
        objective, model, batch, jnp.asarray(ts), tolerance, solver or diffrax.Tsit5(), max_steps
    )
    if not isinstance(done, Tracer) and not done:
        raise RuntimeError(
            f"gradient_flow: the solver stopped after {int(flow.steps)} steps "
            f"(max_steps={max_steps}), before time {ts[-1]}. Use solver=diffrax.Kvaerno5() if the "
            "flow is stiff, a larger max_steps, or a larger tolerance."
        )
    return flow


def _expect_finite(loss: Any, gradient: Any) -> None:
    if not isinstance(loss, Tracer) and not (np.isfinite(loss) and np.isfinite(gradient)):
        raise ValueError(
            f"gradient_flow: the loss at the given model is {float(loss):g} and its gradient has "
            f"norm {float(gradient):g}; both must be finite. Look for NaN or infinity in the model "
            "and the batch."
        )


@partial(jax.jit, static_argnames="objective")
def _loss_and_gradient_norm(objective: Objective, model: Any, batch: Any) -> tuple[Any, Any]:
    r"""The loss $h(\theta)$ and the gradient norm $\|\nabla h(\theta)\|$."""
    loss, g = jax.value_and_grad(objective)(model, batch)
    return loss, tree.norm(g)


@partial(jax.jit, static_argnames=("objective", "solver", "max_steps"))
def _flow(
    objective: Objective,
    model: Any,
    batch: Any,
    times: Any,
    tolerance: Any,
    solver: Any,
    max_steps: int,
) -> tuple[GradientFlow, Any]:
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
        max_steps=max_steps,
        throw=False,
    )

    models = solution.ys
    losses, gradient_norms = jax.lax.map(
        lambda theta: _loss_and_gradient_norm(objective, theta, batch), models
    )
    last = jax.tree.map(lambda leaf: leaf[-1], models)
    flow = GradientFlow(last, models, times, losses, gradient_norms, solution.stats["num_steps"])
    return flow, solution.result == diffrax.RESULTS.successful
