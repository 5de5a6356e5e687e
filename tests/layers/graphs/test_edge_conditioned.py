"""Edge-conditioned convolution equals a loop over edges."""

import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import collect, dense, jittered, random_graph

from thetax.data.graphs import Graph
from thetax.layers import EdgeConditioned


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_edge_conditioned_is_a_loop(how):
    graph = random_graph(0)
    layer = EdgeConditioned.init(3, 2, edge_features=2, hidden=4, aggregation=how, key=jr.key(0))
    layer = jittered(layer)
    x, edges = np.asarray(graph.nodes), np.asarray(graph.edges)
    message = lambda i, j, k: dense(layer.matrix, edges[k]).reshape(2, 3) @ x[j]
    expected = dense(layer.own, x) + collect(graph, message, how, 2)
    assert np.allclose(layer(graph).nodes, expected, atol=1e-13)


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    layer = EdgeConditioned.init(3, 2, edge_features=2, key=jr.key(0))
    with pytest.raises(
        ValueError, match="expected 2 features for each edge, but the graph has none"
    ):
        layer(Graph.from_edges([(0, 1)], np.ones((2, 3))))
    with pytest.raises(ValueError, match="EdgeConditioned: did you mean sum"):
        EdgeConditioned.init(3, 2, edge_features=2, aggregation="summ", key=jr.key(0))
