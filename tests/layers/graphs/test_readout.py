"""Readouts against loops over the graphs of a padded batch."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import dense, jittered, random_graph

from thetax.core import predict
from thetax.data.graphs import batch_graphs, pad_graph, stack_graphs
from thetax.layers import AttentionReadout, Readout, gather_graphs, pool_nodes

POOL = {"sum": np.sum, "mean": np.mean, "max": np.max}
GRAPHS = [random_graph(seed, n_nodes=3 + seed) for seed in range(3)]


@pytest.mark.parametrize("pooling", list(POOL))
def test_readout_is_a_loop(pooling):
    expected = np.array([POOL[pooling](np.asarray(graph.nodes), axis=0) for graph in GRAPHS])
    layer = Readout(pooling)
    batch = batch_graphs(GRAPHS, n_nodes=16, n_edges=40)
    assert np.allclose(layer(batch), expected, atol=1e-6)
    assert np.allclose(layer(GRAPHS[1]), expected[1], atol=1e-6)
    stacked = predict(layer, stack_graphs(GRAPHS))
    assert np.allclose(stacked, expected, atol=1e-6)
    assert layer(pad_graph(GRAPHS[1], n_nodes=9, n_edges=20)).tolist() == layer(GRAPHS[1]).tolist()
    both = Readout((pooling, "sum"))(batch)
    assert np.allclose(both[:, :3], expected, atol=1e-6)
    assert both.shape == (3, 6)


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("m", [None, 4])
def test_attention_readout_is_a_loop(m):
    graphs = [random_graph(seed, n_nodes=3 + seed) for seed in range(3)]
    layer = jittered(AttentionReadout.init(3, m, key=jr.key(0)))
    expected = []
    for graph in graphs:
        x = np.asarray(graph.nodes)
        e = np.exp(dense(layer.score, x)[:, 0])
        expected += [e / e.sum() @ (x if m is None else dense(layer.value, x))]
    batch = batch_graphs(graphs, n_nodes=16, n_edges=40)
    assert np.allclose(layer(batch), np.array(expected), atol=1e-13)
    assert np.allclose(layer(graphs[2]), expected[2], atol=1e-13)
    q = layer.attention(batch)
    assert np.allclose(pool_nodes(batch, q), 1, atol=1e-14)
    assert np.all(np.asarray(q)[12:] == 0)


def test_gradients_at_padding_are_zero_and_finite():
    batch = batch_graphs(GRAPHS, n_nodes=16, n_edges=40)
    layers = (Readout(("sum", "mean", "max")), AttentionReadout.init(3, key=jr.key(0)))
    for layer, padding in itertools.product(layers, (1e30, -1e30)):
        huge = batch.with_nodes(jnp.where(batch.node_mask[:, None], batch.nodes, padding))
        slope = jax.grad(lambda x, layer=layer: layer(batch.with_nodes(x)).sum())(huge.nodes)
        assert np.isfinite(np.asarray(slope)).all()
        assert np.all(np.asarray(slope)[12:] == 0)


def test_half_precision_and_graphs_without_nodes():
    graph = batch_graphs(GRAPHS)
    graph = graph.with_nodes(graph.nodes.astype("bfloat16"))
    assert Readout("mean")(graph).dtype == jnp.bfloat16
    nobody = type(graph)(
        graph.nodes, graph.senders, graph.receivers, None, None, 2 * graph.graph_ids, 5
    )
    for pooling in POOL:
        assert np.all(np.asarray(Readout(pooling)(nobody), float)[[1, 3]] == 0)


def test_values_of_graphs_at_their_nodes():
    batch = batch_graphs(GRAPHS, n_nodes=14, n_edges=40)
    values = gather_graphs(batch, jnp.arange(3.0))
    assert values.tolist() == [0] * 3 + [1] * 4 + [2] * 7


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"did you mean mean\? the pooling is one of sum, mean"):
        Readout("meen")
    with pytest.raises(ValueError, match=r"got \(\)"):
        Readout(())
    with pytest.raises(ValueError, match="expected 4 features for each node"):
        AttentionReadout.init(4, key=jr.key(0))(GRAPHS[0])
