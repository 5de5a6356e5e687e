"""Lecture 10, §1.3 and §1.5: one hidden layer, with fixed and with trained units."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.special import expit

from .... import explain, layers, models, train, tree
from ....core import predict, run
from ....layers import Chain, Linear
from ....plot import Chart, Panel
from ...engine import differences
from ...engine.check import at_least, at_most, close, close_derivative, equal
from ...engine.claim import Verdict, claim


def shallow(W, b, beta, activation=layers.sigmoid):
    r"""$\sum_m \beta_m \sigma(w_m^\top x + b_m)$, without a constant."""
    return models.MLP(
        Chain(Linear(jnp.asarray(W), jnp.asarray(b)), activation, Linear(jnp.asarray(beta)[None]))
    )


PAIRS = [(1, 1), (1, 7), (2, 3), (3, 2), (5, 5), (7, 1), (10, 4), (13, 20), (64, 10), (100, 3)]


@claim(
    "L10-1.3-snn",
    "L10-1.3-param-count",
    title="A shallow network",
    kind="model",
    of=("models.MLP", "layers.Linear"),
)
def snn(key, rng):
    r"""$f(x) = \sum_{m=1}^M \beta_m\, \sigma(w_m^\top x + b_m)$: the units
    $h_m = \sigma(w_m^\top x + b_m)$ are learned features. With inputs in $\mathbb{R}^d$ it has
    $(d + 2) M$ parameters.
    """
    W = rng.normal(size=(4, 3))
    b = rng.normal(size=4)
    beta = rng.normal(size=4)
    x = rng.normal(size=3)
    net = shallow(W, b, beta)
    theta, back = tree.ravel(net)
    value = lambda theta: back(theta)(jnp.asarray(x))[0]
    slopes = jax.grad(value)(theta)
    units = [expit(sum(W[m, j] * x[j] for j in range(3)) + b[m]) for m in range(4)]
    without_bias = lambda net: models.MLP(
        Chain(*net.body.layers[:-1], Linear(net.body.layers[-1].W))
    )
    draw = lambda d, M, change=lambda net: net: jax.eval_shape(
        lambda: change(models.MLP.init(d, M, 1, key=key))
    )
    return Verdict(
        close(
            "unit by unit",
            net(jnp.asarray(x)).item(),
            sum(beta[m] * units[m] for m in range(4)),
            tolerance=1e-14,
        ),
        close_derivative(
            "gradient by β, w and b", slopes, differences.jacobian(value, theta), tolerance=1e-9
        ),
        close(
            "gradient by β: the features", back(slopes).body.layers[-1].W[0], units, tolerance=1e-14
        ),
        equal(
            "number of parameters for ten (d, M)",
            [tree.size(draw(d, M, without_bias)) for d, M in PAIRS],
            [sum(d + 1 + 1 for _ in range(M)) for d, M in PAIRS],
        ),
        equal("and one more with an output bias", tree.size(draw(7, 5)), (7 + 2) * 5 + 1),
    )


@claim(
    "L10-1.5-hypothesis-linear",
    title="Fixed units: a vector space",
    kind="definition",
    of=("models.random_units", "models.ridge_network", "explain.convexity"),
)
def hypothesis_linear(key, rng):
    r"""With $(w_j, b_j)$ fixed, the functions $\sum_{j=1}^M \beta_j\, \sigma(w_j^\top x + b_j)$ are
    a vector space of dimension at most $M$, and fitting $\beta$ is a convex least-squares problem,
    whose solution is global.
    """
    M = 6
    xs = jnp.asarray(rng.uniform(-1, 1, size=(200, 3)))
    ys = jnp.asarray(np.sin(3 * xs[:, 0]) + xs[:, 1])
    units = models.random_units(xs, width=M, spread=2.0, key=key)
    of = lambda beta: np.asarray(predict(shallow(units.W, units.b, beta), xs))[:, 0]
    betas = rng.normal(size=(2 * M, M))
    values = np.stack([of(beta) for beta in betas])
    features = expit(np.asarray(xs) @ np.asarray(units.W).T + np.asarray(units.b))
    fit = models.ridge_network(xs, ys, width=M, activation=layers.sigmoid, spread=2.0, key=key)
    W = np.asarray(fit.body.layers[0].W)
    columns = np.c_[expit(np.asarray(xs) @ W.T + np.asarray(fit.body.layers[0].b)), np.ones(200)]
    best = np.linalg.lstsq(columns, np.asarray(ys), rcond=None)
    risk = lambda beta, batch: train.squared_error(Linear(beta[None]), batch)
    left, right = jnp.asarray(rng.normal(size=(2, 200, M)))
    chords = explain.convexity(risk, left, right, (jnp.asarray(features), ys))
    return Verdict(
        close(
            "the sum of two networks is the one with β + β'",
            of(betas[0] + betas[1]),
            values[0] + values[1],
            tolerance=1e-13,
        ),
        equal(
            f"rank of {2 * M} functions on 200 points",
            int(np.linalg.matrix_rank(values, tol=1e-9)),
            M,
        ),
        close(
            "the fit with a constant, against lstsq: sum of squares",
            200 * 2 * float(train.squared_error(fit, (xs, ys))),
            best[1][0],
            tolerance=1e-9,
        ),
        close(
            "the weights of the fit",
            np.r_[np.asarray(fit.body.layers[-1].W)[0], np.asarray(fit.body.layers[-1].b)],
            best[0],
            tolerance=1e-8,
            relative=True,
        ),
        at_most("the risk above 200 chords", chords.excess, 0.0, slack=1e-12),
    )


@claim(
    "L10-1.5-hypothesis-snn",
    title="Trained units: not a vector space",
    kind="definition",
    of=("models.add_networks", "models.permute_units", "explain.convexity", "train.descend"),
)
def hypothesis_snn(key, rng):
    r"""With trainable $(w_j, b_j)$ the class of $M$ units adapts to the function but is not a
    vector space: the sum of two single units needs two units. Its empirical risk is not convex:
    halfway between a network and the same network with permuted units lies a worse one.
    """
    kinks = np.array([rng.uniform(-0.6, -0.2), rng.uniform(0.2, 0.6)])
    slopes = rng.uniform(0.5, 1.5, size=2)
    ends = [shallow([[1.0]], [-kink], [slope], layers.relu) for kink, slope in zip(kinks, slopes)]
    both = models.add_networks(*ends)
    x = np.linspace(-1, 1, 201)
    xs = jnp.asarray(x)[:, None]
    target = sum(slope * np.maximum(x - kink, 0) for kink, slope in zip(kinks, slopes))
    single_fit = _best(x, target)
    best = np.sqrt(np.mean((single_fit - target) ** 2))
    starts = [jnp.asarray(rng.normal(size=shape)) for shape in ((30, 1, 1), (30, 1), (30, 1))]
    single = jax.vmap(lambda W, b, beta: shallow(W, b, beta, layers.relu))(*starts)
    step = train.descend(
        lambda net, batch, key: train.squared_error(net, (xs, jnp.asarray(target))),
        optax.adam(0.03),
    )
    ends_at = jax.jit(jax.vmap(lambda net: run(step, net, jnp.zeros(400), key=key)[1][1].loss[-1]))(
        single
    )
    trained = np.sqrt(2 * np.asarray(ends_at))
    stack = lambda net: jax.tree.map(lambda a: a[None], net)
    chord = explain.convexity(
        train.squared_error,
        stack(both),
        stack(models.permute_units(both, 0, [1, 0])),
        (xs, jnp.asarray(target)),
    )
    on = np.asarray(predict(both, xs))[:, 0]
    return Verdict(
        close("two units represent the sum exactly", on, target, tolerance=1e-13),
        at_least(
            "one unit: smallest error over kinks and signs, against the norm of the target",
            best / np.sqrt(np.mean(target**2)),
            0.01,
        ),
        at_least("one unit trained from 30 starts is not better", trained, best, slack=1e-6),
        at_least("risk minus the chord between two orders of the units", chord.excess, 1e-4),
        close("the risk at both ends of it", chord.losses[[0, -1]], 0.0, tolerance=1e-20),
        figure=Chart(
            Panel(
                "x",
                "f(x)",
                lines={"sum of two units": (x, target), "best single unit": (x, single_fit)},
            ),
            Panel(
                "weight of the first order",
                "risk",
                lines={"along the chord": (chord.fractions, chord.losses)},
            ),
        ),
    )


def _best(x, target):
    """The best single unit: every kink and sign on a grid, then on a grid a thousand times finer
    around the best.
    """
    unit = lambda t, side: np.maximum(side * (x - t), 0)
    fit = lambda h: h * (h @ target) / max(h @ h, 1e-12)
    misfit = lambda place: np.sum((fit(unit(*place)) - target) ** 2)
    t, side = min([(t, side) for t in np.linspace(-1.5, 1.5, 601) for side in (-1, 1)], key=misfit)
    near = [(t + shift, side) for shift in np.linspace(-0.005, 0.005, 2001)]
    return fit(unit(*min(near, key=misfit)))


@claim(
    "L10-1.5-efficiency",
    title="Few trained units beat many fixed ones",
    kind="experiment",
    of=("models.MLP", "models.ridge_network", "train.descend"),
    cites="Barron 1993",
)
def efficiency(key, rng):
    r"""A function of one direction, $\sigma(3 w^\top x)$ in ten dimensions, is learned better by
    four trained units than by 100 random ones with the best output weights, for each of three
    scales of the random units.
    """
    seeds, n, d = 5, 400, 10
    w = rng.normal(size=(seeds, d, 1))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    xs = rng.normal(size=(seeds, n + 1000, d))
    ys = expit(3 * xs @ w)[..., 0]

    def learn(key, xs, ys):
        net = models.MLP.init(d, 4, 1, activation=layers.sigmoid, key=key)
        here = train.descend(
            lambda net, batch, key: train.squared_error(net, (xs[:n], ys[:n])), optax.adam(0.05)
        )
        net = run(here, net, jnp.zeros(500), key=key)[0].model
        return 2 * train.squared_error(net, (xs[n:], ys[n:]))

    trained = np.asarray(
        jax.jit(jax.vmap(learn))(jr.split(key, seeds), jnp.asarray(xs), jnp.asarray(ys))
    )
    fixed = np.array([_fixed(xs[i], ys[i], n, jr.fold_in(key, i)) for i in range(seeds)])
    number = np.arange(1, seeds + 1)
    return Verdict(
        at_most(
            "test error of 4 trained units, against 100 fixed ones, 5 of 5 seeds", trained, fixed
        ),
        at_most(
            "trained units, against predicting the mean", trained, 0.01 * ys[:, n:].var(axis=1)
        ),
        equal(
            "number of fitted parameters",
            [_size(d, 4), _size(d, 100, fixed=True)],
            [4 * (d + 2) + 1, 101],
        ),
        figure=Panel(
            "seed",
            "mean squared error on new points",
            log="y",
            points={"4 trained units": (number, trained), "100 fixed units": (number, fixed)},
        ),
    )


def _fixed(xs, ys, n, key):
    """The test error of 100 random units, with the best of three scales."""
    draw = lambda spread: models.ridge_network(
        xs[:n], ys[:n], width=100, activation=layers.sigmoid, spread=spread, key=key
    )
    judge = lambda net: 2 * float(_error(net, jnp.asarray(xs[n:]), jnp.asarray(ys[n:])))
    return min(judge(draw(spread)) for spread in (0.1, 0.3, 1.0))


@jax.jit
def _error(net, xs, ys):
    return train.squared_error(net, (xs, ys))


def _size(d, M, *, fixed=False):
    net = jax.eval_shape(lambda: models.MLP.init(d, M, 1, key=jr.key(0)))
    return tree.size(net.body.layers[-1] if fixed else net)
