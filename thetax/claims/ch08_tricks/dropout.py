"""§8.4: dropout, the ensemble it trains, and weight scaling as an approximation of the ensemble
average.
"""

from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.special import expit, softmax
from scipy.stats import ttest_rel

from ... import explain, layers, models, train
from ...core import predict
from ...plot import Chart, Panel
from ..engine.check import Check, at_least, at_most, close, equal, refuted, within
from ..engine.claim import Verdict, claim, erratum

FOUR = 6e-5  # two-sided probability beyond four standard errors


@claim(
    "8.4-dropout",
    title="Dropout of units and of weights",
    kind="layer",
    of=("layers.Dropout", "layers.DropConnect"),
    cites="Srivastava et al. 2014; Wan et al. 2013",
)
def dropout(key):
    r"""While training, units (or weights) are multiplied by independent
    $b_i \sim \mathrm{Bernoulli}(\pi)$ and divided by $\pi$, so that the mean is unchanged; the
    gradient passes where $b_i = 1$. Evaluation uses no mask.
    """
    n, keep = 40_000, 0.7
    key_x, key_units, key_weights = jr.split(key, 3)
    x = jnp.abs(jr.normal(key_x, (n,))) + 0.5
    drop = layers.Dropout(1 - keep)
    y, back = jax.vjp(lambda x: drop(x, key=key_units), x)
    ratio = np.asarray(y / x)
    passed = np.asarray(back(jnp.ones(n))[0])
    thin = layers.DropConnect(layers.Linear(x.reshape(200, 200), x[:200]), 1 - keep)
    thinned_weights = thin.drop_weights(key_weights)
    weights = np.concatenate(
        [np.ravel(thinned_weights.W / thin.inner.W), np.ravel(thinned_weights.b / thin.inner.b)]
    )
    small = layers.DropConnect(layers.Linear(x[:12].reshape(3, 4), x[:3]), 1 - keep)
    outputs = np.asarray(jax.vmap(lambda key: small(x[:4], key=key))(jr.split(key_weights, 4000)))
    noise = np.sqrt(
        (1 - keep) / keep * (np.square(small.inner.W) @ np.square(x[:4]) + np.square(small.inner.b))
    )
    return Verdict(
        *(
            check
            for name, b in {"units": ratio, "weights": weights}.items()
            for check in _bernoulli(name, b, keep)
        ),
        within(
            "mean of y / x over the units",
            ratio.mean(),
            1.0,
            error=np.sqrt((1 - keep) / keep / n),
            false_alarm=FOUR,
        ),
        close(
            "∂y/∂x, against the mask", passed, np.where(ratio > 0, 1 / keep, 0.0), tolerance=1e-14
        ),
        within(
            "mean output of thinned weights, 4,000 draws",
            outputs.mean(axis=0),
            small.inner(x[:4]),
            error=noise / np.sqrt(4000),
            false_alarm=FOUR,
        ),
        within(
            "standard deviation of that output, over √((1−π)/π Σ w²x²)",
            outputs.std(axis=0) / noise,
            1.0,
            error=1 / np.sqrt(2 * 4000),
            false_alarm=FOUR,
        ),
        equal("units without a key", drop(x), x),
        equal("weights without a key", thin(x[:200]), thin.inner(x[:200])),
        refuted(close("∂y/∂x, as if nothing were dropped", passed, 1.0, tolerance=0.5)),
    )


def _bernoulli(name: str, ratio: np.ndarray, keep: float) -> list[Check]:
    stays = ratio > 0
    return [
        within(
            f"{name}: share of kept units",
            stays.mean(),
            keep,
            error=np.sqrt(keep * (1 - keep) / ratio.size),
            false_alarm=FOUR,
        ),
        within(
            f"{name}: share of adjacent pairs that are both kept",
            (stays[1:] & stays[:-1]).mean(),
            keep**2,
            error=np.sqrt((keep**2 + 2 * keep**3 - 3 * keep**4) / ratio.size),
            false_alarm=FOUR,
        ),
        close(f"{name}: kept units are multiplied by 1/π", ratio[stays], 1 / keep),
    ]


def masks(n: int, keep: float) -> tuple[np.ndarray, np.ndarray]:
    r"""All $b \in \{0, 1\}^n$, and $p(b)$."""
    b = np.array(list(product([0.0, 1.0], repeat=n)))
    return b, np.prod(np.where(b == 1, keep, 1 - keep), axis=1)


def neuron(w: np.ndarray, keep: float) -> layers.DropConnect:
    r"""$(w \odot b)^\top x$ by the library: the layer divides by $\pi$, so its weights are $\pi
    w$.
    """
    return layers.DropConnect(layers.Linear(jnp.asarray(keep * w)), 1 - keep)


