"""`thetax train default`: who fails to pay a credit card, by a network and by logistic regression
(ISL, chapter 4).
"""

import jax.random as jr
import numpy as np
import optax

from .. import data
from ..models import MLP, logistic_regression
from ..train import binary_cross_entropy, binary_error_rate, descend, evaluate, fit
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.isl import auc


@recipe
def default(
    job: Job,
    *,
    hidden: int = 10,
    dropout: float = 0.1,
    rate: float = 2e-2,
    epochs: int = 60,
    batch: int = 128,
) -> Outcome:
    """Who defaults on a credit card: ISL's exercise 10.10.7, a network of ten units beside logistic
    regression.

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
    train = (scale(train[0]), train[1])
    test = (scale(test[0]), test[1])
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
            batch_size=batch,
            key=key,
            run=job.part(name.replace(" ", "-")),
            progress=job.progress,
        )
        table[name] = {
            "test error %": 100 * evaluate(found.model, test, metrics)["error"],
            "test AUC": auc(found.model, test),
        }
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
