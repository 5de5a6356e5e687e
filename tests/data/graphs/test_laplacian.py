"""Laplacians against networkx, the energy against loops and the quadratic form, padding."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from thetax.data import Graph, batch_graphs, dirichlet_energy, laplacian, pad_graph, stack_graphs
from thetax.layers import gcn_propagate

KINDS = ("combinatorial", "normalised", "random walk")


def irregular(seed: int = 0, *, weighted: bool = False) -> tuple[Graph, nx.Graph]:
    """A random graph with an isolated node, a self-loop and, if it has no weights, a doubled edge;
    and the same for networkx, the doubled edge as a weight of 2.
    """
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (4, 5), (5, 5)]
    pairs += [] if weighted else [(0, 1)]
    weights = rng.uniform(0.5, 2, len(pairs)).astype(np.float32) if weighted else None
    graph = Graph.from_edges(pairs, rng.normal(size=(7, 3)).astype(np.float32), weights=weights)
    other = nx.Graph()
    other.add_nodes_from(range(7))
    for k, (u, v) in enumerate(pairs):
        w = 1.0 if weights is None else float(weights[k])
        old = other.get_edge_data(u, v, {"weight": 0.0})["weight"]
        other.add_edge(u, v, weight=old + w)
    return graph, other


def reference(other: nx.Graph, kind: str) -> np.ndarray:
    A = nx.to_numpy_array(other)
    d = A.sum(axis=1)
    if kind == "combinatorial":
        return nx.laplacian_matrix(other).toarray()
    if kind == "normalised":
        return nx.normalized_laplacian_matrix(other).toarray()
    return np.array(
        [(d[i] * (np.arange(7) == i) - A[i]) / d[i] if d[i] else 0 * d for i in range(7)]
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_networkx(kind, weighted):
    graph, other = irregular(weighted=weighted)
    L = laplacian(graph, kind)
    np.testing.assert_allclose(L, reference(other, kind), atol=1e-6)
    np.testing.assert_array_equal(L[6], 0)  # the isolated node
    if kind != "normalised":
        np.testing.assert_allclose(L.sum(axis=1), 0, atol=1e-6)


def test_with_self_loops_it_is_that_of_the_gcn():
    graph, _ = irregular()
    smoothed = gcn_propagate(graph, jnp.eye(7))
    np.testing.assert_allclose(
        laplacian(graph, "normalised", self_loops=True), jnp.eye(7) - smoothed, atol=1e-6
    )


def test_a_directed_edge_counts_at_its_receiver():
    arrow = Graph.from_edges([(0, 1)], undirected=False)
    assert laplacian(arrow).tolist() == [[0.0, 0.0], [-1.0, 1.0]]


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("kind", ["combinatorial", "normalised"])
def test_energy_is_the_quadratic_form_and_a_sum_over_edges(kind, self_loops):
    graph, other = irregular(weighted=True)
    x = np.asarray(graph.nodes, np.float64)
    L = np.asarray(laplacian(graph, kind, self_loops=self_loops), np.float64)
    energy = dirichlet_energy(graph, kind=kind, self_loops=self_loops)
    np.testing.assert_allclose(energy, np.trace(x.T @ L @ x), rtol=1e-5)
    A = nx.to_numpy_array(other)
    d = A.sum(axis=1) + self_loops
    scale = 1 / np.sqrt(np.where(d > 0, d, np.inf)) if kind == "normalised" else np.ones(7)
    by_loop = sum(
        A[i, j] * np.sum((x[i] * scale[i] - x[j] * scale[j]) ** 2) / 2
        for i in range(7)
        for j in range(7)
    )
    np.testing.assert_allclose(energy, by_loop, rtol=1e-5)
    vector = dirichlet_energy(graph, graph.nodes[:, 0], kind=kind, self_loops=self_loops)
    np.testing.assert_allclose(vector, x[:, 0] @ L @ x[:, 0], rtol=1e-5)


def test_a_batch_has_an_energy_for_each_graph_and_padding_has_none():
    first, _ = irregular(0)
    second, _ = irregular(1)
    alone = [float(dirichlet_energy(graph)) for graph in (first, second)]
    batch = batch_graphs([first, second], n_nodes=20, n_edges=60)
    batch = batch.with_nodes(jnp.where(batch.node_mask[:, None], batch.nodes, 9.0))
    np.testing.assert_allclose(dirichlet_energy(batch), alone, rtol=1e-6)
    stacked = stack_graphs([first, second])
    np.testing.assert_allclose(jax.vmap(dirichlet_energy)(stacked), alone, rtol=1e-6)
    padded = pad_graph(first, n_nodes=9, n_edges=30)
    for kind in KINDS:
        L = laplacian(padded, kind, self_loops=True)
        np.testing.assert_array_equal(L[7:], 0)
        np.testing.assert_array_equal(L[:7, :7], laplacian(first, kind, self_loops=True))


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    graph, _ = irregular()
    with pytest.raises(ValueError, match="did you mean normalised"):
        laplacian(graph, "normalized")
    with pytest.raises(ValueError, match="kind is one of combinatorial, normalised; got"):
        dirichlet_energy(graph, kind="random walk")
    with pytest.raises(ValueError, match="expected a row of x for each of the 7 nodes"):
        dirichlet_energy(graph, jnp.ones((3, 2)))