@claim(
    "8.4-dropout-ensemble",
    title="An ensemble of thinned networks",
    kind="definition",
    of=("explain.dropout_average", "explain.mc_dropout", "layers.DropConnect"),
    cites="Srivastava et al. 2014; Gal & Ghahramani 2016",
)
def ensemble(key, rng):
    r"""Dropout trains all thinned networks at once:
    $p(y \mid x) = \sum_{b \in \{0,1\}^n} p(b)\, p[w \odot b](y \mid x)$ with
    $p(b) = \prod_i \pi^{b_i} (1 - \pi)^{1 - b_i}$. The average over draws of $b$ estimates it.
    """
    keep = 0.7
    w = rng.normal(size=(1, 8))
    xs = rng.normal(size=(5, 8))
    b, weight = masks(8, keep)
    each = expit(np.einsum("sj,nj->sn", b * w, xs))  # the 256 networks
    unit = neuron(w, keep)
    average = explain.dropout_average(unit, jnp.asarray(xs), of=jax.nn.sigmoid)[:, 0]
    sampled = explain.mc_dropout(unit, jnp.asarray(xs), n_samples=4000, key=key)
    square = lambda z: jnp.square(jax.nn.sigmoid(z))
    spread = np.sqrt(explain.dropout_average(unit, jnp.asarray(xs), of=square)[:, 0] - average**2)
    order = np.argsort(each[:, 0])
    return Verdict(
        close("Σ p(b)", explain.dropout_average(unit, jnp.asarray(xs), of=jnp.ones_like), 1.0),
        close("average of 256 networks", average, weight @ each, method="brute force"),
        within(
            "average of 4,000 draws",
            sampled.probability[:, 1],
            weight @ each,
            error=spread / np.sqrt(4000),
            false_alarm=FOUR,
        ),
        refuted(close("with p(b) = 1/256", average, each.mean(axis=0), tolerance=1e-3)),
        figure=Panel(
            "fraction of the ensemble",
            "probability of class 1",
            lines={"the 256 networks, sorted": (np.cumsum(weight[order]), each[order, 0])},
            bounds={"their average": (np.array([0, 1]), np.full(2, float(average[0])))},
        ),
    )


@claim(
    "8.4-dropout-scaling",
    title="Weight scaling",
    kind="identity",
    of=("explain.dropout_average", "layers.DropConnect", "layers.Dropout"),
    cites="Hinton et al. 2012; Baldi & Sadowski 2013",
)
def scaling(rng):
    r"""The single network with weights $\pi_i w_i$ represents the ensemble: exactly for the mean of
    linear outputs and for the normalised geometric mean of logistic or softmax outputs, and
    approximately for their arithmetic mean.
    """
    keep = 0.7
    w = 1.5 * rng.normal(size=(1, 8))
    xs = rng.normal(size=(20, 8))
    b, weight = masks(8, keep)
    z = np.einsum("sj,nj->sn", b * w, xs)
    unit = neuron(w, keep)
    inputs = jnp.asarray(xs)
    scaled = np.asarray(predict(unit, inputs))[:, 0]  # without a key: weights πw
    average = lambda model, of, xs=inputs: np.asarray(explain.dropout_average(model, xs, of=of))
    up, down = (
        np.exp(average(unit, lambda z, s=s: jax.nn.log_sigmoid(s * z)))[:, 0] for s in (1, -1)
    )
    W = rng.normal(size=(3, 8))
    readout = layers.Chain(layers.Dropout(1 - keep), layers.Linear(jnp.asarray(W)))
    logs = np.tensordot(
        weight, np.log(softmax(np.einsum("sj,nj,kj->snk", b / keep, xs, W), axis=2)), axes=1
    )
    arithmetic = average(unit, jax.nn.sigmoid)[:, 0]
    return Verdict(
        close(
            "linear: the library's average",
            average(unit, layers.identity)[:, 0],
            weight @ z,
            method="brute force",
        ),
        close("linear: the scaled network", scaled, weight @ z, method="brute force"),
        close("logistic: normalised geometric mean", up / (up + down), expit(scaled)),
        close(
            "softmax: normalised geometric mean, of all masks",
            softmax(logs, axis=1),
            jax.nn.softmax(predict(readout, inputs)),
            method="brute force",
        ),
        close(
            "softmax: the library's",
            jax.nn.softmax(average(readout, jax.nn.log_softmax)),
            softmax(logs, axis=1),
            method="brute force",
        ),
        close(
            "logistic: arithmetic mean, the library's",
            arithmetic,
            weight @ expit(z),
            method="brute force",
        ),
        refuted(close("logistic: arithmetic mean", arithmetic, expit(scaled), tolerance=0.01)),
        figure=Panel(
            "scaled network, σ(πw·x)",
            "mean of the ensemble",
            points={
                "arithmetic": (expit(scaled), arithmetic),
                "geometric": (expit(scaled), up / (up + down)),
            },
            bounds={"equal": (np.array([0, 1]), np.array([0, 1]))},
            equal_aspect=True,
        ),
    )


