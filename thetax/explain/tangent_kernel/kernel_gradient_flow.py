r"""Training in the space of functions with any loss (§9.2):
$\dot f = -\frac1n K \nabla_f \sum_i l(f_i, y_i)$.

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
from .kernel_eigenmodes import modes, moved
from .kernel_gradient_descent import expect_start


@dataclass(frozen=True)
class LazyFlow:
    r"""Outputs at the examples and their mean loss, at each time; `flow.predict(xs)` are those at
    others.
    """

    times: Float[np.ndarray, " t"]
    outputs: Float[np.ndarray, "t n *o"]
    losses: Float[np.ndarray, " t"]
    coefficients: Float[np.ndarray, "t n *o"]
    kernel: Callable[..., Any]
    xs: Any
    start: Callable[..., Any] | None

    def predict(self, xs: Batch) -> Float[np.ndarray, "t m *o"]:
        r"""$f_t(x) = f_0(x) + k(x, X)\, a_t$."""
        check_examples(xs, name="lazy_flow: xs")
        change = moved(self.kernel(xs, self.xs), self.coefficients)
        return (
            change
            if self.start is None
            else np.asarray(predict(self.start, xs), np.float64)[None] + change
        )


def lazy_flow(
    kernel: Callable[..., Any],
    loss: Loss,
    xs: Batch,
    ys: Any,
    *,
    times: Any,
    start: Model | None = None,
    outputs: tuple[int, ...] | None = None,
    tolerance: float = 1e-6,
    solver: Any = None,
    limit: int = 100_000,
) -> LazyFlow:
    r"""The gradient flow of the mean of a `loss(prediction, y)`, for a tangent kernel that stays as
    it is (§9.2).

    As `lazy_training`, but for any loss: `log_loss` for classes, for instance. Without a `start`
    the outputs begin at 0, and `outputs` is the shape of one of them. `solver` and `limit` are
    those of `gradient_flow`.

    >>> import jax.random as jr
    >>> from thetax.explain import ntk
    >>> from thetax.models import MLP
    >>> from thetax.train import log_loss
    >>> model = MLP.init(3, 16, 2, key=jr.key(0))
    >>> xs = jr.normal(jr.key(1), (4, 3))
    >>> ys = jnp.array([0, 1, 1, 0])
    >>> flow = lazy_flow(ntk(model), log_loss, xs, ys, times=[0.0, 5.0], start=model)
    >>> flow.outputs.shape, bool(flow.losses[1] < flow.losses[0])
    ((2, 4, 2), True)
    """
    n = check_examples(xs, name="lazy_flow: xs")
    expect_start("lazy_flow", start)
    if (start is None) == (outputs is None):
        raise ValueError(
            "lazy_flow: give the model it starts from, or the shape of its outputs, and one of "
            "the two."
        )
    if np.ndim(ys) == 0 or len(ys) != n:
        raise ValueError(
            f"lazy_flow: {n} examples in xs, but ys has shape {np.shape(ys)}; row i of both is one."
        )
    f = jnp.zeros((n, *(outputs or ()))) if start is None else predict(start, xs)
    ys = jnp.asarray(ys)
    if (judged := jax.eval_shape(loss, f[0], ys[0])).shape:
        raise ValueError(
            f"lazy_flow: the loss of one example must be a number; got {judged.shape}."
        )
    found = modes(kernel(xs), np.zeros(f.shape), np.zeros(f.shape))
    R = jnp.asarray(found.vectors * np.sqrt(found.values), f.dtype)
    w = jnp.zeros((len(R), f.size // len(R)), f.dtype)
    flow = gradient_flow(
        _mean(loss), w, (R, f, ys), times=times, tolerance=tolerance, solver=solver, limit=limit
    )
    ws = np.asarray(flow.models, np.float64)
    root = np.sqrt(found.inverse())
    a = (found.vectors @ (root[:, None] * ws)).reshape(len(ws), *f.shape)
    changed = jax.vmap(lambda w: f + (R @ w).reshape(f.shape))(flow.models)
    return LazyFlow(
        np.asarray(flow.times), np.asarray(changed), np.asarray(flow.losses), a, kernel, xs, start
    )


@lru_cache
def _mean(loss: Loss) -> Objective:
    """Over the examples, as a function of w; the same for the same loss, so that it is compiled
    once.
    """

    def objective(w: Float[Array, "k c"], batch: tuple[Any, Any, Any]) -> Array:
        R, f, ys = batch
        return jax.vmap(loss)(f + (R @ w).reshape(f.shape), ys).mean()

    return objective
