"""Film reviews (lecture 10, §6.1): a sparse linear model beside a network and a recurrent network,
on real texts.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from ... import data, layers, train
from ...core import predict
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, refuted
from ..engine.claim import Verdict, claim

WORDS, LONGEST, BATCH, UNITS = 10_000, 300, 100, 32
SIZES = {
    "quick": (10_000, 5_000, 80, 4),
    "full": (25_000, 25_000, 200, 8),
}  # train, test, words read, epochs
EPOCHS = 12  # of the network, which by then knows its training set by heart
LAMBDA = np.geomspace(1e-2, 2e-4, 6)  # strengths of the lasso


class Texts(NamedTuple):
    """Reviews as bags and as sequences of words, with their labels."""

    bags: np.ndarray
    read: np.ndarray
    ys: np.ndarray


class Reader(eqx.Module):
    """An embedding of each word, a simple recurrent cell, and a logit from its state after the last
    word.
    """

    words: layers.Bag
    cell: layers.Elman
    out: layers.Linear

    @classmethod
    def init(cls, size: int, *, key) -> "Reader":
        """For a vocabulary of that size."""
        keys = jr.split(key, 3)
        words = layers.Bag.init(
            size, UNITS, initialiser=layers.gaussian(0.1), bias=False, key=keys[0]
        )
        return cls(
            words,
            layers.Elman.init(UNITS, UNITS, key=keys[1]),
            layers.Linear.init(UNITS, 1, key=keys[2]),
        )

    def __call__(self, x: Int[Array, " t"]) -> Float[Array, " 1"]:
        vectors = jax.vmap(lambda word: self.words(word[None]))(x)
        _, states = layers.unroll(self.cell, vectors)
        return self.out(jnp.take(states, (x >= 0).sum() - 1, axis=0))


def network(size: int, *, key) -> layers.Chain:
    """Two hidden layers of 16 units on a bag of words."""
    keys = jr.split(key, 3)
    hidden = (
        layers.Bag.init(size, 16, key=keys[0]),
        layers.relu,
        layers.Linear.init(16, 16, key=keys[1]),
        layers.relu,
    )
    return layers.Chain(*hidden, layers.Linear.init(16, 1, key=keys[2]))


@partial(jax.jit, static_argnames="clip")
def learn(net, known, batches, asked, clip):
    """The network after each epoch's batches in turn, its training loss and its logits on what is
    asked, by epoch.
    """
    xs, ys = known
    optimiser = optax.chain(optax.clip_by_global_norm(clip), optax.adam(1e-3))
    iteration = train.descend(train.binary_cross_entropy, optimiser)

    def step(state, rows):
        state, info = iteration.step(state, (xs[rows], ys[rows]), key=jr.key(0))
        return state, info.loss

    def epoch(state, rows):
        state, losses = jax.lax.scan(step, state, rows)
        return state, (losses.mean(), predict(state.model, asked)[:, 0])

    return jax.lax.scan(epoch, iteration.init(net), batches)[1]


def fitted(make, known, asked, *, epochs, clip, rng, key):
    """`learn` from a draw in single precision, each epoch in a new order; the losses and the logits
    by epoch.
    """
    net = jax.tree.map(lambda a: a.astype(jnp.float32), make(key=key))
    rows = [rng.permutation(len(known[1])).reshape(-1, BATCH) for _ in range(epochs)]
    losses, logits = learn(
        net, jax.tree.map(jnp.asarray, known), jnp.asarray(rows), jnp.asarray(asked), clip
    )
    return np.asarray(losses), np.asarray(logits)


def sparse(bags: np.ndarray, size: int) -> csr_matrix:
    """The bags as rows of ones and zeros, of which only the ones are kept."""
    ends = np.concatenate([[0], np.cumsum((bags >= 0).sum(axis=1))])
    return csr_matrix((np.ones(ends[-1]), bags[bags >= 0], ends), shape=(len(bags), size))


def lasso(
    xs: csr_matrix, ys: np.ndarray, strength: float, *, tolerance: float = 1e-3
) -> LogisticRegression:
    r"""scikit-learn's minimiser of the mean log loss and $\lambda(\|w\|_1 + |b|)$."""
    settings = {
        "l1_ratio": 1,
        "solver": "liblinear",
        "tol": tolerance,
        "max_iter": 5000,
        "random_state": 0,
    }
    return LogisticRegression(C=1 / (strength * len(ys)), **settings).fit(xs, ys)


def texts(scale) -> tuple[Texts, Texts, data.Vocabulary]:
    """Reviews to learn from and to be asked about, by the vocabulary of the former."""
    full, (n, m, length, _) = data.load("imdb"), SIZES[scale]
    assert full.test is not None
    known = data.Vocabulary.fit(full.train[0][:n], size=WORDS)
    made = lambda xs, ys: Texts(known.bag(xs, length=LONGEST), known.encode(xs, length=length), ys)
    return (
        made(full.train[0][:n], full.train[1][:n]),
        made(full.test[0][:m], full.test[1][:m]),
        known,
    )


class Sparse(NamedTuple):
    """The lasso whose strength did best on a fifth of the training reviews, fitted to all of them,
    and by strength the accuracy on the test reviews.
    """

    model: layers.Bag
    strength: float
    path: np.ndarray


