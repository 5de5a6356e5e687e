"""Chebyshev filters: cosines of the eigenvalues, dense matrices, options, batches."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from numpy.polynomial import chebyshev

from thetax.data import Graph, batch_graphs, laplacian, pad_graph, permute_nodes
from thetax.layers import ChebyshevFilter, scaled_laplacian_propagate

KINDS = ("combinatorial", "normalised", "random walk")


def connected(d: int = 3, seed: int = 0) -> Graph:
    """A graph without isolated nodes, loops and doubled edges."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (4, 5), (4, 0)]
    return Graph.from_edges(pairs, rng.normal(size=(6, d)).astype(np.float32))


def scaled(graph: Graph, kind: str, lambda_max: float | None) -> np.ndarray:
    L = np.asarray(laplacian(graph, kind), np.float64)
    bound = 2 * np.diag(L).max() if kind == "combinatorial" else 2.0
    return 2 * L / (lambda_max or bound) - np.eye(len(L))


@pytest.mark.parametrize("lambda_max", [None, 1.7])
@pytest.mark.parametrize("kind", KINDS)
def test_the_scaled_product(kind, lambda_max):
    graph = connected()
    product = scaled_laplacian_propagate(graph, graph.nodes, kind, lambda_max=lambda_max)
    expected = scaled(graph, kind, lambda_max) @ np.asarray(graph.nodes)
    np.testing.assert_allclose(product, expected, atol=1e-5)
    if lambda_max is None:
        assert np.abs(np.linalg.eigvals(scaled(graph, kind, None))).max() <= 1 + 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])  # Clenshaw's recurrence, and the polynomials
@pytest.mark.parametrize("order", [1, 2, 5])
def test_the_layer_is_a_series_in_the_eigenvalues(order, sizes, kind):
    """By NumPy's evaluation of Chebyshev series at the eigenvalues."""
    d, m = sizes
    alpha, b = jr.normal(jr.key(0), (m, d, order + 1)), jr.normal(jr.key(1), (m,))
    graph = connected(d)
    lambdas, V = np.linalg.eig(scaled(graph, kind, None))
    to_coordinates = np.linalg.inv(V)
    X = np.asarray(graph.nodes, np.float64)
    expected = np.zeros((6, m)) + np.asarray(b)
    for i in range(m):
        for j in range(d):
            response = chebyshev.chebval(lambdas, np.asarray(alpha[i, j], np.float64))
            expected[:, i] += V @ (response * (to_coordinates @ X[:, j]))
    y = ChebyshevFilter(alpha, b, kind)(graph).nodes
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_only_the_first_coefficient_is_a_dense_layer():
    graph = connected()
    alpha = jr.normal(jr.key(0), (2, 3, 1))
    np.testing.assert_allclose(
        ChebyshevFilter(alpha)(graph).nodes, graph.nodes @ alpha[:, :, 0].T, atol=1e-6
    )


def test_self_loops_are_left_out_and_an_isolated_node_keeps_the_even_terms():
    graph = connected()
    pairs = np.stack([graph.senders, graph.receivers], axis=1)
    nodes = np.concatenate([graph.nodes, np.ones((1, 3), np.float32)])
    looped = Graph.from_edges([*pairs.tolist(), (2, 2)], nodes, undirected=False)
    layer = ChebyshevFilter.init(3, 2, order=4, key=jr.key(0))
    y = layer(looped).nodes
    np.testing.assert_allclose(y[:6], layer(graph).nodes, atol=1e-5)
    at_zero = layer.alpha @ np.array([1.0, 0.0, -1.0, 0.0, 1.0], np.float32)  # T_k(0)
    np.testing.assert_allclose(y[6], at_zero @ nodes[6], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_permutations_batches_and_padding(kind):
    """A batch scales every graph by its own bound."""
    graph = connected()
    star = Graph.from_edges([(0, i) for i in range(1, 9)], np.ones((9, 3), np.float32))
    layer = ChebyshevFilter.init(3, 2, order=3, kind=kind, key=jr.key(0))
    alone = layer(graph).nodes
    order = np.random.default_rng(0).permutation(6)
    np.testing.assert_allclose(layer(permute_nodes(graph, order)).nodes, alone[order], atol=1e-5)
    batch = batch_graphs([star, graph], n_nodes=20, n_edges=90)
    np.testing.assert_allclose(layer(batch).nodes[9:15], alone, atol=1e-5)
    padded = pad_graph(graph, n_nodes=9, n_edges=70)
    np.testing.assert_allclose(layer(padded).nodes[:6], alone, atol=1e-5)
    assert np.isfinite(layer(padded).nodes).all()
    empty = Graph.from_nodes(np.ones((3, 3), np.float32))
    assert np.isfinite(layer(empty).nodes).all()


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    with pytest.raises(ValueError, match="lambda_max must be positive, got 0"):
        ChebyshevFilter(jnp.ones((2, 3, 4)), None, lambda_max=0.0)
    with pytest.raises(ValueError, match=r"alpha must be \(m, d, K \+ 1\)"):
        ChebyshevFilter(jnp.ones((2, 3, 0)))
