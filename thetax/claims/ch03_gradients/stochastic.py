"""§3.4: stochastic gradient descent."""

from itertools import combinations, product
from math import fsum

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import layers, train
from ...core import iterate, run
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, equal, refuted, within
from ..engine.claim import Verdict, claim
from ..engine.numpy_rng import numpy_rng


@claim(
    "3.4-sgd",
    title="Stochastic gradient descent",
    kind="algorithm",
    of=("train.fit", "train.descend"),
    cites="Robbins & Monro 1951",
)
def sgd(key, rng):
    r"""Each step takes the gradient of a random batch instead of $\nabla h$. With all examples in
    the batch it is gradient descent, exactly; an epoch without replacement visits every example
    once.
    """
    X = rng.integers(-1, 2, size=(8, 3)).astype(float)
    y = rng.integers(-3, 4, size=8).astype(float)
    start = layers.Linear(jnp.zeros((1, 3)))
    data = jnp.asarray(X), jnp.asarray(y)
    options = {"key": key, "progress": train.Silent()}
    full = train.fit(
        train.descend(train.squared_error, optax.sgd(0.5)),
        start,
        data,
        epochs=5,
        batch_size=8,
        **options,
    )
    small = train.fit(
        train.descend(train.squared_error, optax.sgd(0.5)),
        start,
        data,
        epochs=5,
        batch_size=2,
        **options,
    )
    w = np.zeros(3)
    for _ in range(5):  # short binary fractions: sums are exact in any order
        w = w - 0.5 * (X @ w - y) @ X / 8

    def visits(epochs, batch):  # each visit changes the weight of its example by 1/4
        count = train.descend(train.batch_mean(lambda f, y: f.sum()), optax.sgd(batch / 4))
        cells = jnp.eye(12), jnp.zeros(12)
        full = train.fit(
            count,
            layers.Linear(jnp.zeros((1, 12))),
            cells,
            epochs=epochs,
            batch_size=batch,
            **options,
        )
        return -4 * np.asarray(full.model.W[0])

    return Verdict(
        equal("the full batch: weights after 5 steps", full.model.W[0], w),
        refuted(equal("batches of 2: weights after 5 epochs", small.model.W[0], w)),
        equal("visits to each of 12 examples in an epoch of 4 batches", visits(1, 3), np.ones(12)),
        equal(
            "visits to each of 12 examples in 3 epochs of 2 batches", visits(3, 6), np.full(12, 3.0)
        ),
        assumptions=[at_most("number of fractional binary digits of the weights", _digits(w), 40)],
    )


def _digits(w: np.ndarray) -> int:
    return min(k for k in range(80) if (w * 2.0**k == np.round(w * 2.0**k)).all())


