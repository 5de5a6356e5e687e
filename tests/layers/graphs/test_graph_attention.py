"""GAT and GATv2 equal loops over edges, with and without self-loops, edge features and weights."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import edges_to, jittered, random_graph

from thetax.data.graphs import Graph
from thetax.layers import GAT, GATv2, gather_receivers

layers = pytest.mark.parametrize("kind", [GAT, GATv2])


def leaky(z):
    return np.where(z > 0, z, 0.2 * z)


def score(layer, head, x_i, x_j, e):
    if isinstance(layer, GAT):
        V = np.asarray(layer.V[head])
        s = (
            np.asarray(layer.u_receiver[head]) @ V @ x_i
            + np.asarray(layer.u_sender[head]) @ V @ x_j
        )
        return leaky(s if layer.u_edge is None else s + np.asarray(layer.u_edge[head]) @ e)
    W = layer.V if layer.W is None else layer.W
    z = np.asarray(W[head]) @ x_i + np.asarray(layer.V[head]) @ x_j
    z = z if layer.c is None else z + np.asarray(layer.c[head])
    z = z if layer.E is None else z + np.asarray(layer.E[head]) @ e
    return np.asarray(layer.u[head]) @ leaky(z)


def by_loop(layer, graph):
    """The output, and the attention weights on edges and self-loops."""
    x, edges = np.asarray(graph.nodes), np.asarray(graph.edges)
    w = np.ones(graph.n_edges) if graph.weights is None else np.asarray(graph.weights)
    h = len(layer.V)
    q = np.zeros((graph.n_edges, h))
    loops = np.zeros((graph.n_nodes, h))
    outputs = np.zeros((graph.n_nodes, h, layer.V.shape[1]))
    for head in range(h):
        for i in range(graph.n_nodes):
            incoming = edges_to(graph, i)
            e = {k: w[k] * np.exp(score(layer, head, x[i], x[j], edges[k])) for k, j in incoming}
            own = 0.0
            if layer.self_loops:
                count = sum(w[k] for k, _ in incoming)
                mean = sum(w[k] * edges[k] for k, _ in incoming) / count if count else np.zeros(2)
                own = np.exp(score(layer, head, x[i], x[i], mean))
            total = sum(e.values()) + own
            V = np.asarray(layer.V[head])
            for k, j in incoming:
                q[k, head] = e[k] / total
                outputs[i, head] += q[k, head] * (V @ x[j])
            if layer.self_loops:
                loops[i, head] = own / total
                outputs[i, head] += loops[i, head] * (V @ x[i])
    merged = outputs.reshape(len(x), -1) if layer.heads == "concat" else outputs.mean(axis=1)
    return merged + np.asarray(layer.b), q, loops


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("x64", "strict")
@layers
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize(
    ("n_heads", "heads", "edge_features", "weighted"),
    [(1, "concat", 0, False), (2, "concat", 2, True), (3, "mean", 2, False)],
)
def test_attention_is_a_loop(kind, self_loops, n_heads, heads, edge_features, weighted):
    graph = random_graph(0, weighted=weighted)
    layer = jittered(
        kind.init(
            3,
            4,
            n_heads=n_heads,
            heads=heads,
            edge_features=edge_features,
            self_loops=self_loops,
            key=jr.key(0),
        )
    )
    expected, q, loops = by_loop(layer, graph)
    assert np.allclose(layer(graph).nodes, expected, atol=1e-13)
    found = layer.attention(graph)
    assert np.allclose(found.edges, q, atol=1e-14)
    assert found.loops is None if not self_loops else np.allclose(found.loops, loops, atol=1e-14)


@pytest.mark.usefixtures("x64", "strict")
def test_shared_matrices_of_gatv2():
    graph = random_graph(0)
    layer = jittered(GATv2.init(3, 4, n_heads=2, shared=True, edge_features=2, key=jr.key(0)))
    assert layer.W is None
    assert np.allclose(layer(graph).nodes, by_loop(layer, graph)[0], atol=1e-13)


@pytest.mark.usefixtures("x64", "strict")
def test_zero_scores_give_the_mean():
    graph = random_graph(0)
    layer = GAT.init(3, 2, self_loops=False, key=jr.key(0))
    zero = jnp.zeros((1, 2))
    flat = GAT(layer.V, zero, zero, self_loops=False)
    x = np.asarray(graph.nodes) @ np.asarray(layer.V[0]).T
    for i in range(graph.n_nodes):
        senders = [j for _, j in edges_to(graph, i)]
        mean = x[senders].mean(axis=0) if senders else np.zeros(2)
        assert np.allclose(flat(graph).nodes[i], mean, atol=1e-14)


@pytest.mark.usefixtures("x64", "strict")
def test_gat_ranks_senders_alike_for_all_receivers_and_gatv2_need_not():
    """Brody et al. 2022, on the complete bipartite graph of four receivers and four senders."""
    pairs = [(4 + j, i) for i in range(4) for j in range(4)]
    graph = Graph.from_edges(pairs, np.eye(8), undirected=False)
    rank = lambda layer: (
        np.asarray(layer.attention(graph).edges)[:16, 0].reshape(4, 4).argmax(axis=1)
    )
    options = {"self_loops": False, "bias": False}
    tops = [rank(GAT.init(8, 6, key=jr.key(s), **options)) for s in range(20)]
    assert all(len(set(top)) == 1 for top in tops)
    tops = [rank(GATv2.init(8, 6, key=jr.key(s), **options)) for s in range(20)]
    assert any(len(set(top)) > 1 for top in tops)


@layers
def test_attention_dropout(kind):
    graph = random_graph(0)
    layer = kind.init(3, 4, n_heads=2, dropout=0.5, key=jr.key(0))
    still = layer(graph).nodes
    drawn = layer(graph, key=jr.key(1)).nodes
    assert still.tolist() == kind.init(3, 4, n_heads=2, key=jr.key(0))(graph).nodes.tolist()
    assert drawn.tolist() == layer(graph, key=jr.key(1)).nodes.tolist()
    assert not np.allclose(still, drawn)
    many = np.mean([layer(graph, key=jr.key(s)).nodes for s in range(300)], axis=0)
    assert np.abs(many - still).max() < 0.35


@pytest.mark.usefixtures("strict")
@layers
def test_large_scores_do_not_overflow(kind):
    graph = random_graph(0)
    layer = jittered(kind.init(3, 4, key=jr.key(0)))
    large = graph.with_nodes(1e4 * graph.nodes.astype("float32"))
    q = layer.attention(large)
    assert float(q.loops[-1, 0]) == 1
    assert bool(jnp.isfinite(layer(large).nodes).all())
    assert float(gather_receivers(large, q.loops).max()) <= 1


@pytest.mark.usefixtures("unchecked")
@layers
def test_bad_input_is_refused(kind):
    with pytest.raises(ValueError, match="5 features out cannot be divided among n_heads=2"):
        kind.init(3, 5, n_heads=2, key=jr.key(0))
    with pytest.raises(ValueError, match=r"combined, .*got 8"):
        kind.init(3, 8, heads=8, key=jr.key(0))
    with pytest.raises(ValueError, match=r"in \[0, 1\); got 1.0"):
        kind.init(3, 4, dropout=1.0, key=jr.key(0))
    layer = kind.init(3, 4, edge_features=2, key=jr.key(0))
    with pytest.raises(
        ValueError, match="expected 2 features for each edge, but the graph has none"
    ):
        layer(Graph.from_edges([(0, 1)], np.ones((2, 3))))
