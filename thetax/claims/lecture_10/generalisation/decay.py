"""Lecture 10, §4.2 and §4.3: weight decay and early stopping."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .... import layers, models, train, tree
from ....core import Iteration, iterate, run
from ....plot import Chart, Panel
from ...engine.check import at_least, close, close_derivative, equal, refuted
from ...engine.claim import Verdict, claim
from ...engine.differences import jacobian
from .regularise import linear


@claim(
    "L10-4.2-weight-decay",
    title="Weight decay",
    kind="algorithm",
    of=("train.weight_decay", "train.descend"),
    cites="Krogh & Hertz 1992",
)
def decay(key, rng):
    r"""Descent on $\hat R_\lambda = \hat R + \frac{\lambda}{2} \|\theta\|^2$ is
    $\theta \leftarrow (1 - \eta\lambda)\theta - \eta\nabla\hat R(\theta)$: where the risk is flat
    the weights shrink by the factor $1 - \eta\lambda$ per step. Under Adam, which rescales the sum
    of both gradients, the two differ.
    """
    eta = 0.1
    mu = 0.5
    g = jnp.array([0.3, 0.4])
    start = jnp.array([2.0, -1.0])
    slope, flat = (lambda theta, batch, key, on=on: on * (g @ theta) for on in (1.0, 0.0))
    walk = lambda objective, start, optimiser, steps: iterate(
        train.descend(objective, optimiser),
        start,
        steps,
        key=key,
        record=lambda s: tree.ravel(s.model)[0],
    )
    path = lambda *what: np.asarray(walk(*what)[1][0])
    once = path(train.weight_decay(slope, strength=mu), start, optax.sgd(eta), 1)[0]
    fading = path(train.weight_decay(flat, strength=mu), start, optax.sgd(eta), 50)
    data = jnp.asarray(rng.normal(size=(10, 2))), jnp.asarray(rng.normal(size=10))
    net = models.MLP.init(2, 4, 1, activation=layers.tanh, key=key)
    risk = lambda model, batch, key: train.squared_error(model, data)
    penalised = train.weight_decay(risk, strength=mu)
    theta, back = tree.ravel(net)
    step = path(penalised, net, optax.sgd(eta), 1)[0]
    by_hand = (1 - eta * mu) * np.asarray(theta) - eta * jacobian(
        lambda v: risk(back(v), None, None), theta
    )
    decoupled = [
        path(risk, net, optax.chain(rule, optax.add_decayed_weights(mu), optax.scale(-eta)), 5)[-1]
        for rule in (optax.identity(), optax.scale_by_adam())
    ]
    coupled = [
        path(penalised, net, optimiser, 5)[-1] for optimiser in (optax.sgd(eta), optax.adam(eta))
    ]
    return Verdict(
        close("one step from (2, −1) with ∇R = (0.3, 0.4)", once, [1.87, -0.99], tolerance=1e-14),
        close(
            "where the risk is flat, 50 steps",
            fading,
            0.95 ** np.arange(1, 51)[:, None] * np.asarray(start),
            tolerance=1e-14,
        ),
        close_derivative(
            "a network's step, against (1 − ηλ)θ − η∇R by differences",
            step,
            by_hand,
            tolerance=1e-10,
        ),
        close(
            "decay in the step instead of the objective, 5 steps of gradient descent",
            coupled[0],
            decoupled[0],
            tolerance=1e-13,
        ),
        refuted(close("5 steps of Adam", coupled[1], decoupled[1], tolerance=1e-3)),
    )


@claim(
    "L10-4.2-wd-prior",
    title="Weight decay is a normal prior",
    kind="identity",
    of=("train.weight_decay", "train.binary_cross_entropy"),
    cites="MacKay 1992",
)
def prior(rng):
    r"""If the loss is a negative log-likelihood, $\hat R$ its mean over $N$ examples, then the
    minimiser of $\hat R + \frac{\lambda}{2}\|\theta\|^2$ is the mode of the posterior under
    $\theta \sim N(0, \sigma^2 I)$ with $\sigma^2 = \frac{1}{N\lambda}$; the factor $N$ is needed.
    """
    n, lam = 50, 0.05
    X = rng.normal(size=(n, 3))
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5] - 0.3))).astype(int)
    result = np.asarray(_penalised_fit(jnp.asarray(X), jnp.asarray(y), lam))
    mode = _mode(np.column_stack([X, np.ones(n)]), y, variance=1 / (n * lam))
    off = _mode(np.column_stack([X, np.ones(n)]), y, variance=1 / lam)
    return Verdict(
        close(
            "the minimiser, against Newton's mode of the posterior", result, mode, tolerance=1e-8
        ),
        refuted(close("with σ² = 1/λ", result, off, tolerance=1e-2)),
    )


@jax.jit
def _penalised_fit(xs, ys, strength):
    """Logistic regression by gradient descent on the penalised risk: w, then b."""
    objective = train.weight_decay(train.binary_cross_entropy, strength=strength)
    step = train.descend(lambda model, batch, key: objective(model, (xs, ys)), optax.sgd(1.0))
    model = run(step, models.logistic_regression(3), jnp.zeros(2000), key=jr.key(0))[0].model
    return jnp.concatenate([model.W[0], model.b])


def _mode(Z: np.ndarray, y: np.ndarray, *, variance: float) -> np.ndarray:
    r"""The maximum of $\sum_i \log p(y_i \mid x_i, \theta) + \log N(\theta; 0, \sigma^2 I)$, by
    Newton's method.
    """
    theta = np.zeros(Z.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-Z @ theta))
        gradient = Z.T @ (p - y) + theta / variance
        theta = theta - np.linalg.solve(
            (Z.T * (p * (1 - p))) @ Z + np.eye(len(theta)) / variance, gradient
        )
    return theta


class Counter(NamedTuple):
    """A model that counts its epochs."""

    model: layers.Linear


class CounterInfo(NamedTuple):
    """What a step of the counter reports."""

    loss: jax.Array


def _count(state: Counter, batch: Any, *, key: Any) -> tuple[Counter, CounterInfo]:
    return Counter(layers.Linear(state.model.W + 1)), CounterInfo(jnp.zeros(()))


SCRIPT = np.array([5, 4, 3, 3.5, 3.2, 2.8, 2.9, 3.0, 3.1, 3.2, 2.5, 2.6])


@claim(
    "L10-4.3-early-stopping",
    title="Early stopping",
    kind="algorithm",
    of=("train.fit", "train.descend"),
    cites="Prechelt 1998",
)
def early(key, rng):
    r"""Validate after every epoch, stop when the error has not fallen for $p$ epochs, and return
    the weights of the best one. The number of epochs acts as a regularisation parameter: on least
    squares, gradient descent from 0 has an increasing norm.
    """
    script = jnp.asarray(SCRIPT)
    metric = lambda model, batch, key=None: script[(model.W[0, 0] - 1).astype(int)]
    data = (jnp.zeros((2, 1)), jnp.zeros(2))
    counter = Iteration(Counter, _count)
    runs = [
        train.fit(
            counter,
            layers.Linear(jnp.zeros((1, 1))),
            data,
            epochs=len(SCRIPT),
            batch_size=2,
            validation=data,
            metrics={"script": metric},
            patience=p,
            key=key,
            progress=train.Silent(),
        )
        for p in (1, 2, 3, None)
    ]
    n_epochs = np.array([len(result.history["valid script"]) for result in runs])
    returned = np.array([float(result.model.W[0, 0]) for result in runs])
    path, valid, test = _paths(rng)
    norms = np.linalg.norm(path, axis=2)
    stop = valid.argmin(axis=1)
    at_stop = test[np.arange(10), stop]
    at_end = test[:, -1]
    t = np.arange(1, 1 + path.shape[1])
    return Verdict(
        equal(
            "epochs run with p = 1, 2, 3 and without early stopping",
            n_epochs,
            [*(_stops(p) for p in (1, 2, 3)), 12],
        ),
        equal(
            "epoch of the returned weights",
            returned,
            [*(1 + SCRIPT[: _stops(p)].argmin() for p in (1, 2, 3)), 12],
        ),
        refuted(equal("epoch of the last weights", returned[:3], n_epochs[:3])),
        at_least(
            "increase of the norm in each of 1,000 steps from 0, 10 problems",
            np.diff(norms, axis=1),
            0.0,
            slack=1e-13,
        ),
        at_least(
            "problems of 10 whose test error at the stop is smaller than at the end",
            int((at_stop < at_end).sum()),
            9,
        ),
        figure=Chart(
            Panel(
                "step",
                "mean squared error",
                log="x",
                lines={"validation": (t, valid[0]), "test": (t, test[0])},
                vertical_lines={"stop": float(t[stop[0]])},
            ),
            Panel(
                "step",
                "norm of the weights",
                log="x",
                lines={"": (t, norms[0])},
                vertical_lines={"stop": float(t[stop[0]])},
            ),
        ),
    )


def _stops(patience: int) -> int:
    """The epoch at which the scripted error has not improved for `patience` epochs, as a loop."""
    least, waited = np.inf, 0
    for epoch, error in enumerate(SCRIPT, start=1):
        least, waited = (error, 0) if error < least else (least, waited + 1)
        if waited == patience:
            return epoch
    return len(SCRIPT)


def _paths(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten noisy regressions with 25 features and 30 examples: weights, validation errors and true
    errors after each step.
    """
    problems = [linear(rng, 70, 25, noise=4.0) for _ in range(10)]
    X, y, w = (np.stack([problem[i] for problem in problems]) for i in range(3))
    path = np.asarray(_descent_paths(jnp.asarray(X[:, :30]), jnp.asarray(y[:, :30])))
    valid = np.mean((np.einsum("std,snd->stn", path, X[:, 30:]) - y[:, None, 30:]) ** 2, axis=2)
    return path, valid, np.sum((path - w[:, None]) ** 2, axis=2) + 16.0


@jax.jit
def _descent_paths(xs, ys):
    def walk(xs, ys):
        step = train.descend(
            lambda model, batch, key: train.squared_error(model, (xs, ys)), optax.sgd(0.2)
        )
        start = layers.Linear(jnp.zeros((1, 25)))
        return run(step, start, jnp.zeros(1000), key=jr.key(0), record=lambda s: s.model.W[0])[1][0]

    return jax.vmap(walk)(xs, ys)
