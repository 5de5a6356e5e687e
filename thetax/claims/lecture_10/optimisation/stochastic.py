"""Lecture 10, §3.8 and §3.9: mini-batches, adaptive optimisers, and initialisation."""

from itertools import combinations, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy import stats

from .... import layers, models, train
from ....core import Iteration, iterate, run
from ....layers import Chain, Linear
from ....plot import Panel
from ...ch03_gradients.problems import descent, quadratic
from ...engine.check import at_least, at_most, close, equal, not_rejected, refuted
from ...engine.claim import Verdict, claim


class DrawCounts(NamedTuple):
    """The state of a counting fit: how often each batch was drawn, in place of weights."""

    model: Linear


def subsets_drawn(key: Any, n: int, size: int, times: int) -> np.ndarray:
    """How often a fit draws each subset of the examples, indexed by the bits of the subset; one
    batch per epoch.
    """

    def step(state, batch, *, key):
        place = jnp.sum(batch[0]).astype(int)
        return DrawCounts(Linear(state.model.W.at[0, place].add(1.0))), {"loss": jnp.zeros(())}

    data = 2.0 ** jnp.arange(n)[:, None] * jnp.eye(2**n)[:1], jnp.zeros((n, 1))
    counting = Iteration(DrawCounts, step)
    counts = Linear(jnp.zeros((1, 2**n)))
    return np.asarray(
        train.fit(
            counting, counts, data, epochs=times, batch_size=size, key=key, progress=train.Silent()
        ).model.W[0]
    )


@claim(
    "L10-3.8-sgd",
    title="Stochastic gradient descent",
    kind="algorithm",
    of=("train.fit", "train.descend", "train.squared_error"),
    cites="Robbins & Monro 1951",
)
def sgd(key, rng):
    r"""Draw $B$ of the $N$ indices, all subsets equally likely, take
    $g = \frac1B \sum_j \nabla\hat R^{(i_j)}$ and step by $-\eta g$. With $B = N$ drawn without
    replacement this is gradient descent; with small batches it still finds the solution of a
    consistent least-squares problem.
    """
    X = rng.integers(-1, 2, size=(8, 3)).astype(float)
    y = rng.integers(-2, 3, size=8).astype(float)
    w = np.zeros(3)
    watch = {"key": key, "progress": train.Silent()}
    step = train.descend(train.squared_error, optax.sgd(0.25))
    full_batch = train.fit(
        step,
        Linear(jnp.zeros((1, 3))),
        (jnp.asarray(X), jnp.asarray(y)),
        epochs=6,
        batch_size=8,
        **watch,
    )
    for _ in range(6):  # short binary fractions: no rounding in any order of summation
        w = w - 0.25 * X.T @ (X @ w - y) / 8
    Z = rng.normal(size=(64, 3))
    truth = rng.normal(size=3)
    begin = Linear(jnp.zeros((1, 3)))
    data = (jnp.asarray(Z), jnp.asarray(Z @ truth))
    few = train.fit(
        train.descend(train.squared_error, optax.sgd(0.1)),
        begin,
        data,
        epochs=60,
        batch_size=4,
        **watch,
    )
    subsets = subsets_drawn(key, 6, 4, 600)
    all_of_them = [sum(2**i for i in subset) for subset in combinations(range(6), 4)]
    return Verdict(
        equal(
            "B = N: weights after 6 epochs, against gradient descent by hand",
            full_batch.model.W[0],
            w,
        ),
        equal("steps taken", full_batch.steps, 6),
        close(
            "B = 4 of 64: the weights, against those that generated the data",
            few.model.W[0],
            truth,
            tolerance=1e-8,
        ),
        equal("steps taken", few.steps, 60 * 16),
        equal(
            "600 draws of 4 of 6 indices: draws with four distinct ones",
            subsets[all_of_them].sum(),
            600,
        ),
        not_rejected(
            "the 15 subsets equally often: χ²", stats.chisquare(subsets[all_of_them]).pvalue
        ),
        figure=Panel(
            "epoch",
            "risk",
            lines={"batches of 4": (np.arange(1, 61), few.history["train loss"])},
            log="y",
        ),
    )


