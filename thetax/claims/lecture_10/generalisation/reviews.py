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

from .... import data, layers, train
from ....core import predict
from ....plot import Chart, Panel
from ...engine.check import at_least, at_most, close, refuted
from ...engine.claim import Verdict, claim

WORDS, LONGEST, BATCH, UNITS = 10_000, 300, 100, 32
SIZES = {
    "quick": (10_000, 5_000, 80, 4),
    "full": (25_000, 25_000, 200, 8),
}  # train, test, words read, epochs
EPOCHS = 12  # of the network, which has then memorised its training set
LAMBDA = np.geomspace(1e-2, 2e-4, 6)  # strengths of the lasso


class Texts(NamedTuple):
    """Reviews as bags of words and as token sequences, with their labels."""

    bags: np.ndarray
    read: np.ndarray
    ys: np.ndarray


class Reader(eqx.Module):
    """A word embedding, a simple recurrent cell, and a logit from the last state."""

    words: layers.SparseLinear
    cell: layers.Elman
    out: layers.Linear

    @classmethod
    def init(cls, size: int, *, key) -> "Reader":
        """Initialises the model for a vocabulary of `size` words."""
        keys = jr.split(key, 3)
        words = layers.SparseLinear.init(
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
        layers.SparseLinear.init(size, 16, key=keys[0]),
        layers.relu,
        layers.Linear.init(16, 16, key=keys[1]),
        layers.relu,
    )
    return layers.Chain(*hidden, layers.Linear.init(16, 1, key=keys[2]))


@partial(jax.jit, static_argnames="clip")
def learn(net, train_set, batches, test_set, clip):
    """Trains the network; returns its training loss and its logits on the test set after each
    epoch.
    """
    xs, ys = train_set
    optimiser = optax.chain(optax.clip_by_global_norm(clip), optax.adam(1e-3))
    iteration = train.descend(train.binary_cross_entropy, optimiser)

    def step(state, rows):
        state, info = iteration.step(state, (xs[rows], ys[rows]), key=jr.key(0))
        return state, info.loss

    def epoch(state, rows):
        state, losses = jax.lax.scan(step, state, rows)
        return state, (losses.mean(), predict(state.model, test_set)[:, 0])

    return jax.lax.scan(epoch, iteration.init(net), batches)[1]


def fitted(make, train_set, test_set, *, epochs, clip, rng, key):
    """`learn` from a random initialisation in single precision, with a new order in each epoch:
    losses and logits by epoch.
    """
    net = jax.tree.map(lambda a: a.astype(jnp.float32), make(key=key))
    rows = [rng.permutation(len(train_set[1])).reshape(-1, BATCH) for _ in range(epochs)]
    losses, logits = learn(
        net, jax.tree.map(jnp.asarray, train_set), jnp.asarray(rows), jnp.asarray(test_set), clip
    )
    return np.asarray(losses), np.asarray(logits)


def sparse(bags: np.ndarray, size: int) -> csr_matrix:
    """The bags as rows of a sparse 0/1 matrix."""
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
    """Training and test reviews, encoded with the vocabulary of the training reviews."""
    full, (n, m, length, _) = data.load("imdb"), SIZES[scale]
    assert full.test is not None
    train_set = data.Vocabulary.fit(full.train[0][:n], vocab_size=WORDS)
    encode = lambda xs, ys: Texts(
        train_set.bag(xs, length=LONGEST), train_set.encode(xs, length=length), ys
    )
    return (
        encode(full.train[0][:n], full.train[1][:n]),
        encode(full.test[0][:m], full.test[1][:m]),
        train_set,
    )


class Sparse(NamedTuple):
    """The lasso whose strength did best on a fifth of the training reviews, fitted to all of them,
    and the test accuracy by strength.
    """

    model: layers.SparseLinear
    strength: float
    path: np.ndarray


def select_lasso(train_set: Texts, test_set: Texts, size: int) -> Sparse:
    """Chooses the strength on the last fifth of the training reviews, and fits all of them."""
    xs = sparse(train_set.bags, size)
    test = sparse(test_set.bags, size)
    n_train = len(train_set.ys) * 4 // 5
    fits = [lasso(xs[:n_train], train_set.ys[:n_train], strength) for strength in LAMBDA]
    best = float(
        LAMBDA[np.argmax([fit.score(xs[n_train:], train_set.ys[n_train:]) for fit in fits])]
    )
    result = lasso(xs, train_set.ys, best, tolerance=1e-6)
    model = layers.SparseLinear(jnp.asarray(result.coef_), jnp.asarray(result.intercept_))
    return Sparse(model, best, np.array([fit.score(test, test_set.ys) for fit in fits]))


