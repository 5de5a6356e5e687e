"""Spectral clustering finds blocks, components and the factions of the karate club."""

import jax.random as jr
import networkx as nx
import numpy as np
import pytest
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from thetax.data import Graph, batch_graphs, permute_nodes
from thetax.models import spectral_clustering, spectral_embedding


def of(graph: nx.Graph) -> Graph:
    return Graph.from_edges(list(graph.edges), n_nodes=len(graph))


BLOCKS = nx.stochastic_block_model([20, 25, 30], np.full((3, 3), 0.03) + 0.4 * np.eye(3), seed=0)
MEMBERSHIP = np.repeat([0, 1, 2], [20, 25, 30])


def test_it_finds_the_blocks_of_a_block_model():
    clusters = spectral_clustering(of(BLOCKS), 3)
    assert adjusted_rand_score(MEMBERSHIP, clusters) > 0.95
    order = np.random.default_rng(0).permutation(75)
    permuted = spectral_clustering(permute_nodes(of(BLOCKS), order), 3, key=jr.key(0))
    assert adjusted_rand_score(clusters[order], permuted) == 1.0


def test_it_agrees_with_scikit_learn():
    reference = SpectralClustering(
        3, affinity="precomputed", random_state=0, assign_labels="kmeans"
    ).fit_predict(nx.to_numpy_array(BLOCKS))
    assert adjusted_rand_score(spectral_clustering(of(BLOCKS), 3), reference) > 0.95


def test_components_are_clusters_and_the_embedding_is_orthonormal_there():
    graph = of(nx.disjoint_union(nx.complete_graph(4), nx.cycle_graph(5)))
    points = spectral_embedding(graph, 2)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(
        points @ points.T, np.equal.outer([0] * 4 + [1] * 5, [0] * 4 + [1] * 5), atol=1e-9
    )
    clusters = spectral_clustering(graph, 2)
    assert len(set(clusters[:4])) == len(set(clusters[4:])) == 1
    assert clusters[0] != clusters[4]


def test_bad_input():
    with pytest.raises(ValueError, match="expected one graph without padding"):
        spectral_clustering(batch_graphs([of(BLOCKS)]), 2)
    with pytest.raises(ValueError, match="5 eigenvectors of a graph with 3 nodes"):
        spectral_clustering(of(nx.path_graph(3)), 5)
    with pytest.raises(ValueError, match="n_clusters must be an integer >= 1"):
        spectral_clustering(of(BLOCKS), 0)
