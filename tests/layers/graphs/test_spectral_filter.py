"""Spectral filters: matrix functions, the learned response, permutations, gradients."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg

from thetax.data import Graph, batch_graphs, laplacian, pad_graph, permute_nodes
from thetax.layers import PolynomialFilter, SpectralFilter, spectral_filter


def of_two_parts(d: int = 3) -> Graph:
    """A square, a triangle and an isolated node: with eigenvalues of multiplicity 2 and 3."""
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 4)]
    nodes = np.random.default_rng(0).normal(size=(8, d)).astype(np.float32)
    return Graph.from_edges(pairs, nodes)


@pytest.mark.parametrize("kind", ["combinatorial", "normalised"])
def test_functions_of_the_laplacian(kind):
    graph = of_two_parts()
    L = np.asarray(laplacian(graph, kind), np.float64)
    x = graph.nodes
    functions = {
        "identity": (jnp.ones_like, np.eye(8)),
        "Laplacian": (lambda z: z, L),
        "heat": (lambda z: jnp.exp(-0.5 * z), scipy.linalg.expm(-0.5 * L)),
    }
    for g, expected in functions.values():
        np.testing.assert_allclose(spectral_filter(graph, x, g, kind), expected @ x, atol=1e-5)
        np.testing.assert_allclose(
            spectral_filter(graph, x[:, 0], g, kind), expected @ x[:, 0], atol=1e-5
        )


@pytest.mark.parametrize("knots", [2, 5])
def test_the_layer_is_a_loop_over_channels(knots):
    layer = SpectralFilter(jr.normal(jr.key(0), (2, 3, knots)), jr.normal(jr.key(1), (2,)))
    graph = of_two_parts()
    lambdas, U = np.linalg.eigh(np.asarray(laplacian(graph, "normalised"), np.float64))
    X = np.asarray(graph.nodes, np.float64)
    expected = np.zeros((8, 2)) + np.asarray(layer.b)
    for m in range(2):
        for n in range(3):
            g = np.interp(lambdas, np.linspace(0, 2, knots), layer.theta[m, n])
            expected[:, m] += U @ (g * (U.T @ X[:, n]))
    np.testing.assert_allclose(layer(graph).nodes, expected, rtol=1e-4, atol=1e-4)
    at = jnp.array([0.0, 0.3, 2.0])
    by_interp = [np.interp(at, np.linspace(0, 2, knots), layer.theta[1, 2])]
    np.testing.assert_allclose(layer.response(at)[:, 1, 2], by_interp[0], atol=1e-6)


def test_two_knots_are_a_polynomial_of_degree_one():
    layer = SpectralFilter.init(3, 2, knots=2, key=jr.key(0))
    low, high = layer.theta[:, :, 0], layer.theta[:, :, 1]
    same = PolynomialFilter(jnp.stack([low, (high - low) / 2], axis=-1), layer.b)
    graph = of_two_parts()
    np.testing.assert_allclose(layer(graph).nodes, same(graph).nodes, atol=1e-5)


def test_permutations_batches_and_padding():
    graph = of_two_parts()
    layer = SpectralFilter.init(3, 2, knots=4, key=jr.key(0))
    alone = layer(graph).nodes
    order = np.random.default_rng(0).permutation(8)
    np.testing.assert_allclose(layer(permute_nodes(graph, order)).nodes, alone[order], atol=1e-5)
    np.testing.assert_allclose(layer(batch_graphs([graph, graph])).nodes[8:], alone, atol=1e-5)
    padded = pad_graph(graph, n_nodes=11, n_edges=30)
    np.testing.assert_allclose(layer(padded).nodes[:8], alone, atol=1e-5)


def test_gradients_are_finite_where_eigenvalues_coincide():
    layer = SpectralFilter.init(3, 2, knots=4, key=jr.key(0))
    graph = of_two_parts()
    weighted = Graph(
        graph.nodes, graph.senders, graph.receivers, None, jnp.ones(14), graph.graph_ids
    )
    loss = lambda nodes, weights: jnp.square(
        layer(Graph(nodes, graph.senders, graph.receivers, None, weights, graph.graph_ids)).nodes
    ).sum()
    slopes = jax.grad(loss, argnums=(0, 1))(weighted.nodes, weighted.weights)
    assert np.isfinite(slopes[0]).all()
    assert np.abs(slopes[0]).max() > 0
    np.testing.assert_array_equal(slopes[1], 0)  # the graph is a constant


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    with pytest.raises(ValueError, match="at least 2 knots"):
        SpectralFilter(jnp.ones((2, 3, 1)))
    with pytest.raises(ValueError, match="b must be"):
        SpectralFilter(jnp.ones((2, 3, 4)), jnp.ones(3))
