"""Influence against powers of the coupling matrix, finite differences and breadth-first search."""

import jax
import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import pytest

from thetax.data import Graph
from thetax.explain import node_influence
from thetax.layers import GCN, Chain
from thetax.models import GNN


def of(graph: nx.Graph, d: int = 3) -> Graph:
    nodes = np.random.default_rng(0).normal(size=(len(graph), d)).astype(np.float32)
    return Graph.from_edges(list(graph.edges), nodes)


def coupling(graph: nx.Graph) -> np.ndarray:
    A = nx.to_numpy_array(graph, weight=None) + np.eye(len(graph))
    d = A.sum(axis=1)
    return A / np.sqrt(np.outer(d, d))


def test_a_linear_gcn_has_the_powers_of_the_coupling_matrix():
    path = nx.path_graph(7)
    layers = [GCN.init(3, 3, key=key) for key in jr.split(jr.key(0), 2)]
    result = node_influence(Chain(*layers), of(path))
    W = np.asarray(layers[1].linear.W @ layers[0].linear.W, np.float64)
    expected = np.linalg.matrix_power(coupling(path), 2) * np.linalg.norm(W)
    np.testing.assert_allclose(result.influence, expected, atol=1e-5)
    assert (result.influence[result.distance > 2] == 0).all()
    assert result.distance.tolist() == [[abs(i - j) for j in range(7)] for i in range(7)]
    by_hop = [expected[result.distance == k] for k in range(7)]
    np.testing.assert_allclose(result.mean_by_hop, [v.mean() for v in by_hop], atol=1e-5)
    np.testing.assert_allclose(
        result.share_by_hop, [v.sum() / expected.sum() for v in by_hop], atol=1e-5
    )
    np.testing.assert_allclose(result.share_by_hop.sum(), 1, atol=1e-12)


def test_any_network_by_finite_differences(x64):
    club = nx.karate_club_graph()
    graph = of(club).with_nodes(jnp.asarray(np.random.default_rng(1).normal(size=(34, 3))))
    net = GNN.init(3, 5, 2, layer="gat", activation=jnp.tanh, key=jr.key(0))
    result = node_influence(net, graph, nodes=[0, 20])
    assert result.nodes.tolist() == [0, 20]
    f = jax.jit(lambda x: net(graph.with_nodes(x)))
    for j in (0, 1, 33):
        blocks = []
        for c in range(3):
            step = jnp.zeros_like(graph.nodes).at[j, c].set(1e-5)
            blocks += [(f(graph.nodes + step) - f(graph.nodes - step)) / 2e-5]
        norms = np.sqrt(np.sum(np.square(np.stack(blocks)), axis=(0, 2)))
        np.testing.assert_allclose(result.influence[:, j], norms[[0, 20]], atol=1e-7)
    lengths = dict(nx.all_pairs_shortest_path_length(club))
    assert result.distance.tolist() == [[lengths[i][j] for j in range(34)] for i in (0, 20)]


def test_over_squashing_in_a_binary_tree():
    """The influence of a leaf on the root falls by a factor of 4 with each level, once nodes in
    between have degree 3: coupling 1/4 to the parent.
    """
    tree = nx.balanced_tree(2, 5)
    d = 1
    layers = [GCN(GCN.init(d, d, key=jr.key(0)).linear)] * 5
    result = node_influence(Chain(*layers), of(tree, d), nodes=[0])
    leaf = np.linalg.matrix_power(coupling(tree), 5)[0, -1]
    W = abs(float(layers[0].linear.W[0, 0])) ** 5
    np.testing.assert_allclose(result.influence[0, -1], leaf * W, rtol=1e-5)
    assert np.diff(result.mean_by_hop[1:]).max() < 0


def test_directions_components_and_many_nodes():
    arrow = Graph.from_edges([(0, 1), (2, 2)], np.ones((3, 1), np.float32), undirected=False)
    result = node_influence(Chain(GCN.init(1, 1, key=jr.key(0))), arrow)
    assert result.distance.tolist() == [[0, -1, -1], [1, 0, -1], [-1, -1, 0]]
    assert (result.influence[result.distance < 0] == 0).all()
    many = node_influence(Chain(GCN.init(3, 2, key=jr.key(0))), of(nx.cycle_graph(50)), max_nodes=5)
    assert many.nodes.tolist() == [0, 12, 24, 37, 49]
    assert many.influence.shape == (5, 50)


def test_bad_input():
    graph = of(nx.path_graph(4))
    net = GNN.init(3, 4, 2, key=jr.key(0))
    with pytest.raises(ValueError, match="nodes must be numbers from 0 to 3; got"):
        node_influence(net, graph, nodes=[4])
    with pytest.raises(ValueError, match=r"give what stands before it, such as model\.embed"):
        node_influence(GNN.init(3, 4, 2, readout="sum", key=jr.key(0)), graph)
    with pytest.raises(ValueError, match="max_nodes must be an integer >= 1"):
        node_influence(net, graph, max_nodes=0)
