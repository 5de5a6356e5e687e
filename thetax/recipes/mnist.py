"""`thetax train mnist`: a fully connected network for MNIST."""

import jax.random as jr

from .. import data
from ..models import MLP
from ..train import cross_entropy
from .engine.job import Job, recipe
from .engine.outcome import Outcome
from .shared.classify import classify, percent_wrong


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
    """A multi-layer perceptron with dropout on MNIST: 60,000 images, a tenth of them for
    validation; 10,000 to test.

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
        job,
        model,
        train,
        valid,
        rate=rate,
        epochs=epochs,
        batch=batch,
        patience=patience,
        key=key_fit,
        run=job.run,
    )
    table = {"multi-layer perceptron": {"test error %": percent_wrong(found.model, full.test)}}
    return Outcome(
        found.model,
        train,
        full.test,
        cross_entropy,
        found.history,
        full.classes,
        table,
        found.reason,
        found.seconds,
        start=found.start,
    )
