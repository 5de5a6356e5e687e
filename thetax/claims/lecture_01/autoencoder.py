"""Lecture 1: the linear autoencoder, its loss, its gradients and the limit of gradient descent."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import models, train
from ...core import iterate
from ...layers import Chain, Linear
from ...plot import Panel
from ..engine.check import at_least, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian


def with_singular_values(rng, d, n, values):
    """Data X of d rows and n columns whose singular values are √n times the given ones, in random
    directions.
    """
    U, V = (np.linalg.qr(rng.normal(size=(side, side)))[0][:, : len(values)] for side in (d, n))
    return np.sqrt(n) * U * np.asarray(values) @ V.T


def autoencoder_of(C, D):
    """The linear autoencoder with encoder C and decoder D."""
    return Chain(Linear(jnp.asarray(C)), Linear(jnp.asarray(D)))


def _sum(X, C, D):
    """The loss as a loop over examples and coordinates."""
    total = 0.0
    for x in X.T:
        y = [
            sum(D[j, k] * sum(C[k, i] * x[i] for i in range(len(x))) for k in range(len(C)))
            for j in range(len(x))
        ]
        total += sum((a - b) ** 2 for a, b in zip(x, y)) / 2
    return total / X.shape[1]


def _objective(model, X):
    return train.squared_error(model, (jnp.asarray(X.T), jnp.asarray(X.T)))


@claim(
    "L1-autoencoder",
    "L1-ae-sample-loss",
    "L1-ae-loss",
    title="The linear autoencoder and its loss",
    kind="model",
    of=("models.deep_linear", "train.squared_loss", "train.squared_error"),
    cites="Bourlard & Kamp 1988",
)
def autoencoder(key, rng):
    r"""A linear autoencoder encodes $x \in \mathbb{R}^d$ as $z = Cx \in \mathbb{R}^m$, $m < d$, and
    decodes it as $y = Dz$. The loss of one example is $\frac12 \|x - DCx\|^2$, that of the data
    $\frac{1}{2n} \sum_i \|x_i - DCx_i\|^2 = \frac{1}{2n} \|X - DCX\|_F^2$ with
    $X = [x_1 \dots x_n]$.
    """
    d, m, n = 6, 2, 9
    X = rng.normal(size=(d, n))
    net = models.deep_linear(d, m, d, key=key)
    C, D = (np.asarray(layer.W) for layer in net.layers)
    x = jnp.asarray(X[:, 0])
    one = sum((X[j, 0] - (D @ C @ X[:, 0])[j]) ** 2 for j in range(d)) / 2
    frobenius = np.linalg.norm(X - D @ C @ X, "fro") ** 2
    return Verdict(
        equal("shapes of C and D, d = 6 and m = 2", C.shape + D.shape, (m, d, d, m)),
        equal(
            "lengths of the code and of the output",
            net.layers[0](x).shape + net(x).shape,
            (m, d),
        ),
        close("y = DCx", net(x), D @ (C @ X[:, 0]), tolerance=1e-13),
        close("one example, against a loop", train.squared_loss(net(x), x), one),
        close("the data, against loops", _objective(net, X), _sum(X, C, D)),
        close("the Frobenius form with 1/(2n)", frobenius / (2 * n), _sum(X, C, D)),
    )


@erratum(
    "L1-ae-loss",
    title="The mean in both forms of the loss",
    printed=r"\frac{1}{2n} \sum_i \|x_i - DCx_i\|^2 = \frac12 \|X - DCX\|_F^2",
    corrected=r"\frac{1}{2n} \sum_i \|x_i - DCx_i\|^2 = \frac{1}{2n} \|X - DCX\|_F^2",
    of=("train.squared_error",),
)
def autoencoder_loss_printed(key, rng):
    r"""The sum is printed with $\frac{1}{2n}$ and the Frobenius norm with $\frac12$: the two differ
    by the factor $n$.
    """
    n = 9
    X = rng.normal(size=(6, n))
    net = models.deep_linear(6, 2, 6, key=key)
    C, D = (np.asarray(layer.W) for layer in net.layers)
    square = np.linalg.norm(X - D @ C @ X, "fro") ** 2
    form = lambda factor, value: close(
        f"{factor} ‖X − DCX‖², against the objective",
        value,
        float(_objective(net, X)),
        tolerance=1e-10,
    )
    return Verdict(form("1/(2n)", square / (2 * n)), printed=[form("1/2", square / 2)])


@claim(
    "L1-ae-goal",
    title="An autoencoder need not be the identity",
    kind="identity",
    of=("models.principal_components", "train.squared_error"),
)
def goal(rng):
    r"""$DC \approx I$ is required on the data only. If the data span $m$ dimensions, the loss can
    be 0 although $DC \ne I$: the best $DC$ is the orthogonal projector onto the span, and
    $\|DC - I\|_F \ge \sqrt{d - m}$ for every optimum.
    """
    d, m, n = 7, 3, 30
    basis = np.linalg.qr(rng.normal(size=(d, m)))[0]
    X = basis @ rng.normal(size=(m, n))
    results = models.principal_components(X.T, n_components=m)
    C, D = (np.asarray(layer.W) for layer in results.model.layers)
    # every optimum is the identity on the span and has rank m, so D C = basis (basis + anything
    # orthogonal to it)ᵀ
    others = rng.normal(size=(200, d, m))
    others -= basis @ (basis.T @ others)
    optima = np.einsum("dm,sem->sde", basis, basis + others)
    distances = np.linalg.norm(optima - np.eye(d), axis=(1, 2))
    return Verdict(
        close("the smallest loss", _objective(results.model, X), 0.0, tolerance=1e-20),
        close("and as `principal_components` reports it", results.loss, 0.0, tolerance=1e-20),
        close("DC, against the projector on the span", D @ C, basis @ basis.T),
        close("‖DC − I‖, against √(d − m)", np.linalg.norm(D @ C - np.eye(d)), np.sqrt(d - m)),
        close(
            "200 other optima: their reconstruction of the data",
            optima @ X,
            np.broadcast_to(X, (200, d, n)),
            tolerance=1e-10,
        ),
        at_least("their ‖DC − I‖", distances, np.sqrt(d - m), slack=1e-12),
        refuted(close("DC, against the identity", D @ C, np.eye(d), tolerance=1e-3)),
    )


def _by_hand(C, D, x):
    """The gradients of one example, entry by entry."""
    m, d = C.shape
    y = D @ (C @ x)
    by_C = np.array(
        [
            [x[i] * sum(D[j, k] * (y[j] - x[j]) for j in range(d)) for i in range(d)]
            for k in range(m)
        ]
    )
    by_D = np.array(
        [
            [(y[j] - x[j]) * sum(C[k, i] * x[i] for i in range(d)) for k in range(m)]
            for j in range(d)
        ]
    )
    return by_C, by_D


@claim(
    "L1-ae-grad-elements",
    "L1-gradient-layout",
    "L1-ae-grad-matrix",
    title="The gradients of the linear autoencoder",
    kind="identity",
    of=("train.backpropagate", "models.deep_linear_gradient"),
)
def gradients(rng):
    r"""For one example $\frac{\partial \ell}{\partial C_{ki}} = x_i \sum_j D_{jk} (y_j - x_j)$ and
    $\frac{\partial \ell}{\partial D_{jk}} = (y_j - x_j) \sum_i C_{ki} x_i$. Laid out like the
    matrix itself, $\frac{\partial \ell}{\partial C} = D^\top (y - x) x^\top$ and
    $\frac{\partial \ell}{\partial D} = (y - x) x^\top C^\top$; the gradients of several examples
    add up.
    """
    d, m, n = 5, 2, 7
    X, (C, D) = rng.normal(size=(d, n)), (rng.normal(size=(m, d)), rng.normal(size=(d, m)))
    x = X[:, 0]
    loss = lambda C, D: train.squared_loss(autoencoder_of(C, D)(jnp.asarray(x)), jnp.asarray(x))
    results = train.backpropagate(
        autoencoder_of(C, D), lambda p, y: train.squared_loss(p, y), jnp.asarray(x), jnp.asarray(x)
    )
    auto_C, auto_D = (np.asarray(layer.W) for layer in results.gradient.layers)
    by_C, by_D = _by_hand(C, D, x)
    error = D @ C @ x - x
    summed = models.deep_linear_gradient(autoencoder_of(C, D), models.second_moments(X.T, X.T))
    each = [_by_hand(C, D, X[:, i]) for i in range(n)]
    fd = {"tolerance": 1e-8, "method": "finite differences"}
    return Verdict(
        close(
            "by C, entry by entry, against differences",
            by_C,
            jacobian(lambda C: loss(C, D), C),
            **fd,
        ),
        close(
            "by D, entry by entry, against differences",
            by_D,
            jacobian(lambda D: loss(C, D), D),
            **fd,
        ),
        close("Dᵀ(y − x)xᵀ, against the entries", D.T @ np.outer(error, x), by_C),
        close("(y − x)xᵀCᵀ, against the entries", np.outer(error, x) @ C.T, by_D),
        close("by C, backpropagated", auto_C, by_C),
        close("by D, backpropagated", auto_D, by_D),
        equal(
            "shapes of the gradients, against C and D",
            auto_C.shape + auto_D.shape,
            C.shape + D.shape,
        ),
        close(
            "the data by C, against the sum",
            summed.layers[0].W,
            sum(a for a, _ in each),
            tolerance=1e-11,
        ),
        close(
            "the data by D, against the sum",
            summed.layers[1].W,
            sum(b for _, b in each),
            tolerance=1e-11,
        ),
        refuted(close("by C with the other sign", -by_C, jacobian(lambda C: loss(C, D), C), **fd)),
    )


@claim(
    "L1-ae-training",
    title="Gradient descent finds the best linear autoencoder",
    kind="experiment",
    of=("train.descend", "models.deep_linear", "models.principal_components"),
    cites="Baldi & Hornik 1989",
)
def training(key, rng):
    r"""Gradient descent on $(C, D)$ from a random start reaches the loss of Eckart and Young,
    $\frac{1}{2n} \sum_{i > m} \sigma_i^2$, and $DC$ becomes the projector $U_m U_m^\top$; $C$ and
    $D$ themselves need not be orthogonal.
    """
    rng, (d, m, n), (eta, steps) = rng, (6, 2, 50), (0.05, 5000)
    X = with_singular_values(rng, d, n, [2.2, 1.7, 0.7, 0.6, 0.5, 0.4])
    batch = jnp.asarray(X.T), jnp.asarray(X.T)
    descent = train.descend(lambda model, _, key: train.squared_error(model, batch), optax.sgd(eta))
    starts = jax.vmap(lambda key: models.deep_linear(d, m, d, key=key))(jr.split(key, 5))
    go = jax.jit(jax.vmap(lambda model: iterate(descent, model, steps, key=key)))
    state, (_, info) = go(starts)
    C, D = (np.asarray(layer.W) for layer in state.model.layers)
    U, s, _ = np.linalg.svd(X)
    rest = np.sum(s[m:] ** 2)
    squares = np.square(X - D @ C @ X).sum(axis=(1, 2))
    indices = np.unique(np.geomspace(1, steps, 200).astype(int)) - 1
    above = np.maximum(np.asarray(info.loss)[:, indices] - rest / (2 * n), 1e-16)
    best = models.principal_components(X.T, n_components=m)
    return Verdict(
        close(
            "‖X − DCX‖² after 5,000 steps from 5 starts, against Σσ²",
            squares,
            np.full(5, rest),
            tolerance=1e-8,
        ),
        close(
            "DC, against the projector",
            D @ C,
            np.broadcast_to(U[:, :m] @ U[:, :m].T, (5, d, d)),
            tolerance=1e-4,
        ),
        close("the loss of the closed form", best.loss, rest / (2 * n)),
        refuted(
            close(
                "CCᵀ, against the identity",
                C @ np.swapaxes(C, 1, 2),
                np.broadcast_to(np.eye(m), (5, m, m)),
                tolerance=1e-2,
            )
        ),
        figure=Panel(
            "step",
            "loss above the minimum",
            lines={f"start {i + 1}": (indices + 1, above[i]) for i in range(4)},
            log="xy",
        ),
    )
