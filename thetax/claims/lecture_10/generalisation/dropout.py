"""Lecture 10, §4.4 and exercise 5: dropout, and the equivalent penalty in a linear model."""

from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .... import explain, layers, models, train
from ....core import predict, run
from ....plot import Chart, Panel
from ...engine.check import at_most, close, decreasing, equal, refuted, within
from ...engine.claim import Verdict, claim

D = 6
MASKS = np.array(list(product([0, 1], repeat=D)))


def mask_probabilities(keep: float) -> np.ndarray:
    """The probability of each of the 64 masks."""
    return np.prod(np.where(MASKS == 1, keep, 1 - keep), axis=1)


@claim(
    "L10-4.4-dropout",
    "L10-ex5a-dropout-mean",
    title="Dropout preserves the mean",
    kind="layer",
    of=("layers.Dropout", "explain.dropout_average"),
    cites="Srivastava et al. 2014",
)
def mean(key, rng):
    r"""At every update each unit is set to 0 with probability $\phi$, independently, and the others
    are divided by $p = 1 - \phi$, so that $\mathbb{E}_m[m \odot h / p] = h$: without a key the
    layer is the identity, which is this mean.
    """
    h = rng.normal(size=D)
    phi = 0.3
    layer = layers.Dropout(phi)
    none = layers.Dropout(0.0)
    outputs = np.asarray(
        jax.vmap(lambda key: layer(jnp.asarray(h), key=key))(jr.split(key, 20_000))
    )
    stays = outputs != 0
    by_hand = mask_probabilities(1 - phi) @ (MASKS * h / (1 - phi))
    unscaled = mask_probabilities(1 - phi) @ (MASKS * h)
    error = lambda a: a.std(axis=0, ddof=1) / np.sqrt(len(a))
    return Verdict(
        close("the mean over all 64 masks, by hand", by_hand, h, tolerance=1e-14),
        refuted(close("without dividing by p", unscaled, h, tolerance=1e-3)),
        close(
            "by the library, for each mask",
            explain.dropout_average(layer, jnp.asarray(h)[None])[0],
            h,
            tolerance=1e-14,
        ),
        within("the mean of 20,000 draws", outputs.mean(axis=0), h, error=error(outputs)),
        within(
            "share of dropped units",
            1 - stays.mean(axis=0),
            np.full(D, phi),
            error=error(stays),
        ),
        close("kept units, over h", (outputs / h)[stays], 1 / (1 - phi), tolerance=1e-14),
        equal("without a key", layer(jnp.asarray(h)), h),
        equal("with φ = 0 and a key", none(jnp.asarray(h), key=key), h),
        assumptions=[
            at_most("φ is the probability of dropping: share of kept units", stays.mean(), 0.75)
        ],
    )


@claim(
    "L10-ex5b-dropout-loss",
    title="Dropout under the squared error",
    kind="exercise",
    of=("layers.Dropout", "explain.dropout_average"),
    cites="Wager, Wang & Liang 2013",
)
def loss(rng):
    r"""Over the masks, $\mathbb{E}_m[(w^\top \tilde h - y^*)^2] = (w^\top h - y^*)^2 + \frac{1 -
    p}{p} \sum_j w_j^2 h_j^2$: the squared error of the mean prediction, and the variance.
    """
    w = rng.normal(size=D)
    h = rng.normal(size=D)
    y = rng.normal()
    by_hand = []
    library = []
    formula = []
    rates = np.array([0.2, 0.5, 0.7, 0.9])
    for p in rates:
        by_hand.append(mask_probabilities(p) @ ((MASKS * h / p) @ w - y) ** 2)
        net = layers.Chain(
            layers.Dropout(float(1 - p)), layers.Linear(jnp.asarray(w)[None], jnp.array([-y]))
        )
        library.append(explain.dropout_average(net, jnp.asarray(h)[None], of=jnp.square)[0, 0])
        formula.append((w @ h - y) ** 2 + (1 - p) / p * np.sum(w**2 * h**2))
    size = np.max(formula)
    inverse = [(w @ h - y) ** 2 + p / (1 - p) * np.sum(w**2 * h**2) for p in rates]
    return Verdict(
        close(
            "enumerated by hand, for p = 0.2, 0.5, 0.7, 0.9",
            by_hand,
            formula,
            tolerance=1e-14 * size,
        ),
        close("by the library", library, formula, tolerance=1e-14 * size),
        refuted(close("with p/(1 − p)", library, inverse, tolerance=1e-14 * size)),
    )


