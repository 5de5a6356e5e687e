"""Lecture 1: softmax, its redundant parameters, and its cross-entropy."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from ... import explain, layers, train
from ...layers import Chain, Linear
from ...plot import Panel
from ..engine.check import at_least, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian


def probabilities(Theta, xs):
    """The library's softmax of a linear layer, with θ_i as the rows of Θ."""
    return np.asarray(jax.vmap(Chain(Linear(jnp.asarray(Theta)), layers.softmax))(jnp.asarray(xs)))


@claim(
    "L1-softmax",
    "L1-softmax-overparam",
    "L1-softmax-k2",
    title="Softmax and its redundant parameters",
    kind="model",
    of=("layers.softmax", "layers.sigmoid", "explain.hvp"),
)
def softmax(rng):
    r"""$\sigma_i^{\max}(x; \Theta) = e^{x \cdot \theta_i} / \sum_j e^{x \cdot \theta_j}$ is a
    probability distribution over classes. Adding one vector to all $\theta_i$ changes nothing, so
    one may set $\theta_k = 0$; for $k = 2$ it is $\sigma(x \cdot (\theta_1 - \theta_2))$.
    """
    n, k = 3, 4
    Theta = rng.normal(size=(k, n))
    xs = rng.normal(size=(25, n))
    shift = rng.normal(size=n)
    p = probabilities(Theta, xs)
    huge = np.asarray(layers.softmax(jnp.array([1e4, 0.0, 1e4])))
    labels = jnp.asarray(rng.integers(0, k, 25))
    loss = lambda W, batch: train.cross_entropy(Linear(W), batch)
    product = lambda v: explain.hvp(
        loss, jnp.asarray(Theta), (jnp.asarray(xs), labels), v.reshape(k, n)
    ).ravel()
    hessian = np.asarray(jax.jit(jax.vmap(product))(jnp.eye(k * n)))
    values = np.linalg.eigvalsh(hessian)
    same = np.tile(np.eye(n), (1, k)) / np.sqrt(k)  # all θ_i shifted together
    pair = rng.normal(size=(2, n))
    binary = 1 / (1 + np.exp(-xs @ (pair[0] - pair[1])))
    return Verdict(
        close("against scipy", p, special.softmax(xs @ Theta.T, axis=1), tolerance=1e-14),
        at_least("smallest probability", p.min(), 0.0),
        close("sums of the probabilities", p.sum(axis=1), np.ones(25), tolerance=1e-14),
        close("scores 10,000, 0, 10,000", huge, [0.5, 0.0, 0.5], tolerance=1e-15),
        close("with one vector added to all θ", probabilities(Theta + shift, xs), p),
        close("with θ_k = 0", probabilities(Theta - Theta[-1], xs), p),
        refuted(
            close(
                "a vector added to one θ",
                probabilities(Theta + np.outer(np.eye(k)[0], shift), xs),
                p,
                tolerance=1e-3,
            )
        ),
        close("the Hessian along shifts of all θ together", same @ hessian, np.zeros((n, k * n))),
        equal("dimension of its null space, n = 3", int((values < 1e-10).sum()), n),
        close(
            "k = 2, against σ(x·(θ_1 − θ_2))",
            probabilities(pair, xs)[:, 0],
            binary,
            tolerance=1e-14,
        ),
        close(
            "k = 2, against the library's sigmoid",
            layers.sigmoid(jnp.asarray(xs @ (pair[0] - pair[1]))),
            binary,
            tolerance=1e-14,
        ),
        refuted(
            close(
                "k = 2, against σ(x·θ_1)",
                probabilities(pair, xs)[:, 0],
                special.expit(xs @ pair[0]),
                tolerance=1e-3,
            )
        ),
        figure=Panel(
            "eigenvalue, in increasing order",
            "of the Hessian",
            points={"measured": (np.arange(1, k * n + 1), values)},
            vertical_lines={"n = 3 are 0": 3.5},
        ),
    )


@claim(
    "L1-softmax-ce",
    "L1-softmax-ce-grad",
    title="Softmax with cross-entropy",
    kind="loss",
    of=("train.log_loss", "layers.softmax"),
)
def cross_entropy(rng):
    r"""$\ell = -y \cdot \ln \sigma^{\max}(x; \Theta) = -\sum_i y_i\, x \cdot \theta_i + \ln \sum_i
    e^{x \cdot \theta_i}$
    for any $y$ that sums to 1, and $\nabla_{\theta_i} \ell = (\sigma_i^{\max} - y_i)\, x$; these
    add up to 0.
    """
    n, k = 3, 4
    Theta = rng.normal(size=(k, n))
    x = rng.normal(size=n)
    checks = []
    p = special.softmax(Theta @ x)
    ours = np.asarray(layers.softmax(jnp.asarray(Theta @ x)))
    soft = rng.dirichlet(np.ones(k))
    for name, y in {"one-hot": np.eye(k)[2], "soft": soft}.items():
        loss = lambda W, y=y: train.log_loss(Linear(W)(jnp.asarray(x)), jnp.asarray(y))
        value = float(loss(jnp.asarray(Theta)))
        result = np.asarray(jax.grad(loss)(jnp.asarray(Theta)))
        checks += [
            close(f"{name}: −y·ln softmax", value, -y @ np.log(p)),
            close(f"{name}: by the library's softmax", value, -y @ np.log(ours)),
            close(
                f"{name}: with the normalisation as a separate term",
                value,
                -y @ Theta @ x + np.log(np.exp(Theta @ x).sum()),
            ),
            close(f"{name}: gradient", result, np.outer(p - y, x)),
            close_derivative(
                f"{name}: gradient by differences", jacobian(loss, Theta), np.outer(p - y, x)
            ),
            close(f"{name}: the gradients' sum over classes", result.sum(axis=0), np.zeros(n)),
            refuted(
                close(
                    f"{name}: gradient with the other sign",
                    result,
                    np.outer(y - p, x),
                    tolerance=1e-6,
                )
            ),
        ]
    by_label = float(train.log_loss(jnp.asarray(Theta @ x), jnp.array(2)))
    doubled = 2 * soft  # sums to 2, where the two forms differ
    return Verdict(
        *checks,
        close("an integer label", by_label, -np.log(p[2])),
        refuted(
            close(
                "labels that sum to 2: the two forms",
                -doubled @ np.log(p),
                -doubled @ Theta @ x + np.log(np.exp(Theta @ x).sum()),
                tolerance=1e-6,
            )
        ),
        close(
            "loss at scores 1,000 and −1,000, the second class true",
            train.log_loss(jnp.array([1000.0, -1000.0]), jnp.array(1)),
            2000.0,
            tolerance=1e-9,
        ),
    )
