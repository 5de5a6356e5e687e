"""The GCN equals a loop over edges with the coupling matrix written out."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import dense, edges_to, jittered, random_graph

from thetax.data.graphs import Graph
from thetax.layers import GCN, Linear, gcn_propagate, ntk_parametrisation


def coupling(graph):
    """The matrix, by a loop over the edges."""
    A = np.eye(graph.n_nodes)
    weights = np.ones(graph.n_edges) if graph.weights is None else np.asarray(graph.weights)
    for i in range(graph.n_nodes):
        for k, j in edges_to(graph, i):
            A[i, j] += weights[k]
    degrees = A.sum(axis=1)
    return A / np.sqrt(degrees[:, None] * degrees[None])


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [2, 5])  # the product with W comes first or last
def test_gcn_is_a_loop(weighted, m):
    graph = random_graph(0, weighted=weighted)
    layer = jittered(GCN.init(3, m, key=jr.key(0)))
    b = np.asarray(layer.linear.b)
    expected = coupling(graph) @ (np.asarray(graph.nodes) @ np.asarray(layer.linear.W).T) + b
    assert np.allclose(layer(graph).nodes, expected, atol=1e-14)


@pytest.mark.usefixtures("x64", "strict")
def test_gcn_without_edges_is_a_linear_layer():
    x = np.random.default_rng(0).normal(size=(4, 3))
    layer = jittered(GCN.init(3, 2, key=jr.key(0)))
    found = layer(Graph.from_nodes(x)).nodes
    assert np.allclose(found, dense(layer.linear, x), atol=1e-15)


@pytest.mark.usefixtures("x64")
def test_scales_of_the_ntk_parametrisation():
    """Are those of the linear layer."""
    x = np.random.default_rng(0).normal(size=(4, 3))
    scaled = jittered(GCN.init(3, 2, initialiser=ntk_parametrisation(bias=0.5), key=jr.key(0)))
    expected = jax.vmap(scaled.linear)(jnp.asarray(x))
    assert np.allclose(scaled(Graph.from_nodes(x)).nodes, expected, atol=1e-15)


@pytest.mark.usefixtures("strict")
def test_coupling_of_a_star():
    star = Graph.from_edges([(0, i) for i in range(1, 6)])
    sums = gcn_propagate(star, jnp.ones((6, 1))).ravel()
    hub = 1 / 6 + 5 / np.sqrt(12)
    assert np.allclose(sums, [hub] + [0.5 + 1 / np.sqrt(12)] * 5, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    layer = GCN(Linear(jnp.ones((2, 3)), None))
    with pytest.raises(ValueError, match=r"GCN: expected a thetax.data.Graph, got ArrayImpl"):
        layer(jnp.ones((4, 3)))
    with pytest.raises(ValueError, match=r"expected 3 features for each node, got .*\(4, 5\)"):
        layer(Graph.from_nodes(np.ones((4, 5))))
