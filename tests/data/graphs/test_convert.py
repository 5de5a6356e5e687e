"""Conversion from and to networkx, SciPy, edge lists and PyG, and back to the same graph."""

import jax
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.csgraph import shortest_path

from thetax.data import (
    Graph,
    batch_graphs,
    from_networkx,
    from_pyg,
    from_scipy,
    pad_graph,
    to_edges,
    to_networkx,
    to_pyg,
    to_scipy,
)


def random_graph(seed: int, *, undirected: bool = False) -> Graph:
    """With self-loops, doubled edges, isolated nodes, features and weights."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, 6, size=(10, 2))
    pairs = np.concatenate([pairs, pairs[:1]])
    return Graph.from_edges(
        pairs,
        rng.normal(size=(8, 2)).astype(np.float32),
        undirected=undirected,
        edges=rng.normal(size=(11, 3)).astype(np.float32),
        weights=rng.uniform(1, 2, size=11).astype(np.float32),
    )


def rows(graph: Graph) -> list:
    """The edges with their features and weights, in an order of their own."""
    pairs, edges, weights = to_edges(graph)
    return sorted(
        (*pair, *edge, weight)
        for pair, edge, weight in zip(pairs.tolist(), edges.tolist(), weights.tolist())
    )


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_networkx_and_back(seed, undirected):
    graph = random_graph(seed, undirected=undirected)
    theirs = to_networkx(graph, undirected=undirected)
    assert theirs.is_multigraph()
    assert theirs.is_directed() != undirected
    back = from_networkx(
        theirs, node_features="features", edge_features="features", weight="weight"
    )
    np.testing.assert_array_equal(back.nodes, graph.nodes)
    assert rows(back) == rows(graph)


def test_networkx_keeps_the_direction():
    theirs = nx.DiGraph([("a", "b"), ("b", "c")])
    graph = from_networkx(theirs)
    assert set(zip(graph.senders.tolist(), graph.receivers.tolist())) == {(0, 1), (1, 2)}
    np.testing.assert_array_equal(graph.adjacency().T, nx.to_numpy_array(theirs))
    assert list(to_networkx(graph).edges) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_every_kind_of_networkx_graph(kind):
    theirs = kind()
    theirs.add_nodes_from([(3, {"size": 1.0, "at": [2.0, 3.0]}), (1, {"size": 4, "at": [5, 6]})])
    theirs.add_edge(3, 1, cost=0.5)
    theirs.add_edge(3, 1, cost=0.25)
    graph = from_networkx(theirs, node_features=("size", "at"), weight="cost")
    np.testing.assert_array_equal(graph.nodes, [[1, 2, 3], [4, 5, 6]])
    costs = [0.25, 0.5] if theirs.is_multigraph() else [0.25]
    assert sorted(graph.weights.tolist()) == sorted(costs * (1 if theirs.is_directed() else 2))


def test_networkx_without_edges():
    theirs = nx.empty_graph(3)
    assert from_networkx(theirs).n_edges == 0
    assert to_networkx(from_networkx(theirs)).number_of_nodes() == 3


@pytest.mark.parametrize("seed", range(4))
def test_scipy_writes_an_edge_from_u_to_v_as_a_uv(seed):
    graph = random_graph(seed)
    A = to_scipy(graph)
    expected = np.zeros((8, 8))
    for u, v, weight in zip(graph.senders, graph.receivers, graph.weights):
        expected[u, v] += weight
    np.testing.assert_allclose(A.toarray(), expected, rtol=1e-6)
    np.testing.assert_allclose(A.toarray(), graph.adjacency().T, rtol=1e-6)
    np.testing.assert_allclose(from_scipy(A).adjacency(), graph.adjacency(), rtol=1e-6)


def test_scipy_agrees_on_what_is_reachable():
    graph = Graph.from_edges([(0, 1), (1, 2)], undirected=False)
    distance = shortest_path(to_scipy(graph), unweighted=True)
    assert distance[0, 2] == 2
    assert np.isinf(distance[2, 0])


@pytest.mark.parametrize("seed", range(4))
def test_pyg_fields_and_back(seed):
    graph = random_graph(seed)
    fields = to_pyg(graph, np.arange(8))
    assert fields["edge_index"].dtype == np.int64
    np.testing.assert_array_equal(fields["edge_index"][0], graph.senders)
    back, y = from_pyg(fields)
    assert y.tolist() == list(range(8))
    assert rows(back) == rows(graph)


def test_pyg_reads_attributes_of_an_object_and_a_batch():
    class Data:
        x = np.eye(3, dtype=np.float32)
        edge_index = np.array([[0, 2], [1, 1]])
        batch = np.array([0, 0, 1])

    graph, y = from_pyg(Data())
    assert y is None
    assert graph.n_graphs == 2
    assert graph.graph_ids.tolist() == [0, 0, 1]
    assert set(zip(graph.senders.tolist(), graph.receivers.tolist())) == {(0, 1), (2, 1)}
    batch = batch_graphs([Graph.from_edges([(0, 1)])] * 2)
    assert from_pyg(to_pyg(batch))[0].n_graphs == 2


def test_pyg_without_edges_or_features():
    nothing = np.zeros((2, 0), np.int64)
    assert from_pyg({"edge_index": nothing, "num_nodes": 3})[0].n_nodes == 3
    assert from_pyg({"edge_index": np.array([[0], [4]])})[0].n_nodes == 5


def test_a_tensor_is_converted_by_its_array_protocol():
    class Tensor:
        def __init__(self, values):
            self.values = np.asarray(values)

        def __array__(self, dtype=None, copy=None):
            return self.values

    data = {"x": Tensor(np.eye(2)), "edge_index": Tensor([[0], [1]])}
    assert from_pyg(data)[0].n_edges == 1


def test_padding_is_left_out():
    graph = random_graph(0)
    padded = pad_graph(graph, n_nodes=20, n_edges=40)
    assert rows(padded) == rows(graph)
    assert to_scipy(padded).shape == (8, 8)
    assert to_networkx(padded).number_of_nodes() == 8
    np.testing.assert_array_equal(to_pyg(padded)["x"], graph.nodes)


class OnTheDevice:
    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


BAD = {
    "no networkx graph": (lambda: from_networkx([(0, 1)]), "expected a networkx graph, got list"),
    "no nodes": (lambda: from_networkx(nx.Graph()), "the graph has no nodes"),
    "a missing attribute": (
        lambda: from_networkx(nx.path_graph(2), node_features="size"),
        r"the node \(0,\) has no attribute 'size'; it has none",
    ),
    "strings": (
        lambda: from_networkx(nx.karate_club_graph(), node_features="club"),
        "'club' must be a number, or vectors of the same length",
    ),
    "a directed graph as undirected": (
        lambda: to_networkx(Graph.from_edges([(0, 1)], undirected=False), undirected=True),
        "the edge from node 0 to node 1 has no reverse",
    ),
    "a dense matrix": (lambda: from_scipy(np.eye(2)), "expected a SciPy sparse array, got ndarray"),
    "a matrix that is not square": (
        lambda: from_scipy(scipy.sparse.csr_array((2, 3))),
        "expected a square matrix",
    ),
    "no edge_index": (lambda: from_pyg({"x": np.eye(2)}), "got no such field"),
    "a transposed edge_index": (
        lambda: from_pyg({"edge_index": np.zeros((3, 2), int)}),
        r"expected shape \(2, e\), senders and receivers; got shape \(3, 2\)",
    ),
    "a batch that is not sorted": (
        lambda: from_pyg({"edge_index": np.array([[0], [1]]), "batch": np.array([1, 0])}),
        "expected the ascending number of a graph for each node",
    ),
    "a tensor on a device": (
        lambda: from_pyg({"edge_index": OnTheDevice()}),
        r"edge_index: cannot be converted to NumPy.*data.detach\(\).cpu\(\)",
    ),
    "stacked graphs": (
        lambda: to_edges(jax.tree.map(lambda a: a[None], Graph.from_edges([(0, 1)]))),
        "Convert stacked graphs one by one",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input(bad):
    make, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        make()
