"""Lecture 1: deep linear networks, their gradients in closed form, and how they learn."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.integrate import solve_ivp

from ... import models, train, tree
from ...core import iterate
from ...layers import Chain, Linear
from ...plot import Panel
from ..engine.check import at_least, at_most, between, close, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian
from .autoencoder import with_singular_values


def _problem(rng, d, m, k, n):
    """Examples as columns, as in the lecture, and the two matrices of a network."""
    shapes = ((d, n), (k, n), (m, d), (k, m))
    return tuple(rng.normal(size=shape) for shape in shapes)


def _loss(model, X, Y):
    """The library's objective, summed over the examples as in the lecture."""
    return X.shape[1] * train.squared_error(model, (jnp.asarray(X.T), jnp.asarray(Y.T)))


@claim(
    "L1-deep-linear",
    "L1-deep-linear-loss",
    "L1-correlations",
    title="A deep linear network and its loss",
    kind="model",
    of=(
        "models.deep_linear",
        "models.merge_linear_layers",
        "models.second_moments",
        "train.squared_error",
    ),
)
def network(key, rng):
    r"""$y = BAx$ with $A \in \mathbb{R}^{m \times d}$ and $B \in \mathbb{R}^{k \times m}$ is the
    single map $BA$. Its loss $\frac12 \sum_i \|y_i - BAx_i\|^2$ is
    $\frac12 \sum_i (y_i^\top y_i - 2 y_i^\top BA x_i + x_i^\top A^\top B^\top BA x_i)$, which
    depends on the data through $\Sigma_{xx} = \sum_i x_i x_i^\top$ and
    $\Sigma_{yx} = \sum_i y_i x_i^\top$.
    """
    d, m, k, n = 5, 2, 3, 12
    X, Y, _, _ = _problem(rng, d, m, k, n)
    net = models.deep_linear(d, m, k, key=key)
    A, B = (np.asarray(layer.W) for layer in net.layers)
    loops = sum(np.sum((Y[:, i] - B @ (A @ X[:, i])) ** 2) for i in range(n)) / 2
    expanded = [
        Y[:, i] @ Y[:, i] - 2 * Y[:, i] @ B @ A @ X[:, i] + X[:, i] @ A.T @ B.T @ B @ A @ X[:, i]
        for i in range(n)
    ]
    second_moments = models.second_moments(X.T, Y.T)
    xx = np.array([[sum(X[i] * X[j]) for j in range(d)] for i in range(d)])
    yx = np.array([[sum(Y[i] * X[j]) for j in range(d)] for i in range(k)])
    W = B @ A
    through = (np.square(Y).sum() - 2 * np.trace(W.T @ yx) + np.trace(W @ xx @ W.T)) / 2
    return Verdict(
        equal("shapes of A and B, d = 5, m = 2, k = 3", A.shape + B.shape, (m, d, k, m)),
        close(
            "the network, against the matrix BA",
            jax.vmap(net)(jnp.asarray(X.T)),
            X.T @ W.T,
            tolerance=1e-13,
        ),
        close("collapsed", models.merge_linear_layers(net).W, W, tolerance=1e-13),
        close("the loss, against loops", _loss(net, X, Y), loops, tolerance=1e-10),
        close("the expanded form", sum(expanded) / 2, loops, tolerance=1e-10),
        close("Σ_xx, against loops", second_moments.xx, xx),
        close("Σ_yx, against loops", second_moments.yx, yx),
        equal(
            "shapes of Σ_xx and Σ_yx",
            second_moments.xx.shape + second_moments.yx.shape,
            (d, d, k, d),
        ),
        close("the loss through the correlations", through, loops, tolerance=1e-10),
        refuted(
            close(
                "the expanded form without the brackets",
                sum(expanded) - sum(np.sum(Y**2, axis=0)) / 2,
                loops,
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "L1-deep-linear-gradA",
    "L1-deep-linear-gradB",
    title="The gradients of a deep linear network",
    kind="identity",
    of=("models.deep_linear_gradient", "models.second_moments"),
    cites="Baldi & Hornik 1989",
)
def gradients(key, rng):
    r"""$\frac{\partial L}{\partial A} = -B^\top (\Sigma_{yx} - BA\Sigma_{xx})$ and
    $\frac{\partial L}{\partial B} = -(\Sigma_{yx} - BA\Sigma_{xx}) A^\top$. At any depth the error
    is carried back by the layers after $W_\ell$ and forward by those before it.
    """
    d, m, k, n = 5, 2, 3, 12
    X, Y, A, B = _problem(rng, d, m, k, n)
    net = lambda A, B: Chain(Linear(jnp.asarray(A)), Linear(jnp.asarray(B)))
    second_moments = models.second_moments(X.T, Y.T)
    results = models.deep_linear_gradient(net(A, B), second_moments)
    by_A, by_B = (np.asarray(layer.W) for layer in results.layers)
    missing = Y @ X.T - B @ A @ X @ X.T
    deep = models.deep_linear(d, 4, 2, 6, k, key=key)
    auto = jax.grad(lambda model: _loss(model, X, Y))(deep)
    theta, back = tree.ravel(deep)
    numeric = jacobian(lambda theta: _loss(back(theta), X, Y), theta)
    closed = tree.ravel(models.deep_linear_gradient(deep, second_moments))[0]
    fd = {"tolerance": 1e-7, "method": "finite differences"}
    return Verdict(
        close(
            "by A, against differences", by_A, jacobian(lambda A: _loss(net(A, B), X, Y), A), **fd
        ),
        close(
            "by B, against differences", by_B, jacobian(lambda B: _loss(net(A, B), X, Y), B), **fd
        ),
        close("by A, the formula", by_A, -B.T @ missing, tolerance=1e-10),
        close("by B, the formula", by_B, -missing @ A.T, tolerance=1e-10),
        equal("shapes, against A and B", by_A.shape + by_B.shape, A.shape + B.shape),
        close("four layers, against differences", closed, numeric, **fd),
        close("four layers, differentiated", closed, tree.ravel(auto)[0], tolerance=1e-10),
        refuted(
            close(
                "by A with the other sign",
                -by_A,
                jacobian(lambda A: _loss(net(A, B), X, Y), A),
                **fd,
            )
        ),
    )


def _planted(rng, d, k, n, values):
    """Inputs in every direction and targets that depend on a few of them, with a little noise."""
    X = with_singular_values(rng, d, n, np.linspace(1.2, 0.8, d))
    U, V = (np.linalg.qr(rng.normal(size=(side, side)))[0][:, : len(values)] for side in (k, d))
    return X, U * np.asarray(values) @ V.T @ X + 0.1 * rng.normal(size=(k, n))


def _rank_bound(X, Y, m):
    """The smallest mean loss of rank m, from the eigenvalues of the fitted values' Gram matrix."""
    fitted = Y @ X.T @ np.linalg.inv(X @ X.T) @ X
    return (np.sum(Y**2) - np.linalg.eigvalsh(fitted @ fitted.T)[-m:].sum()) / (2 * X.shape[1])


def _summed(model, batch):
    return len(batch[0]) * train.squared_error(model, batch)


def _modes(rng, key):
    """Whitened inputs with three modes: their gradient flow from a small balanced start, and the
    conserved quantity of the flow from an unbalanced one.
    """
    U = np.linalg.qr(rng.normal(size=(4, 3)))[0]
    V = np.linalg.qr(rng.normal(size=(5, 3)))[0]
    s = np.array([3.0, 1.5, 0.6])
    a0 = 0.003
    times = np.linspace(0.02, 7, 121)
    xs = np.eye(5)  # its Σ_xx is the identity
    start = models.balanced_factorisation(a0 * U @ V.T, depth=2)
    batch = jnp.asarray(xs), jnp.asarray(xs @ (U * s @ V.T).T)
    flow = train.gradient_flow(_summed, start, batch, times=times, tolerance=1e-10)
    W = np.asarray(flow.models.layers[1].W) @ np.asarray(flow.models.layers[0].W)
    strength = np.einsum("ki,tkd,di->ti", U, W, V)
    rest = W - np.einsum("ki,ti,di->tkd", U, strength, V)
    unbalanced = train.gradient_flow(
        _summed, models.deep_linear(5, 4, 4, key=key), batch, times=times, tolerance=1e-10
    )
    conserved = jax.vmap(models.layer_imbalance)(unbalanced.models)[0]
    return times, s, np.full(3, a0), strength, rest, np.asarray(conserved)


@claim(
    "L1-deep-linear-dynamics",
    title="How a deep linear network learns",
    kind="experiment",
    of=(
        "models.reduced_rank_regression",
        "models.layer_imbalance",
        "models.mode_growth",
        "train.gradient_flow",
        "train.descend",
    ),
    cites="Saxe, McClelland & Ganguli 2014; Arora et al. 2018",
)
def dynamics(key, rng):
    r"""Descent on $y = BAx$ reaches the least squares fit of rank $m$. Gradient flow conserves
    $B^\top B - AA^\top$, which descent changes by $O(\eta)$. For $\Sigma_{xx} = I$ and a balanced
    small start each singular mode grows as a sigmoid,
    $a(t) = s\,e^{2st} / (e^{2st} - 1 + s / a_0)$, the strongest first.
    """
    rng, (d, m, k, n), eta, steps = rng, (5, 2, 4, 40), 0.02, 2000
    X, Y = _planted(rng, d, k, n, [2.0, 1.2, 0.3])
    batch = jnp.asarray(X.T), jnp.asarray(Y.T)
    start = models.deep_linear(d, m, k, key=key)

    def go(rate):
        step = train.descend(
            lambda model, _, key: train.squared_error(model, batch), optax.sgd(rate)
        )
        return iterate(step, start, steps, key=key, record=lambda state: state.model)[1][0]

    paths = jax.jit(jax.vmap(go))(jnp.array([eta, eta / 2, 5 * eta]))
    balance = lambda A, B: np.swapaxes(B, -1, -2) @ B - A @ np.swapaxes(A, -1, -2)
    same = ([0, 1, 2], [steps // 2 - 1, steps - 1, steps - 1])  # the first two at one time
    A, B = (np.asarray(layer.W)[same] for layer in paths.layers)
    begin = balance(*(np.asarray(layer.W) for layer in start.layers))
    drift = np.linalg.norm(balance(A, B) - begin, axis=(1, 2))
    best = models.reduced_rank_regression(X.T, Y.T, rank=m)
    bound = _rank_bound(X, Y, m)
    losses = np.square(Y - B @ A @ X).sum(axis=(1, 2)) / (2 * n)
    times, s, a0, strength, rest, conserved = _modes(rng, key)
    ode = solve_ivp(
        lambda t, a: 2 * a * (s - a), (0, 7), a0, t_eval=times, rtol=1e-11, atol=1e-13
    ).y.T
    closed = np.asarray(models.mode_growth(times, strengths=s, start=a0))
    half = [np.interp(s[i] / 2, strength[:, i], times) for i in range(3)]
    return Verdict(
        close(
            "loss after 2,000 steps with learning rate 5η, against the rank bound",
            losses[2],
            bound,
            tolerance=1e-8,
        ),
        close("the loss of the closed form", best.loss, bound, tolerance=1e-10),
        close(
            "and as the objective computes it",
            train.squared_error(best.model, batch),
            bound,
            tolerance=1e-10,
        ),
        refuted(
            close(
                "the loss without a bound on the rank", _rank_bound(X, Y, k), bound, tolerance=1e-3
            )
        ),
        close(
            "BᵀB − AAᵀ, by the library", models.layer_imbalance(start)[0], begin, tolerance=1e-13
        ),
        between(
            "its change under gradient descent: learning rate η over η/2",
            drift[0] / drift[1],
            1.9,
            2.1,
        ),
        close(
            "its change under gradient flow, by t = 7",
            conserved - conserved[0],
            0.0,
            tolerance=1e-7,
        ),
        at_least("its norm there", np.linalg.norm(conserved[0]), 0.1),
        close("modes under gradient flow, against the formula", strength, closed, tolerance=1e-7),
        close("the formula, against scipy's solve_ivp", closed, ode, tolerance=1e-8),
        at_most("growth outside the modes", np.abs(rest), 1e-8),
        at_least("times of half growth: weaker minus stronger mode", np.diff(half), 0.1),
        figure=Panel(
            "time",
            "strength of a mode",
            lines={f"closed form, s = {s[i]:g}": (times, closed[:, i]) for i in range(3)},
            points={"gradient flow": (np.tile(times[::4], 3), strength[::4].T.ravel())},
        ),
    )
