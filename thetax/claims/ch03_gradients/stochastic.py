"""§3.4: descent by the gradient of a few examples."""

from itertools import combinations, product
from math import fsum

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import layers, train
from ...core import run
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, refuted, within
from ..engine.claim import Verdict, claim


@claim(
    "3.4-sgd",
    title="Stochastic gradient descent",
    kind="algorithm",
    of=("train.fit", "train.descend"),
    cites="Robbins & Monro 1951",
)
def sgd(key):
    r"""Each step takes the gradient of a random batch in place of $\nabla h$. With all examples in
    the batch it is gradient descent, to the last bit; an epoch without replacement visits every
    example once.
    """
    rng = chance(key)
    X = rng.integers(-1, 2, size=(8, 3)).astype(float)
    y = rng.integers(-3, 4, size=8).astype(float)
    start = layers.Linear(jnp.zeros((1, 3)))
    data = jnp.asarray(X), jnp.asarray(y)
    watch = {"key": key, "progress": train.Silent()}
    found = train.fit(
        train.descend(train.squared_error, optax.sgd(0.5)),
        start,
        data,
        epochs=5,
        batch_size=8,
        **watch,
    )
    few = train.fit(
        train.descend(train.squared_error, optax.sgd(0.5)),
        start,
        data,
        epochs=5,
        batch_size=2,
        **watch,
    )
    w = np.zeros(3)
    for _ in range(5):  # every number is a short binary fraction, so no order of summation rounds
        w = w - 0.5 * (X @ w - y) @ X / 8

    def visits(epochs, batch):  # each visit moves its own weight by 1/4
        count = train.descend(train.average(lambda f, y: f.sum()), optax.sgd(batch / 4))
        cells = jnp.eye(12), jnp.zeros(12)
        found = train.fit(
            count,
            layers.Linear(jnp.zeros((1, 12))),
            cells,
            epochs=epochs,
            batch_size=batch,
            **watch,
        )
        return -4 * np.asarray(found.model.W[0])

    return Verdict(
        equal("the full batch: weights after 5 steps", found.model.W[0], w),
        refuted(equal("batches of 2: weights after 5 epochs", few.model.W[0], w)),
        equal("visits to each of 12 examples, an epoch of 4 batches", visits(1, 3), np.ones(12)),
        equal("after 3 epochs of 2 batches", visits(3, 6), np.full(12, 3.0)),
        assumptions=[at_most("binary digits of the weights after the point", _digits(w), 40)],
    )


def _digits(w: np.ndarray) -> int:
    return min(k for k in range(80) if (w * 2.0**k == np.round(w * 2.0**k)).all())


@claim(
    "3.4-sgd-unbiased",
    title="The gradient of a batch is unbiased",
    kind="identity",
    of=("train.squared_error",),
)
def unbiased(key):
    r"""Over all batches of $B$ examples out of $n$ the mean of the batch gradient is $\nabla h$
    exactly, and its variance is $\frac{\sigma^2}{B} \cdot \frac{n - B}{n - 1}$ drawn without
    replacement, $\frac{\sigma^2}{B}$ with, where $\sigma^2$ is that of a single example.
    """
    rng = chance(key)
    n = 12
    checks = []
    X, y, W = (
        np.round(4 * rng.normal(size=shape)) / 8 for shape in ((n, 3), n, 3)
    )  # short: only 1/B is rounded
    each = (X @ W - y)[:, None] * X
    mean = lambda g: np.array([fsum(column) for column in g.T]) / len(g)
    whole = mean(each)
    sigma = np.sum((each - whole) ** 2) / n
    model = layers.Linear(jnp.asarray(W)[None])
    gradients = jax.jit(jax.vmap(lambda X, y: jax.grad(train.squared_error)(model, (X, y)).W[0]))
    batch = lambda rows: np.asarray(gradients(jnp.asarray(X[rows]), jnp.asarray(y[rows])))
    sizes = range(1, 12)
    spreads = []
    for B in sizes:
        rows = np.array(list(combinations(range(n), B)))
        g = batch(rows)
        spreads.append(np.sum((g - whole) ** 2) / len(rows))
        checks.append(
            close(f"mean over all {len(rows)} batches of {B}", mean(g), whole, tolerance=1e-15)
        )
    g = batch(rows := np.array(list(product(range(n), repeat=3))))
    again = np.sum((g - whole) ** 2) / len(rows)
    B = np.array(sizes)
    return Verdict(
        *checks,
        close(
            "variance without replacement, B = 1 to 11",
            spreads,
            sigma / B * (n - B) / (n - 1),
            tolerance=1e-12,
        ),
        close(
            "variance with replacement, B = 3, all 1728 batches", again, sigma / 3, tolerance=1e-12
        ),
        refuted(close("without replacement, against σ²/B", spreads, sigma / B, tolerance=1e-12)),
        close("mean with replacement", mean(g), whole, tolerance=1e-15),
        figure=Chart(
            Panel(
                "examples in a batch",
                "variance of its gradient",
                points={"all batches": (B, spreads)},
                bounds={
                    "σ²/B": (B, sigma / B),
                    "· (n − B)/(n − 1)": (B, sigma / B * (n - B) / (n - 1)),
                },
            )
        ),
    )


