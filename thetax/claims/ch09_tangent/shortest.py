r"""§9.1: the minimum-norm $\beta$ that interpolates the data, and the predictions of the linearised
network.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ... import tree
from ...core import predict, run
from ...explain import kernel_gradient_descent, linearise, ntk
from ...plot import Panel
from ...train import descend, squared_error
from ..engine.check import at_least, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng
from .linearised import features, linearised_at, network

STEPS = 4000


class Fit(NamedTuple):
    r"""A network with more parameters than examples, on orthogonal inputs, so that $K$ is well
    conditioned: its outputs $f$, the rows $\nabla f(x_i)$ of $\Phi$, and $\Phi^+ (y - f)$.
    """

    net: Any
    xs: np.ndarray
    ys: np.ndarray
    f: np.ndarray
    phi: np.ndarray
    beta: np.ndarray


def fit(key: Any, n: int = 5) -> Fit:
    r"""Orthogonal inputs, so that $K$ is far from singular, and the minimum-norm solution by a
    pseudo-inverse.
    """
    rng = numpy_rng(key)
    net = network(n, 6, 1, key=key)
    xs = np.sqrt(n) * np.linalg.qr(rng.normal(size=(n, n)))[0]
    ys = rng.normal(size=n)
    f = np.asarray(predict(net, jnp.asarray(xs)))[:, 0]
    phi = features(net, xs)
    return Fit(net, xs, ys, f, phi, np.linalg.pinv(phi) @ (ys - f))


def minimum_norm_beta(case: Fit) -> np.ndarray:
    r"""The library's $\beta^*$, as a vector."""
    return np.asarray(
        tree.ravel(linearise(case.net).solve(jnp.asarray(case.xs), jnp.asarray(case.ys[:, None])))[
            0
        ]
    )


def descent_limit(case: Fit, start: np.ndarray) -> np.ndarray:
    r"""The limit of gradient descent on $\beta$."""
    h = linearise(case.net)
    batch = (jnp.asarray(case.xs), jnp.asarray(case.ys))
    rate = len(case.ys) / np.linalg.eigvalsh(case.phi @ case.phi.T).max()
    step = descend(
        lambda beta, _, key: squared_error(linearised_at(h, beta), batch), optax.sgd(rate)
    )
    walk = jax.jit(lambda beta: run(step, beta, jnp.zeros(STEPS), key=jax.random.key(0))[0].model)
    return np.asarray(walk(jnp.asarray(start)))


def loss(case: Fit, beta: np.ndarray) -> float:
    r"""$\frac12 \|f + \Phi\beta - y\|^2$."""
    batch = jnp.asarray(case.xs), jnp.asarray(case.ys)
    return len(case.ys) * float(squared_error(linearised_at(linearise(case.net), beta), batch))


@claim(
    "9.1-minnorm",
    title="The minimum-norm solution",
    kind="theorem",
    of=("explain.linearise", "explain.Linearised", "train.descend"),
)
def shortest(key, rng):
    r"""For $p \ge n$ and $K = \Phi\Phi^\top$ invertible,
    $\beta^* = \Phi^\top K^{-1} (y - f) = \Phi^+ (y - f)$ interpolates the data. It is the
    interpolant of smallest norm, and the limit of gradient descent from $\beta = 0$.
    """
    case = fit(key)
    beta = minimum_norm_beta(case)
    p = case.phi.shape[1]
    K = case.phi @ case.phi.T
    null = rng.normal(size=p)
    null = null - np.linalg.pinv(case.phi) @ (case.phi @ null)
    small = network(1, 1, 1, key=key)
    many = np.linspace(-2, 2, 7)[:, None]
    return Verdict(
        close("β*, against Φ⁺(y − f)", beta, case.beta, tolerance=1e-7),
        close(
            "β*, against ΦᵀK⁻¹(y − f)",
            beta,
            case.phi.T @ np.linalg.solve(K, case.ys - case.f),
            tolerance=1e-7,
        ),
        close(
            "β*, against gradient descent from 0",
            beta,
            descent_limit(case, np.zeros(p)),
            tolerance=1e-8,
        ),
        close("its loss", loss(case, beta), 0.0, tolerance=1e-15),
        close("loss with a null-space component added", loss(case, beta + null), 0.0),
        close(
            "its squared norm increases by that of the component",
            np.sum((beta + null) ** 2),
            beta @ beta + null @ null,
            tolerance=1e-6,
        ),
        refuted(
            close(
                "with Φᵀ(y − f), without K⁻¹", beta, case.phi.T @ (case.ys - case.f), tolerance=1e-3
            )
        ),
        equal(
            f"7 examples, {tree.size(small)} parameters: rank of K",
            np.linalg.matrix_rank(
                np.asarray(ntk(small, form="trace")(jnp.asarray(many))), rtol=1e-9
            ),
            tree.size(small),
        ),
        assumptions=[at_least("smallest eigenvalue of K", np.linalg.eigvalsh(K).min(), 0.05)],
    )


