"""A fully connected network for MNIST: `thetax train mnist`."""

import jax.random as jr

from ... import data
from ...models import MLP
from ...train import cross_entropy
from ..engine.job import Job, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import fit_classifier, test_error_percent


@recipe
def mnist(
    job: Job,
    *,
    hidden: tuple[int, ...] = (256, 128),
    dropout: tuple[float, ...] = (0.4, 0.3),
    learning_rate: float = 2e-3,
    epochs: int = 30,
    batch_size: int = 128,
    patience: int | None = None,
) -> Outcome:
    """A multi-layer perceptron with dropout on MNIST.

    A tenth of the 60,000 training images is for validation; the test set has 10,000.

    Parameters
    ----------
    dropout
        Dropout probability of each hidden layer; a single one is for all layers.
    patience
        Stop after this many epochs without a lower validation error; by default never.
    """
    key_valid, key_init, key_fit = jr.split(job.key, 3)
    job.note("loading mnist")
    full = data.load("mnist")
    train, valid = data.split(full.train, 0.9, key=key_valid, stratify=full.train[1])
    probabilities = (dropout * len(hidden))[: len(hidden)]  # a single probability is for all layers
    model = MLP.init(784, *hidden, 10, dropout=probabilities, key=key_init)
    result = fit_classifier(
        job,
        model,
        train,
        valid,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
        key=key_fit,
        run=job.run,
    )
    table = {
        "multi-layer perceptron": {"test error %": test_error_percent(result.model, full.test)}
    }
    return Outcome.of_fit(
        result,
        train=train,
        test=full.test,
        objective=cross_entropy,
        classes=full.classes,
        table=table,
        start=result.start,
    )
