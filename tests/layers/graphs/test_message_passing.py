"""Message passing equals a loop over edges for every input of the message and every aggregation."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import collect, dense, jittered, random_graph

from thetax.data.graphs import Graph
from thetax.layers import Chain, Dropout, Linear, MessagePassing, gather_senders


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("how", ["sum", "mean", "max", ("mean", "std", "min")])
@pytest.mark.parametrize("edge_features", [0, 2])
def test_message_passing_is_a_loop(how, edge_features):
    graph = random_graph(0)
    layer = jittered(
        MessagePassing.init(
            3, 2, hidden=4, edge_features=edge_features, aggregation=how, key=jr.key(0)
        )
    )
    x = np.asarray(graph.nodes)
    edges = np.asarray(graph.edges)[:, :edge_features]
    message = lambda i, j, k: dense(layer.message, np.concatenate([x[i], x[j], edges[k]]))
    names = (how,) if isinstance(how, str) else how
    collected = np.concatenate([collect(graph, message, one, 4) for one in names], axis=1)
    expected = dense(layer.update, np.concatenate([x, collected], axis=1))
    assert np.allclose(layer(graph).nodes, expected, atol=1e-13)


@pytest.mark.usefixtures("x64", "strict")
def test_functions_and_the_order_of_inputs():
    """A function of the concatenation [x_i, x_j, x_ij], whatever order `inputs` lists."""
    graph = random_graph(1)
    x, edges = np.asarray(graph.nodes), np.asarray(graph.edges)
    layer = MessagePassing(
        lambda z: z[:3] * z[3:6] + z[6],
        lambda z: z[:3] - z[3:],
        inputs=("edge", "sender", "receiver"),
    )
    expected = x - collect(graph, lambda i, j, k: x[i] * x[j] + edges[k, 0], "sum", 3)
    assert np.allclose(layer(graph).nodes, expected, atol=1e-14)
    plain = MessagePassing()(graph).nodes
    assert np.allclose(plain, collect(graph, lambda i, j, k: x[j], "sum", 3), atol=1e-14)


@pytest.mark.usefixtures("x64", "strict")
def test_weights_multiply_messages():
    graph = random_graph(2, weighted=True)
    x, w = np.asarray(graph.nodes), np.asarray(graph.weights)
    expected = collect(graph, lambda i, j, k: w[k] * np.tanh(x[j]), "sum", 3)
    assert np.allclose(MessagePassing(jnp.tanh)(graph).nodes, expected, atol=1e-14)


def test_random_nets_draw_for_every_edge():
    graph = random_graph(0)
    graph = graph.with_nodes(jnp.ones((6, 8)))
    layer = MessagePassing(Dropout(0.5))
    assert layer(graph).nodes.tolist() == MessagePassing()(graph).nodes.tolist()
    chained = MessagePassing(Chain(Dropout(0.5), jnp.abs))
    for random in (layer, chained):
        messages = random.messages(graph, key=jr.key(0))
        assert sorted(set(np.asarray(messages).ravel())) == [0, 2]
        assert len({tuple(row) for row in np.asarray(messages)}) > 4
        same = random.messages(graph, key=jr.key(0))
        assert messages.tolist() == same.tolist()


def test_graph_without_edges():
    layer = MessagePassing.init(3, 2, edge_features=2, key=jr.key(0))
    plain = MessagePassing.init(3, 2, key=jr.key(0))
    graph = Graph.from_nodes(np.ones((4, 3)))
    assert plain(graph).nodes.shape == (4, 2)
    assert np.ptp(np.asarray(plain(graph).nodes), axis=0).tolist() == [0, 0]
    with pytest.raises(
        ValueError, match="expected 1 features for each edge, but the graph has none"
    ):
        layer(graph)


def test_memory_grows_with_edges_and_not_with_pairs_of_nodes():
    """A layer on 20,000 nodes and 40,000 edges: no array has more than edges times features."""
    n = 20_000
    pairs = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)
    graph = Graph.from_edges(pairs, np.ones((n, 4), np.float32))
    layer = MessagePassing.init(4, 4, key=jr.key(0))
    largest = 0

    def visit(jaxpr):
        nonlocal largest
        for equation in jaxpr.eqns:
            largest = max([largest, *[v.aval.size for v in equation.outvars]])
            for value in equation.params.values():
                inner = getattr(value, "jaxpr", None)
                if inner is not None:
                    visit(inner if hasattr(inner, "eqns") else inner.jaxpr)

    visit(jax.make_jaxpr(lambda layer: layer(graph).nodes)(layer).jaxpr)
    assert largest == graph.n_edges * 8


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"MessagePassing: did you mean sum\? .*one of sum, mean"):
        MessagePassing(aggregation="summ")
    with pytest.raises(
        ValueError, match=r"did you mean sender or edge\? inputs lists .*got \('senders',\)"
    ):
        MessagePassing(inputs="senders")
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), random_graph(0))
    with pytest.raises(ValueError, match="expected one graph, got stacked graphs"):
        MessagePassing()(stacked)
    with pytest.raises(ValueError, match="one example"):
        MessagePassing(Linear(jnp.ones((2, 5))))(random_graph(0))
    assert gather_senders(random_graph(0), jnp.arange(6.0)).shape == (9,)
