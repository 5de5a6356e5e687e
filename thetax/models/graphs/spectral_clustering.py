r"""Spectral clustering: clusters of nodes from the eigenvectors of the Laplacian (§7.5).

Ng, Jordan & Weiss (NeurIPS 2001): each node becomes the vector of its entries in the first $k$
eigenvectors of the normalised Laplacian, scaled to norm 1, and k-means clusters these vectors.
"""

import jax.random as jr
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ...check import expect_count
from ...data.graphs import Graph
from ...data.graphs.positional_encoding import smallest_eigenvectors


def spectral_clustering(
    graph: Graph, n_clusters: int, *, key: PRNGKeyArray | None = None
) -> Int[np.ndarray, " v"]:
    """The cluster of each node of an undirected graph, from 0 to `n_clusters` - 1.

    k-means starts ten times, from random points drawn with the key, and keeps the best; without a
    key the draws are always the same. A graph with more components than clusters is not split in
    a meaningful way.

    >>> triangles = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)]
    >>> clusters = spectral_clustering(Graph.from_edges(triangles), 2)
    >>> len(set(clusters[:3].tolist())), len(set(clusters.tolist()))
    (1, 2)
    """
    from sklearn.cluster import KMeans

    expect_count("spectral_clustering", n_clusters=n_clusters)
    points = spectral_embedding(graph, n_clusters)
    seed = 0 if key is None else int(jr.randint(key, (), 0, np.iinfo(np.int32).max))
    means = KMeans(n_clusters, n_init=10, random_state=seed)  # type: ignore[arg-type]
    return means.fit_predict(points)


def spectral_embedding(graph: Graph, k: int) -> Float[np.ndarray, "v {k}"]:
    """The entries of each node in the first `k` eigenvectors of the normalised Laplacian, scaled to
    norm 1.

    >>> spectral_embedding(Graph.from_edges([(0, 1), (2, 3)]), 2).round(6).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    if graph.n_graphs is not None or not bool(graph.node_mask.all()):
        raise ValueError(
            "spectral_embedding: expected one graph without padding; give the graphs of a batch "
            "one by one."
        )
    if k > graph.n_nodes:
        raise ValueError(
            f"spectral_embedding: {k} eigenvectors of a graph with {graph.n_nodes} nodes. Use at "
            f"most {graph.n_nodes}."
        )
    vectors = smallest_eigenvectors("spectral_embedding", graph, k)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