@claim(
    "L10-3.8-sgd-unbiased",
    title="The mini-batch gradient is unbiased",
    kind="theorem",
    of=("train.binary_cross_entropy",),
)
def unbiased(rng):
    r"""$E[g \mid \theta] = \nabla\hat R(\theta)$, with variance $\frac{N - B}{B (N - 1)} \Sigma^2$
    if the batch is drawn without replacement and $\frac{\Sigma^2}{B}$ if with, where $\Sigma^2$ is
    the variance among the $N$ gradients.
    """
    N = 6
    X = rng.normal(size=(N, 2))
    y = rng.integers(0, 2, size=N)
    w = rng.normal(size=2)
    each = (1 / (1 + np.exp(-X @ w)) - y)[:, None] * X
    mean = each.mean(axis=0)
    spread = np.sum((each - each.mean(axis=0)) ** 2) / N
    of = lambda rows: np.asarray(
        _gradients(jnp.asarray(w), jnp.asarray(X[rows]), jnp.asarray(y[rows]))
    )
    sizes = np.arange(1, N + 1)
    without = []
    with_replacement = []
    middle = []
    other = []
    for B in sizes:
        g = of(np.array(list(combinations(range(N), int(B)))))
        without = [*without, np.mean(np.sum((g - mean) ** 2, axis=1))]
        middle = [*middle, g.mean(axis=0)]
        if B <= 3:
            g = of(np.array(list(product(range(N), repeat=int(B)))))
            with_replacement = [*with_replacement, np.mean(np.sum((g - mean) ** 2, axis=1))]
            other = [*other, g.mean(axis=0)]
    expected = (N - sizes) / (sizes * (N - 1)) * spread
    return Verdict(
        close(
            "without replacement: mean over all subsets, B = 1 to 6",
            middle,
            np.tile(mean, (6, 1)),
            tolerance=1e-14,
        ),
        close(
            "with replacement: mean over all tuples, B = 1 to 3",
            other,
            np.tile(mean, (3, 1)),
            tolerance=1e-14,
        ),
        close("without: variance", without, expected, tolerance=1e-14),
        close("with: variance", with_replacement, spread / sizes[:3], tolerance=1e-14),
        refuted(close("without, against Σ²/B", without, spread / sizes, tolerance=1e-6)),
        figure=Panel(
            "examples in a batch",
            "variance of its gradient",
            points={
                "without replacement": (sizes, without),
                "with": (sizes[:3], with_replacement),
            },
            bounds={"Σ²/B": (sizes, spread / sizes), "(N − B)Σ²/B(N − 1)": (sizes, expected)},
        ),
    )


@jax.jit
def _gradients(w, X, y):
    """One gradient for each batch."""
    return jax.vmap(
        lambda X, y: jax.grad(train.binary_cross_entropy)(Linear(w[None]), (X, y)).W[0]
    )(X, y)


