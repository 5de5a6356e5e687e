"""Predictions, mistakes, homophily and the map of the features."""

import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import pytest
from sklearn.decomposition import PCA

from thetax.data import Graph
from thetax.explain import node_predictions
from thetax.layers import GCN, Chain, Nodewise
from thetax.models import GNN

CLUB = nx.karate_club_graph()
KARATE = Graph.from_edges(
    list(CLUB.edges), np.random.default_rng(0).normal(size=(34, 4)).astype(np.float32)
)
LABELS = np.array([int(CLUB.nodes[v]["club"] == "Officer") for v in CLUB])


def test_predictions_and_mistakes():
    net = GNN.init(4, 6, 2, key=jr.key(0))
    some = np.where(np.arange(34) % 3 == 0, -1, LABELS)
    result = node_predictions(net, KARATE, some, classes=("Hi", "Officer"))
    logits = np.asarray(net(KARATE))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(result.predicted, p.argmax(axis=1))
    np.testing.assert_allclose(result.probability, p.max(axis=1), atol=1e-6)
    right = [p[i].argmax() == LABELS[i] for i in range(34) if i % 3]
    assert result.accuracy == pytest.approx(np.mean(right))
    assert result.mistakes.sum() == len(right) - sum(right)
    same = [LABELS[u] == LABELS[v] for u, v in CLUB.edges if u % 3 and v % 3]
    assert result.homophily == pytest.approx(np.mean(same))
    assert result.classes == ("Hi", "Officer")


def test_the_map_is_that_of_the_hidden_features():
    first, last = GCN.init(4, 5, key=jr.key(0)), GCN.init(5, 2, key=jr.key(1))
    result = node_predictions(Chain(first, Nodewise(jnp.tanh), last), KARATE)
    expected = PCA(2).fit_transform(np.asarray(jnp.tanh(first(KARATE).nodes), np.float64))
    signs = np.sign((expected * result.points).sum(axis=0))
    np.testing.assert_allclose(result.points * signs, expected, atol=1e-5)
    assert np.isnan(result.accuracy)
    assert np.isnan(result.homophily)


def test_bad_input():
    net = GNN.init(4, 6, 2, key=jr.key(0))
    with pytest.raises(ValueError, match="labels must be 34 integers"):
        node_predictions(net, KARATE, LABELS[:3])
    with pytest.raises(ValueError, match=r"expected logits of shape \(34, classes\), got \(2,\)"):
        node_predictions(GNN.init(4, 6, 2, readout="sum", key=jr.key(0)), KARATE)
