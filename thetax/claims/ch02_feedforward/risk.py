"""§2.2: losses; the empirical risk that training minimises, and validation as an estimate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from ... import data, layers, models, train
from ...layers import Linear
from ...plot import Panel
from ..engine import differences
from ..engine.check import (
    at_least,
    at_most,
    between,
    close,
    close_derivative,
    equal,
    refuted,
    within,
)
from ..engine.claim import Verdict, claim


@claim("2.2-squared-loss", title="The squared loss", kind="loss", of=("train.squared_loss",))
def squared_loss(rng):
    r"""The squared loss $\frac12 \|y - f(x)\|^2$ has the gradient $f(x) - y$ in the prediction."""
    f, y = rng.normal(size=(2, 5))
    loss = lambda f: train.squared_loss(f, jnp.asarray(y))
    numeric = differences.jacobian(loss, f)
    return Verdict(
        close("value", loss(jnp.asarray(f)).item(), sum((a - b) ** 2 for a, b in zip(y, f)) / 2),
        close_derivative("gradient by finite differences", numeric, f - y, tolerance=1e-9),
        close("gradient by automatic differentiation", jax.grad(loss)(jnp.asarray(f)), f - y),
        refuted(close("with the opposite sign", numeric, y - f, tolerance=1e-6)),
    )


@claim("2.2-softmax", title="Softmax", kind="layer", of=("layers.softmax",), cites="Bridle 1990")
def softmax(rng):
    r"""$\mathrm{softmax}_i(z) = e^{z_i} / \sum_j e^{z_j}$ is a probability vector, does not change
    when a constant is added to all $z_i$, and has the Jacobian $\mathrm{diag}(s) - s s^\top$.
    """
    z = 3 * rng.normal(size=6)
    s = np.asarray(layers.softmax(jnp.asarray(z)))
    loop = np.array([np.exp(a) / sum(np.exp(b) for b in z) for a in z])
    numeric = differences.jacobian(layers.softmax, z)
    shifted = np.asarray(layers.softmax(jnp.asarray(z + 7.0)))
    huge = np.asarray(layers.softmax(jnp.array([1e4, 0.0, 1e4])))
    return Verdict(
        close("against scipy", s, special.softmax(z), tolerance=1e-14),
        close("against the loop", s, loop, tolerance=1e-14),
        close("sum", s.sum(), 1.0, tolerance=1e-14),
        close("7 added to all z", shifted, s, tolerance=1e-14),
        close_derivative("Jacobian", numeric, np.diag(loop) - np.outer(loop, loop), tolerance=1e-9),
        close("at 10,000, 0 and 10,000", huge, np.array([0.5, 0.0, 0.5]), tolerance=1e-14),
        refuted(close("all z doubled", layers.softmax(jnp.asarray(2 * z)), s, tolerance=1e-3)),
    )


@claim(
    "2.2-cross-entropy",
    title="Cross-entropy",
    kind="loss",
    of=("train.log_loss",),
    cites="Good 1952",
)
def cross_entropy(rng):
    r"""The cross-entropy $-\log \mathrm{softmax}_y(z) = -z_y + \log \sum_v e^{z_v}$ is
    non-negative, and its gradient is $\mathrm{softmax}(z) - e_y$.
    """
    zs = 3 * rng.normal(size=(4, 4))
    measured = np.array([train.log_loss(jnp.asarray(z), jnp.asarray(y)) for y, z in enumerate(zs)])
    first = np.array([-np.log(special.softmax(z)[y]) for y, z in enumerate(zs)])
    second = np.array([-z[y] + special.logsumexp(z) for y, z in enumerate(zs)])
    y = 2
    z = zs[2]
    numeric = differences.jacobian(lambda z: train.log_loss(z, jnp.asarray(y)), z)
    extreme = train.log_loss(jnp.array([1e4, 0.0]), jnp.array(1)).item()
    return Verdict(
        close("minus log softmax", measured, first),
        close("minus the logit, plus scipy's log-sum-exp", measured, second),
        close("at logits 10,000 and 0, labelled 1", extreme, 1e4, tolerance=1e-9),
        at_least("least loss", measured.min(), 0.0),
        close_derivative("gradient", numeric, special.softmax(z) - np.eye(4)[y], tolerance=1e-9),
        refuted(close("without minus e_y", numeric, special.softmax(z), tolerance=1e-3)),
    )


class World:
    r"""$x \sim N(0, \Sigma)$ with $\Sigma = LL^\top$ and $y = w^\top x + \sigma \varepsilon$; risks
    in closed form.
    """

    def __init__(self, rng, d):
        self.L, self.w, self.sigma = rng.normal(size=(d, d)) / np.sqrt(d), rng.normal(size=d), 0.7

    def draw(self, rng, *shape):
        """Inputs and targets."""
        xs = rng.normal(size=(*shape, len(self.w))) @ self.L.T
        return xs, xs @ self.w + self.sigma * rng.normal(size=shape)

    def risk(self, w: Any, b: Any = 0.0) -> Any:
        r"""$\mathbb{E}(w^\top x + b - y)^2 = \|L^\top(\hat w - w)\|^2 + b^2 + \sigma^2$."""
        return np.square((w - self.w) @ self.L).sum(axis=-1) + np.square(b) + self.sigma**2


@claim("2.2-expected-risk", title="Expected risk", kind="definition", of=("train.squared_error",))
def expected_risk(rng):
    r"""The expected risk is $R(\theta) = \mathbb{E}\,\ell(y, f_\theta(x))$ over the distribution
    of the data. For a linear model of Gaussian data under the squared loss it is
    $\frac12 (\|\Sigma^{1/2}(\hat w - w)\|^2 + \sigma^2)$.
    """
    world = World(rng, 3)
    w = rng.normal(size=3)
    xs, ys = world.draw(rng, 10**6)
    measured = jax.jit(train.squared_error)(
        Linear(jnp.asarray(w)[None]), (jnp.asarray(xs), jnp.asarray(ys))
    ).item()
    spread = (np.square(xs @ w - ys) / 2).std() / 1000
    return Verdict(
        within(
            "mean loss of 1,000,000 examples",
            measured,
            world.risk(w) / 2,
            error=spread,
            false_alarm=6e-5,
        ),
        refuted(
            within(
                "without the noise", measured, (world.risk(w) - world.sigma**2) / 2, error=spread
            )
        ),
    )


@claim(
    "2.2-empirical-risk",
    title="Empirical risk",
    kind="definition",
    of=("train.batch_mean", "train.squared_loss"),
)
def empirical_risk(rng):
    r"""The empirical risk $\frac1n \sum_i \ell(y_i, f_\theta(x_i))$ of a fixed $\theta$ has the
    mean $R(\theta)$, and a variance proportional to $1/n$.
    """
    world = World(rng, 3)
    w = rng.normal(size=3)
    model = Linear(jnp.asarray(w)[None])
    objective = train.batch_mean(train.squared_loss)
    risks = {}
    for n in (50, 200):
        xs, ys = world.draw(rng, 2000, n)
        mean = jax.jit(jax.vmap(lambda x, y: objective(model, (x, y))))
        risks[n] = np.asarray(mean(jnp.asarray(xs), jnp.asarray(ys)))
    means = np.array([r.mean() for r in risks.values()])
    errors = np.array([r.std(ddof=1) / np.sqrt(2000) for r in risks.values()])
    counts = {f"n = {n}": np.histogram(r, bins=24, density=True) for n, r in risks.items()}
    lines = {
        name: ((edges[1:] + edges[:-1]) / 2, density) for name, (density, edges) in counts.items()
    }
    truth = world.risk(w) / 2
    return Verdict(
        within(
            "mean over 2,000 data sets of 50, and of 200",
            means,
            np.full(2, truth),
            error=errors,
            false_alarm=6e-5,
        ),
        between(
            "variance at 50 over variance at 200", risks[50].var() / risks[200].var(), 3.2, 4.8
        ),
        figure=Panel(
            "empirical risk", "density", lines=lines, vertical_lines={"expected risk": truth}
        ),
    )


@claim(
    "2.2-train-val",
    title="Training and validation",
    kind="algorithm",
    of=("data.split", "models.least_squares"),
    cites="Stone 1974",
)
def training_and_validation(key, rng):
    r"""Data are split in two: one part to train on, the other to validate on. Least squares with
    $p$ coefficients on $n$ examples has the mean training error $\sigma^2(1 - p/n)$, which is too
    low; its mean validation error is its true risk.
    """
    world = World(rng, 5)
    draws = 500
    n = 40
    xs, ys = world.draw(rng, draws, 60)
    (train_rows,), (validation_rows,) = data.split((np.arange(60),), n / 60, key=key)
    fits = jax.jit(jax.vmap(models.least_squares))(
        jnp.asarray(xs[:, train_rows]), jnp.asarray(ys[:, train_rows])
    )
    W = np.asarray(fits.W)[:, 0]
    b = np.asarray(fits.b)[:, 0]
    errors = np.square(np.einsum("rnd,rd->rn", xs, W) + b[:, None] - ys)
    training = errors[:, train_rows].mean(axis=1)
    validation = errors[:, validation_rows].mean(axis=1)
    truth = world.risk(W, b)
    error_of = lambda values: values.std(ddof=1) / np.sqrt(draws)
    unbiased = lambda name, gap: within(
        name, gap.mean(), 0.0, error=error_of(gap), false_alarm=6e-5
    )
    expected_error = world.sigma**2 * (1 - 6 / n)  # five slopes and the constant
    bins = np.linspace(0, np.quantile(validation, 0.99), 24)
    errors_by_part = {"training": training, "validation": validation}
    lines = {
        name: ((bins[1:] + bins[:-1]) / 2, np.histogram(r, bins, density=True)[0])
        for name, r in errors_by_part.items()
    }
    return Verdict(
        equal(
            "union of the two parts",
            np.sort(np.concatenate([train_rows, validation_rows])),
            np.arange(60),
        ),
        equal("sizes of the parts", [len(train_rows), len(validation_rows)], [n, 60 - n]),
        within(
            "mean training error",
            training.mean(),
            expected_error,
            error=error_of(training),
            false_alarm=6e-5,
        ),
        at_most("mean training error, below the mean true risk", training.mean(), truth.mean()),
        unbiased("validation error less true risk", validation - truth),
        refuted(unbiased("training error less true risk", training - truth)),
        figure=Panel(
            "mean squared error",
            "density",
            lines=lines,
            vertical_lines={"mean true risk": truth.mean()},
        ),
    )