@claim("L10-3.8-epoch", title="An epoch", kind="identity", of=("train.fit",))
def epoch(key, rng):
    r"""An epoch visits every example once: $N/B$ updates, or $\lceil N/B \rceil$ if the last,
    smaller batch is kept. The library's in-memory epochs drop it, $\lfloor N/B \rfloor$ updates; a
    stream may keep it.
    """
    N = 12
    cells = (jnp.eye(12), jnp.zeros(12))
    count = train.batch_mean(lambda f, y: f.sum())
    order = rng.permuted(np.tile(np.arange(N), (3, 1)), axis=1)

    def visits(data, batch, epochs):
        """How often each example was visited, and the number of updates."""
        summed = lambda model, batch, key=None: len(batch[1]) * count(model, batch)
        step = train.descend(summed, optax.sgd(1.0))
        result = train.fit(
            step,
            Linear(jnp.zeros((1, N))),
            data,
            epochs=epochs,
            batch_size=batch,
            key=key,
            progress=train.Silent(),
        )
        return -np.asarray(result.model.W[0]), result.steps

    def stream(epoch):
        rows = [order[epoch][i : i + 5] for i in range(0, N, 5)]
        return [(np.eye(N)[r], np.zeros(len(r))) for r in rows]

    fours, steps = visits(cells, 4, 1)
    threes, more = visits(cells, 3, 3)
    fives, few = visits(cells, 5, 1)
    with_last, all_kept = visits(stream, 5, 3)
    return Verdict(
        equal("B = 4, one epoch: visits to each of 12", fours, np.ones(12)),
        equal("updates", steps, 3),
        equal("B = 3, three epochs: visits", threes, np.full(12, 3.0)),
        equal("updates", more, 12),
        equal(
            "B = 5, one epoch: visits in order of size",
            np.sort(fives),
            np.r_[np.zeros(2), np.ones(10)],
        ),
        equal("updates, ⌊12/5⌋", few, 2),
        equal("B = 5 with the last batch kept, three epochs: visits", with_last, np.full(12, 3.0)),
        equal("updates, 3 ⌈12/5⌉", all_kept, 9),
    )


@claim(
    "L10-3.8-adaptive",
    title="RMSprop and Adam",
    kind="algorithm",
    of=("train.rmsprop", "train.adam"),
    cites="Hinton 2012; Kingma & Ba 2015",
)
def adaptive(rng):
    r"""RMSprop divides the gradient by the root of a moving average of squared gradients; Adam does
    the same to a moving average of gradients, with both averages corrected for their start at 0.
    Adam's first step is $\eta\,\mathrm{sgn}(g)$. On an ill-conditioned quadratic both are faster
    than plain gradient descent.
    """
    H = np.diag([1.0, 10.0, 100.0])
    bowl = quadratic(H)
    start = rng.choice([-1.0, 1.0], size=3) * rng.uniform(0.5, 1.5, size=3)
    eta = 0.1
    results = {
        "rmsprop": descent(bowl.objective, train.rmsprop(eta), start, 3),
        "adam": descent(bowl.objective, train.adam(eta), start, 3),
    }
    expected = {"rmsprop": [start], "adam": [start]}
    gamma = np.zeros(3)
    m = np.zeros(3)
    v = np.zeros(3)
    for t in (1, 2, 3):
        g = H @ expected["rmsprop"][-1]
        gamma = 0.9 * gamma + 0.1 * g**2
        expected["rmsprop"].append(expected["rmsprop"][-1] - eta * g / (np.sqrt(gamma) + 1e-8))
        g = H @ expected["adam"][-1]
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        expected["adam"].append(
            expected["adam"][-1] - eta * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        )
    ill = quadratic(np.diag([1e-4, 1e-2, 1.0]))
    falling = optax.cosine_decay_schedule(0.1, 200)
    rules = {
        "gradient descent, η = 1/L": optax.sgd(1.0),
        "RMSprop": train.rmsprop(falling),
        "Adam": train.adam(falling),
    }
    far = {
        name: ill.value(descent(ill.objective, rule, start, 200)) for name, rule in rules.items()
    }
    last = {name: values[-1] for name, values in far.items()}
    t = np.arange(201)
    return Verdict(
        *[
            close(
                f"{name}: three steps, by hand",
                results[name],
                np.stack(expected[name]),
                tolerance=1e-9,
            )
            for name in results
        ],
        close(
            "Adam's first step",
            results["adam"][1] - start,
            -eta * np.sign(H @ start),
            tolerance=1e-8,
        ),
        refuted(
            close(
                "RMSprop's first step",
                results["rmsprop"][1] - start,
                -eta * np.sign(H @ start),
                tolerance=1e-3,
            )
        ),
        at_most(
            "condition number 10⁴, after 200 steps: RMSprop over gradient descent",
            last["RMSprop"] / last["gradient descent, η = 1/L"],
            0.1,
        ),
        at_most(
            "Adam over gradient descent", last["Adam"] / last["gradient descent, η = 1/L"], 0.1
        ),
        figure=Panel(
            "step",
            "h",
            lines={name: (t, np.maximum(h, 1e-14)) for name, h in far.items()},
            log="y",
        ),
    )