@claim(
    "3.4-sgd-convergence",
    title="Rates that fall converge, rates that stay hover",
    kind="theorem",
    of=("train.descend",),
    cites="Robbins & Monro 1951; Mandt, Hoffman & Blei 2017",
)
def converges(key, scale):
    r"""With $\sum_t \eta_t = \infty$ and $\sum_t \eta_t^2 < \infty$ stochastic descent converges;
    with a constant rate it hovers about the minimum at a distance of order $\sqrt\eta$. For
    $h = \frac12\theta^2$ and unit noise, $\eta_t = 1/t$ gives $t\,E[\theta_t^2] = 1$, and a
    constant $\eta$ the variance $\frac{\eta}{2 - \eta}$.
    """
    many = 1000 if scale == "quick" else 20_000
    key_fall, key_stay = jr.split(key)

    def noisy(theta, batch, key):
        return (theta**2 / 2 + jr.normal(key, theta.shape) * theta).sum()

    def walk(rate, steps, key):
        iteration = train.descend(noisy, optax.sgd(rate))
        keep = lambda state: jnp.stack(
            [jnp.square(state.model).mean(), jnp.square(jnp.square(state.model)).mean()]
        )
        return run(iteration, jnp.ones(many), jnp.zeros(steps), key=key, record=keep)[1][0]

    squares = np.asarray(walk(lambda t: 1 / (t + 1), 10_000, key_fall))
    times = np.array([100, 1000, 10_000])
    mean, fourth = squares[times - 1].T
    error = np.sqrt((fourth - mean**2) / many)
    etas = np.array([0.05, 0.2, 0.8])
    stay = jax.vmap(lambda eta: walk(eta, 600, key_stay)[:, 0])(jnp.asarray(etas))
    level = np.asarray(stay)[:, 200:].mean(axis=1)
    expected = etas / (2 - etas)
    t = np.arange(1, 10_001)
    shown = np.unique(np.geomspace(1, 10_000, 200).astype(int))
    return Verdict(
        close("t E[θ²] at t = 100, 1000, 10000", times * mean, 1.0, tolerance=0.25, method="trend"),
        within("the same, within chance", times * mean, np.ones(3), error=times * error),
        close(
            "constant η = 0.05, 0.2, 0.8: variance over η/(2 − η)",
            level / expected,
            1.0,
            tolerance=0.05,
            method="trend",
        ),
        refuted(
            close("variance over η/2", level / (etas / 2), 1.0, tolerance=0.05, method="trend")
        ),
        figure=Chart(
            Panel(
                "step",
                "mean of θ²",
                log="xy",
                lines={
                    "η = 1/t": (shown, squares[shown - 1, 0]),
                    **{
                        f"η = {eta:g}": (t[:600], np.asarray(stay)[i])
                        for i, eta in enumerate(etas[:2])
                    },
                },
                bounds={
                    "1/t": (t[[0, -1]], 1 / t[[0, -1]]),
                    "η/(2 − η)": (t[[0, 599]], [1 / 9] * 2),
                },
            ),
        ),
    )


def tilted(theta, batch, key=None):
    r"""$h' = \theta^3 - \theta - \frac14$ plus the mean of the examples, which tilt the slope."""
    return (theta**4 / 4 - theta**2 / 2 - theta / 4 + batch.mean() * theta).sum()


@claim(
    "3.4-sgd-escapes", title="Noise leaves a poor minimum", kind="experiment", of=("train.descend",)
)
def escapes(key):
    r"""$h' = \theta^3 - \theta - \frac14$ has a poor minimum at $-0.84$ and a better one at $1.11$.
    From $-0.85$ gradient descent ends in the poor one every time; the noise of single examples
    carries stochastic descent over the barrier, and that of batches of 20 rarely.
    """
    runs, steps, n = 60, 3000, 100
    key_data, key_runs = jr.split(key)
    offsets = chance(key_data).normal(size=n)
    offsets = 3 * (offsets - offsets.mean()) / offsets.std()
    poor, barrier, better = np.sort(np.roots([1.0, 0.0, -1.0, -0.25]).real).tolist()
    step = train.descend(tilted, optax.sgd(0.05))
    last = lambda state: state.model[0]
    walk = jax.jit(
        jax.vmap(lambda batches: run(step, jnp.array([-0.85]), batches, key=key, record=last)[1][0])
    )
    order = chance(key_runs).permuted(np.tile(np.arange(n), (runs * steps, 1)), axis=1)[
        :, :20
    ]  # none twice
    shuffled = offsets[order].reshape(runs, steps, 20)
    paths = {batch: np.asarray(walk(jnp.asarray(shuffled[..., :batch]))) for batch in (1, 20)}
    paths[n] = np.asarray(walk(jnp.asarray(np.tile(offsets, (1, steps, 1)))))
    over = {batch: (path[:, -1] > barrier).mean() for batch, path in paths.items()}
    theta = np.linspace(-1.6, 1.8, 200)
    t = np.arange(0, 3000, 10)
    h = lambda theta: theta**4 / 4 - theta**2 / 2 - theta / 4
    return Verdict(
        close("gradient descent: its end", paths[n][:, -1], np.full(1, poor), tolerance=1e-10),
        close("which is", poor, -0.8376, tolerance=5e-5),
        at_least(
            f"batches of 1: share of {runs} runs that end beyond the barrier",
            over[1],
            0.7,
            method="trend",
        ),
        at_most(f"batches of 20: share of {runs} runs", over[20], 0.3, method="trend"),
        at_least("how much better it is there", h(poor) - h(better), 0.4),
        assumptions=[
            close("sum of the offsets", offsets.sum(), 0.0, tolerance=1e-10),
            close("their spread", offsets.std(), 3.0, tolerance=1e-12),
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
                    "batch of 1": (t, paths[1][0, ::10]),
                    "of 20": (t, paths[20][0, ::10]),
                    "all examples": (t, paths[n][0, ::10]),
                },
            ),
        ),
    )
