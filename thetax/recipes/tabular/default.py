"""Credit card default by a network and by logistic regression (ISL, chapter 4)."""

import jax.random as jr
import numpy as np
import optax

from ...models import MLP, logistic_regression
from ...train import binary_cross_entropy, binary_error_rate, descend, evaluate, fit
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.isl import auc
from ..shared.splits import split_default


@recipe
def default(
    job: Job,
    *,
    hidden: int = 10,
    dropout: float = 0.1,
    learning_rate: float = 2e-2,
    epochs: int = 60,
    batch_size: int = 128,
) -> Outcome:
    """Credit card default by a network of ten hidden units and by logistic regression.

    Exercise 10.10.7 of ISL.

    Parameters
    ----------
    hidden
        Width of the hidden layer.
    """
    check_positive(hidden=hidden, learning_rate=learning_rate, epochs=epochs, batch_size=batch_size)
    _, key_init, *keys = jr.split(job.key, 4)
    full, train, test = split_default(job.key)
    schedule = optax.cosine_decay_schedule(
        learning_rate, max(1, epochs * (len(train[1]) // batch_size))
    )
    metrics = {"error": binary_error_rate, "loss": binary_cross_entropy}
    models = {
        "logistic regression": logistic_regression(train[0].shape[1]),
        "network": MLP.init(train[0].shape[1], hidden, 1, dropout=dropout, key=key_init),
    }
    table = {"majority class": {"test error %": 100 * float(np.mean(test[1]))}}
    for (name, model), key in zip(models.items(), keys):
        job.note(name)
        result = fit(
            descend(binary_cross_entropy, optax.adam(schedule)),
            model,
            train,
            epochs=epochs,
            batch_size=batch_size,
            key=key,
            run=job.part(name.replace(" ", "-")),
            progress=job.progress,
        )
        table[name] = {
            "test error %": 100 * evaluate(result.model, test, metrics)["error"],
            "test AUC": auc(result.model, test),
        }
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=binary_cross_entropy,
        classes=full.classes,
        table=table,
        start=result.start,
    )
