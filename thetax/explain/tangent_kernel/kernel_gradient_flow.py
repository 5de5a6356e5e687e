r"""Kernel gradient flow for any loss (§9.2): training in function space with a constant tangent
kernel, $\dot f = -\frac1n K \nabla_f \sum_i l(f_i, y_i)$.

With $K = RR^\top$, $R = V\sqrt\Lambda$, this is the gradient flow of $w$ in $f = f_0 + Rw$: every
kernel is the tangent kernel of a linear model. Diffrax solves it, and
$f_t(x) = f_0(x) + k(x)^\top a_t$ with $a = V\Lambda^{-1/2} w$.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...check import check_examples
from ...core import Batch, Model, Objective, predict
from ...train import gradient_flow
from ...train.objectives.loss import Loss
from .kernel_eigenmodes import kernel_eigenmodes, predicted_change
from .kernel_gradient_descent import check_no_batch_norm


@dataclass(frozen=True)
class KernelGradientFlow:
    r"""Outputs at the training examples and their mean loss, at each time; `flow.predict(xs)` are
    the outputs at other inputs.
    """

    times: Float[np.ndarray, " t"]
    outputs: Float[np.ndarray, "t n *o"]
    losses: Float[np.ndarray, " t"]
    coefficients: Float[np.ndarray, "t n *o"]
    kernel: Callable[..., Any]
    xs: Any
    initial_model: Callable[..., Any] | None

    def predict(self, xs: Batch) -> Float[np.ndarray, "t m *o"]:
        r"""$f_t(x) = f_0(x) + k(x, X)\, a_t$."""
        check_examples(xs, name="kernel_gradient_flow: xs")
        change = predicted_change(self.kernel(xs, self.xs), self.coefficients)
        if self.initial_model is None:
            return change
        return np.asarray(predict(self.initial_model, xs), np.float64)[None] + change


def kernel_gradient_flow(
    kernel: Callable[..., Any],
    loss: Loss,
    xs: Batch,
    ys: Any,
    *,
    times: Any,
    initial_model: Model | None = None,
    output_shape: tuple[int, ...] | None = None,
    tolerance: float = 1e-6,
    solver: Any = None,
    max_steps: int = 100_000,
) -> KernelGradientFlow:
    r"""Gradient flow of the mean of a `loss(prediction, y)` with a constant tangent kernel (§9.2).

    As `kernel_gradient_descent`, but for any loss, for instance the cross-entropy `log_loss`.
    Without an `initial_model` the outputs start at 0, and `output_shape` is the shape of the output
    for one example. `tolerance`, `solver` and `max_steps` are those of `gradient_flow`.

    >>> import jax.random as jr
    >>> from thetax.explain import ntk
    >>> from thetax.models import MLP
    >>> from thetax.train import log_loss
    >>> model = MLP.init(3, 16, 2, key=jr.key(0))
    >>> xs = jr.normal(jr.key(1), (4, 3))
    >>> ys = jnp.array([0, 1, 1, 0])
    >>> flow = kernel_gradient_flow(
    ...     ntk(model), log_loss, xs, ys, times=[0.0, 5.0], initial_model=model
    ... )
    >>> flow.outputs.shape, bool(flow.losses[1] < flow.losses[0])
    ((2, 4, 2), True)
    """
    name = "kernel_gradient_flow"
    n = check_examples(xs, name=f"{name}: xs")
    check_no_batch_norm(name, initial_model)
    if (initial_model is None) == (output_shape is None):
        raise ValueError(f"{name}: give either initial_model or output_shape, and not both.")
    if np.ndim(ys) == 0 or len(ys) != n:
        raise ValueError(
            f"{name}: xs has {n} examples, but ys has shape {np.shape(ys)}; give one row of ys "
            "for each example."
        )
    if initial_model is None:
        f = jnp.zeros((n, *(output_shape or ())))
    else:
        f = predict(initial_model, xs)
    ys = jnp.asarray(ys)
    if (one_loss := jax.eval_shape(loss, f[0], ys[0])).shape:
        raise ValueError(
            f"{name}: the loss of one example must be a scalar; got shape {one_loss.shape}."
        )
    modes = kernel_eigenmodes(kernel(xs), np.zeros(f.shape), np.zeros(f.shape))
    R = jnp.asarray(modes.eigenvectors * np.sqrt(modes.eigenvalues), f.dtype)
    w = jnp.zeros((len(R), f.size // len(R)), f.dtype)
    flow = gradient_flow(
        _linear_objective(loss),
        w,
        (R, f, ys),
        times=times,
        tolerance=tolerance,
        solver=solver,
        max_steps=max_steps,
    )
    ws = np.asarray(flow.models, np.float64)
    inverse_root = np.sqrt(modes.inverse())
    a = (modes.eigenvectors @ (inverse_root[:, None] * ws)).reshape(len(ws), *f.shape)
    outputs = jax.vmap(lambda w: f + (R @ w).reshape(f.shape))(flow.models)
    return KernelGradientFlow(
        np.asarray(flow.times),
        np.asarray(outputs),
        np.asarray(flow.losses),
        a,
        kernel,
        xs,
        initial_model,
    )


@lru_cache
def _linear_objective(loss: Loss) -> Objective:
    """Mean loss over the examples as a function of $w$; cached so that each loss is compiled only
    once.
    """

    def objective(w: Float[Array, "k c"], batch: tuple[Any, Any, Any]) -> Array:
        R, f, ys = batch
        return jax.vmap(loss)(f + (R @ w).reshape(f.shape), ys).mean()

    return objective
