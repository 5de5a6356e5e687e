"""Products with the Laplacian and polynomial filters: dense matrices, loops, padding, gradients."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.data import Graph, batch_graphs, laplacian, pad_graph, permute_nodes
from thetax.layers import PolynomialFilter, laplacian_propagate

KINDS = ("combinatorial", "normalised", "random walk")


def irregular(d: int = 3, seed: int = 0, *, weighted: bool = False) -> Graph:
    """A graph with an isolated node, a self-loop and a doubled edge."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (4, 5), (5, 5), (0, 1)]
    weights = rng.uniform(0.5, 2, 8).astype(np.float32) if weighted else None
    return Graph.from_edges(pairs, rng.normal(size=(7, d)).astype(np.float32), weights=weights)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_product_is_that_with_the_matrix(kind, weighted, self_loops):
    graph = irregular(weighted=weighted)
    L = laplacian(graph, kind, self_loops=self_loops)
    product = laplacian_propagate(graph, graph.nodes, kind, self_loops=self_loops)
    np.testing.assert_allclose(product, L @ graph.nodes, atol=1e-5)
    vector = laplacian_propagate(graph, graph.nodes[:, 0], kind, self_loops=self_loops)
    np.testing.assert_allclose(vector, L @ graph.nodes[:, 0], atol=1e-5)


def by_loops(layer: PolynomialFilter, graph: Graph) -> np.ndarray:
    r"""$\xi_m = \sum_n \sum_k \alpha_{mnk} L^k x_n + b_m$, channel by channel."""
    L = np.asarray(laplacian(graph, layer.kind), np.float64)
    alpha, X = np.asarray(layer.alpha, np.float64), np.asarray(graph.nodes, np.float64)
    Y = np.zeros((len(X), len(alpha)))
    for m in range(alpha.shape[0]):
        for n in range(alpha.shape[1]):
            for k in range(alpha.shape[2]):
                Y[:, m] += alpha[m, n, k] * np.linalg.matrix_power(L, k) @ X[:, n]
    return Y if layer.b is None else Y + np.asarray(layer.b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])  # Horner's scheme, and powers
def test_the_layer_is_a_triple_loop(sizes, kind):
    d, m = sizes
    layer = PolynomialFilter(jr.normal(jr.key(0), (m, d, 4)), jr.normal(jr.key(1), (m,)), kind)
    graph = irregular(d)
    np.testing.assert_allclose(layer(graph).nodes, by_loops(layer, graph), rtol=2e-4, atol=2e-4)
    bare = PolynomialFilter(layer.alpha, None, kind)
    np.testing.assert_allclose(bare(graph).nodes, by_loops(bare, graph), rtol=2e-4, atol=2e-4)


def test_the_order_is_the_radius():
    path = Graph.from_edges([(i, i + 1) for i in range(6)], np.eye(7, dtype=np.float32))
    layer = PolynomialFilter.init(7, 7, order=2, key=jr.key(0))
    slope = jax.jacobian(lambda x: layer(path.with_nodes(x)).nodes)(path.nodes)
    sees = np.abs(slope).max(axis=(1, 3)) > 0
    hops = np.abs(np.subtract.outer(np.arange(7), np.arange(7)))
    np.testing.assert_array_equal(sees, hops <= 2)


def test_permutations_batches_and_padding():
    graph, other = irregular(), irregular(seed=1)
    layer = PolynomialFilter.init(3, 2, order=3, key=jr.key(0))
    alone = layer(graph).nodes
    order = np.random.default_rng(0).permutation(7)
    np.testing.assert_allclose(layer(permute_nodes(graph, order)).nodes, alone[order], atol=1e-5)
    np.testing.assert_allclose(layer(batch_graphs([other, graph])).nodes[7:], alone, atol=1e-5)
    padded = pad_graph(graph, n_nodes=9, n_edges=40)
    np.testing.assert_allclose(layer(padded).nodes[:7], alone, atol=1e-5)
    empty = Graph.from_nodes(np.ones((3, 3), np.float32))
    np.testing.assert_allclose(layer(empty).nodes, empty.nodes @ layer.alpha[:, :, 0].T, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    with pytest.raises(ValueError, match="order must be an integer >= 1"):
        PolynomialFilter.init(3, 2, order=0, key=jr.key(0))
    with pytest.raises(ValueError, match=r"alpha must be \(m, d, K \+ 1\)"):
        PolynomialFilter(jnp.ones((2, 3, 4)), jnp.ones(3))


@pytest.mark.usefixtures("unchecked")
def test_unknown_kind():
    with pytest.raises(ValueError, match="did you mean normalised"):
        PolynomialFilter(jnp.ones((2, 3, 4)), None, "normalized")
    with pytest.raises(ValueError, match="kind is one of"):
        laplacian_propagate(irregular(), jnp.ones(7), "gcn")
