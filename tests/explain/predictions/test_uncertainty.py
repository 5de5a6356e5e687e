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
found = explain.doubt(net, (xs, ys), draws=20, count=6, classes=("a", "b", "c"), key=jr.key(2))


def test_the_belief_is_that_of_monte_carlo_dropout():
    belief = explain.dropout_belief(net, xs, draws=20, key=jr.key(2))
    assert found.belief.probability.tolist() == belief.probability.tolist()
    assert found.right.tolist() == (belief.probability.argmax(axis=1) == ys).tolist()
    assert found.mistakes == np.sum(belief.probability.argmax(axis=1) != ys)


def test_the_most_doubtful_come_first():
    entropy = -(found.belief.probability * np.log(found.belief.probability)).sum(axis=1)
    assert found.index.tolist() == sorted(range(80), key=lambda i: -entropy[i])[:6]
    assert np.array_equal(found.x, np.asarray(xs)[found.index])


def test_the_ranking_counts_pairs():
    doubt = found.belief.entropy
    pairs = [
        (doubt[i] > doubt[j]) + (doubt[i] == doubt[j]) / 2
        for i in np.flatnonzero(~found.right)
        for j in np.flatnonzero(found.right)
    ]
    assert found.ranking == pytest.approx(np.mean(pairs))


def test_ties_count_half_and_without_mistakes_there_is_no_ranking():
    nothing = jnp.zeros((4, 25)), np.array([0, 1, 2, 0])  # at 0 every thinned network says the same
    same = explain.doubt(net, nothing, draws=5, key=jr.key(0))
    assert same.ranking == 0.5
    right = explain.doubt(net, (xs, found.guess), draws=20, key=jr.key(2))
    assert right.mistakes == 0
    assert np.isnan(right.ranking)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": 0}, "doubt: count must be at least 1; got 0"),
        ({"draws": 1}, "draws must be a whole number of at least 2"),
        ({"classes": ("a", "b")}, "tells 3 classes apart, but 2 names"),
    ],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        explain.doubt(net, (xs, ys), **{"key": jr.key(0), **change})


def test_a_network_that_drops_nothing_is_refused():
    with pytest.raises(ValueError, match="the model drops nothing"):
        explain.doubt(MLP.init(25, 12, 3, key=jr.key(0)), (xs, ys), key=jr.key(0))
