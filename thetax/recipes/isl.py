"""Two tables of *An Introduction to Statistical Learning* (ISL, chapter 10), done again."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .. import data
from ..core import Batch, Model, predict
from ..layers import Linear
from ..models import MLP, logistic_regression, multinomial_regression
from ..train import (
    binary_cross_entropy,
    binary_error_rate,
    cross_entropy,
    descend,
    evaluate,
    fit,
    weight_decay,
)
from .classify import classify, percent_wrong
from .job import Job, positive, recipe
from .outcome import Outcome

ISL = {"linear discriminant analysis": 12.7, "multinomial logistic": 7.2, "ridge network": 2.3, "dropout network": 1.8}


def _flat(images: Any) -> Batch:
    xs, ys = images
    return xs.reshape(len(xs), -1), ys


def discriminant(train: Batch) -> Linear:
    r"""Linear discriminant analysis as the affine classifier it is (ISL 4.4).

    $z_k = \mu_k^\top \Sigma^{+} x - \tfrac12 \mu_k^\top \Sigma^{+} \mu_k + \log \pi_k$, $\Sigma$ the pooled covariance.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    xs, ys = train
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(xs, ys)
    return Linear(jnp.asarray(lda.coef_, "float32"), jnp.asarray(lda.intercept_, "float32"))


@recipe
def isl_table(job: Job, *, epochs: int = 30, batch: int = 128, rate: float = 2e-3, decay: float = 1e-4) -> Outcome:
    """Four classifiers on MNIST beside ISL's table 10.1: discriminant analysis, logistic, ridge and dropout networks.

    Parameters
    ----------
    epochs
        Passes over the 60,000 training images, for each of the three that descend.
    batch
        Examples in a batch.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    decay
        Strength of the ridge penalty.
    """
    key_init, *keys = jr.split(job.key, 4)
    job.say("loading mnist, then linear discriminant analysis")
    full = data.load("mnist")
    train, test = _flat(full.train), _flat(full.test)
    net = lambda dropout: MLP.init(784, 256, 128, 10, dropout=dropout, key=key_init)
    jobs = {
        "multinomial logistic": (multinomial_regression(784, 10), cross_entropy),
        "ridge network": (net(0.0), weight_decay(cross_entropy, strength=decay)),
        "dropout network": (net((0.4, 0.3)), cross_entropy),
    }
    names = list(ISL)
    table = {names[0]: percent_wrong(discriminant(train), test)}
    for (name, (model, objective)), key in zip(jobs.items(), keys):
        job.say(name)
        found = classify(
            job,
            model,
            train,
            None,
            objective=objective,
            rate=rate,
            epochs=epochs,
            batch=batch,
            key=key,
            run=job.part(name.replace(" ", "-")),
        )
        table[name] = percent_wrong(found.model, test)
    rows = {name: {"test error %": error, "ISL %": ISL[name]} for name, error in table.items()}
    return Outcome(
        found.model, train, test, cross_entropy, found.history, full.classes, rows, found.reason, found.seconds,
        start=found.start,
    )  # fmt: skip


@recipe
def default(
    job: Job, *, hidden: int = 10, dropout: float = 0.1, rate: float = 2e-2, epochs: int = 60, batch: int = 128
) -> Outcome:
    """Who defaults on a credit card: ISL's exercise 10.10.7, a network of ten units beside logistic regression.

    Parameters
    ----------
    hidden
        Units of the hidden layer.
    dropout
        Probability of dropping a hidden unit.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    """
    positive(hidden=hidden, rate=rate, epochs=epochs, batch=batch)
    key_split, key_init, *keys = jr.split(job.key, 4)
    full = data.load("default")
    train, test = data.split(full.train, 0.7, key=key_split, by=full.train[1])
    scale = data.Standardise.fit(train[0])
    train, test = (scale(train[0]), train[1]), (scale(test[0]), test[1])
    schedule = optax.cosine_decay_schedule(rate, max(1, epochs * (len(train[1]) // batch)))
    metrics = {"error": binary_error_rate, "loss": binary_cross_entropy}
    models = {
        "logistic regression": logistic_regression(train[0].shape[1]),
        "network": MLP.init(train[0].shape[1], hidden, 1, dropout=dropout, key=key_init),
    }
    table = {"nobody defaults": {"test error %": 100 * float(np.mean(test[1]))}}
    for (name, model), key in zip(models.items(), keys):
        job.say(name)
        found = fit(
            descend(binary_cross_entropy, optax.adam(schedule)),
            model,
            train,
            epochs=epochs,
            batch=batch,
            key=key,
            run=job.part(name.replace(" ", "-")),
            progress=job.progress,
        )
        table[name] = {
            "test error %": 100 * evaluate(found.model, test, metrics)["error"],
            "test AUC": auc(found.model, test),
        }
    return Outcome(
        found.model, train, test, binary_cross_entropy, found.history, full.classes, table, found.reason, found.seconds,
        start=found.start,
    )  # fmt: skip


def auc(model: Model, test: Batch) -> float:
    """The chance that a random positive example is ranked above a random negative one."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(test[1], np.asarray(predict(model, test[0])).ravel()))
