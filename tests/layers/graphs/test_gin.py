"""GIN, and GIN with edge features, equal loops over edges."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import collect, dense, jittered, random_graph

from thetax.data.graphs import Graph
from thetax.layers import GIN


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("edge_features", [0, 2])
@pytest.mark.parametrize("learn_eps", [False, True])
def test_gin_is_a_loop(edge_features, learn_eps):
    graph = random_graph(0)
    layer = GIN.init(
        3, 2, hidden=4, edge_features=edge_features, eps=0.3, learn_eps=learn_eps, key=jr.key(0)
    )
    layer = jittered(layer)
    x, edges = np.asarray(graph.nodes), np.asarray(graph.edges)
    if edge_features:
        message = lambda i, j, k: np.maximum(x[j] + dense(layer.edge, edges[k]), 0)
    else:
        message = lambda i, j, k: x[j]
    eps = float(layer.eps) if learn_eps else 0.3
    expected = dense(layer.net, (1 + eps) * x + collect(graph, message, "sum", 3))
    assert np.allclose(layer(graph).nodes, expected, atol=1e-13)
    assert (layer.eps is None) is not learn_eps
    assert not learn_eps or abs(eps - 0.3) > 1e-3


@pytest.mark.usefixtures("strict")
def test_gin_counts_equal_neighbours():
    """The mean cannot tell one neighbour from two equal ones; the sum can."""
    layer = GIN.init(1, 8, key=jr.key(0))
    one = Graph.from_edges([(1, 0)], undirected=False)
    two = Graph.from_edges([(1, 0), (2, 0)], undirected=False)
    assert not np.allclose(layer(one).nodes[0], layer(two).nodes[0])


def test_gradient_of_eps():
    graph = random_graph(0)
    layer = GIN.init(3, 2, activation=jnp.tanh, key=jr.key(0))
    f = lambda eps: GIN(layer.net, None, eps)(graph).nodes.sum()
    step = 1e-2
    difference = (f(jnp.array(step)) - f(jnp.array(-step))) / (2 * step)
    assert np.isclose(jax.grad(f)(jnp.array(0.0)), difference, rtol=1e-2)


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="expected 4 features for each node"):
        GIN.init(4, 2, key=jr.key(0))(random_graph(0))
    layer = GIN.init(3, 2, edge_features=5, key=jr.key(0))
    with pytest.raises(ValueError, match=r"expected 5 floats for each edge, got .*\(9, 2\)"):
        layer(random_graph(0))
    with pytest.raises(
        ValueError, match="expected 5 features for each edge, but the graph has none"
    ):
        layer(Graph.from_nodes(np.ones((2, 3))))
