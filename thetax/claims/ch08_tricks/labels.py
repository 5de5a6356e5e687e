"""§8.8: label smoothing by a confusion matrix."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from scipy.stats import ttest_rel

from ... import models, train
from ...core import iterate
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, close_derivative, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian


def logit_model(x):
    """A model whose inputs are its logits."""
    return x


@claim(
    "8.8-label-smoothing",
    title="Label smoothing by a confusion matrix",
    kind="loss",
    of=("train.soften_labels", "train.smooth_labels"),
    cites="Szegedy et al. 2016",
)
def smoothing(rng):
    r"""The label $y$ becomes the distribution $\Pi e_y$, column $y$ of $\Pi$, and the loss
    $-\sum_j (\Pi e_y)_j \log p_j$, of gradient $\mathrm{softmax}(z) - \Pi e_y$ in the logits.
    $\Pi = I$ is the plain cross-entropy; $\Pi = (1 - \epsilon) I + \frac{\epsilon}{k} 11^\top$
    mixes it with the mean over all labels.
    """
    k = 4
    epsilon = 0.2
    Pi = rng.dirichlet(np.ones(k), size=k).T
    z = 2 * rng.normal(size=(7, k))
    y = rng.integers(k, size=7)
    batch = jnp.asarray(z), jnp.asarray(y)
    log_p = log_softmax(z, axis=1)
    objective = train.soften_labels(train.cross_entropy, jnp.asarray(Pi))
    by_hand = lambda Pi: np.mean([-Pi[:, label] @ row for label, row in zip(y, log_p)])
    plain = by_hand(np.eye(k))
    slope = np.asarray(jax.grad(lambda z: objective(logit_model, (z, batch[1])))(batch[0])) * len(y)
    smooth = train.smooth_labels(train.cross_entropy, k, strength=epsilon)
    return Verdict(
        close(
            "against the sum by hand", objective(logit_model, batch), by_hand(Pi), tolerance=1e-13
        ),
        refuted(
            close(
                "with rows in place of columns",
                objective(logit_model, batch),
                by_hand(Pi.T),
                tolerance=1e-3,
            )
        ),
        close(
            "Π = I: the cross-entropy",
            train.soften_labels(train.cross_entropy, jnp.eye(k))(logit_model, batch),
            plain,
            tolerance=1e-13,
        ),
        close(
            "uniform: (1 − ε) CE + ε · mean CE",
            smooth(logit_model, batch),
            (1 - epsilon) * plain + epsilon * -log_p.mean(),
            tolerance=1e-13,
        ),
        close(
            "gradient, against softmax − Πe_y",
            slope,
            softmax(z, axis=1) - Pi[:, y].T,
            tolerance=1e-13,
        ),
        close_derivative(
            "gradient, by differences",
            slope,
            len(y) * jacobian(lambda z: objective(logit_model, (z, batch[1])), z),
            tolerance=1e-9,
        ),
        assumptions=[
            close("columns of Π sum to", Pi.sum(axis=0), np.ones(k)),
            at_least("entries of Π", Pi, 0.0),
        ],
    )


@claim(
    "8.8-ls-optimum",
    title="The optimal logits are finite",
    kind="theorem",
    of=("train.smooth_labels", "train.descend"),
    cites="Müller, Kornblith & Hinton 2019",
)
def optimum(key):
    r"""Free logits are optimal if and only if $\mathrm{softmax}(z) = \Pi e_y$, where the loss is
    the entropy $H(\Pi e_y)$. Under uniform smoothing the label's logit is above the others by
    $\log \frac{1 - \epsilon + \epsilon / k}{\epsilon / k}$: finite for $\epsilon > 0$.
    """
    k, y = 4, 2
    epsilons = np.array([0.01, 0.03, 0.1, 0.3])
    start = jr.normal(key, (k,))

    def descend(epsilon, steps=20_000):
        smooth = train.smooth_labels(train.cross_entropy, k, strength=epsilon)
        objective = lambda z, batch, key=None: smooth(logit_model, (z[None], jnp.array([y])))
        state, (gaps, _) = iterate(
            train.descend(objective, optax.sgd(2.0)),
            start,
            steps,
            key=key,
            record=lambda state: state.model[y] - state.model[0],
        )
        return state.model, objective(state.model, None), gaps

    z, loss, ways = (np.asarray(a) for a in jax.jit(jax.vmap(descend))(jnp.asarray(epsilons)))
    target = (1 - epsilons)[:, None] * np.eye(k)[y] + epsilons[:, None] / k
    gap = np.log((1 - epsilons + epsilons / k) / (epsilons / k))
    short = np.log((1 - epsilons) / (epsilons / k))
    own = z[:, [y]] - np.delete(z, y, axis=1)
    other = minimize(
        lambda z: -target[2] @ log_softmax(z), np.zeros(k), method="BFGS", options={"gtol": 1e-10}
    )
    hard = descend(0.0, 2000)[2]
    t = np.unique(np.geomspace(1, 2000, 200).astype(int))
    return Verdict(
        close(
            "softmax of the logits found by gradient descent",
            softmax(z, axis=1),
            target,
            tolerance=1e-8,
        ),
        close(
            "their loss, against H(Πe_y)",
            loss,
            -np.sum(target * np.log(target), axis=1),
            tolerance=1e-10,
        ),
        close("the gap, to each other class", own, np.tile(gap[:, None], k - 1), tolerance=1e-6),
        close(
            "scipy's minimum, ε = 0.1",
            -target[2] @ log_softmax(other.x),
            loss[2],
            tolerance=1e-10,
            method="brute force",
        ),
        refuted(
            close(
                "the gap, without the label's own share ε/k",
                own,
                np.tile(short[:, None], k - 1),
                tolerance=1e-6,
            )
        ),
        at_least("ε = 0: the gap still grows, from step 1,000 to 2,000", hard[-1] - hard[999], 0.5),
        figure=Panel(
            "step",
            "gap between the logits",
            log="x",
            lines={"ε = 0": (t, np.asarray(hard)[t - 1])}
            | {
                f"ε = {e:g}": (t, way[t - 1])
                for e, way in zip(epsilons[[0, 2, 3]], ways[[0, 2, 3]])
            },
            bounds={
                "log((1 − ε + ε/k)/(ε/k))": (
                    np.tile([1.0, 2000.0, np.nan], 3),
                    np.repeat(gap[[0, 2, 3]], 3),
                )
            },
        ),
    )


@claim(
    "8.8-ls-mislabelled",
    title="Label smoothing against wrong labels",
    kind="experiment",
    of=("train.soften_labels", "train.cross_entropy", "models.MLP"),
    cites="Lukasik et al. 2020",
)
def mislabelled(key, scale):
    r"""With 30 % of the training labels wrong, a network that has started to memorise them has a
    lower loss on true labels if it was trained on $\Pi e_y$, where $\Pi$ is the confusion matrix of
    the mistakes, than on the given labels. Before that the opposite holds: the labels are confused
    already.
    """
    seeds, steps = (20, 400) if scale == "full" else (10, 160)
    results = jax.jit(jax.vmap(lambda key: _noisy(key, steps)))(jr.split(key, seeds))
    hard, soft = (np.asarray(a, np.float64) for a in results)
    test = ttest_rel(soft[:, -1], hard[:, -1], alternative="less")
    t = np.arange(20, steps + 1, 20)
    return Verdict(
        at_most(f"p-value over {seeds} seeds, paired, one-sided", test.pvalue, 0.01),
        at_least(
            "mean test loss, trained on the labels minus on Πe_y", (hard - soft)[:, -1].mean(), 0.0
        ),
        at_most("the same after 20 steps", (hard - soft)[:, 0].mean(), 0.0),
        figure=Chart(
            Panel(
                "step",
                "test loss, mean of the seeds",
                lines={"on Πe_y": (t, soft.mean(axis=0)), "on the labels": (t, hard.mean(axis=0))},
            ),
            Panel(
                "test loss, on the labels",
                "on Πe_y",
                points={"a seed": (hard[:, -1], soft[:, -1])},
                bounds={"equal": (np.sort(hard[:, -1]), np.sort(hard[:, -1]))},
            ),
        ),
    )


def _noisy(key, steps):
    """The losses on true labels of two training runs on one noisy dataset, with the same
    initialisation and batches.
    """
    k, n, noise = 4, 200, 0.3
    key_centres, key_class, key_x, key_flip, key_shift, key_init, key_rows = jr.split(key, 7)
    truth = jr.randint(key_class, (n + 800,), 0, k)
    xs = 0.4 * jr.normal(key_centres, (k, 20), jnp.float32)[truth] + jr.normal(
        key_x, (n + 800, 20), jnp.float32
    )
    wrong = jr.bernoulli(key_flip, noise, (n + 800,))
    labels = jnp.where(wrong, (truth + jr.randint(key_shift, (n + 800,), 1, k)) % k, truth)
    Pi = np.where(np.eye(k) == 1, 1 - noise, noise / (k - 1))
    model = jax.tree.map(lambda a: a.astype(jnp.float32), models.MLP.init(20, 64, k, key=key_init))
    rows = jr.randint(key_rows, (steps, 50), 0, n)

    def descent(objective):
        iteration = train.descend(objective, optax.adam(1e-2))
        step = lambda state, rows: iteration.step(state, (xs[rows], labels[rows]), key=key)

        def some(state, rows):
            state, _ = jax.lax.scan(step, state, rows)
            return state, train.cross_entropy(state.model, (xs[n:], truth[n:]))

        return jax.lax.scan(some, iteration.init(model), rows.reshape(-1, 20, 50))[1]

    return descent(train.cross_entropy), descent(
        train.soften_labels(train.cross_entropy, Pi.astype(np.float32))
    )
