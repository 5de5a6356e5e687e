"""What is wrong with a graph is said before anything is computed."""

import jax.numpy as jnp
import numpy as np
import pytest
from graphs_by_loop import random_graph

from thetax.data.graphs import Graph, stack_graphs
from thetax.layers.graphs.inputs import expect_edge_features, expect_features, expect_graph

pytestmark = pytest.mark.usefixtures("unchecked")


def test_graphs():
    with pytest.raises(ValueError, match=r"GCN: expected a thetax.data.Graph, got list. Make one"):
        expect_graph("GCN", [(0, 1)])
    with pytest.raises(ValueError, match=r"expected one graph, got stacked .*core.predict"):
        expect_graph("GCN", stack_graphs([random_graph(0), random_graph(1)]))
    with pytest.raises(ValueError, match=r"a vector of features .*\(3, d\); got .*\(3, 2, 2\)"):
        expect_graph("GCN", Graph.from_nodes(np.ones((3, 2, 2))))
    with pytest.raises(ValueError, match=r"expected floats as node features, got int32"):
        expect_graph("GCN", Graph.from_nodes(np.ones((3, 2), np.int32)))


def test_features():
    graph = random_graph(0)
    assert expect_features("GCN", graph, 3) is graph.nodes
    with pytest.raises(ValueError, match=r"expected 4 features .*\(6, 3\). Initialise the layer"):
        expect_features("GCN", graph, 4)
    assert expect_edge_features("GAT", graph, 2) is graph.edges
    with pytest.raises(ValueError, match=r"expected 3 floats for each edge, got .*\(9, 2\)"):
        expect_edge_features("GAT", graph, 3)
    whole = Graph.from_edges([(0, 1)], edges=np.ones((1, 2), np.int32))
    with pytest.raises(ValueError, match=r"type int32"):
        expect_edge_features("GAT", whole, 2)
    assert jnp.isfinite(graph.nodes).all()
