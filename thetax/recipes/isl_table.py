"""`thetax train isl-table`: table 10.1 of ISL, the errors of three classifiers on MNIST."""

import jax.random as jr

from .. import data
from ..models import MLP, multinomial_regression
from ..train import cross_entropy, weight_decay
from .engine.job import Job, recipe
from .engine.outcome import Outcome
from .shared.classify import classify, percent_wrong
from .shared.isl import ISL, _flat, discriminant


@recipe
def isl_table(
    job: Job, *, epochs: int = 30, batch: int = 128, rate: float = 2e-3, decay: float = 1e-4
) -> Outcome:
    """Four classifiers on MNIST beside ISL's table 10.1: discriminant analysis, logistic, ridge and
    dropout networks.

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
    train = _flat(full.train)
    test = _flat(full.test)
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
        found.model,
        train,
        test,
        cross_entropy,
        found.history,
        full.classes,
        rows,
        found.reason,
        found.seconds,
        start=found.start,
    )
