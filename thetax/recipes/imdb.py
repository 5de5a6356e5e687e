"""Film reviews by their words: a network on a bag of words beside the lasso (ISL §10.4)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from .. import data
from ..core import Batch
from ..layers import Bag, Chain, Linear, relu
from ..train import binary_cross_entropy, binary_error_rate, descend, evaluate, fit
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome

METRICS = {"error": binary_error_rate, "loss": binary_cross_entropy}
LONGEST = 300  # words of a review, at most; of a longer one the rarest
SHOWN = 6  # words of each sign that the table names


def network(words: int, hidden: tuple[int, ...], *, key: PRNGKeyArray) -> Chain:
    """A multi-layer perceptron whose first layer reads a bag of words."""
    key_bag, *keys = jr.split(key, len(hidden) + 1)
    sizes = (*hidden, 1)
    parts = [Bag.init(words, sizes[0], key=key_bag)]
    for n, m, key in zip(sizes, sizes[1:], keys):
        parts += [relu, Linear.init(n, m, key=key)]
    return Chain(*parts)


def lasso(train: Batch, valid: Batch, words: int) -> Bag:
    r"""The logistic regression with penalty $\lambda\|w\|_1$ that does best on the validation set;
    liblinear's.
    """
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    def sparse(bags):
        ends = np.concatenate([[0], np.cumsum((bags >= 0).sum(axis=1))])
        return csr_matrix((np.ones(ends[-1]), bags[bags >= 0], ends), shape=(len(bags), words))

    xs = sparse(train[0])
    held = sparse(valid[0])
    fits = [
        LogisticRegression(
            l1_ratio=1, C=1 / (strength * len(train[1])), solver="liblinear", random_state=0
        )
        for strength in np.geomspace(2e-3, 1e-4, 6)
    ]
    best = max(
        (model.fit(xs, train[1]) for model in fits), key=lambda model: model.score(held, valid[1])
    )
    return Bag(jnp.asarray(best.coef_, "float32"), jnp.asarray(best.intercept_, "float32"))


@recipe
def imdb(
    job: Job,
    *,
    words: int = 10_000,
    hidden: tuple[int, ...] = (16, 16),
    rate: float = 1e-3,
    epochs: int = 10,
    batch: int = 128,
    patience: int = 2,
) -> Outcome:
    """Praise or blame in 50,000 film reviews, as bags of words: a network beside the lasso and the
    words it weighs.

    Parameters
    ----------
    words
        Size of the vocabulary, the most frequent words.
    hidden
        Widths of the hidden layers.
    rate
        Learning rate of Adam.
    epochs
        Passes over the training set, at most.
    batch
        Examples in a batch.
    patience
        Stop when the validation error has not fallen for so many epochs.
    """
    positive(words=words, rate=rate, epochs=epochs, batch=batch, patience=patience)
    key_valid, key_init, key_fit = jr.split(job.key, 3)
    job.say("loading imdb, and counting words")
    full = data.load("imdb")
    assert full.test is not None
    known = data.Vocabulary.fit(full.train[0], size=words)
    bags = lambda part: (known.bag(part[0], length=LONGEST), part[1])
    train, valid = data.split(bags(full.train), 0.9, key=key_valid, by=full.train[1])
    test = bags(full.test)
    job.say("lasso")
    line = lasso(train, valid, len(known))
    table = {"lasso": _judged(line, test), **_words(line, known)}
    job.say("network")
    found = fit(
        descend(binary_cross_entropy, optax.adam(rate)),
        network(len(known), hidden, key=key_init),
        train,
        epochs=epochs,
        batch_size=batch,
        validation=valid,
        metrics=METRICS,
        patience=patience,
        key=key_fit,
        run=job.part("network"),
        progress=job.progress,
    )
    table["network"] = _judged(found.model, test)
    return Outcome(
        found.model,
        train,
        test,
        binary_cross_entropy,
        found.history,
        full.classes,
        table,
        found.reason,
        found.seconds,
        start=found.start,
    )


def _judged(model: Bag | Chain, test: Batch) -> dict[str, float]:
    weights = sum(int(jnp.count_nonzero(leaf)) for leaf in jax.tree.leaves(model))
    return {
        "test error %": 100 * evaluate(model, test, METRICS)["error"],
        "weights that are not 0": float(weights),
    }


def _words(line: Bag, known: data.Vocabulary) -> dict[str, dict[str, float]]:
    """The lasso's heaviest words of each sign, a row each."""
    w = np.asarray(line.W[0])
    order = np.argsort(w)
    return {
        f'... "{known.words[j]}"': {"weight": float(w[j])}
        for j in (*order[::-1][:SHOWN], *order[:SHOWN][::-1])
    }
