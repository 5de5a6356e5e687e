"""Spam by networks: ESL's exercise 11.7, beside a linear and an additive model, and what the
networks lean on.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .. import data
from ..core import Batch
from ..explain import importance
from ..layers import Ensemble
from ..models import MLP, logistic_regression
from ..train import (
    binary_cross_entropy,
    binary_error_rate,
    descend,
    evaluate,
    fit,
    restarts,
    weight_decay,
)
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome

TRAIN = 3065  # mails to train on, as in ESL §9.1.2
SHOWN = 8  # features that the table names


def _additive(train: Batch, test: Batch) -> float:
    """The test error, in percent, of a logistic model that adds a cubic spline of each feature."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    splines = SplineTransformer(n_knots=4, extrapolation="linear")
    model = make_pipeline(splines, LogisticRegression(max_iter=500)).fit(*train)
    return 100 * (1 - float(model.score(*test)))


@recipe
def spam(
    job: Job,
    *,
    hidden: int = 10,
    members: int = 10,
    decay: float = 1e-3,
    rate: float = 1e-2,
    epochs: int = 20,
    batch: int = 100,
) -> Outcome:
    """Spam or not, on 4,601 mails: the average of several small networks, beside logistic and
    additive regression.

    Parameters
    ----------
    hidden
        Units of the hidden layer.
    members
        Networks to average, each from weights of its own.
    decay
        Strength of the ridge penalty.
    rate
        Learning rate of Adam.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    """
    positive(hidden=hidden, members=members, rate=rate, epochs=epochs, batch=batch)
    key_split, key_init, key_line, key_nets, key_shuffle = jr.split(job.key, 5)
    full = data.load("spambase")
    xs = np.log(full.train[0] + 0.1)
    ys = full.train[1]
    train, test = data.split((xs, ys), TRAIN / 4601, key=key_split, by=ys)
    scale = data.Standardise.fit(train[0])
    train = (scale(train[0]), train[1])
    test = (scale(test[0]), test[1])
    wrong = lambda model: 100 * evaluate(model, test, {"error": binary_error_rate})["error"]
    job.say("logistic and additive regression")
    settings = {"epochs": epochs, "batch_size": batch, "progress": job.progress}
    line = fit(
        descend(binary_cross_entropy, optax.adam(rate)),
        logistic_regression(xs.shape[1]),
        train,
        key=key_line,
        run=job.part("logistic-regression"),
        **settings,
    )
    table = {
        "logistic regression": {"test error %": wrong(line.model)},
        "additive regression, splines": {"test error %": _additive(train, test)},
    }
    job.say(f"{members} networks")
    nets = Ensemble.init(partial(MLP.init, xs.shape[1], hidden, 1), members, key=key_init)
    objective = weight_decay(binary_cross_entropy, strength=decay)
    found = fit(
        restarts(descend(objective, optax.adam(rate))),
        nets,
        train,
        key=key_nets,
        run=job.part("networks"),
        **settings,
    )
    each = jax.vmap(lambda net: binary_error_rate(net, test))(found.model.members)
    table["network, mean of the members"] = {"test error %": 100 * float(each.mean())}
    table |= _leans(found.model, test, full.features, key_shuffle)
    table["networks averaged"] = {"test error %": wrong(found.model)}
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


def _leans(
    model: Ensemble, test: Batch, features: tuple[str, ...], key
) -> dict[str, dict[str, float]]:
    """A row for each feature the model leans on most: the test error with that feature shuffled."""
    seen = importance(
        model, jax.tree.map(jnp.asarray, test), binary_error_rate, features=features, key=key
    )
    return {
        f"... with {features[j]} shuffled": {
            "test error %": 100 * float(seen.base + seen.rise[j]),
            "± %": 100 * float(seen.error[j]),
        }
        for j in seen.order[:SHOWN]
    }
