"""§2.1: logistic regression has no closed form; three ways to its one minimum."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy import optimize, special

from ... import models, train, tree
from ...core import run
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, falls, rises
from ..engine.claim import Verdict, claim

STEPS = 20_000


def _newton(xs, ys):
    """Iteratively reweighted least squares, the constant last."""
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
def logistic_fit(key):
    r"""Logistic regression has no closed form, but one minimum where the classes overlap: Newton's
    method, L-BFGS and stochastic descent on $(\sigma(w^\top x_i) - y_i) x_i$ find it. On separable
    data the loss goes to 0 and $\|w\|$ grows without bound.
    """
    rng = chance(key)
    xs = rng.normal(size=(500, 5))
    truth = np.array([1.5, -1.0, 0.5, 0.0, 1.0])
    ys = (rng.uniform(size=500) < special.expit(xs @ truth - 0.3)).astype(float)
    everything = jnp.asarray(xs), jnp.asarray(ys)
    origin = models.logistic_regression(5)
    flat, back = tree.ravel(origin)
    objective = jax.jit(
        jax.value_and_grad(lambda theta, batch: train.binary_cross_entropy(back(theta), batch))
    )
    newton = _newton(xs, ys)
    value = lambda theta: tuple(
        np.asarray(a, np.float64) for a in objective(jnp.asarray(theta), everything)
    )
    quasi = optimize.minimize(
        value, np.asarray(flat), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-9}
    )
    least = value(newton)[0]

    rows = rng.integers(0, 500, (STEPS, 1))
    sgd = train.descend(train.binary_cross_entropy, optax.sgd(lambda t: 1.0 / (1 + t / 50)))
    walk = jax.jit(lambda batches: run(sgd, origin, batches, key=jr.key(0))[0].model)
    walked = value(tree.ravel(walk((everything[0][rows], everything[1][rows])))[0])[0]

    apart = jnp.asarray((xs @ truth > 0).astype(float))
    batches = jax.tree.map(lambda a: jnp.broadcast_to(a, (2000, *a.shape)), (everything[0], apart))
    descent = train.descend(train.binary_cross_entropy, optax.sgd(4.0))
    follow = jax.jit(
        lambda batches: run(
            descent, origin, batches, key=jr.key(0), record=lambda state: tree.norm(state.model.W)
        )
    )
    norms, info = follow(batches)[1]
    at = np.array([10, 50, 200, 800, 1999])
    steps = np.arange(1, 2001)
    return Verdict(
        close("L-BFGS against Newton", quasi.x, newton, tolerance=1e-6),
        at_most("gradient at Newton's end", np.linalg.norm(value(newton)[1]), 1e-10),
        at_most(f"loss after {STEPS:,} stochastic steps, above the least", walked - least, 5e-3),
        at_least("and no loss is below the least", walked - least, 0.0),
        rises("length of w on separable data", np.asarray(norms)[at]),
        falls("loss on separable data", np.asarray(info.loss)[at]),
        at_most("loss on separable data in the end", np.asarray(info.loss)[-1], 0.05),
        assumptions=[at_least("loss at the minimum: the classes overlap", least, 0.1)],
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