def steps_to(losses, level):
    """The first step at which each run is below the level, or the length of the run if it never
    is.
    """
    below = losses <= level
    return np.where(below.any(axis=1), below.argmax(axis=1), losses.shape[1])


@claim(
    "L10-3.9-init-matters",
    title="Initialisation matters",
    kind="experiment",
    of=("layers.he", "layers.gaussian", "train.descend"),
    cites="He et al. 2015",
)
def init_matters(key, rng):
    r"""A convex problem reaches the same loss from every start. A deep network does not, and from
    small random weights it needs at least twice as many steps as from He's to the same loss;
    weights that are all equal stay equal within a layer, so that the layer acts as one unit.
    """
    X = jnp.asarray(rng.uniform(-1, 1, size=(40, 2)))
    y = jnp.sin(3 * X[:, 0]) * X[:, 1]
    step = train.descend(lambda net, batch, key: train.squared_error(net, (X, y)), optax.sgd(0.1))
    go = lambda steps: jax.jit(jax.vmap(lambda net: iterate(step, net, steps, key=key)))
    starts = jax.vmap(lambda key: Linear.init(2, 1, key=key))(jr.split(key, 10))
    straight = np.asarray(go(1200)(starts)[1][1].loss)
    make = lambda initialiser: jax.vmap(
        lambda key: models.MLP.init(2, 16, 16, 1, initialiser=initialiser, key=key)
    )(jr.split(key, 10))
    fit = go(1200)
    small = layers.gaussian(0.05)
    he, poor = (np.asarray(fit(make(initialiser))[1][1].loss) for initialiser in (layers.he, small))
    level = he[:, 300].max()
    fast = steps_to(he, level)
    slow = steps_to(poor, level)
    same = models.MLP(
        Chain(
            Linear(jnp.full((4, 2), 0.3), jnp.full(4, 0.1)),
            layers.tanh,
            Linear(jnp.full((1, 4), 0.2), jnp.zeros(1)),
        )
    )
    trained_layers = jax.jit(lambda net: run(step, net, jnp.zeros(200), key=key)[0].model)(
        same
    ).body.layers
    rows = np.asarray(trained_layers[0].W)
    heard = np.asarray(trained_layers[2].W)[0]
    indices = np.unique(np.geomspace(1, 1200, 200).astype(int)) - 1
    return Verdict(
        at_most("convex: range of the final losses of 10 starts", np.ptp(straight[:, -1]), 1e-8),
        at_least(
            "two hidden layers: range of the final losses of 10 starts", np.ptp(he[:, -1]), 1e-4
        ),
        at_least(
            "steps to the same loss, small weights over He's, medians",
            np.median(slow) / np.median(fast),
            2.0,
            method="trend",
        ),
        equal("all weights equal: rows of W after 200 steps", rows, np.tile(rows[0], (4, 1))),
        equal("and the output weights", heard, np.full(4, heard[0])),
        at_least("although the weights have changed by", np.abs(rows - 0.3).max(), 1e-3),
        figure=Panel(
            "step",
            "loss of two hidden layers",
            log="xy",
            lines={
                f"{name}, start {i + 1}": (indices + 1, losses[i, indices])
                for name, losses in {"He": he, "small": poor}.items()
                for i in (0, 1)
            },
        ),
    )
