"""Encodings against dense matrices, batches and padding, large graphs, sign flips."""

import jax
import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import pytest

from thetax.data import (
    Graph,
    append_features,
    batch_graphs,
    flip_eigenvector_signs,
    graph_fourier,
    laplacian_encoding,
    permute_nodes,
    random_walk_encoding,
)
from thetax.data.graphs import positional_encoding


def of(graph: nx.Graph) -> Graph:
    return Graph.from_edges(list(graph.edges), n_nodes=len(graph))


KARATE = of(nx.karate_club_graph())


def test_laplacian_encoding_is_the_first_eigenvectors():
    expected = graph_fourier(KARATE, "normalised").vectors[:, 1:5]
    np.testing.assert_allclose(laplacian_encoding(KARATE, 4), expected, atol=1e-6)


def test_random_walk_encoding_is_the_diagonal_of_powers():
    A = np.asarray(KARATE.adjacency(), np.float64)
    walk = A / A.sum(axis=1, keepdims=True)
    expected = np.stack([np.diag(np.linalg.matrix_power(walk, t)) for t in range(1, 6)], axis=1)
    np.testing.assert_allclose(random_walk_encoding(KARATE, 5), expected, atol=1e-6)
    order = np.random.default_rng(0).permutation(34)
    np.testing.assert_allclose(
        random_walk_encoding(permute_nodes(KARATE, order), 5), expected[order], atol=1e-6
    )
    isolated = Graph.from_edges([(0, 1)], n_nodes=3)
    assert random_walk_encoding(isolated, 2).tolist() == [[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]


def test_blocks_of_columns_change_nothing(monkeypatch):
    expected = random_walk_encoding(KARATE, 3)
    monkeypatch.setattr(positional_encoding, "BLOCK", 5)
    np.testing.assert_array_equal(random_walk_encoding(KARATE, 3), expected)


def test_a_batch_is_its_graphs_and_zeros():
    graphs = [of(nx.path_graph(5)), of(nx.complete_graph(3))]
    batch = batch_graphs(graphs, n_nodes=12, n_edges=30)
    for encode in (laplacian_encoding, random_walk_encoding):
        whole = encode(batch, 3)
        for graph, rows in zip(graphs, (slice(0, 5), slice(5, 8))):
            np.testing.assert_allclose(whole[rows], encode(graph, 3), atol=1e-7)
        np.testing.assert_array_equal(whole[8:], 0)
    np.testing.assert_array_equal(laplacian_encoding(graphs[1], 3)[:, 2], 0)  # it has 3 nodes


def test_lanczos_gives_the_same(monkeypatch):
    graph = of(nx.gnp_random_graph(60, 0.1, seed=3))
    expected = laplacian_encoding(graph, 4)
    monkeypatch.setattr(positional_encoding, "MAX_DENSE_NODES", 10)
    np.testing.assert_allclose(laplacian_encoding(graph, 4), expected, atol=1e-5)
    with pytest.raises(ValueError, match="undirected"):
        laplacian_encoding(Graph.from_edges([(i, i + 1) for i in range(20)], undirected=False), 2)


def test_signs_are_drawn_for_each_graph_and_column():
    batch = batch_graphs([of(nx.path_graph(5))] * 40, n_nodes=210)
    batch = append_features(batch, laplacian_encoding(batch, 2))
    flipped = jax.jit(lambda graph, key: flip_eigenvector_signs(graph, k=2, key=key))(
        batch, jr.key(0)
    )
    np.testing.assert_array_equal(flipped.nodes[:, 0], batch.nodes[:, 0])
    signs = np.asarray(flipped.nodes[:200, 1:] / batch.nodes[:200, 1:]).reshape(40, 5, 2)
    signs = np.where(np.isnan(signs), signs[:, :1], signs)  # an entry of 0 has no sign
    np.testing.assert_array_equal(signs, np.broadcast_to(signs[:, :1], signs.shape))
    first = signs[:, 0]
    assert set(np.unique(first)) == {-1.0, 1.0}
    assert (np.abs(first.mean(axis=0)) < 0.5).all()
    assert (first[:, 0] != first[:, 1]).any()


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    with pytest.raises(ValueError, match="k must be an integer >= 1"):
        laplacian_encoding(KARATE, 0)
    with pytest.raises(ValueError, match="expected a row of features for each of the 34 nodes"):
        append_features(KARATE, jnp.ones((3, 2)))
    with pytest.raises(ValueError, match="at least k=2 features"):
        flip_eigenvector_signs(KARATE, k=2, key=jr.key(0))
