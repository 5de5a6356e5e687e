"""Table 10.1 of ISL, the errors of four classifiers on MNIST: `thetax train isl-table`."""

import jax.random as jr

from ... import data
from ...models import MLP, multinomial_regression
from ...train import cross_entropy
from ...train import weight_decay as with_weight_decay
from ..engine.job import Job, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import fit_classifier, test_error_percent
from ..shared.isl import ISL, flatten_images, linear_discriminant_analysis


@recipe
def isl_table(
    job: Job,
    *,
    epochs: int = 30,
    batch_size: int = 128,
    learning_rate: float = 2e-3,
    weight_decay: float = 1e-4,
) -> Outcome:
    """Table 10.1 of ISL on MNIST: linear classifiers, and networks with ridge or dropout.

    Parameters
    ----------
    epochs
        Passes over the 60,000 training images, for each of the three models trained by gradient
        descent.
    """
    key_init, *keys = jr.split(job.key, 4)
    job.note("loading mnist, then linear discriminant analysis")
    full = data.load("mnist")
    train = flatten_images(full.train)
    test = flatten_images(full.test)
    net = lambda dropout: MLP.init(784, 256, 128, 10, dropout=dropout, key=key_init)
    models = {
        "multinomial logistic regression": (multinomial_regression(784, 10), cross_entropy),
        "ridge network": (net(0.0), with_weight_decay(cross_entropy, strength=weight_decay)),
        "dropout network": (net((0.4, 0.3)), cross_entropy),
    }
    table = {
        "linear discriminant analysis": test_error_percent(
            linear_discriminant_analysis(train), test
        )
    }
    for (name, (model, objective)), key in zip(models.items(), keys):
        job.note(name)
        result = fit_classifier(
            job,
            model,
            train,
            None,
            objective=objective,
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch_size,
            key=key,
            run=job.part(name.replace(" ", "-")),
        )
        table[name] = test_error_percent(result.model, test)
    rows = {name: {"test error %": error, "ISL %": ISL[name]} for name, error in table.items()}
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=cross_entropy,
        classes=full.classes,
        table=rows,
        start=result.start,
    )
