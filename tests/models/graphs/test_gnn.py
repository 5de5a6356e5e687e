"""GNNs: shapes, the composition of layers, training on nodes and on graphs, errors."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from graphs_by_loop import dense, random_graph

from thetax.core import predict
from thetax.data.graphs import Graph, batch_graphs, pad_graph, stack_graphs
from thetax.layers import GAT, GCN, gcn_propagate
from thetax.models import GNN, GRAPH_LAYERS, GRAPH_NORMS, MLP
from thetax.train import (
    Silent,
    cross_entropy,
    descend,
    error_rate,
    fit,
    token_cross_entropy,
    token_error_rate,
)

KEY = jr.key(0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layer", list(GRAPH_LAYERS))
def test_shapes_of_nodes_graphs_and_batches(layer):
    graphs = [random_graph(seed, n_nodes=4 + seed) for seed in range(2)]
    nodes = GNN.init(3, 4, 2, layer=layer, key=KEY)
    assert nodes(graphs[0]).shape == (4, 2)
    whole = GNN.init(3, 4, 2, layer=layer, readout="mean", key=KEY)
    assert whole(graphs[0]).shape == (2,)
    alone = np.stack([whole(graph) for graph in graphs])
    assert np.allclose(whole(batch_graphs(graphs, n_nodes=12, n_edges=30)), alone, atol=1e-5)
    assert np.allclose(predict(whole, stack_graphs(graphs)), alone, atol=1e-5)
    padded = pad_graph(graphs[0], n_nodes=7, n_edges=20)
    assert np.allclose(nodes(padded)[:4], nodes(graphs[0]), atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_two_layers_are_those_of_kipf_and_welling():
    graph = random_graph(0, undirected=True)
    net = GNN.init(3, 4, 2, dropout=0.5, key=KEY)
    first, second = (block.layers[1] for block in net.body.layers)
    A = np.asarray(gcn_propagate(graph, jnp.eye(6)))
    hidden = np.maximum(A @ dense(first.linear, graph.nodes), 0)
    assert np.allclose(net(graph), A @ dense(second.linear, hidden), atol=1e-13)
    assert not np.allclose(net(graph), net(graph, key=KEY))


def test_options():
    graph = random_graph(0)
    net = GNN.init(
        3,
        8,
        2,
        depth=3,
        layer=partial(GAT.init, n_heads=4),
        last_layer="gcn",
        edge_features=0,
        dropout=(0.0, 0.5, 0.2),
        drop_edge=0.2,
        norm="graph",
        residual=True,
        jumping="concat",
        readout=("mean", "max"),
        head=(5,),
        key=KEY,
    )
    assert net(graph).shape == net(graph, key=KEY).shape == (2,)
    assert net.embed(graph).shape == (6, 24)
    assert isinstance(net.head, MLP)
    assert net.head.body.layers[0].W.shape == (5, 48)
    for norm in GRAPH_NORMS:
        assert GNN.init(3, 4, 2, norm=norm, key=KEY)(graph).shape == (6, 2)
    assert GNN.init(3, 4, 2, readout="attention", jumping="max", key=KEY)(graph).shape == (2,)
    for layer in ("gin", "gat", "gatv2", "message_passing"):
        net = GNN.init(3, 4, 2, layer=layer, edge_features=2, head=(), key=KEY)
        assert net(graph).shape == (6, 2)
        with pytest.raises(ValueError, match="features for each edge, but the graph has none"):
            net(Graph.from_edges([(0, 1)], np.ones((2, 3))))


def blocks(seed, n=30, p=0.5, q=0.03):
    """Two communities, each more connected within; the features say nothing."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], n // 2)
    near = labels[:, None] == labels[None]
    A = np.triu(rng.uniform(size=(n, n)) < np.where(near, p, q), 1)
    return Graph.from_adjacency((A + A.T).astype(float), np.eye(n)), labels


@pytest.mark.slow
def test_learns_nodes_with_few_labels():
    """`token_cross_entropy` serves stacked graphs: labels -1 do not count."""
    graph, labels = blocks(0)
    known = np.full(30, -1)
    known[[0, 1, 2, 15, 16, 17]] = labels[[0, 1, 2, 15, 16, 17]]
    xs = stack_graphs([graph])
    data = xs, jnp.asarray(known)[None]
    result = fit(
        descend(token_cross_entropy, optax.adam(0.02)),
        GNN.init(30, 16, 2, dropout=0.2, key=KEY),
        data,
        epochs=150,
        key=jr.key(1),
        progress=Silent(),
    )
    assert token_error_rate(result.model, (xs, jnp.asarray(labels)[None])) <= 0.1
    assert result.history["train loss"][-1] < 0.2


@pytest.mark.slow
def test_learns_graphs():
    """Cycles against cliques."""
    make = lambda n, pairs: Graph.from_edges(pairs, np.ones((n, 1)))
    cycles = [make(n, [(i, (i + 1) % n) for i in range(n)]) for n in range(4, 10)]
    cliques = [make(n, [(i, j) for i in range(n) for j in range(i)]) for n in range(4, 10)]
    data = stack_graphs(cycles + cliques), jnp.repeat(jnp.arange(2), 6)
    result = fit(
        descend(cross_entropy, optax.adam(0.02)),
        GNN.init(1, 8, 2, layer="gin", readout="mean", key=KEY),
        data,
        epochs=100,
        key=jr.key(1),
        progress=Silent(),
    )
    assert error_rate(result.model, data) == 0


def test_another_model_of_the_same_structure_is_not_traced_again():
    traces = []

    @jax.jit
    def f(model, graph):
        traces.append(None)
        return model(graph)

    for seed in range(2):
        net = GNN.init(3, 4, 2, depth=3, norm="layer", residual=True, key=jr.key(seed))
        f(net, random_graph(0))
    assert len(traces) == 1


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    init = partial(GNN.init, 3, 4, 2, key=KEY)
    with pytest.raises(ValueError, match=r"did you mean gcn\?.*layer is one of gcn, .*got 'gcm'"):
        init(layer="gcm")
    with pytest.raises(ValueError, match=r"norm is one of graph, pair, layer, .*got 'batch'"):
        init(norm="batch")
    with pytest.raises(ValueError, match=r"the layer 'gcn' takes no edge features. Use one of gin"):
        init(edge_features=2)
    with pytest.raises(ValueError, match="got 1 for depth=3"):
        init(depth=3, dropout=(0.5,))
    with pytest.raises(ValueError, match="depth must be an integer >= 1; got 0"):
        init(depth=0)
    with pytest.raises(ValueError, match="pooling is one of sum, mean, max"):
        init(readout="median")
    with pytest.raises(ValueError, match="combine one of concat, max, last"):
        init(jumping="lstm")
    with pytest.raises(ValueError, match="activation must be a function"):
        init(activation="relu")
    with pytest.raises(ValueError, match="expected 3 features for each node"):
        init()(random_graph(0, d=2))
    assert GCN.init(3, 4, key=KEY)(random_graph(0)).nodes.shape == (6, 4)