def chosen_lasso(known: Texts, asked: Texts, size: int) -> Sparse:
    """Chooses the strength on the last fifth of the known reviews, and fits all of them."""
    xs = sparse(known.bags, size)
    test = sparse(asked.bags, size)
    cut = len(known.ys) * 4 // 5
    fits = [lasso(xs[:cut], known.ys[:cut], strength) for strength in LAMBDA]
    best = float(LAMBDA[np.argmax([fit.score(xs[cut:], known.ys[cut:]) for fit in fits])])
    found = lasso(xs, known.ys, best, tolerance=1e-6)
    model = layers.Bag(jnp.asarray(found.coef_), jnp.asarray(found.intercept_))
    return Sparse(model, best, np.array([fit.score(test, asked.ys) for fit in fits]))


def optimal(found: Sparse, known: Texts):
    r"""The lasso is a minimum of the library's own loss: $|\partial_j \ell| \le \lambda$, and where
    a weight is not 0, $\partial_j \ell = -\lambda\,\mathrm{sgn}(w_j)$.
    """
    slope = jax.jit(
        jax.grad(lambda model: train.binary_cross_entropy(model, (known.bags, known.ys)))
    )
    gradient = lambda model: np.asarray(slope(model).W[0]) / found.strength
    w = np.asarray(found.model.W[0])
    half = jax.tree.map(lambda a: a / 2, found.model)
    return (
        at_most(
            "slope of the log loss in each word's weight, over λ",
            np.abs(gradient(found.model)),
            1.0,
            slack=0.01,
        ),
        close(
            "the same where the weight is not 0",
            gradient(found.model)[w != 0],
            -np.sign(w[w != 0]),
            tolerance=0.01,
        ),
        refuted(
            at_most("slope at half these weights, over λ", np.abs(gradient(half)), 1.0, slack=0.01)
        ),
    )


@claim(
    "L10-6.1-imdb",
    title="Praise or blame",
    kind="experiment",
    of=("layers.Bag", "data.Vocabulary", "layers.Elman", "train.binary_cross_entropy", "data.load"),
    cites="James, Witten, Hastie & Tibshirani 2021, §10.4 and §10.5.1; Maas et al. 2011",
    data=("imdb",),
)
def imdb(key, scale):
    r"""Of film reviews as bags of the 10,000 most frequent words, the lasso, a logistic regression
    with penalty $\lambda\|w\|_1$, tells praise from blame as well as a network of two hidden layers
    of 16 units that is trained to the end, and with most weights zero; both do better than a simple
    recurrent network that reads the words in order. Stopped at its best epoch the network is about
    as good as the lasso. Which comes first depends on the data.
    """
    rng, (key_net, key_reader) = chance(key), jr.split(key)
    known, asked, words = texts(scale)
    found = chosen_lasso(known, asked, len(words))
    losses, logits = fitted(
        partial(network, len(words)),
        (known.bags, known.ys),
        asked.bags,
        epochs=EPOCHS,
        clip=10.0,
        rng=rng,
        key=key_net,
    )
    _, read = fitted(
        partial(Reader.init, len(words) + 1),
        (known.read, known.ys),
        asked.read,
        epochs=SIZES[scale][3],
        clip=1.0,
        rng=rng,
        key=key_reader,
    )
    right = lambda z: (z > 0) == asked.ys
    line = right(np.asarray(jax.jit(jax.vmap(found.model))(jnp.asarray(asked.bags)))[:, 0])
    by_epoch = right(logits).mean(axis=1)
    reader = right(read).mean(axis=1)
    ahead = line.astype(float) - right(logits[-1])
    error = ahead.std() / np.sqrt(len(ahead))
    w = np.asarray(found.model.W[0])
    order = [words.words[j] for j in np.argsort(w)]
    return Verdict(
        at_least("lasso less network, test accuracy", ahead.mean(), -error),
        at_most("recurrent network, test accuracy", reader[-1], min(line.mean(), by_epoch[-1])),
        at_least("lasso: test accuracy", line.mean(), 0.86 if scale == "quick" else 0.875),
        at_most(
            "the network at its best epoch, off the lasso", abs(by_epoch.max() - line.mean()), 0.02
        ),
        at_least("recurrent network, better than chance by", reader[-1] - 0.5, 0.1),
        at_most("share of the lasso's weights that are not 0", np.mean(w != 0), 0.25),
        at_least(
            "worst, waste, awful, boring among the 30 most negative",
            len({"worst", "waste", "awful", "boring"} & set(order[:30])),
            3,
        ),
        at_least(
            "excellent, perfect, wonderful, great among the 60 most positive",
            len({"excellent", "perfect", "wonderful", "great"} & set(order[-60:])),
            3,
        ),
        *optimal(found, known),
        assumptions=[at_most("training loss of the network at the end", losses[-1], 0.05)],
        assumed=[
            f"{len(known.ys):,} reviews to train on and {len(asked.ys):,} to test on; the "
            f"recurrent network reads the first {known.read.shape[1]} words of each"
        ],
        figure=Chart(
            Panel(
                "strength λ of the lasso",
                "test accuracy",
                log="x",
                lines={"lasso": (LAMBDA, found.path)},
            ),
            Panel(
                "epoch",
                "test accuracy",
                lines={
                    "network": (np.arange(1, EPOCHS + 1), by_epoch),
                    "recurrent": (np.arange(1, len(reader) + 1), reader),
                },
            ),
        ),
    )
