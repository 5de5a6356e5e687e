r"""Positional encodings of nodes: features that say where in the graph a node is (§7.4).

Without them nodes with the same neighbourhood tree look the same to message passing. Laplacian
encodings (Dwivedi & Bresson 2021) are eigenvectors of the normalised Laplacian; their signs are
arbitrary, so `flip_eigenvector_signs` draws them anew for each step of training. Random-walk
encodings (Dwivedi et al. 2022) are return probabilities and need no such choice, and they do not
depend on the numbers of the nodes.
"""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.sparse as sparse
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.sparse.linalg import eigsh

from ...check import expect_count
from .graph import Graph
from .graph_fourier import canonical_basis, symmetric_laplacian

MAX_DENSE_NODES = 1000  # larger graphs use Lanczos iterations
BLOCK = 512  # columns of the walk matrix at a time


def laplacian_encoding(graph: Graph, k: int) -> Float[Array, "v {k}"]:
    r"""The `k` eigenvectors of the normalised Laplacian with the smallest eigenvalues, without the
    first.

    Of a batch, each graph by itself; a graph with fewer nodes gets columns of zeros, and so does
    padding. Signs and bases of eigenspaces are those of `graph_fourier`; beyond 1000 nodes an
    eigenspace that the last column cuts depends on the solver.

    >>> square = Graph.from_edges([(0, 1), (1, 2), (2, 3), (3, 0)])
    >>> (2 * laplacian_encoding(square, 2) ** 2).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    expect_count("laplacian_encoding", k=k)
    encoding = np.zeros((graph.n_nodes, k))
    for nodes, part in _components_of_batch(graph):
        n = min(k, len(nodes) - 1)
        encoding[nodes, :n] = smallest_eigenvectors("laplacian_encoding", part, n + 1)[:, 1:]
    return jnp.asarray(encoding, graph.nodes.dtype)


def random_walk_encoding(graph: Graph, k: int) -> Float[Array, "v {k}"]:
    r"""Column $t$ is the probability $((D^{-1} A)^t)_{ii}$ that a random walk from node $i$ is back
    after $t$ steps, $t = 1, \dots, k$.

    Padding gets zeros. The memory is proportional to nodes and edges.

    >>> random_walk_encoding(Graph.from_edges([(0, 1), (1, 2)]), 2).tolist()
    [[0.0, 0.5], [0.0, 1.0], [0.0, 0.5]]
    """
    expect_count("random_walk_encoding", k=k)
    A = sparse_adjacency(graph)
    d = A.sum(axis=1)
    walk = sparse.diags_array(np.divide(1, d, out=np.zeros_like(d), where=d > 0)) @ A
    encoding = np.zeros((graph.n_nodes, k))
    for start in range(0, graph.n_nodes, BLOCK):
        columns = np.arange(start, min(start + BLOCK, graph.n_nodes))
        power = np.zeros((graph.n_nodes, len(columns)))
        power[columns, columns - start] = 1
        for t in range(k):
            power = walk @ power
            encoding[columns, t] = power[columns, columns - start]
    return jnp.asarray(encoding, graph.nodes.dtype)


def append_features(graph: Graph, features: Any) -> Graph:
    """The graph with more features of the nodes, after those that it has.

    >>> graph = Graph.from_edges([(0, 1), (1, 2)])
    >>> append_features(graph, random_walk_encoding(graph, 2)).nodes.tolist()
    [[1.0, 0.0, 0.5], [1.0, 0.0, 1.0], [1.0, 0.0, 0.5]]
    """
    features = jnp.asarray(features)
    if features.ndim != 2 or len(features) != graph.n_nodes or graph.nodes.ndim != 2:
        raise ValueError(
            f"append_features: expected a row of features for each of the {graph.n_nodes} nodes "
            f"with features of shape {graph.nodes.shape}, got shape {features.shape}."
        )
    return graph.with_nodes(
        jnp.concatenate([graph.nodes, features.astype(graph.nodes.dtype)], axis=1)
    )


def flip_eigenvector_signs(graph: Graph, *, k: int, key: PRNGKeyArray) -> Graph:
    """The graph with a random sign for each of its last `k` features, the same at all nodes of a
    graph: augmentation for Laplacian encodings.

    `train.with_augmentation(objective, partial(flip_eigenvector_signs, k=k))` draws the signs anew
    for each step and example.

    >>> graph = append_features(Graph.from_edges([(0, 1)]), [[2.0], [3.0]])
    >>> flip_eigenvector_signs(graph, k=1, key=jr.key(2)).nodes.tolist()
    [[1.0, -2.0], [1.0, -3.0]]
    """
    expect_count("flip_eigenvector_signs", k=k)
    if graph.nodes.ndim != 2 or graph.nodes.shape[1] < k:
        raise ValueError(
            f"flip_eigenvector_signs: expected at least k={k} features for each node, got nodes of "
            f"shape {graph.nodes.shape}."
        )
    count = 1 if graph.n_graphs is None else graph.n_graphs
    signs = jr.rademacher(key, (count + 1, k), graph.nodes.dtype)[graph.graph_ids]
    kept, flipped = graph.nodes[:, :-k], graph.nodes[:, -k:]
    return graph.with_nodes(jnp.concatenate([kept, signs * flipped], axis=1))


def sparse_adjacency(graph: Graph) -> sparse.csr_array:
    """The adjacency matrix on the host as a SciPy sparse array, without the edges of padding.

    >>> sparse_adjacency(Graph.from_edges([(0, 1)], undirected=False)).toarray().tolist()
    [[0.0, 0.0], [1.0, 0.0]]
    """
    of_node = np.asarray(graph.graph_ids)[np.asarray(graph.receivers)]
    real = of_node < (1 if graph.n_graphs is None else graph.n_graphs)
    w = np.ones(graph.n_edges) if graph.weights is None else np.asarray(graph.weights, np.float64)
    at = np.asarray(graph.receivers)[real], np.asarray(graph.senders)[real]
    return sparse.csr_array((w[real], at), shape=(graph.n_nodes, graph.n_nodes))


def smallest_eigenvectors(name: str, graph: Graph, n: int) -> Float[np.ndarray, "v {n}"]:
    """The `n` eigenvectors of the normalised Laplacian with the smallest eigenvalues, in double
    precision; of large graphs by Lanczos iterations.

    >>> graph = Graph.from_edges([(0, 1)])
    >>> (smallest_eigenvectors("example", graph, 2) * 2**0.5).round(6).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    if graph.n_nodes <= MAX_DENSE_NODES:
        L = symmetric_laplacian(name, graph, "normalised")
        eigenvalues, vectors = np.linalg.eigh(L)
        return canonical_basis(eigenvalues, vectors)[:, :n]
    A = sparse_adjacency(graph)
    if abs(A - A.T).max() > 0:
        raise ValueError(
            f"{name}: expected an undirected graph, whose edges point both ways with the same "
            "weight. Make it with Graph.from_edges(pairs, undirected=True)."
        )
    d = A.sum(axis=1)
    scale = sparse.diags_array(np.divide(1, np.sqrt(d), out=np.zeros_like(d), where=d > 0))
    coupled = scale @ A @ scale + sparse.diags_array((d == 0).astype(float))
    largest, vectors = eigsh(
        coupled + sparse.eye_array(len(d)),
        n,
        which="LA",
        v0=np.random.default_rng(0).normal(size=len(d)),
    )
    order = np.argsort(-largest)
    return canonical_basis(2 - largest[order], vectors[:, order])


def _components_of_batch(graph: Graph) -> list[tuple[np.ndarray, Graph]]:
    """The node numbers and the subgraph of each graph of a batch, without padding."""
    ids = np.asarray(graph.graph_ids)
    senders, receivers = np.asarray(graph.senders), np.asarray(graph.receivers)
    parts = []
    for number in range(1 if graph.n_graphs is None else graph.n_graphs):
        nodes = np.flatnonzero(ids == number)
        if not len(nodes):
            continue
        own = ids[receivers] == number
        parts.append(
            (
                nodes,
                Graph(
                    jnp.ones((len(nodes), 1)),
                    jnp.asarray(senders[own] - nodes[0]),
                    jnp.asarray(receivers[own] - nodes[0]),
                    None,
                    None if graph.weights is None else graph.weights[own],
                    jnp.zeros(len(nodes), jnp.int32),
                ),
            )
        )
    return parts
