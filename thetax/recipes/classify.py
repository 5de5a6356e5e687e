"""Digits by a multi-layer perceptron: the embedded 8 by 8 ones, and MNIST."""

from typing import Any

import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from .. import data
from ..core import Batch, Model, Objective
from ..models import MLP
from ..train import Fit, Run, cross_entropy, descend, error_rate, evaluate, fit, weight_decay
from .job import Job, positive, recipe
from .outcome import Outcome

METRICS = {"error": error_rate, "loss": cross_entropy}


def classify(
    job: Job,
    model: Model,
    train: Batch,
    valid: Batch | None,
    *,
    objective: Objective = cross_entropy,
    rate: float,
    epochs: int,
    batch: int,
    patience: int | None = None,
    key: PRNGKeyArray,
    run: Run | None,
) -> Fit:
    """Fits a classifier by Adam, the rate falling to zero along a cosine."""
    positive(rate=rate, epochs=epochs, batch=batch)
    schedule = optax.cosine_decay_schedule(rate, max(1, epochs * (len(train[1]) // batch)))
    return fit(
        descend(objective, optax.adam(schedule)),
        model,
        train,
        epochs=epochs,
        batch=batch,
        validation=valid,
        metrics=None if valid is None else METRICS,
        patience=patience,
        key=key,
        run=run,
        progress=job.progress,
    )


def percent_wrong(model: Any, test: Batch) -> float:
    """The test error in percent."""
    return 100 * evaluate(model, test, METRICS)["error"]


@recipe
def digits(
    job: Job,
    *,
    hidden: tuple[int, ...] = (128, 64),
    dropout: float = 0.2,
    decay: float = 1e-4,
    rate: float = 2e-3,
    epochs: int = 60,
    batch: int = 64,
) -> Outcome:
    """A multi-layer perceptron on scikit-learn's 1,797 digits of 8 by 8 pixels; needs no network.

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    dropout
        Probability of dropping a hidden unit.
    decay
        Strength of the weight decay.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    """
    key_test, key_valid, key_init, key_fit = jr.split(job.key, 4)
    full = data.load("digits")
    rest, test = data.split(full.train, 0.8, key=key_test, by=full.train[1])
    train, valid = data.split(rest, 0.9, key=key_valid, by=rest[1])
    model = MLP.init(64, *hidden, 10, dropout=dropout, key=key_init)
    objective = weight_decay(cross_entropy, strength=decay)
    found = classify(
        job, model, train, valid, objective=objective, rate=rate, epochs=epochs, batch=batch, key=key_fit, run=job.run
    )
    table = {"multi-layer perceptron": {"test error %": percent_wrong(found.model, test)}}
    return Outcome(
        found.model, train, test, objective, found.history, full.classes, table, found.reason, found.seconds, decay,
        start=found.start,
    )  # fmt: skip


@recipe
def mnist(
    job: Job,
    *,
    hidden: tuple[int, ...] = (256, 128),
    dropout: tuple[float, ...] = (0.4, 0.3),
    rate: float = 2e-3,
    epochs: int = 30,
    batch: int = 128,
    patience: int | None = None,
) -> Outcome:
    """A multi-layer perceptron with dropout on MNIST: 60,000 images, a tenth of them for validation; 10,000 to test.

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    dropout
        Probability of dropping a unit, one for each hidden layer.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    patience
        Stop when the validation error has not fallen for so many epochs; by default never.
    """
    key_valid, key_init, key_fit = jr.split(job.key, 3)
    job.say("loading mnist")
    full = data.load("mnist")
    train, valid = data.split(full.train, 0.9, key=key_valid, by=full.train[1])
    rates = (dropout * len(hidden))[: len(hidden)]  # one rate serves all layers
    model = MLP.init(784, *hidden, 10, dropout=rates, key=key_init)
    found = classify(
        job, model, train, valid, rate=rate, epochs=epochs, batch=batch, patience=patience, key=key_fit, run=job.run
    )
    table = {"multi-layer perceptron": {"test error %": percent_wrong(found.model, full.test)}}
    return Outcome(
        found.model, train, full.test, cross_entropy, found.history, full.classes, table, found.reason, found.seconds,
        start=found.start,
    )  # fmt: skip
