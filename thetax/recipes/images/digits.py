"""A network for scikit-learn's digits of 8 by 8 pixels: `thetax train digits`."""

import jax.random as jr

from ... import data
from ...models import MLP
from ...train import cross_entropy
from ...train import weight_decay as with_weight_decay
from ..engine.job import Job, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import fit_classifier, test_error_percent
from ..shared.splits import split_digits


@recipe
def digits(
    job: Job,
    *,
    hidden: tuple[int, ...] = (128, 64),
    dropout: float = 0.2,
    weight_decay: float = 1e-4,
    learning_rate: float = 2e-3,
    epochs: int = 60,
    batch_size: int = 64,
) -> Outcome:
    """A multi-layer perceptron on scikit-learn's 1,797 digits of 8 by 8 pixels; no download."""
    _, key_valid, key_init, key_fit = jr.split(job.key, 4)
    full, rest, test = split_digits(job.key)
    train, valid = data.split(rest, 0.9, key=key_valid, stratify=rest[1])
    model = MLP.init(64, *hidden, 10, dropout=dropout, key=key_init)
    objective = with_weight_decay(cross_entropy, strength=weight_decay)
    result = fit_classifier(
        job,
        model,
        train,
        valid,
        objective=objective,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key_fit,
        run=job.run,
    )
    table = {"multi-layer perceptron": {"test error %": test_error_percent(result.model, test)}}
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=objective,
        classes=full.classes,
        table=table,
        decay=weight_decay,
        start=result.start,
    )
