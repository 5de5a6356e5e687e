"""Lecture 10, §3.1 and §3.2: the empirical risk and the common losses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.metrics import log_loss

from .... import layers, models, train, tree
from ...engine import differences
from ...engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ...engine.claim import Verdict, claim


@claim(
    "L10-3.1-erm",
    title="Empirical risk",
    kind="definition",
    of=("train.batch_mean", "train.squared_error"),
)
def erm(key, rng):
    r"""$\hat R(\theta) = \frac1N \sum_i L(f_\theta(x_i), y_i)$, and its gradient is the mean of the
    gradients of the examples.
    """
    xs = jnp.asarray(rng.normal(size=(7, 3)))
    ys = jnp.asarray(rng.normal(size=7))
    net = models.MLP.init(3, 4, 1, activation=layers.tanh, key=key)
    first, _, last = (jax.tree.map(np.asarray, part) for part in net.body.layers)
    fit = [(last.W @ np.tanh(first.W @ x + first.b) + last.b).item() for x in np.asarray(xs)]
    losses = [(f - y) ** 2 / 2 for f, y in zip(fit, np.asarray(ys))]
    quartic = train.batch_mean(lambda f, y: (f[0] - y) ** 4)
    theta, back = tree.ravel(net)
    risk = jax.grad(lambda theta, xs, ys: train.squared_error(back(theta), (xs, ys)))
    each = np.stack([np.asarray(risk(theta, xs[i : i + 1], ys[i : i + 1])) for i in range(7)])
    return Verdict(
        close(
            "mean of the seven losses",
            train.squared_error(net, (xs, ys)),
            np.mean(losses),
            tolerance=1e-15,
        ),
        close(
            "with another loss",
            quartic(net, (xs, ys)),
            np.mean([(f - y) ** 4 for f, y in zip(fit, np.asarray(ys))]),
            tolerance=1e-13,
        ),
        close(
            "gradient: mean of the seven gradients",
            risk(theta, xs, ys),
            each.mean(axis=0),
            tolerance=1e-15,
        ),
        close_derivative(
            "gradient, by differences",
            risk(theta, xs, ys),
            differences.jacobian(lambda theta: train.squared_error(back(theta), (xs, ys)), theta),
            tolerance=1e-9,
        ),
        refuted(
            close(
                "the sum instead of the mean",
                risk(theta, xs, ys),
                each.sum(axis=0),
                tolerance=1e-6,
            )
        ),
    )


@claim(
    "L10-3.1-squared-loss",
    title="Squared loss",
    kind="loss",
    of=("train.squared_loss", "train.squared_error"),
)
def squared(rng):
    r"""$L = (f - y)^2$, or half of it, which is the library's and has the gradient $f - y$. Among
    constants the mean of the $y_i$ has the smallest risk.
    """
    f = rng.normal(size=4)
    y = rng.normal(size=4)
    ys = jnp.asarray(rng.exponential(size=25))
    loss = jax.grad(train.squared_loss)
    absolute = train.batch_mean(lambda f, y: jnp.abs(f[0] - y))
    mean = _constant(train.squared_error, ys)
    median = _constant(absolute, ys)
    return Verdict(
        close(
            "half the squared distance",
            train.squared_loss(jnp.asarray(f), jnp.asarray(y)),
            sum((f[i] - y[i]) ** 2 for i in range(4)) / 2,
            tolerance=1e-15,
        ),
        close("gradient f − y", loss(jnp.asarray(f), jnp.asarray(y)), f - y, tolerance=1e-15),
        close_derivative(
            "gradient, by differences",
            loss(jnp.asarray(f), jnp.asarray(y)),
            differences.jacobian(lambda f: train.squared_loss(f, jnp.asarray(y)), f),
            tolerance=1e-10,
        ),
        close(
            "the best constant is the mean", mean, np.mean(ys), tolerance=1e-6, method="brute force"
        ),
        refuted(
            close(
                "with the absolute value instead of the square", median, np.mean(ys), tolerance=1e-3
            )
        ),
    )


def _constant(objective, ys) -> float:
    """The constant of smallest risk, by SciPy."""
    risk = lambda c: float(objective(lambda x: jnp.reshape(c, (1,)), (jnp.zeros((len(ys), 1)), ys)))
    result: Any = minimize_scalar(risk, bounds=(0, 5), method="bounded", options={"xatol": 1e-10})
    return result.x


@claim(
    "L10-3.2-bce",
    title="Binary cross-entropy",
    kind="loss",
    of=("train.binary_log_loss", "train.binary_cross_entropy"),
)
def bce(rng):
    r"""$h = \sigma(f)$ and $L = -[y \log h + (1 - y) \log(1 - h)] = \log(1 + e^f) - yf$, of which
    the second form never overflows; its gradient is $\sigma(f) - y$.
    """
    f = rng.normal(size=200) * 4
    y = rng.integers(0, 2, size=200)
    loss, slope = (jax.vmap(g) for g in (train.binary_log_loss, jax.grad(train.binary_log_loss)))
    got, slopes = (np.asarray(g(jnp.asarray(f), jnp.asarray(y))) for g in (loss, slope))
    h = 1 / (1 + np.exp(-f))
    far = np.array([-1e3, 1e3, -1e3, 1e3]), np.array([0, 0, 1, 1])
    numeric = differences.jacobian(lambda z: loss(z, jnp.asarray(y[:20])), f[:20]).diagonal()
    same = lambda x: x
    risk = train.binary_cross_entropy(same, (jnp.asarray(f)[:, None], jnp.asarray(y)))
    return Verdict(
        close(
            "−[y log h + (1 − y) log(1 − h)]",
            got,
            -(y * np.log(h) + (1 - y) * np.log(1 - h)),
            tolerance=1e-11,
        ),
        close("log(1 + eᶠ) − yf", got, np.logaddexp(0, f) - y * f),
        equal("at f = ±1000", np.asarray(loss(*map(jnp.asarray, far))), [0.0, 1000.0, 1000.0, 0.0]),
        close("gradient σ(f) − y", slopes, h - y, tolerance=1e-14),
        close_derivative("gradient, by differences", slopes[:20], numeric, tolerance=1e-9),
        close("the mean, against scikit-learn's", risk, log_loss(y, h)),
        refuted(
            close(
                "with y and 1 − y exchanged", got, np.logaddexp(0, f) - (1 - y) * f, tolerance=1e-3
            )
        ),
    )


@claim(
    "L10-3.2-softmax-ce",
    "L10-3.2-bce-special",
    title="Cross-entropy of a softmax",
    kind="loss",
    of=("train.log_loss", "train.binary_log_loss", "layers.softmax"),
)
def softmax_ce(rng):
    r"""$p_j = e^{f_j} / \sum_k e^{f_k}$ and $L = -\sum_j e_y(j) \log p_j = -\log p_y$, unchanged if
    a constant is added to all $f_j$; its gradient is $p - e_y$ and its Hessian
    $\mathrm{diag}(p) - pp^\top$ has no negative eigenvalue. With two classes and logits $(0, f)$ it
    is the binary cross-entropy.
    """
    f = rng.normal(size=(50, 5)) * 3
    y = rng.integers(0, 5, size=50)
    loss = jax.vmap(train.log_loss)
    hard = np.asarray(loss(jnp.asarray(f), jnp.asarray(y)))
    soft = np.asarray(loss(jnp.asarray(f), jnp.asarray(np.eye(5)[y])))
    shifted = np.asarray(loss(jnp.asarray(f + 7.5), jnp.asarray(y)))
    p = np.exp(f - logsumexp(f, axis=1, keepdims=True))
    one = lambda z: train.log_loss(z, jnp.asarray(y[0]))
    grad = np.asarray(jax.grad(one)(jnp.asarray(f[0])))
    hessian = np.asarray(jax.hessian(one)(jnp.asarray(f[0])))
    far = train.log_loss(jnp.array([1e4, 0.0, -1e4]), jnp.array(1))
    return Verdict(
        close("−log p_y", hard, -np.log(p[np.arange(50), y])),
        close("−Σ e_y(j) log p_j, from probabilities", soft, hard, tolerance=1e-14),
        close("the library's softmax", layers.softmax(jnp.asarray(f)), p, tolerance=1e-14),
        close("with 7.5 added to all logits", shifted, hard),
        equal("at logits ±10,000", float(far), 1e4),
        close("gradient p − e_y", grad, p[0] - np.eye(5)[y[0]], tolerance=1e-14),
        close_derivative(
            "gradient, by differences", grad, differences.jacobian(one, f[0]), tolerance=1e-9
        ),
        close(
            "Hessian diag(p) − ppᵀ", hessian, np.diag(p[0]) - np.outer(p[0], p[0]), tolerance=1e-14
        ),
        close_derivative(
            "Hessian, by differences", hessian, differences.hessian(one, f[0]), tolerance=1e-5
        ),
        at_least("its smallest eigenvalue", np.linalg.eigvalsh(hessian).min(), 0.0, slack=1e-14),
        at_most(
            "its largest row sum in absolute value: rows add up to 0",
            np.abs(hessian.sum(axis=1)),
            1e-14,
        ),
        *_two_classes(rng),
    )


def _two_classes(rng):
    """Softmax over two logits is the logistic function of their difference."""
    f = jnp.asarray(rng.normal(size=(1000, 2)) * 4)
    t = jnp.asarray(rng.integers(0, 2, size=1000))
    loss = jax.vmap(train.log_loss)
    binary = jax.vmap(train.binary_log_loss)
    from_zero = f.at[:, 0].set(0.0)
    by_difference = binary(f[:, 1] - f[:, 0], t)
    return (
        close(
            "logits (0, f): the binary loss at 1000 f",
            loss(from_zero, t),
            binary(f[:, 1], t),
            tolerance=1e-13,
        ),
        close("logits (f₀, f₁): that of f₁ − f₀", loss(f, t), by_difference, tolerance=1e-13),
        refuted(close("that of f₀ − f₁", loss(f[:, ::-1], t), by_difference, tolerance=1e-3)),
    )
