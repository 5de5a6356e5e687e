"""Lecture 10, §4.1: the lasso, and noise on the inputs."""

from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from sklearn.linear_model import Lasso

from .... import layers, models, train
from ....core import run
from ....plot import Chart, Panel
from ...engine.check import at_least, at_most, close, equal, refuted, within
from ...engine.claim import Verdict, claim


def linear(
    rng: np.random.Generator, n: int, d: int, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal features, a noisy linear response, and its weights."""
    X = rng.normal(size=(n, d))
    w = rng.normal(size=d)
    return X, X @ w + noise * rng.normal(size=n), w


@claim(
    "L10-4.1-l1",
    title="The lasso",
    kind="loss",
    of=("train.soft_threshold", "train.ista", "train.lasso"),
    cites="Tibshirani 1996; Beck & Teboulle 2009",
)
def lasso(rng):
    r"""The proximal map of the penalty $\lambda\|\theta\|_1$ is
    $\mathrm{sgn}(z) \max(|z| - \lambda, 0)$, the minimiser of
    $\frac12 (\theta - z)^2 + \lambda|\theta|$. Gradient steps, each followed by this map, reach the
    lasso solution, which has exact zeros; that of ridge regression has none.
    """
    z = rng.normal(size=200) * 2
    mu = 0.7
    grid = np.arange(-8000, 8001) / 1000
    least = grid[np.argmin((grid[None] - z[:, None]) ** 2 / 2 + mu * np.abs(grid[None]), axis=1)]
    X, y, _ = linear(rng, 40, 8)
    y = 2 * X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=40)  # six features are irrelevant
    learning_rate = 40 / np.linalg.norm(X, 2) ** 2
    strength = 0.2
    result = np.asarray(_ista(jnp.asarray(X), jnp.asarray(y), learning_rate, strength))
    peer = Lasso(alpha=strength, fit_intercept=False, tol=1e-14, max_iter=10**6).fit(X, y).coef_
    ridge = np.asarray(models.ridge(jnp.asarray(X), jnp.asarray(y), strength=40 * strength).W[0])
    value = lambda w: (
        np.mean((X @ w.T - y[:, None]) ** 2, axis=0) / 2 + strength * np.abs(w).sum(axis=1)
    )
    sparse = train.lasso(train.squared_error, strength=strength)
    objective = jax.vmap(
        lambda w: sparse(layers.Linear(w[None]), (jnp.asarray(X), jnp.asarray(y)))
    )(jnp.asarray(result))
    return Verdict(
        close(
            "the proximal map, against the argmin on a grid of 1/1000",
            train.soft_threshold(jnp.asarray(z), strength=mu),
            least,
            tolerance=5.01e-4,
            method="brute force",
        ),
        close("the weights, against scikit-learn's Lasso", result[-1], peer, tolerance=1e-6),
        equal("which of them are exactly 0", result[-1] == 0, peer == 0),
        at_least("number of zeros, of 8", int((result[-1] == 0).sum()), 3),
        equal("number of zeros in ridge regression", int((ridge == 0).sum()), 0),
        close("the objective at every step", objective, value(result)),
        at_most("and its increase", np.diff(value(result)), 0.0, slack=1e-12),
        figure=Chart(
            Panel(
                "step",
                "weight",
                log="x",
                lines={f"w{i + 1}": (np.arange(1, 401), result[:400, i]) for i in (0, 1, 4, 6)},
            ),
            Panel(
                "feature",
                "weight",
                points={"lasso": (np.arange(1, 9), result[-1]), "ridge": (np.arange(1, 9), ridge)},
            ),
        ),
    )


@jax.jit
def _ista(xs, ys, learning_rate, strength):
    """The weights after every proximal step from 0."""
    step = train.descend(
        lambda m, batch, key: train.squared_error(m, (xs, ys)),
        train.ista(learning_rate, strength=strength),
    )
    start = layers.Linear(jnp.zeros((1, xs.shape[1])))
    return run(step, start, jnp.zeros(2000), key=jr.key(0), record=lambda s: s.model.W[0])[1][0]


@claim(
    "L10-4.1-augment-ridge",
    title="Input noise is a ridge penalty",
    kind="theorem",
    of=("train.with_augmentation", "models.ridge"),
    cites="Bishop 1995",
)
def noise(key, rng):
    r"""For a linear model,
    $\mathbb{E} \sum_i (y_i - w^\top (x_i + \varepsilon_i))^2 = \sum_i (y_i - w^\top x_i)^2 +
    N\sigma^2 \|w\|^2$ with $\varepsilon_i \sim N(0, \sigma^2
    I)$. Training with new noise at every step therefore tends to $(X^\top X + N\sigma^2 I)^{-1}
    X^\top y$.
    """
    X, y, _ = linear(rng, 15, 3)
    w = rng.normal(size=3)
    sigma = 0.8
    n = 15
    nodes, masses = np.polynomial.hermite_e.hermegauss(
        3
    )  # exact for normal moments up to the fifth
    total = 0.0
    for where in product(range(3), repeat=3):
        mass = np.prod(masses[list(where)]) / masses.sum() ** 3
        shift = jnp.asarray(sigma * nodes[list(where)])
        objective = train.with_augmentation(
            train.squared_error, lambda x, key, shift=shift: x + shift
        )
        total += (
            mass
            * 2
            * n
            * float(
                objective(
                    layers.Linear(jnp.asarray(w)[None]), (jnp.asarray(X), jnp.asarray(y)), key=key
                )
            )
        )
    plain = np.sum((X @ w - y) ** 2)
    extra = n * sigma**2 * w @ w
    best = np.linalg.solve(X.T @ X + n * sigma**2 * np.eye(3), X.T @ y)
    result = np.asarray(_noisy(jnp.asarray(X), jnp.asarray(y), sigma, jr.split(key, 100)))
    error = result.std(axis=0, ddof=1) / np.sqrt(len(result))
    return Verdict(
        close(
            "the expectation of the library's objective, by quadrature",
            total,
            plain + extra,
            tolerance=1e-10,
        ),
        refuted(close("without N", total, plain + extra / n, tolerance=1e-3)),
        within(
            "100 trainings with noise, against the ridge", result.mean(axis=0), best, error=error
        ),
        refuted(
            within(
                "against least squares",
                result.mean(axis=0),
                np.linalg.lstsq(X, y, rcond=None)[0],
                error=error,
            )
        ),
        close(
            "the library's ridge regression on centred data",
            models.ridge(
                jnp.asarray(X - X.mean(axis=0)), jnp.asarray(y - y.mean()), strength=n * sigma**2
            ).W[0],
            np.linalg.solve(
                _scatter(X) + n * sigma**2 * np.eye(3), (X - X.mean(axis=0)).T @ (y - y.mean())
            ),
        ),
    )


def _scatter(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))


@jax.jit
def _noisy(xs, ys, sigma, keys):
    """Training with new noise at every step: the mean of the weights after the first 200 of 1,000
    steps.
    """
    blur = lambda x, key: x + sigma * jr.normal(key, x.shape)
    objective = train.with_augmentation(train.squared_error, blur)
    step = train.descend(
        lambda model, batch, key: objective(model, (xs, ys), key=key), optax.sgd(0.1)
    )
    start = layers.Linear(jnp.zeros((1, xs.shape[1])))
    walk = lambda key: run(step, start, jnp.zeros(1000), key=key, record=lambda s: s.model.W[0])[1][
        0
    ]
    return jax.vmap(lambda key: walk(key)[200:].mean(axis=0))(keys)
