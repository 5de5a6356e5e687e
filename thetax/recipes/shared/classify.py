"""Digits by a multi-layer perceptron: the embedded 8 by 8 ones, and MNIST."""

from typing import Any

import optax
from jaxtyping import PRNGKeyArray

from ...core import Batch, Model, Objective
from ...train import Fit, Run, cross_entropy, descend, error_rate, evaluate, fit
from ..engine.job import Job, positive

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
        batch_size=batch,
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
