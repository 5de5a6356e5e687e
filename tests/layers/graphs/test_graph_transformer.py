"""The graph transformer is a transformer layer on each graph of a batch by itself."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import jittered, random_graph

from thetax.data.graphs import (
    Graph,
    append_features,
    batch_graphs,
    laplacian_encoding,
    random_walk_encoding,
)
from thetax.layers import GCN, GraphTransformer


def norm(layer, x):
    z = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + layer.eps)
    gamma, mu = [np.asarray(a) for a in (layer.gamma, layer.mu)]
    return gamma * z + mu


def rows(linear, x):
    return x @ np.asarray(linear.W).T + np.asarray(linear.b)


def by_loop(layer, x, local=0.0):
    """Attention with two heads of two features, and a feed-forward layer with a ReLU."""
    z = norm(layer.norm_attention, x)
    attention = layer.attention
    q, k, v = (rows(m, z).reshape(len(x), 2, 2) for m in (attention.Q, attention.K, attention.V))
    result = np.zeros_like(v)
    for head in range(2):
        for i in range(len(x)):
            e = np.exp(k[:, head] @ q[i, head] / np.sqrt(2))
            result[i, head] = e / e.sum() @ v[:, head]
    h = x + rows(attention.O, result.reshape(len(x), 4)) + local
    ffn = layer.feed_forward
    return h + rows(ffn.down, np.maximum(rows(ffn.up, norm(layer.norm_feed_forward, h)), 0))


def make(local=None, **options):
    return GraphTransformer.init(
        4, n_heads=2, hidden=3, local=local, activation=relu, key=jr.key(0), **options
    )


def relu(z):
    return jnp.maximum(z, 0)


@pytest.mark.usefixtures("x64", "strict")
def test_each_graph_of_a_batch_by_itself():
    graphs = [random_graph(seed, n_nodes=3 + seed, d=4) for seed in range(2)]
    layer = jittered(make())
    batch = batch_graphs(graphs, n_nodes=9, n_edges=20)
    found = np.asarray(layer(batch).nodes)
    expected = [by_loop(layer, np.asarray(graph.nodes)) for graph in graphs]
    assert np.allclose(found[:3], expected[0], atol=1e-13)
    assert np.allclose(found[3:7], expected[1], atol=1e-13)
    assert np.allclose(layer(graphs[0]).nodes, expected[0], atol=1e-13)


@pytest.mark.usefixtures("x64", "strict")
def test_with_a_local_layer():
    graph = random_graph(0, d=4)
    layer = jittered(make(GCN.init(4, 4, key=jr.key(1))))
    x = np.asarray(graph.nodes)
    normed = graph.with_nodes(jnp.asarray(norm(layer.norm_attention, x)))
    local = np.asarray(layer.local(normed).nodes)
    assert np.allclose(layer(graph).nodes, by_loop(layer, x, local), atol=1e-13)


def test_attention_alone_does_not_see_the_edges():
    x = np.asarray(random_graph(0, n_nodes=4, d=4).nodes)
    layer = make()
    chain, star = [(0, 1), (1, 2), (2, 3)], [(0, 1), (0, 2), (0, 3)]
    found = [layer(Graph.from_edges(pairs, x)).nodes for pairs in (chain, star)]
    assert found[0].tolist() == found[1].tolist()
    for encoding in (laplacian_encoding, random_walk_encoding):
        graphs = [Graph.from_edges(pairs, x[:, :2]) for pairs in (chain, star)]
        graphs = [append_features(graph, encoding(graph, 2)) for graph in graphs]
        found = [np.asarray(layer(graph).nodes) for graph in graphs]
        assert np.abs(found[0][:, :2] - found[1][:, :2]).max() > 1e-3


def test_dropout():
    graph = random_graph(0, d=4)
    layer = make(dropout=0.5)
    assert layer(graph).nodes.tolist() == make()(graph).nodes.tolist()
    draws = [layer(graph, key=jr.key(seed)).nodes.tolist() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="expected 4 features for each node"):
        make()(random_graph(0, d=3))