def optimal(result: Sparse, train_set: Texts):
    r"""The lasso is a minimum of the library's own loss: $|\partial_j \ell| \le \lambda$, and where
    a weight is not 0, $\partial_j \ell = -\lambda\,\mathrm{sgn}(w_j)$.
    """
    slope = jax.jit(
        jax.grad(lambda model: train.binary_cross_entropy(model, (train_set.bags, train_set.ys)))
    )
    gradient = lambda model: np.asarray(slope(model).W[0]) / result.strength
    w = np.asarray(result.model.W[0])
    half = jax.tree.map(lambda a: a / 2, result.model)
    return (
        at_most(
            "derivative of the log loss in each word's weight, over λ",
            np.abs(gradient(result.model)),
            1.0,
            slack=0.01,
        ),
        close(
            "the same where the weight is not 0",
            gradient(result.model)[w != 0],
            -np.sign(w[w != 0]),
            tolerance=0.01,
        ),
        refuted(
            at_most(
                "derivative at half these weights, over λ", np.abs(gradient(half)), 1.0, slack=0.01
            )
        ),
    )


@claim(
    "L10-6.1-imdb",
    title="Sentiment of film reviews",
    kind="experiment",
    of=(
        "layers.SparseLinear",
        "data.Vocabulary",
        "layers.Elman",
        "train.binary_cross_entropy",
        "data.load",
    ),
    cites="James, Witten, Hastie & Tibshirani 2021, §10.4 and §10.5.1; Maas et al. 2011",
    data=("imdb",),
)
def imdb(key, rng, scale):
    r"""On film reviews as bags of the 10,000 most frequent words, the lasso, a logistic regression
    with penalty $\lambda\|w\|_1$, classifies sentiment as well as a network of two hidden layers of
    16 units that is trained to the end, and with most weights zero; both do better than a simple
    recurrent network that reads the words in order. Stopped at its best epoch the network is about
    as good as the lasso. Which is better depends on the data.
    """
    key_net, key_reader = jr.split(key)
    train_set, test_set, words = texts(scale)
    result = select_lasso(train_set, test_set, len(words))
    losses, logits = fitted(
        partial(network, len(words)),
        (train_set.bags, train_set.ys),
        test_set.bags,
        epochs=EPOCHS,
        clip=10.0,
        rng=rng,
        key=key_net,
    )
    _, read = fitted(
        partial(Reader.init, len(words) + 1),
        (train_set.read, train_set.ys),
        test_set.read,
        epochs=SIZES[scale][3],
        clip=1.0,
        rng=rng,
        key=key_reader,
    )
    right = lambda z: (z > 0) == test_set.ys
    line = right(np.asarray(jax.jit(jax.vmap(result.model))(jnp.asarray(test_set.bags)))[:, 0])
    by_epoch = right(logits).mean(axis=1)
    reader = right(read).mean(axis=1)
    ahead = line.astype(float) - right(logits[-1])
    error = ahead.std() / np.sqrt(len(ahead))
    w = np.asarray(result.model.W[0])
    order = [words.words[j] for j in np.argsort(w)]
    return Verdict(
        at_least("lasso minus network, test accuracy", ahead.mean(), -error),
        at_most("recurrent network, test accuracy", reader[-1], min(line.mean(), by_epoch[-1])),
        at_least("lasso: test accuracy", line.mean(), 0.86 if scale == "quick" else 0.875),
        at_most(
            "the network at its best epoch, difference from the lasso",
            abs(by_epoch.max() - line.mean()),
            0.02,
        ),
        at_least("recurrent network, accuracy above chance", reader[-1] - 0.5, 0.1),
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
        *optimal(result, train_set),
        assumptions=[at_most("training loss of the network at the end", losses[-1], 0.05)],
        assumed=[
            f"{len(train_set.ys):,} reviews to train on and {len(test_set.ys):,} to test on; the "
            f"recurrent network reads the first {train_set.read.shape[1]} words of each"
        ],
        figure=Chart(
            Panel(
                "strength λ of the lasso",
                "test accuracy",
                log="x",
                lines={"lasso": (LAMBDA, result.path)},
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
