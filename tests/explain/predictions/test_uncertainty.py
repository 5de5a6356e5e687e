"""Doubt against truth: the ranking by counting pairs, the examples by sorting, the belief as it
is.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain
from thetax.models import MLP

net = MLP.init(25, 12, 3, dropout=0.5, key=jr.key(0))
xs = jr.normal(jr.key(1), (80, 25))
ys = np.arange(80) % 3
found = explain.dropout_uncertainty(
    net, (xs, ys), n_samples=20, n_examples=6, classes=("a", "b", "c"), key=jr.key(2)
)


def test_prediction_is_that_of_monte_carlo_dropout():
    belief = explain.mc_dropout(net, xs, n_samples=20, key=jr.key(2))
    assert found.prediction.probability.tolist() == belief.probability.tolist()
    assert found.correct.tolist() == (belief.probability.argmax(axis=1) == ys).tolist()
    assert found.n_mistakes == np.sum(belief.probability.argmax(axis=1) != ys)


def test_most_uncertain_examples_come_first():
    entropy = -(found.prediction.probability * np.log(found.prediction.probability)).sum(axis=1)
    assert found.indices.tolist() == sorted(range(80), key=lambda i: -entropy[i])[:6]
    assert np.array_equal(found.x, np.asarray(xs)[found.indices])


def test_the_ranking_counts_pairs():
    doubt = found.prediction.entropy
    pairs = [
        (doubt[i] > doubt[j]) + (doubt[i] == doubt[j]) / 2
        for i in np.flatnonzero(~found.correct)
        for j in np.flatnonzero(found.correct)
    ]
    assert found.auroc == pytest.approx(np.mean(pairs))


def test_ties_count_half_and_without_mistakes_there_is_no_ranking():
    nothing = jnp.zeros((4, 25)), np.array([0, 1, 2, 0])  # at 0 every thinned network says the same
    same = explain.dropout_uncertainty(net, nothing, n_samples=5, key=jr.key(0))
    assert same.auroc == 0.5
    right = explain.dropout_uncertainty(net, (xs, found.predicted), n_samples=20, key=jr.key(2))
    assert right.n_mistakes == 0
    assert np.isnan(right.auroc)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_examples": 0}, "dropout_uncertainty: n_examples must be an integer >= 1; got 0"),
        ({"n_samples": 1}, "n_samples must be"),
        (
            {"classes": ("a", "b")},
            r"the model has 3 classes, but 2 names were given\. Give one name for each class",
        ),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        explain.dropout_uncertainty(net, (xs, ys), **{"key": jr.key(0), **change})


def test_network_without_dropout_is_rejected():
    with pytest.raises(
        ValueError, match="the model has no dropout; add a Dropout or DropConnect layer with p > 0"
    ):
        explain.dropout_uncertainty(MLP.init(25, 12, 3, key=jr.key(0)), (xs, ys), key=jr.key(0))