def regression(rng: np.random.Generator, n: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Features of different scales, and a noisy linear response."""
    X = rng.normal(size=(n, D)) * np.linspace(0.5, 1.5, D)
    return X, X @ rng.normal(size=D) + rng.normal(size=n)


def weighted_ridge(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    r"""The minimiser of $\|Xw - y\|^2 + \sum_j \lambda_j w_j^2$."""
    return np.linalg.solve(X.T @ X + np.diag(weights), X.T @ y)


@jax.jit
def dropout_descents(xs, ys, keys):
    """A hundred runs of gradient descent with dropout, φ = ½, from 0: the mean of the weights after
    the first 200 steps.
    """
    step = train.descend(
        lambda model, batch, key: train.squared_error(model, (xs, ys), key=key), optax.sgd(0.1)
    )
    start = layers.Chain(layers.Dropout(0.5), layers.Linear(jnp.zeros((1, D))))
    walk = lambda key: run(
        step, start, jnp.zeros(1000), key=key, record=lambda s: s.model.layers[1].W[0]
    )[1][0]
    return jax.vmap(lambda key: walk(key)[200:].mean(axis=0))(keys)


@claim(
    "L10-4.4-dropout-ridge",
    "L10-ex5c-adaptive",
    title="Dropout is an adaptive ridge penalty",
    kind="theorem",
    of=("layers.Dropout", "explain.dropout_average", "explain.dropout_penalty", "models.ridge"),
    cites="Wager, Wang & Liang 2013",
)
def ridge(key, rng):
    r"""In a linear model $\mathbb{E} \sum_i (w^\top \tilde x_i - y_i)^2 = \|Xw - y\|^2 +
    \frac{\phi}{1 - \phi} \sum_j w_j^2 \sum_i x_{ij}^2$: a ridge penalty whose weight on $w_j$ is
    the size of feature $j$, so that strong features are penalised more and the scale of a feature
    does not matter. With standardised features it is ridge regression with
    $\lambda = N\phi / (1 - \phi)$. It vanishes as $\phi \to 0$.
    """
    X, y = regression(rng)
    w = rng.normal(size=D)
    phi = 0.5
    expected = _enumerated(X, y, w, phi)
    penalty = lambda X, w, phi=phi: phi / (1 - phi) * (w**2) @ (X**2).sum(axis=0)
    best = weighted_ridge(X, y, phi / (1 - phi) * (X**2).sum(axis=0))
    slope = jax.grad(lambda w: _library(X, y, w, phi))(jnp.asarray(best))
    result = np.asarray(dropout_descents(jnp.asarray(X), jnp.asarray(y), jr.split(key, 100)))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    alike = weighted_ridge(Z, y - y.mean(), np.full(D, len(X) * phi / (1 - phi)))
    fitted = models.ridge(jnp.asarray(Z), jnp.asarray(y), strength=len(X) * phi / (1 - phi))
    c = np.array([10.0, 1, 1, 0.1, 1, 1])
    scaled = weighted_ridge(X * c, y, phi / (1 - phi) * ((X * c) ** 2).sum(axis=0))
    plain = [weighted_ridge(A, y, np.full(D, 10.0)) for A in (X, X * c)]
    net = layers.Chain(layers.Dropout(phi), layers.Linear(jnp.asarray(w)[None]))
    penalty_by_library = explain.dropout_penalty(
        train.squared_error, net, (jnp.asarray(X), jnp.asarray(y)), n_samples=400, key=key
    )
    rates = np.array([0.5, 0.1, 0.01, 0.001])
    return Verdict(
        close(
            "the expected sum over 64 masks",
            expected,
            np.sum((X @ w - y) ** 2) + penalty(X, w),
            tolerance=1e-11,
        ),
        close(
            "the same by the library",
            _library(X, y, jnp.asarray(w), phi),
            expected,
            tolerance=1e-11,
        ),
        close("its gradient at the weighted ridge", slope, 0.0, tolerance=1e-11),
        within(
            "100 runs with dropout, against it",
            result.mean(axis=0),
            best,
            error=result.std(axis=0, ddof=1) / np.sqrt(len(result)),
        ),
        refuted(
            within(
                "against least squares",
                result.mean(axis=0),
                weighted_ridge(X, y, np.zeros(D)),
                error=result.std(axis=0, ddof=1) / np.sqrt(len(result)),
            )
        ),
        close("standardised: ridge with Nφ/(1 − φ)", fitted.W[0], alike),
        close(
            "standardised: the weights of the features are equal",
            phi / (1 - phi) * (Z**2).sum(axis=0),
            len(X) * phi / (1 - phi),
        ),
        within(
            "`dropout_penalty`, times 2N",
            2 * len(X) * penalty_by_library.value,
            penalty(X, w),
            error=2 * len(X) * penalty_by_library.error,
        ),
        close(
            "features times c, weights over c: the penalty",
            penalty(X * c, w / c),
            penalty(X, w),
            tolerance=1e-11,
        ),
        close("and the fit of the minimiser", (X * c) @ scaled, X @ best, tolerance=1e-11),
        refuted(close("the fit of plain ridge", (X * c) @ plain[1], X @ plain[0], tolerance=1e-3)),
        decreasing(
            "the penalty for φ = 0.5, 0.1, 0.01, 0.001",
            [_library(X, y, jnp.asarray(w), r) - np.sum((X @ w - y) ** 2) for r in rates],
        ),
        figure=_shrinkage(weighted_ridge(X, y, np.zeros(D)), best, result.mean(axis=0)),
    )


def _shrinkage(least: np.ndarray, best: np.ndarray, weights: np.ndarray) -> Chart:
    """The weights with dropout, against those of least squares and of the equivalent ridge
    regression.
    """
    line = np.array([-3.0, 3.0])
    return Chart(
        Panel(
            "weight of least squares",
            "weight under dropout",
            points={"mean of 100 runs": (least, weights)},
            bounds={"no penalty": (line, line)},
        ),
        Panel(
            "weighted ridge",
            "weight under dropout",
            points={"mean of 100 runs": (best, weights)},
            bounds={"equal": (np.sort(best), np.sort(best))},
        ),
    )


def _enumerated(X: np.ndarray, y: np.ndarray, w: np.ndarray, phi: float) -> float:
    """The expected sum of squares, by enumerating the masks of every example."""
    thinned = MASKS[None] * X[:, None] / (1 - phi)
    return float(np.sum(mask_probabilities(1 - phi) * (thinned @ w - y[:, None]) ** 2))


def _library(X: np.ndarray, y: np.ndarray, w: jax.Array, phi: float) -> jax.Array:
    """The same, by the library: $\\sum_i \\mathbb{E} f^2 - 2 y_i \\mathbb{E} f + y_i^2$ over its
    masks.
    """
    net = layers.Chain(layers.Dropout(float(phi)), layers.Linear(w[None]))
    square = explain.dropout_average(net, jnp.asarray(X), of=jnp.square)[:, 0]
    return (
        square - 2 * jnp.asarray(y) * predict(net, jnp.asarray(X))[:, 0] + jnp.asarray(y) ** 2
    ).sum()
