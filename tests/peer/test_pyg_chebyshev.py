"""The same numbers and gradients as PyTorch Geometric's ChebConv, on copied weights."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.data import Graph, batch_graphs
from thetax.layers import ChebyshevFilter

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")
pytestmark = pytest.mark.peer

NORMALISATION = {"normalised": "sym", "combinatorial": None}


def random_graph(seed: int, d: int) -> Graph:
    """A graph with isolated nodes, self-loops and doubled edges."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 12))
    pairs = rng.integers(0, n, (2 * n, 2))
    pairs = np.concatenate([pairs, pairs[:2], [[0, 0]]])
    nodes = rng.normal(size=(n + 2, d)).astype(np.float32)
    return Graph.from_edges(pairs, nodes, weights=rng.uniform(0.5, 2, len(pairs)).astype("f4"))


def peer_of(layer: ChebyshevFilter):
    m, d, terms = layer.alpha.shape
    peer = geometric.nn.ChebConv(d, m, terms, normalization=NORMALISATION[layer.kind])
    with torch.no_grad():
        for k, linear in enumerate(peer.lins):
            linear.weight.copy_(torch.tensor(np.asarray(layer.alpha[:, :, k])))
        peer.bias.copy_(torch.tensor(np.asarray(layer.b)))
    return peer


def tensors(graph: Graph):
    edge_index = torch.tensor(np.stack([graph.senders, graph.receivers]).astype(np.int64))
    return edge_index, torch.tensor(np.asarray(graph.weights))


@pytest.mark.parametrize("kind", NORMALISATION)
@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])
@pytest.mark.parametrize("lambda_max", [None, 3.0])
def test_values_and_gradients(kind, sizes, lambda_max):
    d, m = sizes
    for seed in range(20):
        graph = random_graph(seed, d)
        order = 1 + seed % 4
        layer = ChebyshevFilter.init(
            d, m, order=order, kind=kind, lambda_max=lambda_max, key=jr.key(seed)
        )
        layer = ChebyshevFilter(layer.alpha, jr.normal(jr.key(1), (m,)), kind, lambda_max)
        c = np.random.default_rng(seed).normal(size=(graph.n_nodes, m)).astype(np.float32)
        loss = lambda layer, x, graph=graph, c=c: (layer(graph.with_nodes(x)).nodes * c).sum()
        by_layer, by_nodes = jax.grad(loss, argnums=(0, 1))(layer, graph.nodes)

        peer = peer_of(layer)
        x = torch.tensor(np.asarray(graph.nodes), requires_grad=True)
        edge_index, weights = tensors(graph)
        options = {} if lambda_max is None else {"lambda_max": torch.tensor(lambda_max)}
        y = peer(x, edge_index, weights, **options)
        (y * torch.tensor(c)).sum().backward()
        same = lambda ours, theirs: np.testing.assert_allclose(
            ours, theirs.detach().numpy(), rtol=1e-5, atol=2e-5 * max(1, float(abs(ours).max()))
        )
        same(layer(graph).nodes, y)
        same(by_nodes, x.grad)
        same(by_layer.b, peer.bias.grad)
        for k, linear in enumerate(peer.lins):
            same(by_layer.alpha[:, :, k], linear.weight.grad)


def test_a_batch_with_a_bound_for_each_graph():
    """PyTorch Geometric takes one lambda_max a graph; ours is the bound of each graph."""
    graphs = [random_graph(seed, 3) for seed in range(4)]
    batch = batch_graphs(graphs)
    layer = ChebyshevFilter.init(3, 2, order=3, kind="combinatorial", key=jr.key(0))
    bounds = []
    for graph in graphs:
        A = graph.adjacency()
        bounds.append(2 * float((A.sum(axis=1) - jnp.diagonal(A)).max()))
    edge_index, weights = tensors(batch)
    y = peer_of(layer)(
        torch.tensor(np.asarray(batch.nodes)),
        edge_index,
        weights,
        batch=torch.tensor(np.asarray(batch.graph_ids).astype(np.int64)),
        lambda_max=torch.tensor(bounds),
    )
    np.testing.assert_allclose(layer(batch).nodes, y.detach().numpy(), rtol=1e-4, atol=1e-4)
