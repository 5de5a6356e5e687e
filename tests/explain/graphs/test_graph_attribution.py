"""Occlusion against graphs without the node's features or the edge, gradients by differences."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.data import Graph
from thetax.explain import graph_attribution
from thetax.explain.graphs.graph_attribution import reverse_edges
from thetax.models import GNN

PAIRS = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (5, 5)]
NODES = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
GRAPH = Graph.from_edges(PAIRS, NODES)


def net(layer: str, **options) -> GNN:
    return GNN.init(3, 5, 2, layer=layer, activation=jnp.tanh, key=jr.key(0), **options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layer", ["gcn", "gat", "gin", "sage"])
def test_occlusion_of_a_graph_output_by_hand(layer):
    model = net(layer, readout="sum")
    result = graph_attribution(model, GRAPH, output=1)
    z = float(model(GRAPH)[1])
    assert result.value == pytest.approx(z, rel=1e-5)
    for j in range(7):
        blank = GRAPH.with_nodes(GRAPH.nodes.at[j].set(0))
        expected = z - float(model(blank)[1])
        assert result.node_occlusion[j] == pytest.approx(expected, abs=2e-5)
    for k, pair in enumerate(PAIRS):
        others = PAIRS[:k] + PAIRS[k + 1 :]
        expected = z - float(model(Graph.from_edges(others, NODES))[1])
        here = [
            e
            for e in range(GRAPH.n_edges)
            if {int(GRAPH.senders[e]), int(GRAPH.receivers[e])} == set(pair)
        ]
        np.testing.assert_allclose(result.edge_occlusion[here], expected, atol=2e-5)


def test_directions_one_by_one():
    model = net("gcn")
    result = graph_attribution(model, GRAPH, node=3, output=0, pairs=False)
    z = float(model(GRAPH)[3, 0])
    directed = np.stack([GRAPH.senders, GRAPH.receivers], axis=1).tolist()
    for k in range(GRAPH.n_edges):
        others = Graph.from_edges(directed[:k] + directed[k + 1 :], NODES, undirected=False)
        expected = z - float(model(others)[3, 0])
        assert result.edge_occlusion[k] == pytest.approx(expected, abs=1e-5)
    assert result.node == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layer", ["gcn", "gat"])
def test_gradients_by_finite_differences(layer, x64):
    weights = np.random.default_rng(1).uniform(0.5, 2, len(PAIRS))
    graph = Graph.from_edges(PAIRS, NODES.astype(np.float64), weights=weights)
    model = net(layer)
    result = graph_attribution(model, graph, node=2)
    assert result.output == int(np.argmax(model(graph)[2]))
    value = lambda graph: float(model(graph)[2, result.output])
    h = 1e-5
    for j in range(7):
        up, down = (graph.with_nodes(graph.nodes.at[j].multiply(1 + s * h)) for s in (1, -1))
        assert result.node_gradient[j] == pytest.approx((value(up) - value(down)) / 2 / h, abs=1e-7)
    for k in range(len(PAIRS)):
        change = np.where(np.arange(len(PAIRS)) == k, h, 0)
        up, down = (
            Graph.from_edges(PAIRS, np.asarray(graph.nodes), weights=weights * (1 + s * change))
            for s in (1, -1)
        )
        expected = (value(up) - value(down)) / 2 / h
        here = [
            e
            for e in range(graph.n_edges)
            if {int(graph.senders[e]), int(graph.receivers[e])} == set(PAIRS[k])
        ]
        np.testing.assert_allclose(result.edge_gradient[here], expected, atol=1e-7)


def test_nothing_that_does_not_reach_the_node_contributes():
    result = graph_attribution(net("gcn"), GRAPH, node=4)
    # nodes 5 and 6 are in other components, and nodes 0 and 1 three hops away, with two layers
    np.testing.assert_allclose(result.node_occlusion[[0, 1, 5, 6]], 0, atol=1e-6)
    np.testing.assert_array_equal(result.node_gradient[[0, 1, 5, 6]], 0)
    assert result.node_gradient[2] != 0


def test_only_the_largest_are_occluded_if_there_are_many():
    whole = graph_attribution(net("gcn"), GRAPH, node=2)
    part = graph_attribution(net("gcn"), GRAPH, node=2, max_occluded=3)
    largest = np.sort(np.argsort(-np.abs(whole.node_gradient))[:3])
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(part.node_occlusion)), largest)
    np.testing.assert_allclose(
        part.node_occlusion[largest], whole.node_occlusion[largest], atol=1e-6
    )
    assert (~np.isnan(part.edge_occlusion)).sum() == 3


def test_reversed_edges():
    for pairs in (PAIRS, [*PAIRS, (0, 1), (1, 0), (5, 5)]):
        graph = Graph.from_edges(pairs)
        partner = reverse_edges(graph)
        np.testing.assert_array_equal(partner[partner], np.arange(graph.n_edges))
        np.testing.assert_array_equal(graph.senders[partner], graph.receivers)
        np.testing.assert_array_equal(graph.receivers[partner], graph.senders)
    mixed = Graph.from_edges([(0, 1), (1, 0), (1, 2), (1, 0)], undirected=False)
    partner = reverse_edges(mixed)
    np.testing.assert_array_equal(partner[partner], np.arange(4))
    assert (partner == np.arange(4)).sum() == 2  # one of the doubled edges, and 1 to 2


def test_a_graph_without_edges():
    bare = Graph.from_nodes(NODES)
    result = graph_attribution(net("gin", readout="sum"), bare)
    assert result.edge_occlusion.shape == (0,)
    assert (result.node_occlusion != 0).sum() > 4


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    by_node, of_graph = net("gcn"), net("gcn", readout="sum")
    with pytest.raises(ValueError, match="say whose output is to be explained: node=0"):
        graph_attribution(by_node, GRAPH)
    with pytest.raises(ValueError, match="node=9, but the output has shape"):
        graph_attribution(by_node, GRAPH, node=9)
    with pytest.raises(ValueError, match="node=0, but the output has shape"):
        graph_attribution(of_graph, GRAPH, node=0)
    with pytest.raises(ValueError, match="output=2, but the model has 2 outputs"):
        graph_attribution(of_graph, GRAPH, output=2)
    with pytest.raises(ValueError, match="node features must be floats"):
        graph_attribution(of_graph, GRAPH.with_nodes(jnp.ones((7, 3), jnp.int32)))
