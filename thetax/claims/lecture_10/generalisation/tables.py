"""Two data tables (lecture 10, exercise 6): credit-card defaults and spam, and the benefit of each
trick.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from .... import data, explain, layers, train
from ....core import predict
from ....plot import DotPlot
from ...engine.check import at_least, at_most, between, close, within
from ...engine.claim import Verdict, claim
from .splits import (
    MEMBERS,
    ablation,
    column,
    init_networks,
    learn,
    logistic,
    mean,
    peer,
    split,
    train_restarts,
)


@claim(
    "L10-ex6-isl-10.10.7",
    title="Predicting credit-card defaults",
    kind="exercise",
    of=("models.MLP", "models.logistic_regression", "train.binary_cross_entropy", "data.load"),
    cites="James, Witten, Hastie & Tibshirani 2021, exercise 10.10.7",
    data=("default",),
)
def default(key, rng):
    r"""On the 10,000 credit-card holders of *Default*, 70 % to train on and ten random splits, a
    network of one hidden layer of ten units with dropout has the test error of logistic regression,
    to 0.3 points, and ranks as well (area under the curve at least 0.94). Both have a smaller error
    than the prediction that nobody defaults, and no trick changes much.
    """
    key_split, key_line, key_nets = jr.split(key, 3)
    splits = split("default", train_rows=7000, count=10, key=key_split)
    batches = splits.batches(rng, splits.cut)
    lines, peers = logistic(splits, batches, key_line)
    nets = ablation(splits, batches, dropout=0.1, rng=rng, key=key_nets)
    line = splits.mistakes(lines)
    labels = np.asarray(splits.ys)[splits.rows[:, splits.cut :]]
    area = lambda z: mean(
        np.array([roc_auc_score(*pair) for pair in zip(labels, z[:, splits.cut - splits.core :])])
    )
    areas = np.array([area(z) for z in (nets.dropped, nets.plain, lines)])
    null = 100 * labels.mean()
    means = {name: errors.mean() for name, errors in nets.errors.items()}
    return Verdict(
        between("logistic regression: test error over 10 splits, %", line.mean(), 2.46, 2.86),
        close("the same by scikit-learn, %", line.mean(), peers.mean(), tolerance=0.1),
        close(
            "network with dropout minus logistic regression, points",
            means["dropout"] - line.mean(),
            0.0,
            tolerance=0.3,
        ),
        at_least("area under the curve: dropout, no trick, logistic", areas[:, 0], 0.94),
        close("error of predicting that nobody defaults, %", null, 3.33, tolerance=0.01),
        at_most("the errors with each trick, %", list(means.values()), 0.95 * null),
        figure=DotPlot(column("Default", {"logistic regression": line, **nets.errors}, null)),
    )


@claim(
    "L10-ex6-tricks",
    title="The benefit of each trick",
    kind="experiment",
    of=(
        "models.MLP",
        "train.weight_decay",
        "train.lasso",
        "train.with_augmentation",
        "layers.Ensemble",
    ),
    cites="Hastie, Tibshirani & Friedman 2009, exercise 11.7",
    data=("default", "spambase"),
)
def tricks(key, rng):
    r"""Early stopping, $L^2$ and $L^1$ penalties, dropout, noise on the inputs and the average of
    restarts, each alone, on a network of ten hidden units: with each the mean test error, over ten
    splits of *Default* and five of *Spambase*, is below that of the constant guess. On *Spambase*
    the average of restarts has a smaller error than its members.
    """
    checks = []
    columns = []
    for name, rows, count, dropout in (("default", 7000, 10, 0.1), ("spambase", 3065, 5, 0.2)):
        key, key_split, key_nets = jr.split(key, 3)
        splits = split(name, train_rows=rows, count=count, key=key_split)
        results = ablation(
            splits, splits.batches(rng, splits.cut), dropout=dropout, rng=rng, key=key_nets
        )
        null = 100 * float(splits.ys.mean())
        worst = [e.mean() + 2 * e.std(ddof=1) / np.sqrt(count) for e in results.errors.values()]
        checks.append(at_most(f"{name}: errors with two standard errors, %", worst, null))
        columns.append(column(name.capitalize(), results.errors, null))
    gain = results.errors["no trick"] - results.errors["restarts averaged"]
    return Verdict(
        *checks,
        at_least("spambase: gain of averaging five restarts, points", gain.mean(), 0.0),
        figure=DotPlot(*columns),
    )


ESL = (
    "!",
    "$",
    "remove",
    "free",
    "hp",
    "george",
    "our",
    "capital_run_length",
    "edu",
    "000",
    "business",
    "money",
)


@claim(
    "L10-ex6-esl-11.7",
    title="Spam detection and feature importance",
    kind="exercise",
    of=("models.MLP", "train.per_member", "layers.Ensemble", "explain.permutation_importance"),
    cites="Hastie, Tibshirani & Friedman 2009, exercise 11.7 and §9.1.2",
    data=("spambase",),
)
def spam(key, rng):
    r"""On *Spambase*, with $\log(x + 0.1)$ in place of $x$ and 3,065 training mails, networks of
    ten hidden units have a test error of at most 6 %: smaller than that of logistic regression, and
    about that of an additive logistic model of splines (ESL: 5.5 %). The error of the average of
    five restarts is at most the mean error of its members. Shuffling one feature at a time shows
    which features the network uses, as the curves of the additive model do.
    """
    keys = jr.split(key, 5)
    splits = split("spambase", train_rows=3065, count=5, key=keys[0])
    batches = splits.batches(rng, splits.cut)
    nets = layers.Ensemble(
        jax.tree.map(
            lambda a: a.reshape(5, MEMBERS, *a.shape[1:]), init_networks(5 * MEMBERS, 57, keys[1])
        )
    )
    result, logits = learn(
        train_restarts, nets, splits, batches, key=keys[2], strengths=((1e-3, 0.0),)
    )
    result = jax.tree.map(lambda a: a[:, 0], result)  # the only strength
    each = jax.jit(
        jax.vmap(
            lambda net, rows: jax.vmap(lambda one: predict(one, splits.xs[rows])[:, 0])(net.members)
        )
    )
    members = np.asarray(each(result, splits.held_out))  # splits members held_out
    lines, peers = logistic(splits, batches, keys[3])
    splines = peer(
        splits,
        make_pipeline(SplineTransformer(n_knots=4, extrapolation="linear"), LogisticRegression()),
    )
    errors = {
        "logistic regression": splits.mistakes(lines),
        "additive, splines": splines,
        "network": splits.mistakes(members).mean(axis=1),
        "five networks": splits.mistakes(logits[:, 0, -1]),
    }
    one = jax.tree.map(lambda a: a[0], result)
    rows = splits.rows[0, splits.cut :]
    importance = explain.permutation_importance(
        one,
        (splits.xs[rows], splits.ys[rows]),
        train.binary_error_rate,
        features=data.load("spambase").features,
        key=keys[4],
    )
    pooled = np.asarray(logits[:, 0, -1])
    risk = lambda z: np.logaddexp(0, z) - np.asarray(splits.ys)[splits.held_out] * z
    jensen = np.stack([risk(m) for m in members.swapaxes(0, 1)]).mean(axis=(0, 2)) - risk(
        pooled
    ).mean(axis=1)
    return Verdict(
        *_accuracy(errors, peers),
        close(
            "the pooled logit minus the mean logit of the members",
            pooled,
            members.mean(axis=1),
            tolerance=1e-9,
        ),
        at_least("mean log loss of the members minus that of the average, each split", jensen, 0.0),
        *_importance_checks(importance, one, splits, rows, rng),
        figure=importance,
    )


def _accuracy(errors, peers):
    at = {name: e.mean() for name, e in errors.items()}
    return (
        between(
            "logistic regression: test error over 5 splits, %", at["logistic regression"], 4.7, 6.7
        ),
        close(
            "the same by scikit-learn, %", at["logistic regression"], peers.mean(), tolerance=0.4
        ),
        at_most("network: test error, %", at["network"], 6.0),
        at_most(
            "network minus logistic regression, points",
            at["network"] - at["logistic regression"],
            0.0,
        ),
        at_most(
            "average of five minus its members, points", at["five networks"] - at["network"], 0.0
        ),
        between("additive model of splines, %", at["additive, splines"], 4.2, 6.2),
    )


def _importance_checks(importance, net, splits, rows, rng):
    """The importance of the first feature, computed again by hand, and the most important
    features.
    """
    top = importance.ranking[0]
    xs = np.asarray(splits.xs)[rows]
    ys = np.asarray(splits.ys)[rows]
    wrong = jax.jit(lambda xs: (predict(net, xs)[:, 0] > 0) != ys)

    def error_when_shuffled():
        other = xs.copy()
        other[:, top] = rng.permutation(other[:, top])
        return float(wrong(jnp.asarray(other)).mean()) - float(wrong(jnp.asarray(xs)).mean())

    errors_shuffled = np.array([error_when_shuffled() for _ in range(10)])
    error = np.hypot(importance.error[top], errors_shuffled.std(ddof=1) / np.sqrt(10))
    in_esl = [any(word in importance.features[j] for word in ESL) for j in importance.ranking[:5]]
    return (
        within(
            f"increase of the error without {importance.features[top]}",
            importance.increase[top],
            errors_shuffled.mean(),
            error=error,
        ),
        at_least("of the five most important features, those important in ESL", sum(in_esl), 4),
        at_least(
            "increase of the error without the first of them, points",
            100 * importance.increase[top],
            0.5,
        ),
    )