@erratum(
    "8.4-dropout-scaling",
    title="Scaling by the probability of being active",
    printed=r"\tilde\theta_i = \pi_i \theta_i, \quad \pi_i \text{ the dropout probability}",
    corrected=r"\tilde\theta_i = \pi_i \theta_i, \quad \pi_i \text{ the probability of being "
    r"active}",
    of=("explain.dropout_average", "layers.Dropout"),
    cites="Srivastava et al. 2014",
    slip=True,
)
def scaling_printed(rng):
    r"""The formula is right, and so is the definition of $\pi_i$ before it, the probability that
    weight $i$ is active; the sentence between them calls it the dropout probability. With this
    probability, $1 - \pi_i$, the scaled network does not have the mean output.
    """
    keep = np.array([0.9, 0.8, 0.7])
    w = rng.uniform(0.5, 2, size=3)
    x = rng.uniform(0.5, 2, size=3)
    b, _ = masks(3, 0.5)
    mean = np.prod(np.where(b == 1, keep, 1 - keep), axis=1) @ (b * w @ x)
    every = [
        layers.Chain(lambda x, i=i: x[i : i + 1], layers.Dropout(1 - float(keep[i])))
        for i in range(3)
    ]
    mask = (
        np.array([explain.dropout_average(one, jnp.asarray(x)[None])[0, 0] for one in every]) / x
    )  # divided by π: 1
    return Verdict(
        close("E (w ⊙ b)·x, against (πw)·x", (keep * w) @ x, mean, method="brute force"),
        close("the library divides by π: the mean mask", mask, 1.0),
        printed=[
            close(
                "E (w ⊙ b)·x, against ((1 − π)w)·x",
                ((1 - keep) * w) @ x,
                mean,
                method="brute force",
            )
        ],
    )


@claim(
    "8.4-dropout-generalises",
    title="Dropout improves generalisation",
    kind="experiment",
    of=("layers.Dropout", "models.MLP", "train.descend"),
    cites="Srivastava et al. 2014",
)
def generalises(key, scale):
    r"""On 200 examples in 50 dimensions, a tenth of them mislabelled, a network of 256 hidden units
    memorises the noise. Trained with half of the inputs and of the hidden units dropped it has a
    lower test loss, however long both are trained, and lower than the smallest one of the other.
    """
    seeds, steps, every = (20, 600, 10) if scale == "full" else (10, 160, 10)
    curves = jax.jit(lambda keys: jax.vmap(lambda key: _both(key, steps, every))(keys))(
        jr.split(key, seeds)
    )
    without, dropped = (np.asarray(curve, np.float64) for curve in curves)
    test = ttest_rel(dropped[:, -1], without[:, -1], alternative="less")
    gain = (without - dropped).mean(axis=0)
    best = without.min(axis=1)
    t = np.arange(every, steps + 1, every)
    mean = lambda a: a.mean(axis=0)
    return Verdict(
        at_most(f"p-value over {seeds} seeds, paired, one-sided", test.pvalue, 0.01),
        at_least(
            "mean test loss without minus with dropout, at every look from step 50 on",
            gain[4:],
            0.0,
        ),
        at_least(
            "smallest loss without dropout minus final loss with, mean",
            (best - dropped[:, -1]).mean(),
            0.0,
        ),
        figure=Chart(
            Panel(
                "step",
                "test loss, mean of the seeds",
                lines={"with dropout": (t, mean(dropped)), "without": (t, mean(without))},
            ),
            Panel(
                "test loss without dropout",
                "with dropout",
                points={"a seed": (without[:, -1], dropped[:, -1])},
                bounds={"equal": (np.sort(without[:, -1]), np.sort(without[:, -1]))},
            ),
        ),
    )


def _both(key, steps, every):
    """The test losses of two training runs with the same initialisation, data and batches."""
    key_x, key_mu, key_class, key_flip, key_init, key_order, key_run = jr.split(key, 7)
    mu = jr.normal(key_mu, (50,), jnp.float32)
    of_one = jr.bernoulli(key_class, 0.5, (1200,))
    x = jr.normal(key_x, (1200, 50), jnp.float32) + jnp.outer(
        jnp.where(of_one, 2.0, -2.0).astype(jnp.float32), mu / jnp.linalg.norm(mu)
    )
    y = (of_one ^ jr.bernoulli(key_flip, 0.1, (1200,))).astype(jnp.int32)
    test = x[200:], y[200:]
    model = layers.Chain(
        layers.Dropout(0.5), models.MLP.init(50, 256, 2, dropout=0.5, key=key_init)
    )
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), model)
    rows = jr.randint(key_order, (steps, 50), 0, 200)
    keyless = lambda model, batch, key=None: train.cross_entropy(model, batch)

    def descent(objective):
        iteration = train.descend(objective, optax.adam(2e-3))
        loss = lambda state: train.cross_entropy(state.model, test)

        def some(state, rows):
            state, _ = jax.lax.scan(
                lambda s, item: iteration.step(s, (x[item[0]], y[item[0]]), key=item[1]),
                state,
                rows,
            )
            return state, loss(state)

        keys = jr.split(key_run, steps).reshape(-1, every)
        return jax.lax.scan(some, iteration.init(model), (rows.reshape(-1, every, 50), keys))[1]

    return descent(keyless), descent(train.cross_entropy)
