"""Fits of classifiers, and their test error."""

from typing import Any

import optax
from jaxtyping import PRNGKeyArray

from ...core import Batch, Model, Objective
from ...train import FitResult, Run, cross_entropy, descend, error_rate, evaluate, fit
from ..engine.job import Job, check_positive

METRICS = {"error": error_rate, "loss": cross_entropy}


def fit_classifier(
    job: Job,
    model: Model,
    train: Batch,
    valid: Batch | None,
    *,
    objective: Objective = cross_entropy,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    patience: int | None = None,
    key: PRNGKeyArray,
    run: Run | None,
) -> FitResult:
    """Fits a classifier by Adam with cosine decay of the learning rate."""
    check_positive(learning_rate=learning_rate, epochs=epochs, batch_size=batch_size)
    schedule = optax.cosine_decay_schedule(
        learning_rate, max(1, epochs * (len(train[1]) // batch_size))
    )
    return fit(
        descend(objective, optax.adam(schedule)),
        model,
        train,
        epochs=epochs,
        batch_size=batch_size,
        validation=valid,
        metrics=None if valid is None else METRICS,
        patience=patience,
        key=key,
        run=run,
        progress=job.progress,
    )


def test_error_percent(model: Any, test: Batch) -> float:
    """The test error in percent."""
    return 100 * evaluate(model, test, METRICS)["error"]