@claim(
    "3.4-sgd-unbiased",
    title="The gradient of a batch is unbiased",
    kind="identity",
    of=("train.squared_error",),
)
def unbiased(rng):
    r"""Over all batches of $B$ examples out of $n$ the mean of the batch gradient is $\nabla h$
    exactly. Its variance is $\frac{\sigma^2}{B} \cdot \frac{n - B}{n - 1}$ without replacement and
    $\frac{\sigma^2}{B}$ with replacement, where $\sigma^2$ is the variance for a single example.
    """
    n = 12
    checks = []
    X, y, W = (
        np.round(4 * rng.normal(size=shape)) / 8 for shape in ((n, 3), n, 3)
    )  # short binary fractions: only 1/B is rounded
    example_gradients = (X @ W - y)[:, None] * X
    mean = lambda g: np.array([fsum(column) for column in g.T]) / len(g)
    full_gradient = mean(example_gradients)
    sigma = np.sum((example_gradients - full_gradient) ** 2) / n
    model = layers.Linear(jnp.asarray(W)[None])
    gradients = jax.jit(jax.vmap(lambda X, y: jax.grad(train.squared_error)(model, (X, y)).W[0]))
    batch = lambda rows: np.asarray(gradients(jnp.asarray(X[rows]), jnp.asarray(y[rows])))
    sizes = range(1, 12)
    variances = []
    for B in sizes:
        rows = np.array(list(combinations(range(n), B)))
        g = batch(rows)
        variances.append(np.sum((g - full_gradient) ** 2) / len(rows))
        checks.append(
            close(
                f"mean over all {len(rows)} batches of {B}", mean(g), full_gradient, tolerance=1e-15
            )
        )
    g = batch(rows := np.array(list(product(range(n), repeat=3))))
    variance_with = np.sum((g - full_gradient) ** 2) / len(rows)
    B = np.array(sizes)
    return Verdict(
        *checks,
        close(
            "variance without replacement, B = 1 to 11", variances, sigma / B * (n - B) / (n - 1)
        ),
        close("variance with replacement, B = 3, all 1728 batches", variance_with, sigma / 3),
        refuted(close("without replacement, against σ²/B", variances, sigma / B)),
        close("mean with replacement", mean(g), full_gradient, tolerance=1e-15),
        figure=Panel(
            "examples in a batch",
            "variance of the batch gradient",
            points={"all batches": (B, variances)},
            bounds={
                "σ²/B": (B, sigma / B),
                "· (n − B)/(n − 1)": (B, sigma / B * (n - B) / (n - 1)),
            },
        ),
    )


@claim(
    "3.4-sgd-convergence",
    title="SGD converges with decreasing learning rates, not with constant ones",
    kind="theorem",
    of=("train.descend",),
    cites="Robbins & Monro 1951; Mandt, Hoffman & Blei 2017",
)
def converges(key, scale):
    r"""With $\sum_t \eta_t = \infty$ and $\sum_t \eta_t^2 < \infty$ SGD converges; with a constant
    learning rate it fluctuates about the minimum at a distance of order $\sqrt\eta$. For
    $h = \frac12\theta^2$ and unit noise, $\eta_t = 1/t$ gives $t\,E[\theta_t^2] = 1$, and a
    constant $\eta$ the variance $\frac{\eta}{2 - \eta}$.
    """
    n_runs = 1000 if scale == "quick" else 20_000
    key_decay, key_constant = jr.split(key)

    def noisy(theta, batch, key):
        return (theta**2 / 2 + jr.normal(key, theta.shape) * theta).sum()

    def moments(rate, steps, key):
        iteration = train.descend(noisy, optax.sgd(rate))
        keep = lambda state: jnp.stack(
            [jnp.square(state.model).mean(), jnp.square(jnp.square(state.model)).mean()]
        )
        return iterate(iteration, jnp.ones(n_runs), steps, key=key, record=keep)[1][0]

    squares = np.asarray(moments(lambda t: 1 / (t + 1), 10_000, key_decay))
    times = np.array([100, 1000, 10_000])
    mean, fourth = squares[times - 1].T
    error = np.sqrt((fourth - mean**2) / n_runs)
    etas = np.array([0.05, 0.2, 0.8])
    constant_rate = jax.vmap(lambda eta: moments(eta, 600, key_constant)[:, 0])(jnp.asarray(etas))
    stationary = np.asarray(constant_rate)[:, 200:].mean(axis=1)
    expected = etas / (2 - etas)
    t = np.arange(1, 10_001)
    shown_steps = np.unique(np.geomspace(1, 10_000, 200).astype(int))
    return Verdict(
        close("t E[θ²] at t = 100, 1000, 10000", times * mean, 1.0, tolerance=0.25, method="trend"),
        within("t E[θ²], within sampling error", times * mean, np.ones(3), error=times * error),
        close(
            "constant η = 0.05, 0.2, 0.8: variance over η/(2 − η)",
            stationary / expected,
            1.0,
            tolerance=0.05,
            method="trend",
        ),
        refuted(
            close("variance over η/2", stationary / (etas / 2), 1.0, tolerance=0.05, method="trend")
        ),
        figure=Panel(
            "step",
            "mean of θ²",
            log="xy",
            lines={
                "η = 1/t": (shown_steps, squares[shown_steps - 1, 0]),
                **{
                    f"η = {eta:g}": (t[:600], np.asarray(constant_rate)[i])
                    for i, eta in enumerate(etas[:2])
                },
            },
            bounds={
                "1/t": (t[[0, -1]], 1 / t[[0, -1]]),
                "η/(2 − η)": (t[[0, 599]], [1 / 9] * 2),
            },
        ),
    )