@erratum(
    "9.1-minnorm",
    title="Not unique: one of many solutions, that of smallest norm",
    printed=r"\{\beta : \ell(\beta) = \min \ell\} = \{\Phi^\top K^{-1} (y - f)\}",
    corrected=r"\{\beta : \ell(\beta) = \min \ell\} = \Phi^\top K^{-1} (y - f) + \ker \Phi",
    of=("explain.linearise", "train.descend"),
)
def shortest_printed(key, rng):
    r"""The notes call it the unique solution. With more parameters than examples the minimisers are
    an affine space of dimension $p - n$, and the limit of gradient descent depends on the start;
    only the minimum-norm solution is unique.
    """
    case = fit(key)
    beta, (n, p) = minimum_norm_beta(case), case.phi.shape
    start = rng.normal(size=p)
    end = descent_limit(case, start)
    free = start - np.linalg.pinv(case.phi) @ (case.phi @ start)
    dimension = p - np.linalg.matrix_rank(case.phi, rtol=1e-9)
    checks = lambda expected, size: [
        close("limit of gradient descent from a random β", end, expected, tolerance=1e-7),
        equal("dimension of the set of minimisers", dimension, size),
    ]
    return Verdict(
        *checks(beta + free, p - n),
        close("loss there", loss(case, end), 0.0, tolerance=1e-14),
        at_least("its norm, against the minimum norm", np.linalg.norm(end), np.linalg.norm(beta)),
        printed=checks(beta, 0),
    )


@claim(
    "9.1-prediction",
    title="Predictions of the linearised network",
    kind="identity",
    of=("explain.linearise", "explain.ntk", "explain.kernel_gradient_descent"),
)
def prediction(key, rng):
    r"""$h^*(x) = f[\theta_0](x) + k(x)^\top K^{-1} (y - f)$ with $k(x)_i = k(x, x_i)$: kernel
    regression on the residual of the network. At the examples it is $y$.
    """
    case = fit(key)
    X = jnp.asarray(case.xs)
    new = rng.normal(size=(8, 5))
    there = np.asarray(predict(case.net, jnp.asarray(new)))[:, 0]
    other = features(case.net, new)
    h = linearise(case.net).solve(X, jnp.asarray(case.ys[:, None]))
    predicted = np.asarray(predict(h, jnp.asarray(new)))[:, 0]
    K, k = (
        np.asarray(ntk(case.net, form="trace")(*sets)) for sets in ((X,), (jnp.asarray(new), X))
    )
    lazy = kernel_gradient_descent(ntk(case.net), X, case.ys[:, None], initial_model=case.net)
    return Verdict(
        close("at the examples", predict(h, X)[:, 0], case.ys, tolerance=1e-10),
        close(
            "8 new inputs, by the kernel",
            predicted,
            there + k @ np.linalg.solve(K, case.ys - case.f),
            tolerance=1e-10,
        ),
        close_derivative(
            "by β*, from finite differences", predicted, there + other @ case.beta, tolerance=1e-7
        ),
        close(
            "the limit of lazy training",
            lazy(np.inf, jnp.asarray(new))[:, 0],
            predicted,
            tolerance=1e-10,
        ),
        figure=_on_a_line(key),
    )


def _on_a_line(key: Any) -> Panel:
    """Six points, the initial network, the trained linearised network, and the trained network."""
    xs = np.array([-2.0, -1.4, -0.5, 0.2, 1.1, 1.9])
    t = np.linspace(-2.5, 4.5, 141)
    batch = jnp.asarray(xs[:, None]), jnp.asarray(np.sin(2 * xs))
    net = network(1, 16, 1, key=key)
    step = descend(lambda model, _, key: squared_error(model, batch), optax.adam(1e-2))
    full = jax.jit(lambda net: run(step, net, jnp.zeros(3000), key=key)[0].model)(net)
    h = linearise(net).solve(batch[0], batch[1][:, None], ridge=1e-8)
    say = lambda model: (t, np.asarray(predict(model, jnp.asarray(t[:, None])))[:, 0])
    return Panel(
        "x",
        "output",
        bounds={"initial": say(net)},
        points={"data": (xs, np.sin(2 * xs))},
        lines={"linearised": say(h), "trained network": say(full)},
    )


@erratum(
    "9.1-prediction",
    title="The initial network is missing",
    printed=r"h^*(x) = k(x)^\top K^{-1} (y - f)",
    corrected=r"h^*(x) = f[\theta_0](x) + k(x)^\top K^{-1} (y - f)",
    of=("explain.linearise", "explain.ntk"),
)
def prediction_printed(key, rng):
    r"""Without $f[\theta_0](x)$ the predictions at the examples are $y - f$ and not $y$, and
    elsewhere those of $h[\beta^*]$ minus the initial network. The same term is missing in
    $f_\infty(x)$ in §9.4.
    """
    case = fit(key)
    X = jnp.asarray(case.xs)
    new = jnp.asarray(rng.normal(size=(8, 5)))
    h = linearise(case.net).solve(X, jnp.asarray(case.ys[:, None]))
    kernel = ntk(case.net, form="trace")
    a = np.linalg.solve(np.asarray(kernel(X)), case.ys - case.f)

    def checks(start):
        predict_with = lambda xs: (
            start * np.asarray(predict(case.net, xs))[:, 0] + np.asarray(kernel(xs, X)) @ a
        )
        return [
            close("at the examples: y", predict_with(X), case.ys, tolerance=1e-10),
            close("8 new inputs: h[β*]", predict_with(new), predict(h, new)[:, 0], tolerance=1e-10),
        ]

    return Verdict(*checks(1), printed=checks(0))
