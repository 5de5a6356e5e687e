"""The virtual node adds the same vector to all nodes of a graph, and to no others."""

import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import dense, jittered, random_graph

from thetax.data.graphs import batch_graphs
from thetax.layers import VirtualNode

POOL = {"sum": np.sum, "mean": np.mean, "max": np.max}


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("pooling", list(POOL))
def test_virtual_node_is_a_loop_over_graphs(pooling):
    graphs = [random_graph(seed, n_nodes=3 + seed) for seed in range(2)]
    layer = jittered(VirtualNode.init(3, hidden=4, pooling=pooling, key=jr.key(0)))
    expected = [
        np.asarray(graph.nodes) + dense(layer.net, POOL[pooling](np.asarray(graph.nodes), axis=0))
        for graph in graphs
    ]
    found = np.asarray(layer(batch_graphs(graphs, n_nodes=9, n_edges=20)).nodes)
    assert np.allclose(found[:7], np.concatenate(expected), atol=1e-13)
    assert np.allclose(layer(graphs[1]).nodes, expected[1], atol=1e-13)


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"one of sum, mean, max; got 'min'"):
        VirtualNode(np.tanh, "min")
    with pytest.raises(ValueError, match="expected 4 features for each node"):
        VirtualNode.init(4, key=jr.key(0))(random_graph(0))