def tilted_loss(theta, batch, key=None):
    r"""$h' = \theta^3 - \theta - \frac14$ plus the mean of the batch, which is noise."""
    return (theta**4 / 4 - theta**2 / 2 - theta / 4 + batch.mean() * theta).sum()


@claim(
    "3.4-sgd-escapes",
    title="SGD noise escapes a poor minimum",
    kind="experiment",
    of=("train.descend",),
)
def escapes(key):
    r"""$h' = \theta^3 - \theta - \frac14$ has a poor minimum at $-0.84$ and a better one at $1.11$.
    From $-0.85$ gradient descent always ends in the poor one; SGD with single examples crosses the
    barrier in most runs, with batches of 20 rarely.
    """
    runs, steps, n = 60, 3000, 100
    key_data, key_runs = jr.split(key)
    offsets = numpy_rng(key_data).normal(size=n)
    offsets = 3 * (offsets - offsets.mean()) / offsets.std()
    poor, barrier, better = np.sort(np.roots([1.0, 0.0, -1.0, -0.25]).real).tolist()
    step = train.descend(tilted_loss, optax.sgd(0.05))
    last = lambda state: state.model[0]
    run_paths = jax.jit(
        jax.vmap(lambda batches: run(step, jnp.array([-0.85]), batches, key=key, record=last)[1][0])
    )
    order = numpy_rng(key_runs).permuted(np.tile(np.arange(n), (runs * steps, 1)), axis=1)[
        :, :20
    ]  # without replacement
    shuffled = offsets[order].reshape(runs, steps, 20)
    paths = {batch: np.asarray(run_paths(jnp.asarray(shuffled[..., :batch]))) for batch in (1, 20)}
    paths[n] = np.asarray(run_paths(jnp.asarray(np.tile(offsets, (1, steps, 1)))))
    share_beyond = {batch: (path[:, -1] > barrier).mean() for batch, path in paths.items()}
    theta = np.linspace(-1.6, 1.8, 200)
    t = np.arange(0, 3000, 10)
    h = lambda theta: theta**4 / 4 - theta**2 / 2 - theta / 4
    return Verdict(
        close("gradient descent: final θ", paths[n][:, -1], np.full(1, poor), tolerance=1e-10),
        close("the poor minimum", poor, -0.8376, tolerance=5e-5),
        at_least(
            f"batches of 1: share of {runs} runs that end beyond the barrier",
            share_beyond[1],
            0.7,
            method="trend",
        ),
        at_most(
            f"batches of 20: share of {runs} runs that end beyond the barrier",
            share_beyond[20],
            0.3,
            method="trend",
        ),
        at_least("h at the poor minimum minus h at the better one", h(poor) - h(better), 0.4),
        assumptions=[
            close("sum of the offsets", offsets.sum(), 0.0, tolerance=1e-10),
            close("standard deviation of the offsets", offsets.std(), 3.0),
        ],
        figure=Chart(
            Panel(
                "θ",
                "h",
                lines={"h": (theta, h(theta))},
                points={"start": ([-0.85], [h(-0.85)])},
                vertical_lines={"barrier": barrier},
            ),
            Panel(
                "step",
                "θ",
                lines={
                    "batches of 1": (t, paths[1][0, ::10]),
                    "batches of 20": (t, paths[20][0, ::10]),
                    "all examples": (t, paths[n][0, ::10]),
                },
            ),
        ),
    )
