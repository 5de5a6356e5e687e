"""The interaction network equals a loop over edges and nodes, and layers follow one another."""

import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import collect, dense, jittered, random_graph

from thetax.data.graphs import Graph
from thetax.layers import Chain, InteractionNetwork


@pytest.mark.usefixtures("x64", "strict")
def test_interaction_network_is_a_loop():
    graph = random_graph(0)
    first = InteractionNetwork.init(
        3, 4, edge_features=2, edge_outputs=5, aggregation="mean", key=jr.key(0)
    )
    second = InteractionNetwork.init(4, 2, edge_features=5, hidden=6, key=jr.key(1))
    net = jittered(Chain(first, second))
    x, edges = np.asarray(graph.nodes), np.asarray(graph.edges)
    ends = list(zip(np.asarray(graph.receivers), np.asarray(graph.senders)))
    for layer, how in zip(net.layers, ("mean", "sum")):
        edges = np.array(
            [
                dense(layer.edge_net, np.concatenate([x[i], x[j], edge]))
                for (i, j), edge in zip(ends, edges)
            ]
        )
        collected = collect(graph, lambda i, j, k, edges=edges: edges[k], how, edges.shape[1])
        x = dense(layer.node_net, np.concatenate([x, collected], axis=1))
    found = net(graph)
    assert np.allclose(found.nodes, x, atol=1e-13)
    assert np.allclose(found.edges, edges, atol=1e-13)


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    layer = InteractionNetwork.init(3, 2, edge_features=2, key=jr.key(0))
    with pytest.raises(
        ValueError, match="expected 2 features for each edge, but the graph has none"
    ):
        layer(Graph.from_edges([(0, 1)], np.ones((2, 3))))
