"""The sections of the report about graph networks."""

import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import pytest

from thetax.core import predict
from thetax.data import Graph
from thetax.data.graphs import stack_graphs
from thetax.models import GNN, MLP, at_nodes
from thetax.recipes.engine.outcome import Outcome
from thetax.report import LENSES
from thetax.report.lenses import graphs
from thetax.train import cross_entropy

TITLES = {
    "Predictions on the graph",
    "Smoothness of node features",
    "Influence by distance",
    "Attention on edges",
    "Attribution to nodes and edges",
    "Graphs told apart",
}
OURS = {lens.title: lens for lens in LENSES if lens.title in TITLES}
CLUB = nx.karate_club_graph()
KARATE = Graph.from_edges(list(CLUB.edges), np.eye(34, dtype=np.float32))
LABELS = np.array([int(CLUB.nodes[v]["club"] == "Officer") for v in CLUB])


def of_nodes(layer: str) -> Outcome:
    net = at_nodes(GNN.init(34, 8, 2, layer=layer, key=jr.key(0)), KARATE)
    nodes = jnp.arange(34)
    data = [(nodes[part], jnp.asarray(LABELS[part])) for part in (slice(0, 10), slice(10, 34))]
    return Outcome(net, *data, cross_entropy, classes=("Hi", "Officer"))


def of_graphs() -> Outcome:
    examples = [nx.path_graph(4), nx.star_graph(3), nx.cycle_graph(4), nx.complete_graph(4)]
    xs = stack_graphs([Graph.from_edges(list(graph.edges)) for graph in examples])
    data = xs, jnp.array([0, 0, 1, 1])
    net = GNN.init(1, 8, 2, layer="gat", readout="mean", key=jr.key(0))
    return Outcome(net, data, data, cross_entropy, classes=("tree", "cycle"))


def test_which_sections_apply():
    applying = lambda outcome: {title for title, lens in OURS.items() if lens.applies(outcome)}
    assert set(OURS) == TITLES
    assert applying(of_nodes("gat")) == TITLES - {"Graphs told apart"}
    assert applying(of_nodes("gcn")) == TITLES - {"Graphs told apart", "Attention on edges"}
    assert applying(of_graphs()) == {"Graphs told apart"}
    dense = Outcome(
        MLP.init(3, 2, key=jr.key(0)), *[(jnp.ones((4, 3)), jnp.zeros(4, int))] * 2, cross_entropy
    )
    assert applying(dense) == set()


@pytest.mark.parametrize("title", sorted(TITLES - {"Graphs told apart"}))
def test_sections_of_a_network_of_nodes(title):
    lens = OURS[title]
    result = lens.compute(of_nodes("gat"))
    metrics = lens.metrics(result)
    assert metrics
    assert not any("nan" in text for text in metrics.values())


def test_the_most_confident_mistake_is_explained():
    outcome = of_nodes("gcn")
    nodes, labels = (np.asarray(part) for part in outcome.test)
    logits = np.asarray(predict(outcome.model, nodes))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    wrong = p.argmax(axis=1) != labels
    expected = nodes[np.argmax(p.max(axis=1) * wrong)]
    assert graphs.most_confident_mistake(outcome) == (expected, True)
    result = OURS["Attribution to nodes and edges"].compute(outcome)
    assert result.node == expected
    assert result.output == p[np.flatnonzero(nodes == expected)[0]].argmax()
    right = Outcome(outcome.model, outcome.train, (nodes, p.argmax(axis=1)), cross_entropy)
    assert graphs.most_confident_mistake(right) == (nodes[0], False)


def test_graphs_told_apart():
    """A GAT without counts maps all graphs with constant features to the same output."""
    lens = OURS["Graphs told apart"]
    result = lens.compute(of_graphs())
    assert lens.metrics(result) == {
        "pairs of graphs": "6",
        "told apart by 1-WL and not by the network": "6",
        "told apart by neither": "0",
    }
