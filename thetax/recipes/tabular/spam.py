"""Spam detection (ESL, exercise 11.7): an ensemble of networks, a linear and an additive model,
and the importance of the features.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data
from ...core import Batch
from ...explain import permutation_importance
from ...layers import Ensemble
from ...models import MLP, logistic_regression
from ...train import (
    binary_cross_entropy,
    binary_error_rate,
    descend,
    evaluate,
    fit,
    per_member,
)
from ...train import (
    weight_decay as with_weight_decay,
)
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome

N_TRAIN = 3065  # e-mails, as in ESL §9.1.2
N_FEATURES_SHOWN = 8  # most important ones, in the table


def _additive_model_error(train: Batch, test: Batch) -> float:
    """Test error in percent of additive logistic regression with a cubic spline of each feature."""
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
    weight_decay: float = 1e-3,
    learning_rate: float = 1e-2,
    epochs: int = 20,
    batch_size: int = 100,
) -> Outcome:
    """Spam detection in 4,601 e-mails by an ensemble of small networks.

    Logistic and additive regression are the baselines.

    Parameters
    ----------
    hidden
        Width of the hidden layer.
    learning_rate
        Learning rate of Adam.
    """
    check_positive(
        hidden=hidden,
        members=members,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    key_split, key_init, key_logistic, key_nets, key_shuffle = jr.split(job.key, 5)
    full = data.load("spambase")
    xs = np.log(full.train[0] + 0.1)
    ys = full.train[1]
    train, test = data.split((xs, ys), N_TRAIN / 4601, key=key_split, stratify=ys)
    scale = data.Standardise.fit(train[0])
    train = (scale(train[0]), train[1])
    test = (scale(test[0]), test[1])
    error = lambda model: 100 * evaluate(model, test, {"error": binary_error_rate})["error"]
    job.note("logistic and additive regression")
    settings = {"epochs": epochs, "batch_size": batch_size, "progress": job.progress}
    logistic = fit(
        descend(binary_cross_entropy, optax.adam(learning_rate)),
        logistic_regression(xs.shape[1]),
        train,
        key=key_logistic,
        run=job.part("logistic-regression"),
        **settings,
    )
    table = {
        "logistic regression": {"test error %": error(logistic.model)},
        "additive logistic regression": {"test error %": _additive_model_error(train, test)},
    }
    job.note(f"{members} networks")
    nets = Ensemble.init(partial(MLP.init, xs.shape[1], hidden, 1), members, key=key_init)
    objective = with_weight_decay(binary_cross_entropy, strength=weight_decay)
    result = fit(
        per_member(descend(objective, optax.adam(learning_rate))),
        nets,
        train,
        key=key_nets,
        run=job.part("networks"),
        **settings,
    )
    member_errors = jax.vmap(lambda net: binary_error_rate(net, test))(result.model.members)
    table["single network (mean)"] = {"test error %": 100 * float(member_errors.mean())}
    table |= _importance_rows(result.model, test, full.features, key_shuffle)
    table["ensemble"] = {"test error %": error(result.model)}
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=binary_cross_entropy,
        classes=full.classes,
        table=table,
        start=result.start,
    )


def _importance_rows(
    model: Ensemble, test: Batch, features: tuple[str, ...], key
) -> dict[str, dict[str, float]]:
    """Permutation importance: the test error with each of the most important features shuffled."""
    importance = permutation_importance(
        model, jax.tree.map(jnp.asarray, test), binary_error_rate, features=features, key=key
    )
    return {
        f"... with {features[j]} shuffled": {
            "test error %": 100 * float(importance.baseline + importance.increase[j]),
            "± %": 100 * float(importance.error[j]),
        }
        for j in importance.ranking[:N_FEATURES_SHOWN]
    }
