"""The type `Graph`: construction from all kinds of edges, padding, batches, and bad input."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import scipy.sparse

from thetax.core import predict
from thetax.data import (
    Graph,
    batch_graphs,
    erdos_renyi,
    load_graph,
    pad_graph,
    permute_nodes,
    stack_graphs,
)
from thetax.layers import GCN


def random_pairs(seed: int, n: int = 7, e: int = 12) -> np.ndarray:
    """Edges with self-loops, doubled edges and isolated nodes."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n - 1, size=(e, 2))
    return np.concatenate([pairs, pairs[:2], [[0, 0]]])


def by_loop(pairs, n, undirected):
    """The adjacency matrix, entry (i, j) the number of edges from j to i."""
    A = np.zeros((n, n))
    for u, v in pairs:
        A[v, u] += 1
        if undirected and u != v:
            A[u, v] += 1
    return A


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_adjacency_of_edges_is_the_loops(seed, undirected):
    pairs = random_pairs(seed)
    graph = Graph.from_edges(pairs, n_nodes=7, undirected=undirected)
    np.testing.assert_array_equal(graph.adjacency(), by_loop(pairs, 7, undirected))
    order = np.lexsort((graph.senders, graph.receivers))
    np.testing.assert_array_equal(order, np.arange(graph.n_edges))


@pytest.mark.parametrize("seed", range(20))
def test_adjacency_and_degrees_are_those_of_networkx(seed):
    theirs = nx.gnp_random_graph(9, 0.3, seed=seed)
    pairs = np.array(theirs.edges)
    graph = Graph.from_edges(pairs, n_nodes=9)
    np.testing.assert_array_equal(graph.adjacency(), nx.to_numpy_array(theirs))
    degrees = np.bincount(graph.receivers, minlength=9)
    assert degrees.tolist() == [d for _, d in theirs.degree]


def test_an_edge_points_from_its_sender_to_its_receiver():
    """Row 1 of A collects from node 0."""
    graph = Graph.from_edges([(0, 1)], undirected=False)
    assert (graph.senders.tolist(), graph.receivers.tolist()) == ([0], [1])
    np.testing.assert_array_equal(graph.adjacency() @ jnp.array([5.0, 7.0]), [0, 5])


def test_features_and_weights_follow_their_edges():
    pairs = np.array([[3, 0], [1, 2], [2, 2]])
    features = np.array([[10.0], [20.0], [30.0]])
    graph = Graph.from_edges(pairs, n_nodes=4, edges=features, weights=features[:, 0] / 10)
    rows = zip(
        graph.senders.tolist(),
        graph.receivers.tolist(),
        graph.edges.ravel().tolist(),
        graph.weights.tolist(),
    )
    expected = {(3, 0, 10, 1), (0, 3, 10, 1), (1, 2, 20, 2), (2, 1, 20, 2), (2, 2, 30, 3)}
    assert set(rows) == expected
    assert graph.n_edges == 5  # a self-loop is one edge


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array, scipy.sparse.coo_array])
def test_from_adjacency_and_back(kind):
    A = np.array([[0, 2.0, 0], [0, 0, 1], [0, 1, 0]])
    graph = Graph.from_adjacency(kind(A))
    np.testing.assert_array_equal(graph.adjacency(), A)
    assert (1, 0) in set(zip(graph.senders.tolist(), graph.receivers.tolist()))  # a_01: 1 -> 0


def test_an_adjacency_without_entries_is_a_graph_without_edges():
    assert Graph.from_adjacency(np.zeros((3, 3))).n_edges == 0
    assert Graph.from_adjacency(scipy.sparse.csr_array((3, 3))).n_nodes == 3


@pytest.mark.parametrize("extra", [(1, 0), (1, 3), (5, 9)])
def test_padding_is_masked_and_changes_no_adjacency(extra):
    graph = Graph.from_edges(random_pairs(0), n_nodes=7)
    padded = pad_graph(graph, n_nodes=7 + extra[0], n_edges=graph.n_edges + extra[1])
    assert padded.node_mask.tolist() == [True] * 7 + [False] * extra[0]
    assert padded.edge_mask.tolist() == [True] * graph.n_edges + [False] * extra[1]
    np.testing.assert_array_equal(padded.adjacency()[:7, :7], graph.adjacency())
    assert not padded.adjacency()[7:].any()
    assert not padded.adjacency()[:, 7:].any()


def test_a_batch_is_block_diagonal():
    graphs = [Graph.from_edges(random_pairs(seed), n_nodes=7) for seed in range(3)]
    batch = batch_graphs(graphs, n_nodes=25, n_edges=120)
    blocks = scipy.linalg.block_diag(*(graph.adjacency() for graph in graphs), np.zeros((4, 4)))
    np.testing.assert_array_equal(batch.adjacency(), blocks)
    assert batch.graph_ids.tolist() == [0] * 7 + [1] * 7 + [2] * 7 + [3] * 4
    assert np.all(np.diff(batch.receivers) >= 0)


def test_stacked_graphs_are_examples():
    key = jax.random.key(0)
    graphs = [Graph.from_edges([(0, 1)]), Graph.from_edges([(0, 1), (1, 2), (2, 0)])]
    layer = GCN.init(1, 2, key=key)
    stacked = stack_graphs(graphs)
    assert stacked.nodes.shape == (2, 3, 1)
    ys = predict(layer, stacked).nodes
    for y, graph in zip(ys, graphs):
        np.testing.assert_allclose(y[: graph.n_nodes], layer(graph).nodes, rtol=1e-6)


