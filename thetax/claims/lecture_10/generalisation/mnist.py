"""Lecture 10, §5: a network of two hidden layers on handwritten digits: parameters, updates and
errors.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.stats import multinomial
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from .... import data, explain, layers, models, train, tree
from ....core import Iteration, predict, run
from ....plot import Panel
from ...engine.check import at_least, at_most, close, equal, refuted
from ...engine.claim import Verdict, claim
from ...engine.numpy_rng import numpy_rng

N = 60_000
SIZES = (784, 256, 128, 10)
ISL = {
    "LDA": 12.7,
    "logistic": 7.2,
    "ridge network": 2.3,
    "dropout network": 1.8,
}  # test errors in percent


@claim(
    "L10-5.1-mnist-params",
    "L10-5.3-overparam",
    title="More parameters than training images",
    kind="identity",
    of=("models.MLP", "tree.size"),
    cites="James, Witten, Hastie & Tibshirani 2021, §10.2",
)
def parameters(key):
    r"""A network 784-256-128-10 has
    $785 \cdot 256 + 257 \cdot 128 + 129 \cdot 10 = 200960 + 32896 + 1290 = 235146$ parameters, 3.92
    for each of the 60,000 images: it is over-parametrised.
    """
    net = jax.eval_shape(lambda key: models.MLP.init(*SIZES, key=key), key)
    affine = [layer for layer in net.body.layers if isinstance(layer, layers.Linear)]
    each = np.array([tree.size(layer) for layer in affine])
    by_hand = np.array([(n + 1) * m for n, m in pairwise(SIZES)])
    return Verdict(
        equal("parameters of each layer", each, by_hand),
        equal("by hand", by_hand, [200_960, 32_896, 1_290]),
        equal("in all", tree.size(net), 235_146),
        refuted(equal("without biases", sum(n * m for n, m in pairwise(SIZES)), 235_146)),
        close("parameters per image", tree.size(net) / N, 3.92, tolerance=0.005),
        at_least("more than one per image", tree.size(net) / N, 1.0),
    )


@claim(
    "L10-5.2-output",
    "L10-5.2-nll",
    title="Class probabilities and their likelihood",
    kind="layer",
    of=("models.MLP", "explain.log_probabilities", "train.cross_entropy"),
)
def output(key, rng):
    r"""$Z_m = \beta_{m0} + \sum_\ell \beta_{m\ell} A^{(2)}_\ell$ and
    $f_m = \mathrm{softmax}_m(Z) = P(Y = m \mid X)$. The negative log-likelihood
    $-\sum_i \sum_m y_{im} \log f_m(x_i)$ is a sum over the examples: $N$ times the mean
    cross-entropy, and minus the logarithm of $N$ multinomial probabilities of one trial each.
    """
    n = 12
    net = jax.jit(lambda key: models.MLP.init(*SIZES, key=key))(key)
    xs = jnp.asarray(rng.random((n, 28, 28)))
    labels = rng.integers(10, size=n)
    weights = [
        (np.asarray(part.W), np.asarray(part.b))
        for part in net.body.layers
        if isinstance(part, layers.Linear)
    ]
    A = np.asarray(xs).reshape(n, -1)
    for W, b in weights[:-1]:
        A = np.maximum(A @ W.T + b, 0)
    beta, beta0 = weights[-1]
    Z = np.array(
        [
            [beta0[m] + sum(beta[m, ell] * a[ell] for ell in range(128)) for m in range(10)]
            for a in A
        ]
    )
    f = np.exp(Z - Z.max(axis=1, keepdims=True))
    f = f / f.sum(axis=1, keepdims=True)
    probabilities = np.exp(np.asarray(explain.log_probabilities(net, xs)))
    Y = np.eye(10)[labels]
    total = n * float(train.cross_entropy(net, (xs, jnp.asarray(labels))))
    soft = n * float(train.cross_entropy(net, (xs, jnp.asarray(Y))))
    likelihood = sum(multinomial.logpmf(y, 1, p / p.sum()) for y, p in zip(Y, f))
    return Verdict(
        close("Z, against sums over the hidden units", predict(net, xs), Z, tolerance=1e-10),
        close("the probabilities", probabilities, f),
        close("their sums", probabilities.sum(axis=1), 1.0),
        close(
            "N times the mean cross-entropy, against the double sum",
            total,
            -np.sum(Y * np.log(f)),
            tolerance=1e-9,
        ),
        close("with the labels as vectors", soft, total, tolerance=1e-9),
        close("against scipy's multinomial", total, -likelihood, tolerance=1e-9),
        refuted(close("the mean itself", total / n, -likelihood, tolerance=1e-3)),
    )


class BatchSize(NamedTuple):
    """What a step of the counting iteration reports: no loss, and the number of examples in its
    batch.
    """

    loss: jax.Array
    examples: jax.Array


class Count(NamedTuple):
    """A model that is not changed."""

    model: Any


def _count_batch(state: Count, batch: Any, *, key: Any) -> tuple[Count, BatchSize]:
    return state, BatchSize(jnp.zeros(()), jnp.asarray(float(len(batch[1]))))


@claim("L10-5.2-updates", title="Updates per epoch", kind="exercise", of=("train.fit",))
def updates(key):
    r"""With batches of 128, 60,000 examples make $60000 / 128 = 468.75$: 469 updates an epoch, 468
    full batches and one of 96. The library's in-memory epochs drop the 96 of each order; a stream
    may keep them. With a fifth held out there are $48000 / 128 = 375$.
    """
    cells = np.zeros((N, 1), np.float32), np.zeros(N, np.float32)
    sizes = [len(range(start, min(start + 128, N))) for start in range(0, N, 128)]
    stream = lambda epoch: ((cells[0][:size], cells[1][:size]) for size in sizes)
    watch = {"epochs": 1, "key": key, "progress": train.Silent()}
    step = Iteration(Count, _count_batch)
    net = layers.Linear(jnp.zeros((1, 1), jnp.float32))
    memory = train.fit(step, net, cells, batch_size=128, **watch)
    streamed = train.fit(step, net, stream, **watch)
    with_validation = train.fit(
        step,
        net,
        cells,
        batch_size=128,
        validation=0.2,
        metrics={"loss": train.squared_error},
        **watch,
    )
    examples = lambda result: result.steps * result.history["train examples"][0]
    return Verdict(
        equal("batches, and the size of the last", [len(sizes), sizes[-1]], [469, 96]),
        equal(
            "updates of a stream that keeps the last batch", streamed.steps, int(np.ceil(N / 128))
        ),
        close("examples in these updates", examples(streamed), N, tolerance=1e-6),
        equal("updates with data in memory", memory.steps, N // 128),
        close("examples in these", examples(memory), N - 96, tolerance=1e-6),
        equal("updates with a fifth held out", with_validation.steps, 375),
    )


@claim(
    "L10-5.3-mnist-table",
    "L10-5.3-human",
    title="Digits: discriminants, logistic regression, networks",
    kind="experiment",
    of=("models.MLP", "models.multinomial_regression", "train.weight_decay"),
    cites="James, Witten, Hastie & Tibshirani 2021, table 10.1",
    data=("mnist",),
)
def table(key, scale):
    r"""On MNIST the book's test errors are 12.7 % for linear discriminant analysis, 7.2 % for
    multinomial logistic regression, 2.3 % for the network with a ridge penalty and 1.8 % with
    dropout. On 10,000 of the images, 8,000 to train and 2,000 to test, the order is the same. The
    human error is about 0.2 %, 20 of 10,000; the network does not reach it.
    """
    key_split, key = jr.split(key)
    full = data.load("mnist")
    flat = lambda part: (part[0].reshape(len(part[0]), -1), part[1])
    pixels = 255 * full.train[0][:1000]
    integers = at_most(
        "pixels times 255, distance from an integer from 0 to 255",
        np.abs(pixels - np.clip(np.round(pixels), 0, 255)),
        1e-4,
    )
    if scale == "full":
        learn, _ = data.split(flat(full.train), 0.8, key=key_split)  # the book holds out a fifth
        wrong = _misclassified(learn, flat(full.test), key, epochs=dict.fromkeys(list(ISL)[1:], 30))
        percent = {name: 100 * missed.mean() for name, missed in wrong.items()}
        near = [
            close(f"{name}: test error in percent", percent[name], ISL[name], tolerance=0.5)
            for name in ISL
        ]
        return Verdict(*near, _above_human(wrong), integers, figure=_bars(percent))
    few = jax.tree.map(lambda a: a[:10_000], flat(full.train))
    wrong = _misclassified(
        *data.split(few, 0.8, key=key_split), key, epochs={"logistic": 25, "ridge network": 8}
    )
    gaps = []
    for worse, better in (("LDA", "logistic"), ("logistic", "ridge network")):
        difference = wrong[worse].astype(float) - wrong[better]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        gaps.append(
            at_least(
                f"test error of {worse} minus that of the {better}, percent",
                100 * difference.mean(),
                200 * error,
            )
        )
    return Verdict(
        *gaps,
        _above_human(wrong),
        integers,
        figure=_bars({name: 100 * m.mean() for name, m in wrong.items()}),
    )


def _above_human(wrong: dict[str, np.ndarray]) -> Any:
    best = min(missed.mean() for missed in wrong.values())
    return at_least(
        "the smallest test error in percent, over the human 20 of 10,000",
        100 * best,
        100 * 20 / 10_000,
    )


def _bars(percent: dict[str, float]) -> Panel:
    place = lambda names: np.array([list(ISL).index(name) + 1 for name in names])
    return Panel(
        "1 LDA, 2 logistic, 3 ridge network, 4 dropout network",
        "test error, %",
        points={
            "measured": (place(percent), np.array(list(percent.values()))),
            "the book, on all of MNIST": (place(ISL), np.array(list(ISL.values()))),
        },
    )


def _misclassified(
    learn: Any, test: Any, key: Any, *, epochs: dict[str, int]
) -> dict[str, np.ndarray]:
    """The test images that each classifier gets wrong."""
    single = lambda model: jax.tree.map(lambda a: a.astype(jnp.float32), model)
    net = lambda dropout: single(models.MLP.init(*SIZES, dropout=dropout, key=key))
    jobs = {
        "logistic": lambda: (single(models.multinomial_regression(784, 10)), train.cross_entropy),
        "ridge network": lambda: (net(0.0), train.weight_decay(train.cross_entropy, strength=1e-4)),
        "dropout network": lambda: (net((0.4, 0.3)), train.cross_entropy),
    }
    results = {"LDA": _discriminant(learn)}
    for name, count in epochs.items():
        results[name] = _fitted(*jobs[name](), learn, key, epochs=count)
    missed = jax.jit(lambda model, xs: jnp.argmax(predict(model, xs), axis=1))
    return {name: np.asarray(missed(model, test[0])) != test[1] for name, model in results.items()}


def _discriminant(learn: Any) -> layers.Linear:
    """Linear discriminant analysis, by scikit-learn."""
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(*learn)
    return layers.Linear(
        jnp.asarray(lda.coef_, jnp.float32), jnp.asarray(lda.intercept_, jnp.float32)
    )


def _fitted(model: Any, objective: Any, learn: Any, key: Any, *, epochs: int) -> Any:
    """RMSprop with learning rate 0.001 on shuffled batches of 128, as in the book, in one
    program.
    """
    xs, ys = (jnp.asarray(a) for a in learn)
    steps = len(ys) // 128
    rng = numpy_rng(key)
    orders = np.concatenate(
        [rng.permutation(len(ys))[: steps * 128].reshape(steps, 128) for _ in range(epochs)]
    )

    def fitted(model, xs, ys, orders):
        pick = lambda model, rows, key: objective(model, (xs[rows], ys[rows]), key=key)
        return run(train.descend(pick, train.rmsprop(1e-3)), model, orders, key=key)[0].model

    return jax.jit(fitted)(model, xs, ys, jnp.asarray(orders))
