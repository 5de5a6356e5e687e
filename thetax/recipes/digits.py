"""`thetax train digits`: a network for scikit-learn's digits of 8x8 pixels."""

import jax.random as jr

from .. import data
from ..models import MLP
from ..train import cross_entropy, weight_decay
from .engine.job import Job, recipe
from .engine.outcome import Outcome
from .shared.classify import classify, percent_wrong


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
        job,
        model,
        train,
        valid,
        objective=objective,
        rate=rate,
        epochs=epochs,
        batch=batch,
        key=key_fit,
        run=job.run,
    )
    table = {"multi-layer perceptron": {"test error %": percent_wrong(found.model, test)}}
    return Outcome(
        found.model,
        train,
        test,
        objective,
        found.history,
        full.classes,
        table,
        found.reason,
        found.seconds,
        decay,
        start=found.start,
    )