def test_permuted_nodes_permute_everything():
    pairs = random_pairs(1)
    features = np.arange(len(pairs), dtype=np.float32)[:, None]
    graph = Graph.from_edges(pairs, np.eye(7), undirected=False, edges=features)
    order = np.random.default_rng(0).permutation(7)
    permuted = permute_nodes(graph, order)
    P = np.eye(7)[order]
    np.testing.assert_array_equal(permuted.adjacency(), P @ graph.adjacency() @ P.T)
    np.testing.assert_array_equal(permuted.nodes, P @ graph.nodes)
    listed = lambda g, number: sorted(
        (number[s], number[r], f)
        for s, r, f in zip(g.senders.tolist(), g.receivers.tolist(), g.edges.ravel().tolist())
    )
    assert listed(permuted, order.tolist()) == listed(graph, list(range(7)))


BAD = {
    "an edge to a missing node": (
        lambda: Graph.from_edges([(0, 1), (1, 5)], np.zeros((4, 2))),
        "row 1 is an edge from node 1 to node 5, but there are 4 nodes.*Give features of all",
    ),
    "a negative node": (
        lambda: Graph.from_edges([(0, -1)], n_nodes=3),
        "row 0 is an edge from node 0 to node -1",
    ),
    "float indices": (
        lambda: Graph.from_edges(np.array([[0.0, 1.0]])),
        r"expected indices of nodes, integers; got float64. Convert: pairs.astype\(int\)",
    ),
    "an edge_index": (
        lambda: Graph.from_edges(np.zeros((2, 5), int)),
        r"expected shape \(e, 2\).*got \(2, 5\). Transpose it",
    ),
    "too few node features": (
        lambda: Graph.from_edges([(0, 1)], np.zeros((3, 1)), n_nodes=4),
        "nodes: 3 rows, but n_nodes=4. Leave out n_nodes",
    ),
    "edge features of the wrong length": (
        lambda: Graph.from_edges([(0, 1), (1, 2)], edges=np.zeros((4, 2))),
        "edges: expected a row for each of the 2 pairs, got 4",
    ),
    "vectors as weights": (
        lambda: Graph.from_edges([(0, 1)], weights=np.zeros((1, 2))),
        r"weights: expected shape \(1,\), got \(1, 2\). Use edges",
    ),
    "an empty graph": (
        lambda: Graph.from_edges(np.zeros((0, 2), int), np.zeros((0, 3))),
        "the graph has no edges. If this is meant, use Graph.from_nodes",
    ),
    "no nodes": (
        lambda: Graph.from_nodes(np.zeros((0, 3))),
        r"nodes: expected at least one example, but the shape is \(0, 3\)",
    ),
    "a graph with no edges": (
        lambda: Graph.from_edges([], np.zeros((3, 1))),
        r"the graph has no edges. If this is meant, use Graph.from_nodes\(nodes\)",
    ),
    "NaN features": (
        lambda: Graph.from_edges([(0, 1)], np.array([[1.0], [np.nan]])),
        "nodes: expected finite numbers, but row 1, column 0 is nan",
    ),
    "NaN weights": (
        lambda: Graph.from_edges([(0, 1)], weights=np.array([np.inf])),
        "weights: expected finite numbers, but row 0 is inf",
    ),
    "a matrix that is not square": (
        lambda: Graph.from_adjacency(np.zeros((2, 3))),
        r"A: expected a square matrix.*got shape \(2, 3\)",
    ),
    "a batch larger than its padding": (
        lambda: batch_graphs([Graph.from_edges([(0, 1)])] * 3, n_nodes=5),
        "6 nodes and 6 edges do not fit into n_nodes=5",
    ),
    "no node for padded edges": (
        lambda: pad_graph(Graph.from_edges([(0, 1)]), n_nodes=2, n_edges=4),
        "padded edges need one more node",
    ),
    "no graphs": (lambda: stack_graphs([]), "expected at least one graph"),
    "different features": (
        lambda: stack_graphs(
            [Graph.from_nodes(np.ones((2, 1))), Graph.from_nodes(np.ones((2, 3)))]
        ),
        r"`nodes` of graph 0 is \(\(1,\), 'float\d+'\), of graph 1 \(\(3,\)",
    ),
    "a batch of padded graphs": (
        lambda: batch_graphs([pad_graph(Graph.from_edges([(0, 1)]), n_nodes=4, n_edges=4)]),
        "single graphs without padding",
    ),
    "an order that repeats": (
        lambda: permute_nodes(Graph.from_edges([(0, 1)]), [0, 0]),
        "expected a permutation of the 2 nodes",
    ),
    "features of other nodes": (
        lambda: Graph.from_edges([(0, 1)]).with_nodes(jnp.ones((3, 1))),
        "expected a row for each of the 2 nodes",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_refused_with_what_to_do(bad):
    make, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        make()


def test_a_layer_refuses_features_of_the_wrong_length():
    layer = GCN.init(3, 2, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"expected 3 features for each node, got .* \(2, 1\)"):
        layer(Graph.from_edges([(0, 1)]))


def test_memory_is_that_of_nodes_and_edges():
    """The adjacency matrix of 20,000 nodes would have 1.6 GB."""
    graph = erdos_renyi(20_000, 2e-4, key=jax.random.key(0))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(graph))
    assert size == 8 * graph.n_nodes + 8 * graph.n_edges
    compiled = jax.jit(lambda g: GCN.init(1, 4, key=jax.random.key(0))(g).nodes).lower(graph)
    memory = compiled.compile().memory_analysis()
    assert memory.temp_size_in_bytes < 40 * (graph.n_nodes + graph.n_edges)


def test_the_karate_club_is_a_graph():
    data = load_graph("karate")
    theirs = nx.karate_club_graph()
    np.testing.assert_array_equal(data.graph.adjacency(), nx.to_numpy_array(theirs))
    assert [data.classes[label] for label in data.labels] == [
        club for _, club in theirs.nodes(data="club")
    ]
