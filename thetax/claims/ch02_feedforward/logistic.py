"""§2.1: logistic regression has no closed form; three algorithms find its minimum."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy import optimize, special

from ... import models, train, tree
from ...core import run
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, decreasing, increasing
from ..engine.claim import Verdict, claim

STEPS = 20_000


def _newton(xs, ys):
    """Iteratively reweighted least squares; the intercept is the last parameter."""
    A = np.c_[xs, np.ones(len(xs))]
    theta = np.zeros(xs.shape[1] + 1)
    for _ in range(25):
        s = special.expit(A @ theta)
        theta = theta - np.linalg.solve(A.T * (s * (1 - s)) @ A, A.T @ (s - ys))
    return theta


@claim(
    "2.1-logreg-fit",
    title="Fitting logistic regression",
    kind="experiment",
    of=("models.logistic_regression", "train.binary_cross_entropy", "train.descend"),
)
def logistic_fit(rng):
    r"""Logistic regression has no closed form. If the classes overlap it has one minimum, which
    Newton's method, L-BFGS and SGD with $(\sigma(w^\top x_i) - y_i) x_i$ find. On separable
    data the loss goes to 0 and $\|w\|$ grows without bound.
    """
    xs = rng.normal(size=(500, 5))
    truth = np.array([1.5, -1.0, 0.5, 0.0, 1.0])
    ys = (rng.uniform(size=500) < special.expit(xs @ truth - 0.3)).astype(float)
    data = jnp.asarray(xs), jnp.asarray(ys)
    origin = models.logistic_regression(5)
    start, back = tree.ravel(origin)
    objective = jax.jit(
        jax.value_and_grad(lambda theta, batch: train.binary_cross_entropy(back(theta), batch))
    )
    newton = _newton(xs, ys)
    value = lambda theta: tuple(
        np.asarray(a, np.float64) for a in objective(jnp.asarray(theta), data)
    )
    lbfgs = optimize.minimize(
        value, np.asarray(start), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-9}
    )
    min_loss = value(newton)[0]

    rows = rng.integers(0, 500, (STEPS, 1))
    sgd = train.descend(train.binary_cross_entropy, optax.sgd(lambda t: 1.0 / (1 + t / 50)))
    run_sgd = jax.jit(lambda batches: run(sgd, origin, batches, key=jr.key(0))[0].model)
    sgd_loss = value(tree.ravel(run_sgd((data[0][rows], data[1][rows])))[0])[0]

    separable_ys = jnp.asarray((xs @ truth > 0).astype(float))
    batches = jax.tree.map(lambda a: jnp.broadcast_to(a, (2000, *a.shape)), (data[0], separable_ys))
    descent = train.descend(train.binary_cross_entropy, optax.sgd(4.0))
    run_descent = jax.jit(
        lambda batches: run(
            descent, origin, batches, key=jr.key(0), record=lambda state: tree.norm(state.model.W)
        )
    )
    norms, info = run_descent(batches)[1]
    checkpoints = np.array([10, 50, 200, 800, 1999])
    steps = np.arange(1, 2001)
    return Verdict(
        close("L-BFGS against Newton", lbfgs.x, newton, tolerance=1e-6),
        at_most(
            "norm of the gradient after Newton's method", np.linalg.norm(value(newton)[1]), 1e-10
        ),
        at_most(f"loss after {STEPS:,} steps of SGD, above the minimum", sgd_loss - min_loss, 5e-3),
        at_least("loss after SGD is not below the minimum", sgd_loss - min_loss, 0.0),
        increasing("length of w on separable data", np.asarray(norms)[checkpoints]),
        decreasing("loss on separable data", np.asarray(info.loss)[checkpoints]),
        at_most("final loss on separable data", np.asarray(info.loss)[-1], 0.05),
        assumptions=[at_least("loss at the minimum: the classes overlap", min_loss, 0.1)],
        figure=Chart(
            Panel(
                "step",
                "loss on separable data",
                lines={"loss": (steps, np.asarray(info.loss))},
                log="xy",
            ),
            Panel(
                "step",
                "length of the weights",
                lines={"length": (steps, np.asarray(norms))},
                log="x",
            ),
        ),
    )
