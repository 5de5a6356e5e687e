"""Sentiment of film reviews from bags of words: a network and the lasso (ISL §10.4)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from ... import data
from ...core import Batch
from ...layers import Chain, Linear, SparseLinear, relu
from ...train import binary_cross_entropy, binary_error_rate, descend, evaluate, fit
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome

METRICS = {"error": binary_error_rate, "loss": binary_cross_entropy}
MAX_WORDS = 300  # of a review; of a longer one the rarest words are kept
WORDS_PER_SIGN = 6  # largest positive and negative weights in the table


def bag_of_words_mlp(vocab_size: int, hidden: tuple[int, ...], *, key: PRNGKeyArray) -> Chain:
    """A multi-layer perceptron on a bag of words."""
    key_first, *keys = jr.split(key, len(hidden) + 1)
    sizes = (*hidden, 1)
    layers = [SparseLinear.init(vocab_size, sizes[0], key=key_first)]
    for n, m, key in zip(sizes, sizes[1:], keys):
        layers += [relu, Linear.init(n, m, key=key)]
    return Chain(*layers)


def fit_lasso(train: Batch, valid: Batch, vocab_size: int) -> SparseLinear:
    r"""Logistic regression with penalty $\lambda\|w\|_1$; validation selects $\lambda$."""
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    def to_csr(bags):
        ends = np.concatenate([[0], np.cumsum((bags >= 0).sum(axis=1))])
        return csr_matrix((np.ones(ends[-1]), bags[bags >= 0], ends), shape=(len(bags), vocab_size))

    xs = to_csr(train[0])
    valid_xs = to_csr(valid[0])
    fits = [
        LogisticRegression(
            l1_ratio=1, C=1 / (strength * len(train[1])), solver="liblinear", random_state=0
        )
        for strength in np.geomspace(2e-3, 1e-4, 6)
    ]
    best = max(
        (model.fit(xs, train[1]) for model in fits),
        key=lambda model: model.score(valid_xs, valid[1]),
    )
    return SparseLinear(jnp.asarray(best.coef_, "float32"), jnp.asarray(best.intercept_, "float32"))


@recipe
def imdb(
    job: Job,
    *,
    vocab_size: int = 10_000,
    hidden: tuple[int, ...] = (16, 16),
    learning_rate: float = 1e-3,
    epochs: int = 10,
    batch_size: int = 128,
    patience: int = 2,
) -> Outcome:
    """Sentiment of film reviews from bags of words, by a network and by the lasso.

    The largest weights of the lasso are listed.

    Parameters
    ----------
    vocab_size
        Size of the vocabulary: the most frequent words.
    learning_rate
        Learning rate of Adam.
    epochs
        Maximum passes over the training set; early stopping may end sooner.
    """
    check_positive(
        vocab_size=vocab_size,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
    )
    key_valid, key_init, key_fit = jr.split(job.key, 3)
    job.note("loading imdb, and learning its vocabulary")
    full = data.load("imdb")
    assert full.test is not None
    vocabulary = data.Vocabulary.fit(full.train[0], vocab_size=vocab_size)
    bags = lambda split: (vocabulary.bag(split[0], length=MAX_WORDS), split[1])
    train, valid = data.split(bags(full.train), 0.9, key=key_valid, stratify=full.train[1])
    test = bags(full.test)
    job.note("lasso")
    lasso = fit_lasso(train, valid, len(vocabulary))
    table = {"lasso": _row(lasso, test), **_word_rows(lasso, vocabulary)}
    job.note("network")
    result = fit(
        descend(binary_cross_entropy, optax.adam(learning_rate)),
        bag_of_words_mlp(len(vocabulary), hidden, key=key_init),
        train,
        epochs=epochs,
        batch_size=batch_size,
        validation=valid,
        metrics=METRICS,
        patience=patience,
        key=key_fit,
        run=job.part("network"),
        progress=job.progress,
    )
    table["network"] = _row(result.model, test)
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=binary_cross_entropy,
        classes=full.classes,
        table=table,
        start=result.start,
    )


def _row(model: SparseLinear | Chain, test: Batch) -> dict[str, float]:
    weights = sum(int(jnp.count_nonzero(leaf)) for leaf in jax.tree.leaves(model))
    return {
        "test error %": 100 * evaluate(model, test, METRICS)["error"],
        "non-zero weights": float(weights),
    }


def _word_rows(lasso: SparseLinear, vocabulary: data.Vocabulary) -> dict[str, dict[str, float]]:
    """A row for each of the largest positive and negative weights of the lasso."""
    w = np.asarray(lasso.W[0])
    order = np.argsort(w)
    return {
        f'... "{vocabulary.words[j]}"': {"weight": float(w[j])}
        for j in (*order[::-1][:WORDS_PER_SIGN], *order[:WORDS_PER_SIGN][::-1])
    }
